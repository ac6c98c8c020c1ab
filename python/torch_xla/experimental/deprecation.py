"""Old names of functions, which warn once and call the new ones."""

import functools
import importlib
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_logger = logging.getLogger(__name__)


def deprecated(
    module: ModuleType,
    new: Callable[_P, _T],
    old_name: str | None = None,
    extra_msg: str | None = None,
) -> Callable[_P, _T]:
    """`new` under the name `module.old_name`: its first call warns and names what to use."""
    name = f"{module.__name__}.{old_name or new.__name__}"
    message = f"{name} is deprecated. Use {new.__module__}.{new.__name__} instead."
    message += f" {extra_msg}" if extra_msg else ""
    warned = False

    @functools.wraps(new)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        nonlocal warned
        if not warned:
            warned = True
            _logger.warning(message)
        return new(*args, **kwargs)

    return call


def mark_deprecated(
    new: Callable[..., Any], extra_msg: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for the old function: it becomes `new` and a warning."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        module = importlib.import_module(function.__module__)
        return deprecated(module, new, function.__name__, extra_msg)

    return decorate


def register_deprecated(module: ModuleType, new: Callable[..., Any]) -> None:
    """Gives `module` the name of `new`, as a deprecated one."""
    setattr(module, new.__name__, deprecated(module, new))
