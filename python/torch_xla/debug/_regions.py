"""Regions that users name (profiler.Trace), recorded while a profile is taken."""

import threading
import time
from typing import Any

_lock = threading.Lock()
_recorded: list[tuple[str, str, int, int, dict[str, Any]]] | None = None


def begin() -> int:
    """When a region begins; 0 while nobody records."""
    return time.monotonic_ns() if _recorded is not None else 0


def end(name: str, start: int, arguments: dict[str, Any]) -> None:
    """Notes a region that began at `start`."""
    if start == 0:
        return
    with _lock:
        if _recorded is not None:
            thread = threading.current_thread().name
            _recorded.append((thread, name, start, time.monotonic_ns(), arguments))


def start_recording() -> None:
    global _recorded
    with _lock:
        _recorded = []


def stop_recording() -> list[tuple[str, str, int, int, dict[str, Any]]]:
    """(thread, name, start, end, arguments) of each region that ended."""
    global _recorded
    with _lock:
        regions, _recorded = _recorded or [], None
    return regions
