"""What loss scaling does, for programs that can call no kernel of PyTorch's."""

from typing import Any

import torch
from torch import Tensor

from torch_xla._internal.composed import replaces

aten: Any = torch.ops.aten


@replaces(aten._amp_foreach_non_finite_check_and_unscale.default)
def unscale(gradients: list[Tensor], found: Tensor, inverse: Tensor) -> tuple[list[Tensor], Tensor]:
    finite = torch.stack([torch.isfinite(gradient).all() for gradient in gradients]).all()
    unscaled = [(x.to(inverse.dtype) * inverse).to(x.dtype) for x in gradients]
    return unscaled, torch.where(finite, found, 1.0)


@replaces(aten._amp_update_scale.default)
def update_scale(
    scale: Tensor, steps: Tensor, found: Tensor, growth: float, backoff: float, interval: int
) -> tuple[Tensor, Tensor]:
    following = steps + 1
    grows = following == interval
    grown = scale * growth
    grown = torch.where(grows & torch.isfinite(grown), grown, scale)
    infinite = found != 0
    return (
        torch.where(infinite, scale * backoff, grown),
        torch.where(grows | infinite, torch.zeros_like(steps), following),
    )
