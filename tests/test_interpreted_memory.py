"""An interpreted step computes in the order of the program's lines and updates in place, so that it
needs the memory that CPU-eager PyTorch needs."""

from collections.abc import Callable

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import assume_pure
from torch_xla.experimental.fori_loop import while_loop

pytestmark = pytest.mark.host_only("only the host's memory is interpreted on")
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_xla.sync(wait=True)
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")


def layers(count: int, size: int) -> nn.Sequential:
    made = [layer for _ in range(count) for layer in (nn.Linear(size, size, bias=False), nn.Tanh())]
    return nn.Sequential(*made).to("xla")


def training(model: nn.Module, **options: object) -> Callable[[Tensor], None]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, **options)

    def step(x: Tensor) -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def needed(step: Callable[[Tensor], None], x: Tensor) -> float:
    """Megabytes at once, above what stays."""
    for _ in range(3):
        step(x)
        torch_xla.sync(wait=True)
    torch.xla.reset_peak_memory_stats()
    before = torch.xla.memory_allocated()
    step(x)
    torch_xla.sync(wait=True)
    return (torch.xla.max_memory_allocated() - before) / MEGABYTE


@pytest.mark.parametrize("pure", [False, True])
def test_updates_are_in_place(pure: bool) -> None:
    model = layers(8, 512)  # a megabyte each
    step = training(model, foreach=False)
    step = assume_pure(step) if pure else step
    # Gradients, and a denominator at a time. Second moments and parameters would be 24 more.
    assert needed(step, torch.randn(4, 512, device="xla")) < 8 + 4
    parameters = list(model.parameters())
    addresses = [torch_xla._XLAC.host_address(p) for p in parameters]
    step(torch.randn(4, 512, device="xla"))
    torch_xla.sync(wait=True)
    assert [torch_xla._XLAC.host_address(p) for p in parameters] == addresses


def test_the_first_update_of_what_came_from_the_cpu_is_in_place() -> None:
    source = torch.ones(1 << 20)
    weight = source.to("xla")
    address = torch_xla._XLAC.host_address(weight)
    torch.xla.reset_peak_memory_stats()
    before = torch.xla.memory_allocated()
    weight.mul_(2)
    torch_xla.sync(wait=True)
    assert torch_xla._XLAC.host_address(weight) == address
    assert torch.xla.max_memory_allocated() == before
    assert weight.sum() == 2 << 20 and source.sum() == 1 << 20


def test_activations_go_when_they_have_been_used() -> None:
    step = training(layers(12, 512))
    # 12 of 4 MB for the backward pass, which frees one for each gradient that it makes.
    assert needed(step, torch.randn(2048, 512, device="xla")) < 12 * 4 + 12


def test_what_others_hold_is_not_overwritten() -> None:
    model = layers(2, 8)
    step = training(model)
    step(torch.ones(4, 8, device="xla"))
    torch_xla.sync()
    weight = next(model.parameters())
    before = weight.detach().cpu().clone()
    copy, read = weight.detach().clone(), weight.detach().cpu()
    exported = torch.from_dlpack(weight.detach().clone())
    step(torch.ones(4, 8, device="xla"))
    torch_xla.sync()
    assert not torch.equal(weight.detach().cpu(), before)
    for kept in (copy.cpu(), read, exported.cpu()):
        torch.testing.assert_close(kept, before, rtol=0, atol=0)


def test_a_loop_that_goes_round_no_time_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.ones(1 << 16).to("xla")
    none = torch.zeros((), dtype=torch.bool).to("xla")
    kept, _ = while_loop(
        lambda value, more: more.clone(),
        lambda value, more: (value + 1, more.clone()),
        (weight, none),
    )
    torch_xla.sync(wait=True)
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")  # a program to which the weight is donated
    weight.add_(1)
    torch_xla.sync(wait=True)
    assert kept.sum() == 1 << 16
    assert weight.sum() == 2 << 16


def test_a_step_that_fails_has_changed_nothing() -> None:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8)).to("xla")
    step = training(model)
    good = torch.tensor([1, 2, 3]).to("xla")
    step(good)
    torch_xla.sync()
    before = [p.detach().cpu().clone() for p in model.parameters()]
    with pytest.raises(IndexError, match="out of range"):
        step(good + 9)
        torch_xla.sync()
    for kept, parameter in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach().cpu(), kept, rtol=0, atol=0)
    step(good)
    torch_xla.sync()
    assert not torch.equal(model[1].weight.detach().cpu(), before[1])


def replay_buffer() -> Tensor:
    buffer = torch.zeros(2**18, 8, device="xla")  # 8 MB
    torch_xla.sync(wait=True)
    return buffer


def write_a_row(buffer: Tensor, row: int) -> None:
    buffer[row] = torch.full((8,), float(row), device="xla")


def write_parts(buffer: Tensor, row: int) -> None:
    buffer[row, :4] = row
    buffer[row, 4:].fill_(row)


def write_at_indices(buffer: Tensor, row: int) -> None:
    buffer[torch.tensor([row, row]).to("xla")] = torch.full((2, 8), float(row), device="xla")


def scatter(buffer: Tensor, row: int) -> None:
    place = torch.full((1, 8), row).to("xla")
    buffer.scatter_(0, place, torch.full((1, 8), float(row), device="xla"))


def add_at_indices(buffer: Tensor, row: int) -> None:
    place = torch.tensor([row, row]).to("xla")
    buffer.index_fill_(0, place, 0.0)
    buffer.index_add_(0, place, torch.full((2, 8), row / 2, device="xla"))


WRITES = [write_a_row, write_parts, write_at_indices, scatter, add_at_indices]


@pytest.mark.parametrize("write", WRITES)
def test_a_buffer_that_is_written_between_reads_is_not_copied(
    write: Callable[[Tensor, int], None],
) -> None:
    buffer = replay_buffer()
    write(buffer, 0)
    assert buffer[0].mean().item() == 0
    address = torch_xla._XLAC.host_address(buffer)
    torch.xla.reset_peak_memory_stats()
    before = torch.xla.memory_allocated()
    for row in range(1, 20):
        write(buffer, row)
        sample = torch.tensor([row, row - 1]).to("xla")
        assert buffer[sample].mean().item() == row - 0.5
    assert torch_xla._XLAC.host_address(buffer) == address
    assert (torch.xla.max_memory_allocated() - before) / MEGABYTE < 1


def test_what_a_read_leaves_pending_reads_what_was_there() -> None:
    buffer = replay_buffer()
    shared = buffer * 2  # needs the buffer, and nothing that is read below
    write_a_row(buffer, 3)
    assert buffer[3].tolist() == [3] * 8
    assert shared[3].tolist() == [0] * 8
    other = buffer.detach().clone()
    exported = torch.from_dlpack(buffer.detach().clone())
    write_a_row(buffer, 4)
    assert buffer[4].tolist() == [4] * 8
    assert other[4].tolist() == [0] * 8 and exported.cpu()[4].tolist() == [0] * 8


@pytest.mark.parametrize("write", WRITES)
def test_where_a_read_fails_rows_written_before_stay(write: Callable[[Tensor, int], None]) -> None:
    buffer = replay_buffer()
    write(buffer, 1)
    assert buffer[1].mean().item() == 1
    write(buffer, 2)
    write(buffer, 1)
    buffer[1:3] *= 2
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        buffer[torch.tensor([2**20]).to("xla")].sum().item()
    assert buffer[:4].mean(1).tolist() == [0, 2, 4, 0]
    write(buffer, 3)
    assert buffer[:4].mean(1).tolist() == [0, 2, 4, 3]


def test_a_buffer_whose_writing_fails_is_as_it_was() -> None:
    buffer = replay_buffer()
    write_a_row(buffer, 1)
    assert buffer[1].mean().item() == 1
    write_a_row(buffer, 2)
    far = torch.tensor([2**19]).to("xla") * 2
    buffer.index_add_(0, far, torch.ones(1, 8, device="xla"))
    with pytest.raises((IndexError, RuntimeError)):
        buffer.sum().item()
    assert buffer[:4].mean(1).tolist() == [0, 1, 0, 0]
