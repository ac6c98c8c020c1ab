"""Calls of random shapes and arguments as cases of operators.py: what fixed cases do not meet."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from operator_cases import Case
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Indices:
    """An operand of whole numbers below `high`."""

    high: int
    shape: Shape


@dataclass(frozen=True)
class Call:
    name: str
    function: Callable[..., Any]
    operands: Sequence[Shape | Indices]

    def __call__(
        self, device: str, dtype: torch.dtype
    ) -> tuple[Callable[..., Any], list[torch.Tensor]]:
        made = [
            torch.randint(o.high, o.shape) if isinstance(o, Indices) else torch.randn(o).to(dtype)
            for o in self.operands
        ]
        return self.function, [tensor.to(device) for tensor in made]


def convolution(rng: random.Random) -> Call:
    rank, transposed = rng.choice([1, 2, 2, 2, 3]), rng.random() < 0.25
    groups, stride, size = rng.choice([1, 1, 4, 32]), rng.choice([1, 1, 2]), rng.choice([1, 3, 5])
    inputs, outputs, images = rng.choice([32, 64]), rng.choice([32, 96]), rng.choice([1, 2, 8])
    side = {1: 1024, 2: 28, 3: 12}[rank]
    channels = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    name = f"conv{'_transpose' if transposed else ''}{rank}d"
    call = getattr(F, name)
    sizes = f"{images}x{inputs}x{side} to {outputs}, kernel {size}/{stride}, groups {groups}"
    return Call(
        f"{name} {sizes}",
        lambda x, w: call(x, w, stride=stride, padding=size // 2, groups=groups),
        [(images, inputs, *[side] * rank), (*channels, *[size] * rank)],
    )


def pool(rng: random.Random) -> Call:
    rank, size, side = rng.choice([1, 2, 2, 3]), rng.choice([2, 3, 5]), rng.choice([27, 32, 56])
    stride = rng.choice([1, 2, size])
    kind = rng.choice(["max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"])
    call = getattr(F, f"{kind}{rank}d")
    sizes = (4, 16) if rank == 3 else (8, 64)
    sides = [side * side] if rank == 1 else [min(side, 28) if rank == 3 else side] * rank
    if kind.startswith("adaptive"):
        wanted = rng.choice([1, 4, 7])
        name, function = f"to {wanted}", lambda x: call(x, wanted)
    else:
        name, function = f"{size} stride {stride}", lambda x: call(x, size, stride, size // 2)
    return Call(f"{kind}{rank}d of {sides[0]} {name}", function, [(*sizes, *sides)])


def resize(rng: random.Random) -> Call:
    mode = rng.choice(["nearest", "bilinear", "bicubic", "area"])
    side, factor = rng.choice([14, 28, 56]), rng.choice([0.5, 1.5, 2.0])
    return Call(
        f"interpolate {mode} {side} by {factor}",
        lambda x: F.interpolate(x, scale_factor=factor, mode=mode),
        [(4, 32, side, side)],
    )


def norm(rng: random.Random) -> Call:
    side, channels = rng.choice([7, 14, 28, 56]), rng.choice([32, 96, 256])
    images, width = (8, channels, side, side), rng.choice([100, 384, 1024])
    weights = [(channels,), (channels,)]
    calls: list[Call] = [
        Call(
            f"batch_norm {channels}x{side}",
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            [images, *weights],
        ),
        Call(
            f"group_norm {channels}x{side}",
            lambda x, w, b: F.group_norm(x, 8, w, b),
            [images, *weights],
        ),
        Call(f"instance_norm {channels}x{side}", F.instance_norm, [images]),
        Call(
            f"layer_norm of channels {channels}x{side}",
            lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (channels,), w, b),
            [images, *weights],
        ),
        Call(
            f"layer_norm {width}",
            lambda x, w: F.layer_norm(x, (width,), w),
            [(2048, width), (width,)],
        ),
        Call(
            f"rms_norm {width}", lambda x, w: F.rms_norm(x, (width,), w), [(2048, width), (width,)]
        ),
        Call(f"normalize {width}", lambda x: F.normalize(x, dim=-1), [(2048, width)]),
        Call(f"normalize of channels {channels}x{side}", lambda x: F.normalize(x, dim=1), [images]),
    ]
    return rng.choice(calls)


def attention(rng: random.Random) -> Call:
    batch, heads, length, width = rng.choice(
        [(4, 8, 128, 64), (8, 4, 64, 32), (1, 12, 197, 64), (64, 4, 49, 32)]
    )
    kind = rng.choice(["plain", "causal", "bias", "by hand"])
    operands: list[Shape | Indices] = [(batch, heads, length, width)] * 3

    def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * width**-0.5, -1) @ v

    functions: dict[str, Callable[..., Tensor]] = {
        "plain": F.scaled_dot_product_attention,
        "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "bias": lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias),
        "by hand": by_hand,
    }
    if kind == "bias":
        operands.append((1, heads, length, length))
    name = f"attention {kind} {batch}x{heads}x{length}x{width}"
    return Call(name, functions[kind], operands)


def product(rng: random.Random) -> Call:
    rows, inner, columns = (rng.choice([8, 33, 128, 257, 768]) for _ in range(3))
    sizes = f"{rows}x{inner}x{columns}"
    return rng.choice(
        [
            Call(f"mm {sizes}", torch.matmul, [(rows, inner), (inner, columns)]),
            Call(
                f"mm transposed {sizes}", lambda a, b: a.t() @ b, [(inner, rows), (inner, columns)]
            ),
            Call(f"linear {sizes}", F.linear, [(4, rows, inner), (columns, inner), (columns,)]),
            Call(f"bmm 16x{sizes}", torch.bmm, [(16, rows, inner), (16, inner, columns)]),
            Call(f"mv {rows}x{inner}", torch.mv, [(rows * 4, inner), (inner,)]),
        ]
    )


def index(rng: random.Random) -> Call:
    nodes, width = rng.choice([(2000, 64), (20000, 16), (500, 256)])
    edges = 4 * nodes
    at, table, many = Indices(nodes, (edges,)), (nodes, width), (edges, width)
    square, columns = (512, 512), Indices(512, (512,))
    each, part = Indices(512, (512, 128)), (512, 128)

    def zeros(source: Tensor) -> Tensor:
        return source.new_zeros(nodes, width)

    def spread(i: Tensor, source: Tensor) -> Tensor:
        return i[:, None].expand_as(source)

    how = rng.choice(["sum", "mean", "amax"])
    name = f"{nodes}x{width}"
    calls: list[Call] = [
        Call(f"rows {name}", lambda x, i: x[i], [table, at]),
        Call(f"embedding {name}", lambda x, i: F.embedding(i, x), [table, at]),
        Call(f"index_add {name}", lambda s, i: zeros(s).index_add(0, i, s), [many, at]),
        Call(
            f"index_put with sums {name}",
            lambda s, i: zeros(s).index_put((i,), s, accumulate=True),
            [many, at],
        ),
        Call(
            f"scatter_add {name}", lambda s, i: zeros(s).scatter_add(0, spread(i, s), s), [many, at]
        ),
        Call(
            f"scatter_reduce {how} {name}",
            lambda s, i: zeros(s).scatter_reduce(0, spread(i, s), s, how),
            [many, at],
        ),
        Call("index_select of columns", lambda x, i: x.index_select(1, i), [square, columns]),
        Call("columns", lambda x, i: x[:, i], [square, columns]),
        Call(
            "index_add of columns", lambda x, i, s: x.index_add(1, i, s), [square, columns, square]
        ),
        Call("gather", lambda x, i: x.gather(1, i), [square, each]),
        Call("scatter", lambda x, i, s: x.scatter(1, i, s), [square, each, part]),
        Call("scatter_add of each", lambda x, i, s: x.scatter_add(1, i, s), [square, each, part]),
    ]
    return rng.choice(calls)


def move(rng: random.Random) -> Call:
    order = tuple(rng.sample(range(4), 4))
    parts, dim = rng.choice([2, 4, 8]), rng.choice([0, 1, -1])
    amount = rng.choice([1, 2, 3])
    mode = rng.choice(["constant", "reflect", "replicate", "circular"])
    images = (4, 32, 56, 56)
    calls: list[Call] = [
        Call(f"permute {order}", lambda x: x.permute(order).contiguous() + 1, [(8, 32, 48, 64)]),
        Call(
            f"cat of {parts} along {dim}",
            lambda *a: torch.cat(a, dim),
            [(16, 128, 1024 // parts)] * parts,
        ),
        Call(f"pad {mode} {amount}", lambda x: F.pad(x, (amount,) * 4, mode=mode), [images]),
        Call(f"roll {amount}", lambda x: x.roll((amount, -amount), (2, 3)), [images]),
        Call("flip", lambda x: x.flip(2, 3), [images]),
        Call("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [images]),
        Call("unfold", lambda x: F.unfold(x[:, :8], 3, padding=1), [images]),
        Call("repeat_interleave", lambda x: x.repeat_interleave(2, 1), [images]),
        Call(
            "halves in turn",
            lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2),
            [images],
        ),
        Call(
            "windows",
            lambda x: x.view(4, 32, 8, 7, 8, 7).permute(0, 2, 4, 3, 5, 1).reshape(-1, 49, 32),
            [images],
        ),
    ]
    return rng.choice(calls)


def reduction(rng: random.Random) -> Call:
    dim, width = rng.choice([0, 1, 2]), rng.choice([64, 100])
    names = ("sum", "mean", "amax", "std", "logsumexp", "norm", "argmax", "cumsum", "softmax")
    name = rng.choice(names)
    shape: Shape = (32, width, 512)

    def reduced(x: Tensor) -> Tensor:
        found = x.norm(dim=dim) if name == "norm" else getattr(x, name)(dim)
        return x.sum() * 0 + found if name == "argmax" else found

    return Call(f"{name} {width} along {dim}", reduced, [shape])


def activation(rng: random.Random) -> Call:
    names = ("gelu", "silu", "mish", "softplus", "elu", "hardswish", "glu", "tanh", "selu", "relu6")
    name, shape = rng.choice(names), rng.choice([(64, 32, 512), (8, 64, 56, 56)])
    return Call(f"{name} {'x'.join(map(str, shape))}", getattr(F, name), [shape])


def loss(rng: random.Random) -> Call:
    classes = rng.choice([10, 1000, 8192])
    rows = 1 << 20 >> classes.bit_length()
    wide, target = (rows, classes), Indices(classes, (rows,))
    pixels, labels = (4, 21, 64, 64), Indices(21, (4, 64, 64))
    calls: list[Call] = [
        Call(f"cross_entropy {classes}", F.cross_entropy, [wide, target]),
        Call("cross_entropy of pixels", F.cross_entropy, [pixels, labels]),
        Call(
            f"smoothed cross_entropy {classes}",
            lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
            [wide, target],
        ),
        Call(
            f"kl_div {classes}",
            lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"),
            [wide, wide],
        ),
        Call("huber_loss", F.huber_loss, [(1000, 1000)] * 2),
        Call("triplet_margin_loss", F.triplet_margin_loss, [(4096, 128)] * 3),
    ]
    return rng.choice(calls)


FAMILIES = (
    convolution,
    pool,
    resize,
    norm,
    attention,
    product,
    index,
    move,
    reduction,
    activation,
    loss,
)


def random_cases(seed: int, count: int) -> dict[str, Case]:
    rng = random.Random(seed)
    calls = [FAMILIES[n % len(FAMILIES)](rng) for n in range(count)]
    return {call.name: call for call in calls}
