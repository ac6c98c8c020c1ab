"""Appends metrics reports to a file."""

import itertools
import os
import sys
import threading

from torch_xla import runtime
from torch_xla.debug import metrics

_steps = itertools.count()
_lock = threading.Lock()


def save_metrics(metrics_file: "str | os.PathLike[str] | None" = None) -> None:
    """Appends the report to `metrics_file`, or to the one that XLA_METRICS_FILE names; nothing
    happens if there is neither. "STDERR" and "STDOUT" are what they say."""
    path = _named_file() if metrics_file is None else os.fspath(metrics_file)
    if path is None:
        return
    text = f"[MetricsData; step={next(_steps)}]\n{metrics.metrics_report()}\n"
    if path in ("STDERR", "STDOUT"):
        print(text, file=sys.stderr if path == "STDERR" else sys.stdout)
        return
    with _lock, open(path, "a") as file:
        file.write(text)


def _named_file() -> str | None:
    """Each of several processes has a file of its own."""
    path = os.environ.get("XLA_METRICS_FILE")
    if path is None or runtime.world_size() == 1:
        return path
    return f"{path}.{runtime.local_ordinal()}"
