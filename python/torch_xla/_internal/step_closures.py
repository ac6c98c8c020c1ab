"""Functions that run when the step they were added in has been launched.

Each thread has its own list: a closure runs at the next sync of the thread that added it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class _Pending(threading.local):
    def __init__(self) -> None:
        self.now: list[Callable[[], Any]] = []
        self.later: list[Callable[[], Any]] = []


_pending = _Pending()
_lock = threading.Lock()
_worker: ThreadPoolExecutor | None = None
_running: list[Future[Any]] = []


def add(closure: Callable[[], Any], run_async: bool) -> None:
    (_pending.later if run_async else _pending.now).append(closure)


def run() -> None:
    """Runs this thread's closures; raises what an earlier asynchronous one raised."""
    if _running:
        _raise_failures()
    if not (_pending.now or _pending.later):
        return
    now, _pending.now = _pending.now, []
    later, _pending.later = _pending.later, []
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
