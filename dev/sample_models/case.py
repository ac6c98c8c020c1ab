"""What is common to the models of every library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Scale:
    """How large models and what they are given are made."""

    batch: int
    image: int  # pixels of a side
    tokens: int
    positions: int  # tokens a model has places for
    vocabulary: int
    queries: int  # of a detector
    width: int
    inner: int  # of a feed-forward layer
    head: int
    heads: int
    samples: int  # of a recording
    parameters: int  # more than a model of this scale may have

    @property
    def words(self) -> int:
        """The vocabulary but for the tokens with a meaning of their own, which stand at its end."""
        return self.vocabulary - 28


TINY = Scale(
    batch=2, image=64, tokens=16, positions=64, vocabulary=128, queries=10, width=32, inner=64,
    head=8, heads=4, samples=4000, parameters=12_000_000,
)  # fmt: skip
# What people train, but for the number of layers.
USUAL = Scale(
    batch=4, image=224, tokens=128, positions=512, vocabulary=8192, queries=50, width=512,
    inner=1536, head=64, heads=8, samples=16_000, parameters=400_000_000,
)  # fmt: skip


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
