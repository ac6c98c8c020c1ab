"""Differentiable collectives, and modules made of them."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_xla import runtime
from torch_xla.core import _collectives
from torch_xla.core._collectives import REDUCE_MAX, REDUCE_MIN, REDUCE_MUL, REDUCE_SUM


class AllReduce(torch.autograd.Function):
    """`AllReduce.apply(value, reduce_type, scale, groups)`.

    Each member has the gradient of its own loss, of which its own value is a part.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        reduce_type: str,
        scale: float = 1.0,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> torch.Tensor:
        output = _collectives.all_reduce(reduce_type, input, scale, groups)
        ctx.reduce_type, ctx.scale = reduce_type, scale
        ctx.save_for_backward(*((input, output) if reduce_type != REDUCE_SUM else ()))
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        gradient = gradients[0] * ctx.scale
        if ctx.reduce_type == REDUCE_SUM:
            return gradient, None, None, None
        value, output = ctx.saved_tensors
        reduced = output / ctx.scale
        if ctx.reduce_type == REDUCE_MUL:
            others = torch.where(value != 0, reduced / value, torch.zeros_like(value))
            return gradient * others, None, None, None
        if ctx.reduce_type in (REDUCE_MIN, REDUCE_MAX):
            chosen = torch.where(value == reduced, gradient, torch.zeros_like(gradient))
            return chosen, None, None, None
        raise RuntimeError(f"a reduction by '{ctx.reduce_type}' has no gradient: detach its input")


def all_reduce(
    reduce_type: str,
    value: torch.Tensor,
    scale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
) -> torch.Tensor:
    """`xm.all_reduce` of a tensor, with a gradient."""
    result: torch.Tensor = AllReduce.apply(value, reduce_type, scale, groups)  # type: ignore
    return result


class AllGather(torch.autograd.Function):
    """`AllGather.apply(value, dim)`. Each member has the gradient of its own part."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.dim, ctx.size = dim, input.size(dim)
        gathered: torch.Tensor = _collectives.all_gather(input, dim)
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        first = runtime.global_ordinal() * ctx.size
        return gradients[0].narrow(ctx.dim, first, ctx.size), None


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """`xm.all_gather` of a tensor, with a gradient."""
    result: torch.Tensor = AllGather.apply(value, dim)  # type: ignore[no-untyped-call]
    return result


class AllReduceSumLayer(torch.autograd.Function):
    """The sum over all members. Its gradient is summed up, too: that of the sum of all losses."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return _collectives.all_reduce(REDUCE_SUM, x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _collectives.all_reduce(REDUCE_SUM, gradients[0])


def distributed_mm(w: torch.Tensor, x: torch.Tensor, split: int = 1) -> torch.Tensor:
    """The product of a matrix that lies in columns on the members and this member's `x`.

    `w`: this member's columns, N x K. `x`: (K * members) x M. `split`: into how many pieces `x` is
    cut, to gather less at a time.
    """
    members, ordinal = runtime.world_size(), runtime.global_ordinal()
    if x.size(0) != members * w.size(1) or x.size(1) % split != 0:
        raise ValueError(
            f"distributed_mm: {members} members with weights of shape {tuple(w.shape)} need x with "
            f"{members * w.size(1)} rows and columns divisible by {split}, got {tuple(x.shape)}"
        )
    results = []
    for piece in x.chunk(split, dim=1):
        rows = all_gather(piece, dim=1).narrow(0, ordinal * w.size(1), w.size(1))
        product = all_reduce(REDUCE_SUM, w @ rows)
        results.append(product.narrow(1, ordinal * piece.size(1), piece.size(1)))
    return torch.cat(results, dim=1)


class SyncBatchNorm(torch.nn.Module):
    """Batch normalisation whose statistics are those of all members' batches."""

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if not 2 <= batch.dim() <= 5 or batch.size(1) != self.num_features:
            raise ValueError(
                f"SyncBatchNorm({self.num_features}) takes (batch, {self.num_features}, ...) of 2 "
                f"to 5 dimensions, got {tuple(batch.shape)}"
            )
        mean, var = self._statistics(batch) if self.training else (None, None)
        mean = self.running_mean if mean is None else mean
        var = self.running_var if var is None else var
        shape = (1, -1) + (1,) * (batch.dim() - 2)
        scale = self.weight * torch.rsqrt(var + self.eps)
        return batch * scale.view(shape) + (self.bias - mean * scale).view(shape)

    def _statistics(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dims = [dim for dim in range(batch.dim()) if dim != 1]
        moments = torch.stack([batch.mean(dims), (batch * batch).mean(dims)])
        summed: Any = AllReduceSumLayer.apply(moments)  # type: ignore[no-untyped-call]
        mean, square = summed / runtime.world_size()
        var = square - mean * mean
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        return mean, var

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"
