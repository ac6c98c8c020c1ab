"""Operators that pick elements, read bits or resample images, in terms of others: for programs that
can call no kernel of PyTorch's."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_xla import _XLAC
from torch_xla._internal import control_flow
from torch_xla._internal.composed import refuse_if, replaces

aten: Any = torch.ops.aten

# ---- bits ----------------------------------------------------------------------------------------

# The integers of a dtype's size, and how many bits of it are the fraction.
_BITS = {
    torch.float64: (torch.int64, 52),
    torch.float32: (torch.int32, 23),
    torch.float16: (torch.int16, 10),
    torch.bfloat16: (torch.int16, 7),
}


@replaces(aten.frexp.Tensor)
def _frexp(x: Tensor) -> Any:
    integers, fraction = _BITS[x.dtype]
    most = torch.iinfo(integers).max >> fraction  # the exponent's bits
    small = x.abs() < torch.finfo(x.dtype).tiny
    bits = torch.where(small, x * 2.0**fraction, x).view(integers)
    exponent = (torch.bitwise_right_shift(bits, fraction) & most) - (most >> 1) + 1
    exponent = exponent - torch.where(small, fraction, 0)
    mantissa = (bits & ~(most << fraction) | ((most >> 1) - 1) << fraction).view(x.dtype)
    plain = (x == 0) | ~x.isfinite()
    mantissa = torch.where(plain, x, mantissa)
    return mantissa, torch.where(plain, 0, exponent).to(torch.int32)


@replaces(aten.nextafter.default)
def _next_after(x: Tensor, y: Tensor) -> Tensor:
    x, y = torch.broadcast_tensors(x, y)  # type: ignore[no-untyped-call]
    integers, _ = _BITS[x.dtype]
    bits = x.clone().view(integers)
    away = (y > x) == (x > 0)
    least = torch.where(y > 0, 1, torch.iinfo(integers).min + 1).to(integers)
    bits = torch.where(x == 0, least, bits + torch.where(away, 1, -1).to(integers))
    moved = torch.where(x == y, y, bits.to(integers).view(x.dtype))
    return torch.where(x.isnan() | y.isnan(), torch.nan, moved)


@replaces(aten.hash_tensor.default)
def _hash(x: Tensor, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    in_doubles = x.is_floating_point()
    refuse_if(x.is_complex() or mode != 0 or (in_doubles and not _XLAC.has_doubles()))
    wide = x.to(torch.float64).view(torch.int64) if in_doubles else x.to(torch.int64)
    places = torch.arange(64, device=x.device)
    ones = torch.bitwise_right_shift(wide.unsqueeze(-1), places) & 1
    dims = [d % max(1, x.dim()) for d in dim] or list(range(x.dim()))
    odd = ones.sum(dims, keepdim=keepdim) % 2 if x.dim() > 0 else ones
    return torch.bitwise_left_shift(odd, places).sum(-1).view(torch.uint64)


# ---- elements ------------------------------------------------------------------------------------


@replaces(aten.mode.default)
def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    refuse_if(x.shape[dim] == 0)
    values, order = x.sort(stable=True, dim=dim)
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    places = torch.arange(x.shape[dim], device=x.device).view(shape).expand(x.shape)
    before = values.roll(1, dim)
    begins = torch.where((places == 0) | (values != before), places, 0).cummax(dim).values
    end = (places - begins).argmax(dim, keepdim=True)  # of the first of the longest runs
    found, index = values.gather(dim, end), order.gather(dim, end)
    return (found, index) if keepdim else (found.squeeze(dim), index.squeeze(dim))


@replaces(aten.as_strided_scatter.default)
def _as_strided_scatter(
    x: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Tensor:
    refuse_if(not x.is_contiguous() or x.storage_offset() != 0)
    result = x.clone()
    result.as_strided(size, stride, storage_offset or 0).copy_(src)
    return result


@replaces(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    count = indices.shape[0]
    offsets = (offsets[:-1] if include_last_offset else offsets).long()
    bags = offsets.shape[0]
    begins = torch.zeros(count + 1, dtype=torch.int64, device=indices.device)
    bag = begins.index_add(0, offsets, torch.ones_like(offsets))[:count].cumsum(0) - 1
    counts = (indices != padding_idx).unsqueeze(-1)
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    size = torch.zeros(bags, dtype=torch.int64, device=bag.device)
    size = size.index_add(0, bag, counts.squeeze(-1).long())
    empty = weight.new_zeros(bags, weight.shape[1])
    largest = torch.zeros_like(size)
    if mode == 2:
        rows = torch.where(counts, rows, float("-inf"))
        to = bag.unsqueeze(-1).expand(rows.shape)
        result = empty.scatter_reduce(0, to, rows, "amax", include_self=False)
        result = torch.where(size.unsqueeze(-1) == 0, 0, result)
        hit = counts & (rows == result[bag])
        numbers = torch.where(hit, indices.unsqueeze(-1), -1)
        largest = torch.full_like(empty, -1, dtype=torch.int64)
        largest = largest.scatter_reduce(0, to, numbers.long(), "amax")
    else:
        result = empty.index_add(0, bag, torch.where(counts, rows, 0))
        if mode == 1:
            result = result / size.clamp(min=1).unsqueeze(-1)
    return result, bag, size, largest


# ---- images --------------------------------------------------------------------------------------


def _picked(x: Tensor, places: list[Tensor], dims: int) -> Tensor:
    """The elements of the last `dims` dimensions at these places, which broadcast."""
    flat = torch.zeros_like(places[0])
    for size, place in zip(x.shape[-dims:], places, strict=True):
        flat = flat * size + place
    batch = x.shape[: x.dim() - dims]
    flat = flat.expand(*batch, *flat.shape[len(batch) :])
    return x.flatten(-dims).gather(-1, flat.flatten(len(batch))).view(flat.shape)


def _fractional_max_pool(x: Tensor, kernel: Any, output: Any, samples: Tensor, axes: Any) -> Any:
    dims = len(kernel)
    image = x if x.dim() > dims + 1 else x.unsqueeze(0)
    samples = samples.to(x.dtype)
    places = []
    for d, axis in enumerate(axes):
        size, window, count = image.shape[d - dims], kernel[d], output[d]
        steps = torch.arange(count, device=x.device)
        start = torch.full_like(steps, size - window)
        start = start.expand(*samples.shape[:2], count)
        if count > 1:
            sample = samples[..., axis : axis + 1]
            step = torch.full_like(sample, size - window) / (count - 1)
            before = ((steps + sample) * step).trunc() - (sample * step).trunc()
            start = torch.where(steps == count - 1, start, before.long())
        inside = start.unsqueeze(-1) + torch.arange(window, device=x.device)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = count, window
        places.append(inside.view(*samples.shape[:2], *shape))
    values = _picked(image, places, dims).flatten(-dims)
    flat = torch.zeros_like(places[0])
    for size, place in zip(image.shape[-dims:], places, strict=True):
        flat = flat * size + place
    best = values.argmax(-1, keepdim=True)
    results = values.gather(-1, best), flat.flatten(-dims).expand(values.shape).gather(-1, best)
    found = [result.squeeze(-1) for result in results]
    return tuple(result if image is x else result.squeeze(0) for result in found)


@replaces(aten.fractional_max_pool2d.default)
def _fractional_max_pool2d(x: Tensor, kernel: Any, output: Any, samples: Tensor) -> Any:
    return _fractional_max_pool(x, kernel, output, samples, (1, 0))


@replaces(aten.fractional_max_pool3d.default)
def _fractional_max_pool3d(x: Tensor, kernel: Any, output: Any, samples: Tensor) -> Any:
    return _fractional_max_pool(x, kernel, output, samples, (0, 1, 2))


def _linear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor) -> Tensor:
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _resampling(
    size: int, count: int, align: bool, scale: float | None, kind: Any, x: Tensor
) -> Tensor:
    """The matrix that makes `count` pixels of `size`, each from all that it covers."""
    function, width = kind
    if align:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        step = 1 / scale if scale else size / count
    wide = max(1.0, step)
    places = torch.arange(size, device=x.device, dtype=torch.float64)
    centers = step * (torch.arange(count, device=x.device, dtype=torch.float64) + 0.5)
    first = (centers - wide * width + 0.5).trunc().clamp(min=0).unsqueeze(-1)
    last = (centers + wide * width + 0.5).trunc().clamp(max=size).unsqueeze(-1)
    weights = function((places + 0.5 - centers.unsqueeze(-1)) / wide)
    weights = torch.where((places >= first) & (places < last), weights, 0)
    return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)


def _add_resampling() -> None:
    def add(operator: Any, function: Callable[[Tensor], Tensor], width: int) -> None:
        def resize(
            x: Tensor,
            output_size: Any,
            align_corners: bool,
            scales_h: float | None = None,
            scales_w: float | None = None,
        ) -> Tensor:
            kind = (function, width)
            rows = _resampling(x.shape[-2], output_size[0], align_corners, scales_h, kind, x)
            columns = _resampling(x.shape[-1], output_size[1], align_corners, scales_w, kind, x)
            return rows @ (x @ columns.mT)

        replaces(operator)(resize)

    add(aten._upsample_bilinear2d_aa.default, _linear, 1)
    add(aten._upsample_bicubic2d_aa.default, _cubic, 2)


_add_resampling()


def _in_image(place: Tensor, size: int, padding: int, align: bool) -> Tensor:
    """A coordinate from -1 to 1 as one of pixels, put back inside unless what pads is zero."""
    place = (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
    if padding == 2:
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(place)
        beyond = (place - low).abs()
        turns, rest = (beyond / span).floor(), beyond.fmod(span)
        place = low + torch.where(turns % 2 == 0, rest, span - rest)
    return place.clamp(0, size - 1) if padding else place


@replaces(aten.grid_sampler_3d.default)
def _grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    sizes = x.shape[2:]
    # A grid names the last dimension first.
    places = [
        _in_image(grid[..., 2 - d], size, padding, align).unsqueeze(1)
        for d, size in enumerate(sizes)
    ]
    lows = [place.round() if mode == 1 else place.floor() for place in places]
    total = x.new_zeros(())
    for corner in itertools.product((0, 1) if mode == 0 else (0,), repeat=3):
        weight, inside = torch.ones_like(places[0]), torch.ones_like(places[0], dtype=torch.bool)
        at = []
        for size, place, low, step in zip(sizes, places, lows, corner, strict=True):
            if mode == 0:
                weight = weight * (place - low if step else 1 - (place - low))
            pixel = low + step
            inside = inside & (pixel >= 0) & (pixel <= size - 1)
            at.append(pixel.clamp(0, size - 1).long())
        total = total + torch.where(inside, _picked(x, at, 3) * weight, 0)
    return total


# ---- matrices ------------------------------------------------------------------------------------


@replaces(aten.linalg_matrix_exp.default)
def _matrix_exp(a: Tensor) -> Tensor:
    """Taylor's polynomial of a / 2^n, squared n times. In 16 bits squares would be of errors."""
    if a.numel() == 0:
        return a.clone()
    if a.dtype in (torch.bfloat16, torch.float16):
        precise: Tensor = _matrix_exp(a.float())
        return precise.to(a.dtype)
    size = a.abs().sum(-2).amax(-1)
    times = torch.where(size > 1, size.log2().ceil() + 1, 0)[..., None, None]
    unit = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    scaled = a * torch.exp2(-times)
    total = unit.expand(a.shape)
    for k in range(18, 0, -1):
        total = unit + scaled @ total / k

    def more(k: Tensor, _: Tensor, times: Tensor) -> Tensor:
        return (times > k).any()

    def square(k: Tensor, total: Tensor, times: Tensor) -> Any:
        return k + 1, torch.where(times > k, total @ total, total)

    start = (torch.zeros((), dtype=times.dtype, device=a.device), total)
    result: Tensor = control_flow.while_loop(more, square, start, (times,))[1]
    return result
