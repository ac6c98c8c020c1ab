"""Singular values and eigenvalues by rotations of pairs of columns, as one loop: for programs that
can call no kernel of PyTorch's."""

from typing import Any

import torch
from torch import Tensor

from torch_xla._internal import control_flow
from torch_xla._internal.composed import refuse_if, replaces
from torch_xla._internal.dense_decompositions import MOST_COLUMNS, qr

_SWEEPS = 12


def _orthogonal_columns(a: Tensor) -> tuple[Tensor, Tensor]:
    """W and an orthogonal V with a V = W, whose columns are orthogonal."""
    rows, columns = a.shape[-2:]
    width = columns + columns % 2  # an empty column stays as it is
    unit = torch.eye(width, dtype=a.dtype, device=a.device).expand(*a.shape[:-2], width, width)
    both = torch.cat([torch.nn.functional.pad(a, (0, width - columns)), unit], -2)
    half = width // 2

    def rotate(both: Tensor, _: None) -> tuple[Tensor, None]:
        # Column i meets column width - 1 - i; then all but the first move on by one.
        left, right = both[..., :half], both[..., half:].flip(-1)
        p, q = left[..., :rows, :], right[..., :rows, :]
        product = (p * q).sum(-2, keepdim=True)
        there = product != 0
        by = (q * q - p * p).sum(-2, keepdim=True) / torch.where(there, 2 * product, 1)
        tangent = torch.where(by < 0, -1, 1).to(a.dtype) / (by.abs() + (1 + by * by).sqrt())
        tangent = torch.where(there, tangent, 0)
        cosine = (1 + tangent * tangent).rsqrt()
        sine = cosine * tangent
        turned = (cosine * left - sine * right, (sine * left + cosine * right).flip(-1))
        both = torch.cat(turned, -1)
        return torch.cat([both[..., :1], both[..., -1:], both[..., 1:-1]], -1), None

    if half > 0:
        both, _ = control_flow.scan(rotate, both, None, length=_SWEEPS * (width - 1))
    return both[..., :rows, :columns], both[..., rows : rows + columns, :columns]


@replaces(torch.ops.aten._linalg_svd.default)
def svd(
    a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Any:
    """torch._linalg_svd of real matrices."""
    refuse_if(a.is_complex() or min(a.shape[-2:]) > MOST_COLUMNS)
    wide = a.shape[-2] < a.shape[-1]
    tall = a.mT if wide else a
    w, v = _orthogonal_columns(tall)
    values, order = torch.linalg.vector_norm(w, dim=-2).sort(-1, descending=True)
    if not compute_uv:
        return a.new_zeros(0), values, a.new_zeros(0)
    w, v = (x.gather(-1, order.unsqueeze(-2).expand(x.shape)) for x in (w, v))
    # The directions of empty columns are whatever completes the others.
    u, r = qr(w, "complete" if full_matrices else "reduced")
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1, 1).to(a.dtype)
    count = signs.shape[-1]
    u = torch.cat([u[..., :count] * signs.unsqueeze(-2), u[..., count:]], -1)
    return (v, values, u.mT) if wide else (u, values, v.mT)


@replaces(torch.ops.aten._linalg_eigh.default)
def eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> Any:
    """torch._linalg_eigh of real matrices: singular values of what is shifted to be positive."""
    refuse_if(a.is_complex() or a.shape[-1] > MOST_COLUMNS)
    a = a.triu() + a.triu(1).mT if uplo.upper() == "U" else a.tril() + a.tril(-1).mT
    shift = torch.linalg.vector_norm(a, dim=(-2, -1), keepdim=True)
    unit = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    u, values, _ = svd(a + shift * unit)
    values = (values - shift.squeeze(-1)).flip(-1)
    return values, u.flip(-1) if compute_v else a.new_zeros(0)
