"""Barriers that XLA moves no computation across. `xla_model` publishes them."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_xla._internal.transfer import is_xla_tensor


def barrier(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors' values behind one barrier: none is there before all are computed."""
    results: list[torch.Tensor] = torch.ops.torch_xla.optimization_barrier(list(tensors))
    return results


def optimization_barrier_(tensors: Sequence[torch.Tensor]) -> None:
    """Puts the tensors behind one barrier, in place: what reads them from now on is computed after
    all of them, and not merged with what read them before."""
    for tensor in tensors:
        if not is_xla_tensor(tensor):
            raise ValueError(f"optimization_barrier_ takes xla tensors, got one on {tensor.device}")
    with torch.no_grad():
        for tensor, value in zip(tensors, barrier([t.detach() for t in tensors]), strict=True):
            tensor.data.copy_(value)  # .data: the same value, so no new version for autograd


class Barrier(torch.autograd.Function):
    """`barrier` whose gradient is the identity."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = tuple(barrier(tensors))
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients
