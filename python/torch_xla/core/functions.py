"""Differentiable collectives."""

from collections.abc import Sequence

import torch

from torch_xla.core import _collectives


def all_reduce(
    reduce_type: str,
    value: torch.Tensor,
    scale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
) -> torch.Tensor:
    """Reduces over all members, times `scale`; the gradient is reduced likewise."""
    return _collectives.all_reduce(reduce_type, value, scale, groups)


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """The members' values along `dim`; each gets the gradient of its part."""
    return _collectives.all_gather(value, dim)
