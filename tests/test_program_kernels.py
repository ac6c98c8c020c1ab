"""What programs compute by kernels of our own, at the sizes from which they do."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]

REDUCTIONS: dict[str, Function] = {
    "all": lambda x: x.sum(),
    "rows": lambda x: x.sum(-1),
    "columns": lambda x: x.sum(0, keepdim=True),
    "first and last": lambda x: x.sum((0, 2)),
    "leading": lambda x: x.mean((0, 1)),
    "trailing": lambda x: x.mean((1, 2), keepdim=True),
    "in the middle": lambda x: x.sum(1),
    "transposed": lambda x: x.transpose(0, 2).sum(-1),
    "of a product": lambda x: (x * x).mean(),
    "norm": lambda x: x.norm(),
    "in float64": lambda x: x.sum(-1, dtype=torch.float64),
    "largest": lambda x: x.amax(-1),
    "largest of all": lambda x: x.amax(),
    "largest of columns": lambda x: x.amax(0),
    "largest with its place": lambda x: x.max(-1).values,
    "smallest": lambda x: x.amin(-1),
    "smallest with its place": lambda x: x.min(-1, keepdim=True).values,
    "softmax": lambda x: x.softmax(-1),
    "softmax of columns": lambda x: x.softmax(0),
    "logarithms": lambda x: x.log_softmax(-1),
    "variance": lambda x: x.var(-1),
    "variance of all": lambda x: x.std(),
    "variance of channels": lambda x: x.var((0, 2), correction=0),
    "variance of columns": lambda x: x.var((0, 1)),
    "variance off zero": lambda x: (x + 8).std(-1),
}


DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")


def expect_close(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 3e-3}.get(dtype, 1e-5)
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(19, 37, 71).to(dtype)
    found = REDUCTIONS[name](x.to("xla")).cpu()
    assert found.dtype == REDUCTIONS[name](x).dtype
    expect_close(found, REDUCTIONS[name](x.double()), dtype)


NUMBERLESS = "all rows columns largest smallest softmax logarithms variance".split() + [
    "variance of channels"
]


@pytest.mark.parametrize("name", NUMBERLESS)
def test_what_is_no_number(name: str) -> None:
    x = torch.randn(19, 37, 71)
    x[0, 0, 3], x[1, 1, 70], x[2, 2] = float("nan"), float("inf"), float("-inf")
    found, wanted = REDUCTIONS[name](x.to("xla")).cpu(), REDUCTIONS[name](x)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


PLACES: dict[str, Function] = {
    "of rows": lambda x: x.max(-1).indices,
    "smallest": lambda x: x.min(-1, keepdim=True).indices,
    "alone": lambda x: x.argmax(-1),
    "of all": lambda x: x.argmin(),
    "in the middle": lambda x: x.argmax(1),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PLACES)
def test_first_places_of_extremes(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(19, 37, 71).mul(2).round().to(dtype)  # many are equal
    x[3, 4, 5:9], x[5, 6] = float("nan"), float("inf")
    assert torch.equal(PLACES[name](x.to("xla")).cpu(), PLACES[name](x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_summands_have_the_type_that_is_asked_for(dtype: torch.dtype) -> None:
    x = torch.full((20000,), 1 + 2**-9 if dtype == torch.bfloat16 else 1 + 2**-12)
    for size in (x, x[:100]):
        assert size.to("xla").sum(dtype=dtype).item() == size.sum(dtype=dtype).item()


NORMS: dict[str, Callable[[], nn.Module]] = {
    "layer norm": lambda: nn.LayerNorm(71),
    "of two dimensions": lambda: nn.LayerNorm((37, 71)),
    "plain": lambda: nn.LayerNorm(71, elementwise_affine=False),
    "without bias": lambda: nn.LayerNorm(71, bias=False),
    "of roots": lambda: nn.RMSNorm(71),
    "of roots, plain": lambda: nn.RMSNorm(71, elementwise_affine=False),
    "of batches": lambda: nn.BatchNorm1d(37),
    "of batches, plain": lambda: nn.BatchNorm1d(37, affine=False, track_running_stats=False),
    "of instances": lambda: nn.InstanceNorm1d(37, affine=True),
    "of groups": lambda: nn.GroupNorm(37, 37),
    "of one group": lambda: nn.GroupNorm(1, 37, affine=False),
}


def gradients(module: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> list[Tensor]:
    module = module.to(dtype).to(device)
    given = x.detach().to(dtype).to(device).requires_grad_()
    result = module(given)
    (result * result.detach().cos()).sum().backward()
    assert given.grad is not None
    parameters = [p.grad for p in module.parameters() if p.grad is not None]
    return [tensor.detach().cpu().double() for tensor in (result, given.grad, *parameters)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(19, 37, 71) * 2 + 1).to(dtype)
    results = []
    for device, kind in (("xla", dtype), ("cpu", torch.float64)):
        torch.manual_seed(1)
        module = NORMS[name]()
        for parameter in module.parameters():
            nn.init.normal_(parameter)
            parameter.data = parameter.data.to(dtype)
        results.append(gradients(module, x, device, kind))
    for found, wanted in zip(*results, strict=True):
        scale = wanted.abs().max()
        assert (found - wanted).abs().max() <= scale * (1e-5 if dtype == torch.float32 else 2e-2)


def test_statistics_of_what_lies_far_from_zero() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 16, 31, 29) + 1000
    results = []
    for device in ("xla", "cpu"):
        norm = nn.BatchNorm2d(16).to(device)
        y = norm(x.to(device))
        assert norm.running_mean is not None and norm.running_var is not None
        results.append([y.detach().cpu(), norm.running_mean.cpu(), norm.running_var.cpu()])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("aligned", [True, False], ids=["corners", "pixels"])
@pytest.mark.parametrize("sizes", [(4, 3, 24, 20), (1, 8, 31, 17), (3, 2, 64, 64)], ids=str)
def test_resizing(mode: str, aligned: bool, sizes: tuple[int, ...]) -> None:
    results = []
    for device in ("xla", "cpu"):
        torch.manual_seed(0)
        x = torch.randn(sizes).to(device).requires_grad_()
        y = F.interpolate(x, (45, 38), mode=mode, align_corners=aligned)
        y.backward(torch.randn(y.shape).to(device))
        assert x.grad is not None
        results.append((y.detach().cpu(), x.grad.cpu()))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


HALF_NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch": (lambda: nn.BatchNorm2d(16), (8, 16, 12, 12)),
    "batch, plain": (lambda: nn.BatchNorm2d(16, affine=False), (8, 16, 12, 12)),
    "layer": (lambda: nn.LayerNorm(48), (40, 48)),
    "group": (lambda: nn.GroupNorm(4, 16), (8, 16, 12, 12)),
}


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_resized_as_on_the_cpu(mode: str, aligned: bool) -> None:
    images = torch.randint(256, (1, 3, 20, 20), dtype=torch.uint8)
    on_device = images.to("xla")
    for size in ((31, 31), (10, 12), (40, 40)):

        def resize(x: Tensor, size: tuple[int, int] = size) -> Tensor:
            return F.interpolate(x, size, mode=mode, align_corners=aligned)

        torch.testing.assert_close(
            torch_xla.compile(resize, tiers="off")(on_device).cpu(), resize(images), rtol=0, atol=0
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "interpreted"])
@pytest.mark.parametrize("name", HALF_NORMS)
def test_gradients_of_norms_in_16_bits_are_the_cpus(
    name: str, eager: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's kernels want the statistics in 16 bits, too: nothing is widened for them."""
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")
    make, shape = HALF_NORMS[name]
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    with torch_xla.experimental.eager_mode_context(eager):
        found = gradients(make(), x, "xla", dtype)
    for mine, wanted in zip(found, gradients(make(), x, "cpu", dtype), strict=True):
        assert torch.equal(mine, wanted)
