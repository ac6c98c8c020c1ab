"""Elementwise work on images, whose dimensions are one to a program where they can be."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_xla  # noqa: F401
from compare import assert_same
from torch import Tensor
from torch_xla import _XLAC

Program = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def operands(device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """An image, a value for each channel, a kernel, and an image whose channels lie inside."""
    torch.manual_seed(0)
    x, channel, kernel = torch.randn(4, 8, 14, 14), torch.randn(8, 1, 1), torch.randn(8, 8, 3, 3)
    y = torch.randn(4, 8, 14, 14).to(memory_format=torch.channels_last)
    x, channel, kernel, y = (t.to(device) for t in (x, channel, kernel, y))
    return x, channel, kernel, y


PROGRAMS: dict[str, Program] = {
    "broadcast over pixels": lambda x, c, w, y: F.silu(x * c) + x,
    "broadcast over rows": lambda x, c, w, y: F.silu(x * x[:, :, :1]) + x,
    "broadcast over images": lambda x, c, w, y: (x * x[:1]).exp(),
    "around a convolution": lambda x, c, w, y: F.conv2d(F.gelu(x), w, padding=1).relu() * x,
    "transposed": lambda x, c, w, y: (x.transpose(2, 3) + x).exp().clamp(max=3),
    "channels inside": lambda x, c, w, y: y.sigmoid() * y,
    "both orders": lambda x, c, w, y: torch.where(x > 0, F.silu(x), c * y),
    "softmax": lambda x, c, w, y: F.softmax(F.silu(x), -1) * 2,
    "layer norm": lambda x, c, w, y: F.gelu(F.layer_norm(x, (14,))),
    "batch norm": lambda x, c, w, y: F.silu(F.batch_norm(x, None, None, training=True)),
    "group norm": lambda x, c, w, y: F.silu(F.group_norm(x, 2)) + x,
    "mean of pixels": lambda x, c, w, y: F.silu(x).mean((2, 3)),
    "sum of rows": lambda x, c, w, y: F.silu(x).sum(-1, keepdim=True) * x.exp(),
    "concatenation": lambda x, c, w, y: torch.cat([F.silu(x), y.exp()], 1)[:, 3:12].tanh(),
    "stepped": lambda x, c, w, y: F.silu(x[:, :, 1:, ::2]) * 2,
    "pooling": lambda x, c, w, y: F.max_pool2d(F.silu(x), 2) + F.avg_pool2d(x.exp(), 2),
    "written in place": lambda x, c, w, y: x.clone().mul_(2)[:, 2:5].exp_().add_(1),
    "a kernel's own arithmetic": lambda x, c, w, y: (w * 2 + w.abs().sqrt()).sum((1, 2)),
    "bfloat16": lambda x, c, w, y: x.to(torch.bfloat16).exp() * 2,
    "expanded": lambda x, c, w, y: x.masked_fill(y > 0, 1.5).atan2(c.expand(8, 14, 14)),
    "drawn": lambda x, c, w, y: F.dropout(F.silu(x), 0.0) + x,
}


def used(result: Tensor) -> Tensor:
    """By the program itself: what it returns keeps its dimensions."""
    return result.mean((2, 3)) if result.dim() == 4 else result * 2


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "returned"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, inside: bool) -> None:
    def program(device: str) -> tuple[Tensor, tuple[int, ...]]:
        result = PROGRAMS[name](*operands(device))
        result = used(result) if inside else result
        return result, result.stride()

    tolerance = 2e-2 if name == "bfloat16" else 1e-4
    assert_same(program, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["around a convolution", "batch norm", "broadcast over pixels"])
def test_gradients(name: str) -> None:
    def gradients(device: str) -> list[Tensor]:
        given = [t.requires_grad_() for t in operands(device)]
        loss = PROGRAMS[name](*given).square().sum()
        return [g for g in torch.autograd.grad(loss, given, allow_unused=True) if g is not None]

    assert_same(gradients, rtol=1e-3, atol=1e-3)


@pytest.mark.lazy_only
@pytest.mark.host_only("other platforms have other loops")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("broadcast over pixels", "4x8x196"),
        ("broadcast over rows", "4x8x14x14"),
        ("channels inside", "6272"),  # nothing is turned: one dimension is all there is
        ("batch norm", "4x8x196"),
        ("softmax", "4x8x14x14"),
    ],
)
def test_sizes_of_loops(name: str, sizes: str) -> None:
    text = _XLAC.tensors_stablehlo_text([used(PROGRAMS[name](*operands("xla")))])
    wanted = [line for line in text.splitlines() if "stablehlo.logistic" in line]
    wanted = wanted or [line for line in text.splitlines() if "stablehlo.exponential" in line]
    assert wanted
    assert all(f"tensor<{sizes}xf32>" in line for line in wanted), text


@pytest.mark.lazy_only
@pytest.mark.host_only("other platforms have other loops")
def test_arrays_of_the_same_sizes_agree() -> None:
    """One operation that cannot have fewer dimensions keeps those of the others."""
    x = operands("xla")[0]
    apart = _XLAC.tensors_stablehlo_text([used(F.silu(x) * 2)])
    (line,) = [line for line in apart.splitlines() if "stablehlo.logistic" in line]
    assert "tensor<32x196xf32>" in line
    beside = _XLAC.tensors_stablehlo_text([used(F.silu(x) * 2 + x * x[:, :, :1])])
    (line,) = [line for line in beside.splitlines() if "stablehlo.logistic" in line]
    assert "tensor<4x8x14x14xf32>" in line
