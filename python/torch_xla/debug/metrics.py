"""Counters and timings of what the core did. docs/metrics.md explains their names."""

from collections.abc import Sequence

from torch_xla import _XLAC

# Counters of operators that ran outside a compiled program begin so.
_FALLBACK_PREFIX = "aten::"


def counter_names() -> list[str]:
    """The counters that have counted since the last clear."""
    return _XLAC.counter_names()


def counter_value(name: str) -> int | None:
    """The value of a counter; None if it has not counted."""
    return _XLAC.counter_value(name)


def metric_names() -> list[str]:
    return _XLAC.metric_names()


def metric_data(
    name: str,
) -> tuple[int, float, list[tuple[float, float]]] | None:
    """Number of samples, their sum, and the latest ones as (time, value); None if none came."""
    return _XLAC.metric_data(name)


def clear_counters() -> None:
    _XLAC.clear_counters()


def clear_metrics() -> None:
    _XLAC.clear_metrics()


def clear_all() -> None:
    clear_metrics()
    clear_counters()


def executed_fallback_ops() -> list[str]:
    """Operators that ran as PyTorch CPU kernels."""
    return [name for name in counter_names() if name.startswith(_FALLBACK_PREFIX)]


def metrics_report() -> str:
    """All metrics and counters as text."""
    return _XLAC.metrics_report()


def short_metrics_report(
    counter_names: Sequence[str] | None = None, metric_names: Sequence[str] | None = None
) -> str:
    """The most telling counters and metrics as text, or those named."""
    return _XLAC.short_metrics_report(list(counter_names or ()), list(metric_names or ()))
