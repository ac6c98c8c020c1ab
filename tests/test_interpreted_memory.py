"""An interpreted step computes in the order of the program's lines and updates in place, so that it
needs the memory that CPU-eager PyTorch needs."""

from collections.abc import Callable

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import assume_pure

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
