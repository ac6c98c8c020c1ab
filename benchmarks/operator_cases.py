"""The operators that operators.py measures, at sizes that models have."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Case = Callable[[str, torch.dtype], tuple[Callable[..., Any], list[torch.Tensor]]]
CASES: dict[str, Case] = {}
_NOT_DIFFERENTIABLE: set[str] = set()


def is_differentiable(name: str) -> bool:
    return name not in _NOT_DIFFERENTIABLE


def case(name: str, function: Callable[..., Any], *shapes: tuple[int, ...], differentiable=True):
    """`function` of random tensors of these shapes."""

    def make(device, dtype):
        return function, [torch.randn(shape).to(dtype).to(device) for shape in shapes]

    CASES[name] = make
    if not differentiable:
        _NOT_DIFFERENTIABLE.add(name)


def indexed(name: str, function: Callable[..., Any], shape, index_shape, high: int, *more):
    """`function` of a random tensor, of indices below `high` and of more random tensors."""

    def make(device, dtype):
        indices = torch.randint(high, index_shape).to(device)
        first, *rest = (torch.randn(s).to(dtype).to(device) for s in (shape, *more))
        return function, [first, indices, *rest]

    CASES[name] = make


def module(name: str, make_module: Callable[[], torch.nn.Module], shape: tuple[int, ...]):
    """A module's call: of its input and its parameters."""

    def make(device, dtype):
        made = make_module().to(dtype).to(device)
        names = [n for n, _ in made.named_parameters()]

        def call(x, *parameters):
            return torch.func.functional_call(made, dict(zip(names, parameters, strict=True)), x)

        operands = [torch.randn(shape).to(dtype).to(device), *made.parameters()]
        return call, [operand.detach() for operand in operands]

    CASES[name] = make


# Products
case("linear 1024x256x1024", F.linear, (1024, 256), (1024, 256))
case("linear 16x4096x4096", F.linear, (16, 4096), (4096, 4096))
case("linear 1x4096x4096", F.linear, (1, 4096), (4096, 4096))
case("linear 1x512x1376", F.linear, (1, 512), (1376, 512))
case("linear 4x4096x4096", F.linear, (4, 4096), (4096, 4096))
case("matmul 1x4096x4096", torch.matmul, (1, 4096), (4096, 4096))
case("matmul 4096x4096x1", torch.matmul, (4096, 4096), (4096,))
case("matmul 1024", torch.matmul, (1024, 1024), (1024, 1024))
case("bmm 32x128x64x128", torch.bmm, (32, 128, 64), (32, 64, 128))
case("einsum bhid,bhjd", lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b),
     (4, 8, 128, 64), (4, 8, 128, 64))  # fmt: skip
case("attention", F.scaled_dot_product_attention, *[(4, 8, 256, 64)] * 3)
case("attention causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
     *[(4, 8, 256, 64)] * 3)  # fmt: skip

# Rows
case("softmax", lambda x: torch.softmax(x, -1), (4096, 1024))
case("log_softmax", lambda x: torch.log_softmax(x, -1), (4096, 1024))
case("layer_norm", lambda x, w, b: F.layer_norm(x, (1024,), w, b), (4096, 1024), (1024,), (1024,))
case("layer_norm gelu", lambda x, w, b: F.gelu(F.layer_norm(x, (1024,), w, b)),
     (4096, 1024), (1024,), (1024,))  # fmt: skip
case("rms_norm", lambda x, w: F.rms_norm(x, (1024,), w), (4096, 1024), (1024,))
case("group_norm", lambda x, w, b: F.group_norm(x, 32, w, b), (8, 128, 32, 32), (128,), (128,))
case("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
     (16, 64, 32, 32), (64,), (64,))  # fmt: skip
case("sum of rows", lambda x: x.sum(-1), (4096, 1024))
case("sum of columns", lambda x: x.sum(0), (4096, 1024))
case("sum", lambda x: x.sum(), (4096, 1024))
case("var", lambda x: x.var(-1), (4096, 1024))
case("amax", lambda x: x.amax(-1), (4096, 1024))
case("max with indices", lambda x: x.max(-1), (4096, 1024))
case("argmax", lambda x: x.argmax(-1), (4096, 1024), differentiable=False)
case("norm", lambda x: x.norm(), (4096, 1024))
case("logsumexp", lambda x: x.logsumexp(-1), (4096, 1024))
case("cumsum", lambda x: x.cumsum(-1), (1024, 1024))
case("cumprod", lambda x: x.cumprod(-1), (1024, 1024))
case("cumsum of columns", lambda x: x.cumsum(0), (1024, 1024))
case("sort", lambda x: x.sort(-1), (256, 4096))
case("topk", lambda x: x.topk(50, -1), (64, 32000))

# Elements
case("add", torch.add, (4096, 1024), (4096, 1024))
case("gelu", F.gelu, (4096, 1024))
case("silu and product", lambda a, b: F.silu(a) * b, (4096, 1024), (4096, 1024))
case("tanh", torch.tanh, (4096, 1024))
case("chain of eight", lambda x: ((x * 2 + 1).relu() * x - x.abs()).exp().neg().sigmoid(),
     (2048, 1024))  # fmt: skip
case("dropout", lambda x: F.dropout(x, 0.1), (4096, 1024))
case("randn", lambda x: torch.randn_like(x), (1024, 1024), differentiable=False)
case("where", lambda a, b: torch.where(a > 0, a, b), (4096, 1024), (4096, 1024))
case("masked_fill", lambda x: x.masked_fill(x > 1, 0.0), (4096, 1024))
indexed("masked_fill by indices", lambda x, i: x.masked_fill(i == 0, float("-inf")),
        (2048, 1024), (2048, 1024), 4)  # fmt: skip
indexed("product with indices", lambda x, i: x * i.to(x.dtype), (2048, 1024), (2048, 1024), 4)
case("relu", F.relu, (4096, 1024))
case("halves of rows", lambda x: F.silu(x[:, :1024]) * x[:, 1024:], (1024, 2048))
case("sine", torch.sin, (2048, 1024))
case("cosine of a product", lambda x: torch.cos(x * 3 + 1), (2048, 1024))
case("arc tangent", torch.atan, (2048, 1024))
case("arc tangent of two", torch.atan2, (2048, 1024), (2048, 1024))
case("remainder", torch.remainder, (2048, 1024), (2048, 1024))
case("floor_divide", lambda x, y: x // y, (2048, 1024), (2048, 1024), differentiable=False)
case("transposed copy", lambda x: x.t().contiguous(), (2048, 2048))
case("cat of eight parts", lambda *parts: torch.cat(parts, 1) * 2, *[(16, 128, 16, 16)] * 8)
case("cat", lambda a, b: torch.cat([a, b], -1), (2048, 1024), (2048, 1024))
case("reflected pad", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), (16, 64, 32, 32))
case("pad", lambda x: F.pad(x, (1, 1, 1, 1)), (16, 64, 32, 32))

# Images
case("conv 3x3", lambda x, w: F.conv2d(x, w, padding=1), (8, 64, 32, 32), (64, 64, 3, 3))
case("conv 1x1", F.conv2d, (8, 256, 16, 16), (256, 256, 1, 1))
case("conv strided", lambda x, w: F.conv2d(x, w, stride=2, padding=3), (8, 3, 112, 112),
     (64, 3, 7, 7))  # fmt: skip
case("conv depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=128), (8, 128, 32, 32),
     (128, 1, 3, 3))  # fmt: skip
case("conv transposed", lambda x, w: F.conv_transpose2d(x, w, stride=2), (4, 64, 16, 16),
     (64, 32, 2, 2))  # fmt: skip
case("conv 3-d", lambda x, w: F.conv3d(x, w, padding=1), (2, 8, 8, 24, 24), (16, 8, 3, 3, 3))
case("conv1d", lambda x, w: F.conv1d(x, w, padding=1), (8, 128, 512), (128, 128, 3))
case("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), (8, 64, 56, 56))
case("avg_pool padded", lambda x: F.avg_pool2d(x, 5, 5, 2), (8, 64, 56, 56))
case("avg_pool", lambda x: F.avg_pool2d(x, 2), (8, 64, 56, 56))
case("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, 1), (8, 512, 14, 14))
case("bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (8, 32, 32, 32))
case("nearest", lambda x: F.interpolate(x, scale_factor=2), (8, 32, 32, 32))

# Indices
indexed("embedding", lambda w, i: F.embedding(i, w), (32000, 256), (8, 256), 32000)
indexed("cross_entropy", lambda x, t: F.cross_entropy(x, t), (1024, 8192), (1024,), 8192)
indexed("gather", lambda x, i: x.gather(1, i), (1024, 1024), (1024, 256), 1024)
indexed("index_select", lambda x, i: x.index_select(0, i), (8192, 256), (4096,), 8192)
indexed("index_add", lambda x, i, s: x.index_add(0, i, s), (4096, 64), (8192,), 4096, (8192, 64))
indexed("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), (2048, 64), (8192, 64), 2048,
        (8192, 64))  # fmt: skip

indexed("scatter_add of rows", lambda x, i, s: x.scatter_add(0, i[:, None].expand_as(s), s),
        (2048, 64), (8192,), 2048, (8192, 64))  # fmt: skip
indexed("scatter_reduce of rows",
        lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "amax"),
        (2048, 64), (8192,), 2048, (8192, 64))  # fmt: skip

# Sequences and decompositions
module("transformer layer", lambda: torch.nn.TransformerEncoderLayer(
    256, 8, 1024, 0.0, batch_first=True), (8, 128, 256))  # fmt: skip
module("lstm", lambda: torch.nn.LSTM(256, 256, batch_first=True), (16, 64, 256))
module("gru", lambda: torch.nn.GRU(256, 256, batch_first=True), (16, 64, 256))
case("fft", lambda x: torch.fft.rfft(x).abs(), (512, 1024))
case("solve", lambda a, b: torch.linalg.solve(a + 20 * torch.eye(256, device=a.device), b),
     (256, 256), (256, 64))  # fmt: skip
case("cholesky", lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(256, device=a.device)),
     (256, 256))  # fmt: skip
case("cdist", torch.cdist, (512, 64), (512, 64))
