"""Linear algebra, distances, histograms and segments in terms of other operators, for programs that
can call no kernel of PyTorch's. Loops over columns are unrolled: large matrices are refused."""

from typing import Any

import torch
from torch import Tensor

from torch_xla._internal.composed import refuse_if, replaces

aten: Any = torch.ops.aten
linalg: Any = torch.linalg
_torch: Any = torch
MOST_COLUMNS = 32

# ---- distances and products ----------------------------------------------------------------------


def _norm(difference: Tensor, p: float) -> Tensor:
    if difference.shape[-1] == 0:
        return difference.new_zeros(difference.shape[:-1])
    distances: Tensor = linalg.vector_norm(difference, p, dim=-1)
    return distances


@replaces(aten._cdist_forward.default)
def _cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@replaces(aten._pdist_forward.default)
def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return _norm(x[first] - x[second], p)


@replaces(aten._trilinear.default)
def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:
    factors = []
    for factor, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for place in places:
            factor = factor.unsqueeze(place)
        factors.append(factor)
    product = factors[0] * factors[1] * factors[2]
    return product.sum(sumdim) if sumdim else product


# ---- running extremes and sums -------------------------------------------------------------------


def _shifted(x: Tensor, dim: int, by: int, fill: float | int | bool) -> Tensor:
    """Each element is that `by` places before it."""
    kept = x.narrow(dim, 0, x.shape[dim] - by)
    return torch.cat([torch.full_like(x.narrow(dim, 0, by), fill), kept], dim)


def _running_extreme(x: Tensor, dim: int, largest: bool) -> Any:
    if x.dim() == 0 or x.numel() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    places = torch.arange(x.shape[dim], device=x.device).view(shape).expand(x.shape)
    values, by = x, 1
    while by < x.shape[dim]:
        before, place = _shifted(values, dim, by, 0), _shifted(places, dim, by, -1)
        better = before > values if largest else before < values
        if x.is_floating_point():  # what is no number wins, and the last of those
            better = (better | before.isnan()) & ~values.isnan()
        better = better & (place >= 0)
        values, places = torch.where(better, before, values), torch.where(better, place, places)
        by *= 2
    return values, places


@replaces(aten.cummax.default)
def _cummax(x: Tensor, dim: int) -> Any:
    return _running_extreme(x, dim, largest=True)


@replaces(aten.cummin.default)
def _cummin(x: Tensor, dim: int) -> Any:
    return _running_extreme(x, dim, largest=False)


@replaces(aten._logcumsumexp.default, aten.logcumsumexp.default)
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    if x.dim() == 0 or x.numel() == 0:
        return x.clone()
    by = 1
    while by < x.shape[dim]:
        x = torch.logaddexp(x, _shifted(x, dim, by, float("-inf")))
        by *= 2
    return x


# ---- histograms, segments, places ----------------------------------------------------------------


def _counted(bins: Tensor, valid: Tensor, weight: Tensor | None, count: int, x: Tensor) -> Tensor:
    hits = (bins.unsqueeze(-1) == torch.arange(count, device=x.device)) & valid.unsqueeze(-1)
    amounts = hits.to(x.dtype)
    return (amounts if weight is None else amounts * weight.reshape(-1, 1)).sum(0)


@replaces(aten.histc.default)
def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    x = x.reshape(-1)
    if x.numel() == 0:
        return x.new_zeros(bins)
    low, high = x.new_full((), min), x.new_full((), max)
    if min == max:
        low, high = x.amin(), x.amax()
    one = low == high
    low, high = torch.where(one, low - 1, low), torch.where(one, high + 1, high)
    places = ((x - low) / (high - low) * bins).floor().clamp(0, bins - 1).long()
    return _counted(places, (x >= low) & (x <= high), None, bins, x)


def _edges(flat: Tensor, bins: int, range: Any) -> Tensor:
    if range is None and flat.numel() > 0:
        low, high = flat.amin(), flat.amax()
    else:
        low, high = (flat.new_full((), value) for value in (range or (0.0, 1.0)))
    one = low == high
    low, high = torch.where(one, low - 0.5, low), torch.where(one, high + 0.5, high)
    steps = torch.arange(bins + 1, device=flat.device, dtype=flat.dtype)
    # From both ends, as PyTorch makes them.
    rising, falling = low + (high - low) / bins * steps, high - (high - low) / bins * (bins - steps)
    return torch.where(steps < (bins + 1) // 2, rising, falling)


def _in_bins(x: Tensor, edges: list[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """How many rows of x lie in each box between the edges of its columns."""
    place, valid, volume = x.new_zeros((), dtype=torch.int64), None, x.new_ones(())
    for column, edge in zip(x.unbind(-1), edges, strict=True):
        inside = (column >= edge[0]) & (column <= edge[-1])
        valid = inside if valid is None else valid & inside
        place = place * (edge.shape[0] - 1) + (column.unsqueeze(-1) >= edge[1:-1]).sum(-1)
        volume = volume.unsqueeze(-1) * (edge[1:] - edge[:-1])
    assert valid is not None
    counts = _counted(place, valid, weight, volume.numel(), x).view(volume.shape)
    return counts / counts.sum() / volume if density else counts


@replaces(aten.histogram.bin_ct)
def _histogram(
    x: Tensor,
    bins: int = 100,
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    edges = _edges(x.reshape(-1), bins, range)
    return _in_bins(x.reshape(-1, 1), [edges], weight, density), edges


@replaces(aten.histogram.bins_tensor)
def _histogram_of_edges(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> Any:
    return _in_bins(x.reshape(-1, 1), [bins], weight, density), bins.clone()


@replaces(aten._histogramdd_bin_edges.default)
def _edges_of_columns(
    x: Tensor,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    columns = x.reshape(-1, x.shape[-1]).unbind(-1)
    ranges = [range[2 * i : 2 * i + 2] if range else None for i, _ in enumerate(columns)]
    return [_edges(*each) for each in zip(columns, bins, ranges, strict=True)]


@replaces(aten._histogramdd_from_bin_tensors.default)
def _histogramdd_of_edges(
    x: Tensor, bins: list[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Any:
    return _in_bins(x.reshape(-1, x.shape[-1]), bins, weight, density)


@replaces(aten._histogramdd_from_bin_cts.default)
def _histogramdd(
    x: Tensor,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return _histogramdd_of_edges(
        x, _edges_of_columns(x, bins, range=range), weight=weight, density=density
    )


@replaces(aten.segment_reduce.default)
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    if offsets is not None:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    elif lengths is not None:
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    else:
        refuse_if(True)
    places = torch.arange(data.shape[axis], device=data.device)
    inside = (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    inside = inside.reshape(*inside.shape, *[1] * (data.dim() - axis - 1))
    empty = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
    values = torch.where(inside, data.unsqueeze(axis), empty[reduce])
    along = axis + 1
    if reduce == "prod":
        result = values.prod(along) * (1.0 if initial is None else initial)
    elif reduce in ("max", "min"):
        start = values.new_full((1,), empty[reduce] if initial is None else initial)
        shape = list(values.shape)
        shape[along] = 1
        values = torch.cat([values, start.expand(shape)], along)
        result = values.amax(along) if reduce == "max" else values.amin(along)
    else:
        result = values.sum(along) + (0.0 if initial is None else initial)
    if reduce == "mean":
        count = (ends - starts).reshape(*starts.shape, *[1] * (data.dim() - axis - 1))
        without = torch.where(count == 0, float("nan") if initial is None else initial, result)
        result = torch.where(count == 0, without, result / count.clamp(min=1))
    return result


@replaces(aten.nonzero_static.default)
def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Any:
    if x.dim() == 0 or x.numel() == 0:
        return x.new_full((size, x.dim()), fill_value, dtype=torch.int64)
    found = x.reshape(-1) != 0
    rank = found.long().cumsum(0) - 1
    target = torch.where(found & (rank < size), rank, size)
    numbers = torch.arange(x.numel(), device=x.device)
    flat = numbers.new_zeros(size + 1).scatter(0, target, numbers)[:size]
    columns = []
    for length in reversed(x.shape):
        columns.append(flat % length)
        flat = flat // length
    there = torch.arange(size, device=x.device).unsqueeze(-1) < found.sum()
    return torch.where(there, torch.stack(columns[::-1], -1), fill_value)


# ---- linear algebra ------------------------------------------------------------------------------


def _rows(matrix: Tensor) -> Tensor:
    return torch.arange(matrix.shape[-2], device=matrix.device)


def _permuted(matrix: Tensor, order: Tensor) -> Tensor:
    return matrix.gather(-2, order.unsqueeze(-1).expand(*order.shape, matrix.shape[-1]))


def _factored(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LU in one matrix, pivots as LAPACK counts them, and the first column without a pivot."""
    count = min(a.shape[-2:])
    refuse_if(count > MOST_COLUMNS)
    rows, columns = _rows(a), torch.arange(a.shape[-1], device=a.device)
    info = a.new_zeros(a.shape[:-2], dtype=torch.int32)
    pivots = []
    for i in range(count):
        pivot = a[..., i:, i].abs().argmax(-1, keepdim=True) + i
        pivots.append(pivot + 1)
        order = torch.where(rows == i, pivot, torch.where(rows == pivot, i, rows))
        a = _permuted(a, order.expand(*a.shape[:-2], -1))
        diagonal = a[..., i : i + 1, i : i + 1]
        singular = diagonal == 0
        info = torch.where((info == 0) & singular[..., 0, 0], i + 1, info).to(torch.int32)
        scaled = a[..., :, i : i + 1] / torch.where(singular, 1, diagonal)
        factors = torch.where((rows > i).unsqueeze(-1), scaled, 0)
        a = torch.where(
            (rows > i).unsqueeze(-1) & (columns == i),
            factors,
            a - factors * torch.where(columns > i, a[..., i : i + 1, :], 0),
        )
    empty = a.new_zeros((*a.shape[:-2], 0), dtype=torch.int64)
    return a, torch.cat(pivots, -1).int() if pivots else empty.int(), info


def _order_of(pivots: Tensor, rows: int) -> Tensor:
    """Which row of a matrix each row of its factors is."""
    places = torch.arange(rows, device=pivots.device)
    order = places.expand(*pivots.shape[:-1], rows)
    for i in range(pivots.shape[-1]):
        other = pivots[..., i : i + 1].long() - 1
        swap = torch.where(places == i, other, torch.where(places == other, i, places))
        order = order.gather(-1, swap)
    return order


@replaces(aten.linalg_lu_factor_ex.default)
def _lu_factor(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    refuse_if(not pivot)
    return _factored(a)


@replaces(aten.lu_unpack.default)
def _lu_unpack(
    lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    rows, count = lu.shape[-2], min(lu.shape[-2:])
    refuse_if(pivots.shape[-1] > MOST_COLUMNS)
    none = lu.new_zeros(0)
    p, lower, upper = none, none, none
    if unpack_pivots:
        order = _order_of(pivots, rows)
        p = (_rows(lu).unsqueeze(-1) == order.unsqueeze(-2)).to(lu.dtype)
    if unpack_data:
        lower = lu[..., :count].tril(-1) + torch.eye(rows, count, dtype=lu.dtype, device=lu.device)
        upper = lu[..., :count, :].triu()
    return p, lower, upper


@replaces(aten.linalg_lu.default)
def _lu(a: Tensor, *, pivot: bool = True) -> Any:
    lu, pivots, _ = _lu_factor(a, pivot=pivot)
    return _lu_unpack(lu, pivots)


def _solved(lu: Tensor, pivots: Tensor, b: Tensor, adjoint: bool) -> Any:
    order = _order_of(pivots, lu.shape[-2])
    batch = _torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    order, b = order.expand(*batch, -1), b.expand(*batch, *b.shape[-2:])
    lu = lu.expand(*batch, *lu.shape[-2:])
    solve = linalg.solve_triangular
    if adjoint:
        x = solve(lu.mT.conj(), b, upper=False)
        x = solve(lu.mT.conj(), x, upper=True, unitriangular=True)
        return _permuted(x, order.argsort(-1))
    x = solve(lu, _permuted(b, order), upper=False, unitriangular=True)
    return solve(lu, x, upper=True)


@replaces(aten.linalg_lu_solve.default)
def _lu_solve(
    lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Any:
    refuse_if(pivots.shape[-1] > MOST_COLUMNS or (not left and b.is_complex()))
    return _solved(lu, pivots, b, adjoint) if left else _solved(lu, pivots, b.mT, not adjoint).mT


@replaces(aten.lu_solve.default)
def _lu_solve_old(b: Tensor, lu: Tensor, pivots: Tensor) -> Any:
    return _lu_solve(lu, pivots, b)


@replaces(aten._linalg_solve_ex.default)
def _solve(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, info = _factored(a)
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if vector else b
    x = _lu_solve(lu, pivots, right, left=left)
    return x.squeeze(-1) if vector else x, lu, pivots, info


@replaces(aten.linalg_inv_ex.default)
def _inverse(a: Tensor, *, check_errors: bool = False) -> Any:
    lu, pivots, info = _factored(a)
    unit = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(a.shape)
    return _solved(lu, pivots, unit, False), info


def _exchanges(pivots: Tensor, like: Tensor) -> Tensor:
    """1 or -1: whether the rows were exchanged an even or an odd number of times."""
    odd = (pivots != torch.arange(1, pivots.shape[-1] + 1, device=pivots.device)).sum(-1) % 2
    return (1 - 2 * odd).to(like.dtype)


@replaces(aten._linalg_det.default)
def _determinant(a: Tensor) -> Any:
    lu, pivots, _ = _factored(a)
    return lu.diagonal(dim1=-2, dim2=-1).prod(-1) * _exchanges(pivots, lu), lu, pivots


@replaces(aten._linalg_slogdet.default)
def _log_determinant(a: Tensor) -> Any:
    lu, pivots, _ = _factored(a)
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sgn().prod(-1) * _exchanges(pivots, lu)
    return sign, diagonal.abs().log().sum(-1), lu, pivots


def _reflected(x: Tensor, v: Tensor, tau: Tensor, conjugate: bool) -> Tensor:
    """x - tau v (v^H x)."""
    tau = tau.conj() if conjugate else tau
    return x - tau[..., None, None] * v * (v.conj() * x).sum(-2, keepdim=True)


def _reflector(a: Tensor, i: int) -> Tensor:
    rows = _rows(a)
    v = torch.where(rows > i, a[..., :, i], torch.where(rows == i, torch.ones_like(a[..., i]), 0))
    return v.unsqueeze(-1)


@replaces(aten.geqrf.default)
def _geqrf(a: Tensor) -> Any:
    count = min(a.shape[-2:])
    refuse_if(count > MOST_COLUMNS or a.is_complex())
    rows, columns = _rows(a), torch.arange(a.shape[-1], device=a.device)
    taus = []
    for i in range(count):
        alpha, below = a[..., i, i], torch.where(rows > i, a[..., :, i], 0)
        rest = below.square().sum(-1)
        flat = rest == 0
        beta = -torch.copysign((alpha.square() + rest).sqrt(), alpha)
        beta = torch.where(flat, alpha, beta)
        tau = torch.where(flat, 0, (beta - alpha) / torch.where(beta == 0, 1, beta))
        scale = torch.where(flat, 1, alpha - beta)
        stored = torch.where(rows > i, below / scale.unsqueeze(-1), 0).unsqueeze(-1)
        v = stored + (rows == i).unsqueeze(-1).to(a.dtype)
        reflected = torch.where(columns > i, _reflected(a, v, tau, True), a)
        corner = (rows == i).unsqueeze(-1) & (columns == i)
        a = torch.where(corner, beta[..., None, None], reflected)
        a = torch.where((rows > i).unsqueeze(-1) & (columns == i), stored, a)
        taus.append(tau.unsqueeze(-1))
    return a, torch.cat(taus, -1) if taus else a.new_zeros((*a.shape[:-2], 0))


def _times_reflections(a: Tensor, tau: Tensor, x: Tensor, backwards: bool) -> Tensor:
    """Q x, or Q^H x."""
    order = range(tau.shape[-1])
    for i in order if backwards else reversed(order):
        x = _reflected(x, _reflector(a, i), tau[..., i], backwards)
    return x


@replaces(aten.linalg_householder_product.default)
def _householder_product(a: Tensor, tau: Tensor) -> Any:
    refuse_if(tau.shape[-1] > MOST_COLUMNS)
    unit = torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device).expand(a.shape)
    return _times_reflections(a, tau, unit, False)


@replaces(aten.ormqr.default)
def _ormqr(
    a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Any:
    refuse_if(tau.shape[-1] > MOST_COLUMNS or a.is_complex())
    if left:
        return _times_reflections(a, tau, other, transpose)
    return _times_reflections(a, tau, other.mT, not transpose).mT


@replaces(aten.linalg_qr.default)
def qr(a: Tensor, mode: str = "reduced") -> Any:
    packed, tau = _geqrf(a)
    rows, columns = a.shape[-2:]
    width = rows if mode == "complete" else min(rows, columns)
    r = packed[..., :width, :].triu()
    if mode == "r":
        return a.new_zeros(0), r
    unit = torch.eye(rows, width, dtype=a.dtype, device=a.device).expand(*a.shape[:-1], width)
    return _times_reflections(packed, tau, unit, False), r


@replaces(aten.linalg_cholesky_ex.default)
def _cholesky(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    size = a.shape[-1]
    refuse_if(size > MOST_COLUMNS or a.is_complex())
    a = a.mT if upper else a
    rows, columns = _rows(a), torch.arange(size, device=a.device)
    info = a.new_zeros(a.shape[:-2], dtype=torch.int32)
    for i in range(size):
        pivot = a[..., i, i]
        info = torch.where((info == 0) & ~(pivot > 0), i + 1, info).to(torch.int32)
        column = torch.where(rows >= i, a[..., :, i], 0) / pivot.sqrt().unsqueeze(-1)
        later = (rows > i).unsqueeze(-1) & (columns > i)
        rest = a - column.unsqueeze(-1) * column.unsqueeze(-2)
        a = torch.where(columns == i, column.unsqueeze(-1), torch.where(later, rest, a))
    lower = a.tril()
    return lower.mT if upper else lower, info


@replaces(aten.cholesky.default)
def _cholesky_old(a: Tensor, upper: bool = False) -> Any:
    return _cholesky(a, upper=upper)[0]


@replaces(aten.linalg_pinv.atol_rtol_tensor)
def _pseudo_inverse(
    a: Tensor,
    *,
    atol: Tensor | None = None,
    rtol: Tensor | None = None,
    hermitian: bool = False,
) -> Any:
    if a.numel() == 0:
        return a.new_zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]))
    if hermitian:
        values, u = linalg.eigh(a)
        sizes, vh = values.abs(), u.mH
    else:
        u, values, vh = linalg.svd(a, full_matrices=False)
        sizes = values
    largest = sizes.amax(-1, keepdim=True)
    if rtol is None:
        exact = max(a.shape[-2:]) * torch.finfo(a.dtype).eps
        rtol = torch.full_like(largest[..., 0], exact)
        if atol is not None:
            rtol = torch.where(atol > 0, 0, rtol)
    cutoff = rtol.unsqueeze(-1) * largest
    if atol is not None:
        cutoff = torch.maximum(atol.unsqueeze(-1), cutoff)
    inverse = torch.where(sizes > cutoff, 1 / values, 0)
    return vh.mH @ (inverse.unsqueeze(-1) * u.mH)


@replaces(aten.cholesky_inverse.default)
def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    unit = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    half = linalg.solve_triangular(factor, unit.expand(factor.shape), upper=upper)
    return half @ half.mH if upper else half.mH @ half


@replaces(aten.cholesky_solve.default, aten._cholesky_solve_helper.default)
def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Any:
    solve = linalg.solve_triangular
    if upper:
        return solve(factor, solve(factor.mH, b, upper=False), upper=True)
    return solve(factor.mH, solve(factor, b, upper=False), upper=True)
