"""What is common to the models of every library that dev/models runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

BATCH, IMAGE = 2, 64


@dataclass
class Case:
    model: nn.Module
    inputs: Callable[[torch.Generator], dict[str, Any]]  # each call another batch, same shapes


Inputs = Callable[[torch.Generator], dict[str, Any]]


def leaves(value: Any) -> list[torch.Tensor]:
    """The floating-point tensors in what a model returns."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return (
        [leaf for item in value for leaf in leaves(item)] if isinstance(value, list | tuple) else []
    )


def loss_of(outputs: list[torch.Tensor], device: str) -> torch.Tensor:
    """What can be trained for, whatever a model returns."""
    squares = (out.float().square().mean() for out in outputs if out.requires_grad)
    return sum(squares, torch.zeros((), device=device))
