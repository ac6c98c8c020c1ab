"""Writes at indices in programs, as large as those that a kernel does (host_ops/write_at.h)."""

from collections.abc import Callable

import pytest
import torch
import torch_xla
from torch import Tensor

Write = Callable[[Tensor, Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")


def spread(index: Tensor, dim: int, like: Tensor) -> Tensor:
    sizes = [1] * like.dim()
    sizes[dim] = -1
    return index.view(sizes).expand_as(like)


def of_each(index: Tensor, like: Tensor) -> Tensor:
    """Other places for each line of `like` along dimension 1, of which there are 48."""
    lines = torch.arange(like.numel(), device=like.device).view(like.shape)
    return (index.view(1, -1, 1) + lines // 7) % 48


# Of x (16, 48, 40), y of these sizes, and 48 numbers below 48.
ADDITIONS: dict[str, Write] = {
    "index_add": lambda x, y, i: x.index_add(1, i, y),
    "index_add of few": lambda x, y, i: x.index_add(1, i[:30], y[:, :30], alpha=2),
    "index_add of first": lambda x, y, i: x.index_add(0, i[:12] % 16, y[:12]),
    "index_add of last": lambda x, y, i: x.index_add(
        -1, i % 40, torch.cat([y, y[..., :8]], 2)
    ),
    "scatter_add": lambda x, y, i: x.scatter_add(1, of_each(i, y), y),
    "scatter_add of last": lambda x, y, i: x.scatter_add(2, of_each(i, y) % 40, y),
    "scatter_add of first": lambda x, y, i: x.scatter_add(0, of_each(i, y) % 16, y),
    "scatter_add of a part": lambda x, y, i: x.scatter_add(1, of_each(i, y)[:14, :, :30], y),
    "scatter_add at a spread index": lambda x, y, i: x.scatter_add(2, spread(i[:40] % 40, 2, y), y),
    "put with sums": lambda x, y, i: x.put(
        torch.arange(30720, device=i.device).view(x.shape) * 7 // 3 % 30720, y, accumulate=True
    ),
    "mean": lambda x, y, i: x.scatter_reduce(1, of_each(i, y), y, "mean"),
    "mean of what is written": lambda x, y, i: x.scatter_reduce(
        1, of_each(i, y), y, "mean", include_self=False
    ),
    "index_reduce": lambda x, y, i: x.index_reduce(1, i, y, "mean"),
    "sums at places": lambda x, y, i: x.index_put((i % 16, i), y[0], accumulate=True),
    "sums in the middle": lambda x, y, i: x.index_put(
        (torch.arange(16, device=i.device)[:, None], i), y, accumulate=True
    ),
    "sums at the end": lambda x, y, i: x.view(16, 1920).index_put(
        (torch.arange(16, device=i.device)[:, None], of_each(i, y).flatten(1)), y.flatten(1),
        accumulate=True,
    ),
    "sums apart": lambda x, y, i: x.index_put(
        (i % 16, torch.arange(48, device=i.device), i % 40), y[0, :, 0], accumulate=True
    ),
    "sums from the end": lambda x, y, i: x.index_add(1, i, y).index_put(
        (torch.arange(16, device=i.device)[:, None], i - 48), y, accumulate=True
    ),
}  # fmt: skip
EXTREMES: dict[str, Write] = {
    "largest": lambda x, y, i: x.scatter_reduce(1, of_each(i, y), y, "amax"),
    "smallest of slices": lambda x, y, i: x.scatter_reduce(0, spread(i[:16] % 16, 0, y), y, "amin"),
    "largest of what is written": lambda x, y, i: x.index_reduce(
        1, i, y, "amax", include_self=False
    ),
}
# At other places each: which of two values stays is not defined.
COPIES: dict[str, Write] = {
    "index_copy": lambda x, y, i: x.index_copy(1, i.unique()[:20].flip(0), y[:, :20]),
    "index_fill": lambda x, y, i: x.index_fill(1, i, 7),
    "scatter": lambda x, y, i: x.scatter(1, spread(i.argsort(), 1, y), y),
    "scatter of a number": lambda x, y, i: x.scatter(1, of_each(i, y), 3),
    "index_put": lambda x, y, i: x.index_put(
        (torch.arange(16, device=i.device)[:, None], i.argsort()), y
    ),
    "columns": lambda x, y, i: x.index_put(
        (torch.arange(16, device=i.device)[:, None, None],
         torch.arange(48, device=i.device)[:, None], i.argsort()[:40].argsort()), y
    ),
}  # fmt: skip
READS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_select": lambda x, i: x.index_select(1, i),
    "take_along_dim": lambda x, i: x.take_along_dim(of_each(i, x), 1),
    "gather": lambda x, i: x.gather(2, of_each(i, x) % 40),
    "rows": lambda x, i: x[:, i],
    "columns": lambda x, i: x[..., i % 40],
    "both": lambda x, i: x[(i % 16)[:, None], i],
    "apart": lambda x, i: x[(i % 16)[:, None], :, i % 40],
}


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(-9, 9, (16, 48, 40), generator=generator) for _ in range(2))
    return x.to(dtype), y.to(dtype), torch.randint(48, (48,), generator=generator)


def expect_same(write: Write, dtype: torch.dtype) -> None:
    x, y, index = operands(dtype)
    found = write(x.to("xla"), y.to("xla"), index.to("xla"))
    torch.testing.assert_close(found.cpu(), write(x, y, index))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64,
              torch.int16], ids=str
)  # fmt: skip
@pytest.mark.parametrize("name", ADDITIONS | EXTREMES | COPIES)
def test_writes(name: str, dtype: torch.dtype) -> None:
    if dtype.is_floating_point or "mean" not in name and name != "index_reduce":
        expect_same((ADDITIONS | EXTREMES | COPIES)[name], dtype)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.bool], ids=str)
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_every_type(name: str, dtype: torch.dtype) -> None:
    expect_same(COPIES[name], dtype)


@pytest.mark.parametrize("name", READS)
def test_gradients_of_reads(name: str) -> None:
    def gradient(x: Tensor, index: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        (READS[name](leaf, index) * x.square().mean()).square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    x, _, index = operands(torch.float64)
    found = gradient(x.to("xla"), index.to("xla"))
    torch.testing.assert_close(found.cpu(), gradient(x, index))


@pytest.mark.host_only("other devices write by scatters")
@pytest.mark.parametrize("name", ["index_add", "scatter_add", "index_copy", "largest"])
def test_they_are_calls(name: str) -> None:
    x, y, index = operands(torch.float32)
    result = (ADDITIONS | EXTREMES | COPIES)[name](x.to("xla"), y.to("xla"), index.to("xla"))
    assert "torch_xla_write_at" in torch_xla._XLAC.tensors_optimized_hlo_text([result])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_out_of_range_writes_nowhere(dtype: torch.dtype) -> None:
    """Which CPU PyTorch refuses: a program cannot, unless it is asked to check indices."""
    x, y, index = operands(dtype)
    valid = index < 24
    wanted = x.index_add(1, index[valid], y[:, valid])
    device, values, rows = x.to("xla"), y.to("xla"), torch.arange(16, device="xla")[:, None]
    writes: list[Callable[[Tensor], Tensor]] = [
        lambda i: device.index_add(1, i, values),
        lambda i: device.index_put((rows, i), values, accumulate=True),
        lambda i: device.scatter_add(1, spread(i, 1, values).clone(), values),
    ]
    for write in writes:
        places = index.to("xla")
        found = write(torch.where(places < 24, places, places + 100))
        assert torch.equal(found.cpu(), wanted)


def test_what_is_written_stays_where_it_was() -> None:
    """The value before, which somebody may still read, is another one."""
    x, y, index = operands(torch.float32)
    device = x.to("xla")
    written = device.index_add(1, index.to("xla"), y.to("xla"))
    torch_xla.sync()
    assert torch.equal(device.cpu(), x)
    device.index_add_(1, index.to("xla"), y.to("xla"))
    assert torch.equal(device.cpu(), written.cpu())
