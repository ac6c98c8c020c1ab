"""PyTorch's meta kernels in Python and its optimizers, without its compiler.

Many functions are marked as not to be compiled, and the first call of each imports the compiler to
tell it so; an optimizer's step imports it to end a graph there. That takes more than a second,
before the first operation on the device and before the first step of a training. Until somebody
else imports the compiler, there is nobody to tell.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.optim

_COMPILER = "torch._dynamo"
_MODULES = ("torch._refs", "torch._decomp", "torch.optim")
# Where torch._disable_dynamo keeps the function that it calls.
_CALLED = "__dynamo_disable"
_OPTIMIZER = sys.modules["torch.optim.optimizer"]


def install() -> None:
    """Once, before the first call of any."""
    if _COMPILER not in sys.modules:
        sys.meta_path.insert(0, _UntilTheCompilerComes())


class _UntilTheCompilerComes:
    """Among the finders of modules: it hears of each import, and finds none."""

    def __init__(self) -> None:
        functions = list(_functions())
        mark = _code_of_decorated(torch._disable_dynamo)  # type: ignore[attr-defined]
        marked = {_decorated(f) for f in functions if f.__code__ is mark}
        self._called = [f for f in marked if not hasattr(f, _CALLED)]
        for function in self._called:
            setattr(function, _CALLED, function)
        self._step = _code_of_decorated(vars(_OPTIMIZER)["_use_grad_for_differentiable"])
        plain_step = _code_of_decorated(_with_gradients_where_asked)
        fits = plain_step.co_freevars == self._step.co_freevars
        self._steps = {f for f in functions if fits and f.__code__ is self._step}
        for step in self._steps:
            step.__code__ = plain_step

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == _COMPILER and self in sys.meta_path:
            sys.meta_path.remove(self)
            for function in self._called:
                delattr(function, _CALLED)
            for step in self._steps:
                step.__code__ = self._step


def _with_gradients_where_asked(func: Callable[..., Any]) -> Callable[..., Any]:
    """What PyTorch decorates an optimizer's step with, but for the ends of graphs. Its code takes
    the place of that one, with the same variables."""

    def step(*args: Any, **kwargs: Any) -> Any:
        before = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(args[0].defaults["differentiable"])
            return func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(before)

    return step


def _code_of_decorated(decorator: Callable[..., Any]) -> CodeType:
    return decorator(lambda: None).__code__  # type: ignore[no-any-return]


def _functions() -> Iterator[FunctionType]:
    """Those of the modules and of their classes, and what they decorate."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_MODULES)]
    values = [value for module in modules for value in vars(module).values()]
    classes = {value for value in values if inspect.isclass(value)}
    values += [value for found in classes for value in vars(found).values()]
    for value in values:
        while inspect.isfunction(value):
            yield value
            value = _decorated(value)


def _decorated(function: Any) -> Any:
    """What a decorator's result calls: `fn` in PyTorch's (`__wrapped__` may say something else)."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return next((cell.cell_contents for name, cell in cells if name == "fn"), None)
