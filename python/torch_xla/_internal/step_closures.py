"""Functions that run when the step they were added in has been launched.

Each thread has its own list: a closure runs at the next sync of the thread that added it. Those of
autograd's threads, which never sync, run at the next sync of any.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class _Pending:
    def __init__(self) -> None:
        self.now: list[Callable[[], Any]] = []
        self.later: list[Callable[[], Any]] = []

    def take(self) -> tuple[list[Callable[[], Any]], list[Callable[[], Any]]]:
        taken = self.now, self.later
        self.now, self.later = [], []
        return taken


class _OfThread(threading.local, _Pending):
    pass


_pending = _OfThread()
_of_autograd = _Pending()
_lock = threading.Lock()
_worker: ThreadPoolExecutor | None = None
_running: list[Future[Any]] = []


def add(closure: Callable[[], Any], run_async: bool) -> None:
    # A thread that Python has not made is one of autograd's.
    foreign = isinstance(threading.current_thread(), threading._DummyThread)
    pending = _of_autograd if foreign else _pending
    (pending.later if run_async else pending.now).append(closure)


def run() -> None:
    """Runs this thread's closures; raises what an earlier asynchronous one raised."""
    if _running:
        _raise_failures()
    now, later = _pending.take()
    if _of_autograd.now or _of_autograd.later:
        with _lock:
            others = _of_autograd.take()
        now, later = now + others[0], later + others[1]
    for closure in now:
        closure()
    for closure in later:
        _submit(closure)


def _submit(closure: Callable[[], Any]) -> None:
    """One worker thread, so that asynchronous closures keep their order."""
    global _worker
    with _lock:
        if _worker is None:
            _worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch_xla-closures")
        _running.append(_worker.submit(closure))


def _raise_failures() -> None:
    with _lock:
        done = [future for future in _running if future.done()]
        _running[:] = [future for future in _running if not future.done()]
    for future in done:
        future.result()
