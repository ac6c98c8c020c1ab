"""Who runs the closures of a step: at once, or a thread of its own in their order."""

import abc
import os
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

Closure = Callable[[], Any]


class ClosureHandler(abc.ABC):
    """Runs closures; subclasses say where."""

    @abc.abstractmethod
    def run(self, closure: Closure) -> None:
        """Runs `closure`, now or later."""

    def run_all(self, closures: Iterable[Closure]) -> None:
        for closure in closures:
            self.run(closure)


class AsyncClosureHandler(ClosureHandler):
    """Runs closures in one thread, in their order.

    `run` waits while `max_queue_size` of them (or XLA_MAX_ASYNC_QUEUE) are still to come, and
    raises what an earlier one raised. The thread ends when there is nothing to do.
    """

    def __init__(self, max_queue_size: int = 100) -> None:
        limit = int(os.environ.get("XLA_MAX_ASYNC_QUEUE", max_queue_size))
        self._queue: queue.Queue[Closure] = queue.Queue(limit)
        self._failed: Exception | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, closure: Closure) -> None:
        with self._lock:
            failed, self._failed = self._failed, None
        if failed is not None:
            raise RuntimeError(
                "an earlier asynchronous closure raised; this one was not run"
            ) from failed
        self._queue.put(closure)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="torch_xla-closures")
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._queue.empty():
                    self._thread = None
                    return
            closure = self._queue.get()
            try:
                closure()
            except Exception as error:
                with self._lock:
                    self._failed = error
            finally:
                self._queue.task_done()
