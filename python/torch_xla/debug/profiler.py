"""Named regions, which `torch.profiler` records. Traces of the device come from torch.profiler."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

import torch_xla
from torch_xla import _XLAC

_P = ParamSpec("_P")
_T = TypeVar("_T")


def start_server(port: int, only_on_master: bool = True) -> object:
    """No server runs in this version; returns an object to keep, as PyTorch/XLA does."""
    warnings.warn(
        f"no profiler server is started on port {port}: profile with torch.profiler, which shows "
        "the regions of Trace and StepTrace",
        stacklevel=2,
    )
    return object()


class Trace:
    """A context manager: names the region inside, in profiles and in the compiled program.

    `with Trace("build_input"): ...`
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.kwargs = kwargs
        self._regions: list[torch.profiler.record_function] = []

    def __enter__(self) -> "Trace":
        arguments = ", ".join(f"{key}={value}" for key, value in self.kwargs.items())
        region = torch.profiler.record_function(self.name, arguments or None)
        self._regions.append(region)
        region.__enter__()  # type: ignore[no-untyped-call]
        _XLAC.begin_region(self.name)
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        _XLAC.end_region()
        self._regions.pop().__exit__(exc_type, exc_value, traceback)


class StepTrace(Trace):
    """A Trace of one step, which ends with it. `with StepTrace("train", step_num=7): ...`"""

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            if exc_type is None:
                torch_xla.sync()
        finally:
            super().__exit__(exc_type, exc_value, traceback)


def trace_me(scope: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A decorator: names each call of the function."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def traced(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with Trace(scope):
                return function(*args, **kwargs)

        return traced

    return decorate
