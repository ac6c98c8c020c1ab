"""PyTorch's meta kernels in Python, without its compiler.

Many are marked as not to be compiled, and the first call of each imports the compiler to tell it
so: more than a second before the first operation on the device. Until somebody else imports it,
there is nobody to tell.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

_COMPILER = "torch._dynamo"
_MODULES = ("torch._refs", "torch._decomp")
# Where torch._disable_dynamo keeps the function that it calls.
_CALLED = "__dynamo_disable"


def install() -> None:
    """Once, before the first call of any."""
    if _COMPILER not in sys.modules:
        sys.meta_path.insert(0, _UntilTheCompilerComes())


class _UntilTheCompilerComes:
    """Among the finders of modules: it hears of each import, and finds none."""

    def __init__(self) -> None:
        self._functions = [f for f in set(_marked_functions()) if not hasattr(f, _CALLED)]
        for function in self._functions:
            setattr(function, _CALLED, function)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == _COMPILER and self in sys.meta_path:
            sys.meta_path.remove(self)
            for function in self._functions:
                delattr(function, _CALLED)


def _marked_functions() -> Iterator[Callable[..., Any]]:
    mark = torch._disable_dynamo(lambda: None).__code__  # type: ignore[attr-defined]
    modules = [module for name, module in sys.modules.items() if name.startswith(_MODULES)]
    for value in [value for module in modules for value in vars(module).values()]:
        while inspect.isfunction(value):
            inner = _decorated(value)
            if value.__code__ is mark:
                yield inner
            value = inner


def _decorated(function: Any) -> Any:
    """What a decorator's result calls: `fn` in PyTorch's (`__wrapped__` may say something else)."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return next((cell.cell_contents for name, cell in cells if name == "fn"), None)
