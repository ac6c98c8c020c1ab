"""What programs compute by calls of PyTorch's kernels, at the sizes from which they do."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor

Function = Callable[[Tensor, Tensor], Tensor]

ELEMENTS: dict[str, Function] = {
    "sin": lambda x, y: x.sin(),
    "cos": lambda x, y: x.cos(),
    "tan": lambda x, y: x.tan(),
    "asin": lambda x, y: (x / 40).asin(),
    "acos": lambda x, y: (x / 40).acos(),
    "atan": lambda x, y: x.atan(),
    "atan2": torch.atan2,
    "atan2 of a row": lambda x, y: torch.atan2(x, y[0]),
    "fmod": torch.fmod,
    "fmod of a number": lambda x, y: torch.fmod(x, 1.5),
    "remainder": torch.remainder,
    "remainder of a number": lambda x, y: x % 1.5,
    "remainder of a column": lambda x, y: torch.remainder(x, y[:, :1]),
    "power": lambda x, y: y**x,
    "power of a number": lambda x, y: 1.5**x,
    "power to a number": lambda x, y: y**2.25,
    "whole power": lambda x, y: x**5,
    "floor_divide": lambda x, y: x // y,
    "floor_divide by a number": lambda x, y: x // 0.3,
    "quotient rounded down": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "quotient by a column": lambda x, y: torch.div(x, y[:, :1], rounding_mode="floor"),
    "log": lambda x, y: x.log(),
    "log1p": lambda x, y: y.log1p(),
    "log2": lambda x, y: y.log2(),
    "log10": lambda x, y: y.log10(),
    "erf": lambda x, y: x.erf(),
    "erfinv": lambda x, y: (x / 40).erfinv(),
    "atanh": lambda x, y: (x / 40).atanh(),
    "lgamma": lambda x, y: x.lgamma(),
}
MOVES: dict[str, Function] = {
    "cumsum": lambda x, y: x.cumsum(1),
    "cumsum of columns": lambda x, y: x.cumsum(0),
    "cumsum to float64": lambda x, y: x.cumsum(1, dtype=torch.float64),
    "cumprod": lambda x, y: (x / 20).cumprod(1),
    "pad": lambda x, y: F.pad(x, (1, 2), value=1.5),
    "pad both": lambda x, y: F.pad(x, (0, 2, 3, 1)),
    "pad and crop": lambda x, y: F.pad(x, (4, -3)),
    "reflect": lambda x, y: F.pad(x.view(4, 32, 12, 12), (1, 2, 3, 0), mode="reflect"),
    "samples": lambda x, y: F.grid_sample(
        x.reshape(4, 8, 24, 24), (y - 1).reshape(4, 48, 48, 2), align_corners=False
    ),
    "replicate": lambda x, y: F.pad(x.view(4, 32, 144), (7, 0), mode="replicate"),
    "product of rows": lambda x, y: (x / 9).prod(1),
    "product of columns": lambda x, y: (x / 9).prod(0, keepdim=True),
    "many parts": lambda x, y: torch.cat([x, y, x[:, 5:9], -y, x[:, :0]], 1),
    "many parts below each other": lambda x, y: torch.cat(
        [x, y[:3], x.t().reshape(-1, 144), y], -2
    ),
    "many parts of types": lambda x, y: torch.cat([x, y.float(), x.half(), (y * 9).int()], 1),
    "many lines": lambda x, y: torch.cat(
        [x.reshape(-1), y.reshape(-1), x[0], x.new_empty(0), y[1]]
    ),
    "roll": lambda x, y: x.view(8, 16, 12, 12).roll((1, -3), (1, 3)),
    "roll all": lambda x, y: x.roll(777),
    "adaptive average": lambda x, y: F.adaptive_avg_pool2d(x.view(4, 32, 12, 12), (5, 12)),
    "adaptive average of one": lambda x, y: F.adaptive_avg_pool2d(x.view(128, 12, 12), 7),
    "adaptive average of 3": lambda x, y: F.adaptive_avg_pool3d(x.view(2, 8, 8, 12, 12), (3, 5, 2)),
    "adaptive maximum": lambda x, y: F.adaptive_max_pool2d(x.view(4, 32, 12, 12), (5, 6)),
    "maximum of windows": lambda x, y: F.max_pool2d(x.view(4, 32, 12, 12), 3, 2, 1),
    "maximum of one image": lambda x, y: F.max_pool2d(x.view(128, 12, 12), (2, 5), dilation=(1, 2)),
    "maximum of lines": lambda x, y: F.max_pool1d(x.view(4, 32, 144), 3, ceil_mode=True),
    "maximum of 3": lambda x, y: F.max_pool3d(x.view(2, 8, 8, 12, 12), 3, 2, 1),
    "average of windows": lambda x, y: F.avg_pool2d(
        x.view(4, 32, 12, 12), 5, 3, 2, count_include_pad=False
    ),
    "average of lines": lambda x, y: F.avg_pool1d(x.view(4, 32, 144), 4, 3, 1),
    "average of 3": lambda x, y: F.avg_pool3d(
        x.double().view(2, 8, 8, 12, 12), 3, 2, 1, divisor_override=5
    ),
    "adaptive maximum of 3": lambda x, y: F.adaptive_max_pool3d(x.view(2, 8, 8, 12, 12), 3),
}
CASES = ELEMENTS | MOVES
NOT_ALWAYS_CALLS = ("pad and crop", "roll", "roll all")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(128, 144, generator=generator, dtype=torch.float64) * 9
    y = torch.rand(128, 144, generator=generator, dtype=torch.float64) + 0.5
    return x.to(dtype), y.to(dtype)


def expect_close(found: Tensor, wanted: Tensor) -> None:
    assert found.dtype == wanted.dtype
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found.cpu(), wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_calls_compute_what_the_cpu_does(name: str, dtype: torch.dtype) -> None:
    x, y = operands(dtype)
    expect_close(CASES[name](x.to("xla"), y.to("xla")), CASES[name](x, y))


@pytest.mark.parametrize("name", CASES)
def test_calls_between_other_operations(name: str) -> None:
    """Of what the program has just computed, for what it computes next."""
    x, y = operands(torch.float32)

    def program(x: Tensor, y: Tensor) -> Tensor:
        return CASES[name](-(x.view(144, 128).t().reshape(128, 144)), y + 0.25) * 2 - 1

    expect_close(program(x.to("xla"), y.to("xla")).contiguous(), program(x, y).contiguous())


@pytest.mark.parametrize(
    "name", [name for name in CASES if "floor" not in name and "quotient" not in name]
)
def test_gradients(name: str) -> None:
    x, y = operands(torch.float64)

    def gradients(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        result = CASES[name](leaf, y.to(x.device))
        if result.requires_grad:
            (
                result * torch.linspace(0, 1, result.numel()).view_as(result).to(x.device)
            ).sum().backward()
        return leaf.grad if leaf.grad is not None else leaf

    expect_close(gradients(x.to("xla")), gradients(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_slices_of_rows(dtype: torch.dtype) -> None:
    x, y = operands(dtype)

    def gradients(x: Tensor, y: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        (F.silu(leaf[:, :72]) * leaf[:, 72:] + leaf[:, 1::2] + leaf[:, -72:]).backward(y[:, :72])
        assert leaf.grad is not None
        return leaf.grad

    expect_close(gradients(x.to("xla"), y.to("xla")), gradients(x, y))


@pytest.mark.parametrize("name", ELEMENTS)
def test_of_integers_and_of_few_numbers(name: str) -> None:
    x = torch.arange(-3000, 6000).view(90, 100)
    y = torch.arange(1, 9001).view(90, 100) % 7 + 1
    expect_close(ELEMENTS[name](x.to("xla"), y.to("xla")), ELEMENTS[name](x, y))
    few, others = operands(torch.float32)
    few, others = few[:3, :5].contiguous(), others[:3, :5].contiguous()
    expect_close(ELEMENTS[name](few.to("xla"), others.to("xla")), ELEMENTS[name](few, others))


@pytest.mark.host_only("other devices compute these themselves")
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_ALWAYS_CALLS])
def test_they_are_calls(name: str) -> None:
    x, y = operands(torch.float64)
    result = CASES[name](x.to("xla"), y.to("xla"))
    assert "custom-call" in torch_xla._XLAC.tensors_optimized_hlo_text([result])


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -0.0, 1e30, 0.0])
@pytest.mark.parametrize("name", ELEMENTS)
def test_special_numbers(name: str, special: float) -> None:
    x, y = operands(torch.float32)
    x[::3], y[::2] = special, special
    expect_close(ELEMENTS[name](x.to("xla"), y.to("xla")), ELEMENTS[name](x, y))


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str
)
def test_whole_powers_wrap(dtype: torch.dtype) -> None:
    """Exponents of more than six bits, which the compiler does not look at."""
    high = min(torch.iinfo(dtype).max, 5000)
    x = torch.arange(max(torch.iinfo(dtype).min, -9), 10).to(dtype)[:, None]
    y = torch.tensor([*range(130), high - 1, high]).clamp(max=high).to(dtype)
    expect_close(x.to("xla") ** y.to("xla"), x**y)
    if dtype.is_signed:
        expect_close(x.to("xla") ** -y.to("xla"), x**-y)
    expect_close(x.to("xla") ** 77, x**77)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "prod"])
@pytest.mark.parametrize("include_self", [False, True])
def test_rows_are_added_at_an_index_that_is_spread(reduce: str, include_self: bool) -> None:
    """`index[:, None].expand_as(source)`, as libraries for graphs write it."""
    x, y = operands(torch.float64)
    index = torch.arange(128) * 7 % 11

    def reduced(x: Tensor, y: Tensor, index: Tensor) -> Tensor:
        leaf = y.detach().requires_grad_()
        rows = index[:, None].expand_as(leaf)
        result = x[:20].scatter_reduce(0, rows, leaf, reduce, include_self=include_self)
        result = result.scatter_add(0, rows, leaf).scatter(0, rows[:1], leaf[:1])
        columns = index[:16].flip(0).expand(20, 16)
        result = result.scatter_add(1, columns, leaf[:20, :16])
        result.square().sum().backward()
        return torch.cat([result, leaf.grad])

    expect_close(reduced(x.to("xla"), y.to("xla"), index.to("xla")), reduced(x, y, index))


@pytest.mark.parametrize("images", [1, 2, 5])
@pytest.mark.parametrize("size", [(9, 40), (24, 10, 10)], ids=str)
def test_convolutions_of_few_small_images(images: int, size: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(16, 8, *[3 for _ in size], generator=generator)
    x = torch.randn(images, 8, *size, generator=generator)

    def trained(x: Tensor, weight: Tensor) -> Tensor:
        leaf, kernel = x.detach().requires_grad_(), weight.detach().requires_grad_()
        convolved = F.conv2d if x.dim() == 4 else F.conv3d
        result = convolved(leaf, kernel, padding=1)
        result.square().sum().backward()
        return torch.cat([t.flatten() for t in (result, leaf.grad, kernel.grad)])

    found, wanted = trained(x.to("xla"), weight.to("xla")).cpu(), trained(x, weight)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-2)
