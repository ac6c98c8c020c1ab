"""Products of rows with the matrix of their group, by ordinary operations. `custom_kernel`
publishes these functions."""

from collections.abc import Sequence
from typing import Any

import torch

_Tiling = Sequence[int] | None


def _groups_of_rows(rows: int, group_sizes: torch.Tensor) -> torch.Tensor:
    """The group of each row; the number of groups for rows behind the last one."""
    ends = group_sizes.cumsum(0)
    return torch.searchsorted(ends, torch.arange(rows, device=ends.device), right=True)


def gmm(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: _Tiling = None,
    group_offset: torch.Tensor | None = None,
    transpose_rhs: bool = False,
) -> torch.Tensor:
    """`lhs[rows of group g] @ rhs[g]` for each group: (rows, k), (groups, k, n) -> (rows, n). The
    rows of a group follow each other, `group_sizes[g]` of them. `group_offset`: the group that
    `rhs[0]` is for; rows of groups without a matrix give zeros. `tiling` has no effect."""
    if lhs.dim() != 2 or rhs.dim() != 3:
        raise ValueError(
            f"gmm takes (rows, k) and (groups, k, n), got {tuple(lhs.shape)}, {tuple(rhs.shape)}"
        )
    matrices = rhs.transpose(1, 2) if transpose_rhs else rhs
    group = _groups_of_rows(lhs.size(0), group_sizes)
    first = 0 if group_offset is None else group_offset.view(-1)[0]
    result = lhs.new_zeros(lhs.size(0), matrices.size(2))
    for number, matrix in enumerate(matrices):
        result = torch.where((group == number + first)[:, None], lhs @ matrix, result)
    return result


def tgmm(
    lhs: torch.Tensor, rhs: torch.Tensor, group_sizes: torch.Tensor, tiling: _Tiling = None
) -> torch.Tensor:
    """`lhs[:, rows of group g] @ rhs[rows of group g]` for each group: (k, rows), (rows, n) ->
    (groups, k, n)."""
    group = _groups_of_rows(rhs.size(0), group_sizes)
    return torch.stack(
        [lhs @ rhs.masked_fill((group != g)[:, None], 0) for g in range(group_sizes.numel())]
    )


def gmm_backward(
    grad: torch.Tensor,
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: _Tiling = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of `gmm`'s lhs and rhs."""
    return gmm(grad, rhs, group_sizes, tiling, None, True), tgmm(lhs.t(), grad, group_sizes, tiling)


class GMM(torch.autograd.Function):
    """`GMM.apply(lhs, rhs, group_sizes)` is `gmm`, keeping only its arguments for the gradient."""

    @staticmethod
    def forward(
        ctx: Any, lhs: torch.Tensor, rhs: torch.Tensor, group_sizes: torch.Tensor, *tiling: Any
    ) -> torch.Tensor:
        ctx.save_for_backward(lhs, rhs, group_sizes)
        ctx.options = len(tiling)
        return gmm(lhs, rhs, group_sizes)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return *gmm_backward(gradients[0], *ctx.saved_tensors), None, *[None] * ctx.options


def repeat_with_fixed_output_size(
    input: torch.Tensor, repeats: torch.Tensor, total_repeat_length: int
) -> torch.Tensor:
    """`torch.repeat_interleave(input, repeats)` of a length that is known beforehand: what is
    missing is filled with the last element, what is too much is left out."""
    if input.dim() != 1 or repeats.dim() != 1:
        raise ValueError(
            "repeat_with_fixed_output_size takes tensors of one dimension, got "
            f"{tuple(input.shape)} and {tuple(repeats.shape)}"
        )
    source = _groups_of_rows(total_repeat_length, repeats)
    return input[source.clamp(max=input.numel() - 1)]
