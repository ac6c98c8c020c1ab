"""The table of operators that are composed of others, for programs that can call no kernel of
PyTorch's. A module adds its own by `replaces`."""

import functools
from collections.abc import Callable
from typing import Any

TABLE: dict[Any, Callable[..., Any]] = {}


class _RefusedError(Exception):
    """The call is none that is composed of others."""


def replaces(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def compose(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except _RefusedError:
                return NotImplemented  # as PyTorch's tables say it

        TABLE.update(dict.fromkeys(operators, compose))
        return function

    return add


def refuse_if(condition: bool) -> None:
    if condition:
        raise _RefusedError
