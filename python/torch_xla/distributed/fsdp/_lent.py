"""Parameters that a module does not hold, for what a backward pass computes again.

Whoever took a parameter puts it back for the time of `forward`. A checkpoint runs parts of that
`forward` later, when nobody has put it back: then the module asks for it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def in_backward() -> bool:
    """Whether this thread is inside a backward pass."""
    return torch._C._current_graph_task_id() != -1


class _Parameters(dict[str, Any]):
    """A module's parameters, and inside backward passes also those that `lenders` make. Whoever
    lists them sees the module's own."""

    def __init__(self, held: dict[str, Any]) -> None:
        super().__init__(held)
        self.lenders: dict[str, Callable[[], torch.Tensor]] = {}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (name in self.lenders and in_backward())

    def __missing__(self, name: str) -> torch.Tensor:
        if name not in self.lenders:
            raise KeyError(name)
        return self.lenders[name]()


def lend(module: nn.Module, name: str, make: Callable[[], torch.Tensor]) -> None:
    """Inside backward passes `module.name` is what `make` returns, unless it is there."""
    if not isinstance(module._parameters, _Parameters):
        module._parameters = _Parameters(module._parameters)
    module._parameters.lenders[name] = make


def put(module: nn.Module, name: str, value: torch.Tensor) -> None:
    """An attribute that is no parameter, though its name is one's."""
    module.__dict__[name] = value


def take(module: nn.Module, name: str) -> None:
    """The other way round."""
    del module.__dict__[name]
