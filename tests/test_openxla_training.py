"""torch.compile(backend="openxla") in training: gradients, statistics, optimizers, whole steps."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_xla
from models import GPT, GPTConfig
from steps import batches, step_of
from tiny import MODELS, loss_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_xla.experimental import eager_mode_context
from work import Work, counter


@pytest.fixture
def fresh() -> None:
    torch_xla.sync(wait=True)
    torch._dynamo.reset()


@pytest.fixture(params=[True, False], ids=["eager", "lazy"])
def mode(request: pytest.FixtureRequest) -> Iterator[bool]:
    torch_xla.sync(wait=True)
    torch._dynamo.reset()
    with eager_mode_context(request.param):
        yield request.param


Step = Callable[..., Tensor]
Optimizer = Callable[[Any], torch.optim.Optimizer]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


def train(
    model: nn.Module,
    optimizer: Optimizer,
    batches: list[Any],
    whole: bool = False,
    device: str = "xla",
) -> tuple[list[float], dict[str, Tensor], Work]:
    """Losses, the trained state, and the work of the last step."""
    model = copy.deepcopy(model).to(device)
    updates = optimizer(model.parameters())

    def step(called: nn.Module, batch: Any) -> Tensor:
        updates.zero_grad()
        loss = loss_of(called, batch)
        loss.backward()
        updates.step()
        return loss

    compiled: Any = model
    if device == "xla" and whole:
        step = torch.compile(step, backend="openxla")
    elif device == "xla":
        compiled = torch.compile(model, backend="openxla")
    losses = []
    for batch in batches:
        batch = [part.to(device) for part in batch]
        torch_xla.sync()
        before = Work.so_far()
        loss = step(compiled, batch)
        torch_xla.sync()
        work = Work.so_far().since(before)
        losses.append(loss.item())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}, work


@pytest.mark.parametrize("whole", [False, True], ids=["model", "step"])
def test_training_is_as_on_the_cpu(mode: bool, whole: bool) -> None:
    optimizer = adam if mode == whole else sgd
    model = nn.Sequential(
        nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
    )
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(8, 6, generator=generator), torch.randint(4, (8,), generator=generator))
        for _ in range(5)
    ]
    losses, state, work = train(model, optimizer, batches, whole)
    expected_losses, expected_state, _ = train(model, optimizer, batches, device="cpu")
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    torch.testing.assert_close(state, expected_state, rtol=1e-3, atol=1e-4)
    assert work.compilations == 0


@pytest.mark.parametrize("name,eagerly", [("decoder", True), ("resnet18", False)])
def test_models_train(fresh: None, name: str, eagerly: bool) -> None:
    tiny = MODELS[name]
    batches = tiny.batches(3)
    with eager_mode_context(eagerly):
        losses, _, work = train(tiny.model(), sgd, batches)
    expected, _, _ = train(tiny.model(), sgd, batches, device="cpu")
    assert losses == pytest.approx(expected, rel=1e-3)
    assert work.compilations == 0


def test_tied_weights(fresh: None) -> None:
    model = GPT(GPTConfig(64, context=16, size=32, layers=1, heads=2, dropout=0.0))
    tied = [
        (a, b)
        for a, one in model.named_parameters(remove_duplicate=False)
        for b, other in model.named_parameters(remove_duplicate=False)
        if a < b and one is other
    ]
    assert tied
    batches = MODELS["gpt"].batches(3)
    losses, state, _ = train(model, sgd, batches)
    expected, expected_state, _ = train(model, sgd, batches, device="cpu")
    assert losses == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(state, expected_state, rtol=1e-3, atol=1e-4)


def test_dropout_in_training(mode: bool) -> None:
    model = nn.Sequential(nn.Dropout(0.5)).to("xla")
    compiled = torch.compile(model, backend="openxla")

    def gradients() -> list[Tensor]:
        torch.manual_seed(5)
        found = []
        for _ in range(3):
            x = torch.ones(32, device="xla", requires_grad=True)
            y = compiled(x)
            y.sum().backward()
            torch.testing.assert_close(y.cpu(), x.grad.cpu())  # one mask for both directions
            found.append(x.grad.cpu())
        return found

    first, again = gradients(), gradients()
    assert not torch.equal(first[0], first[1])
    torch.testing.assert_close(first, again)


def test_a_changing_batch_size_in_training(mode: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 4))
    batches = [(torch.randn(n, 6), torch.randint(4, (n,))) for n in (4, 6, 8, 4, 6, 8)]
    losses, state, work = train(model, sgd, batches)
    expected, expected_state, _ = train(model, sgd, batches, device="cpu")
    assert losses == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(state, expected_state, rtol=1e-4, atol=1e-5)
    assert work.compilations == 0


def test_forward_and_backward_are_a_program_each(mode: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)).to("xla")
    compiled = torch.compile(model, backend="openxla")
    x, gradient = torch.randn(8, 6).to("xla"), torch.randn(8, 4).to("xla")
    for _ in range(2):
        torch_xla.sync()
        before, traced = Work.so_far(), counter("PureTrace")
        y = compiled(x)
        forward = Work.so_far().since(before)
        y.backward(gradient)
        both = Work.so_far().since(before)
        model.zero_grad()
    assert (forward.executions, both.executions, both.compilations) == (1, 2, 0)
    assert counter("PureTrace") == traced  # known to the second step
    assert both.device_to_host == 0


def test_gradients_of_inputs_and_partly_frozen_models(mode: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    other = copy.deepcopy(model).to("xla")
    compiled = torch.compile(other, backend="openxla")
    x = torch.randn(3, 4)
    xs = [x.clone().requires_grad_(), x.to("xla").requires_grad_()]
    (model(xs[0]) ** 2).sum().backward()
    (compiled(xs[1]) ** 2).sum().backward()
    torch.testing.assert_close(xs[1].grad.cpu(), xs[0].grad)
    torch.testing.assert_close(other[2].weight.grad.cpu(), model[2].weight.grad)
    assert other[0].weight.grad is None


def test_autocast(mode: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to("xla")
    compiled = torch.compile(model, backend="openxla")
    x = torch.randn(3, 8).to("xla")
    with torch.autocast("xla", dtype=torch.bfloat16):
        expected, actual = model(x), compiled(x)
    assert actual.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=0.05, atol=0.05)


def linear_step(device: str, optimize: Optimizer) -> tuple[Step, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(6, 3).to(device)
    optimizer = optimize(model.parameters())
    step, batch = step_of(model, optimizer), [part.to(device) for part in batches(1)[0]]
    return lambda: step(*batch), optimizer


def test_a_whole_step_with_counts_on_the_cpu_without_aot_autograd(mode: bool) -> None:
    """An Adam that was not compiled from the first keeps its step counts there, as attributes of
    the graph."""
    counts = []
    for device in ("cpu", "xla"):
        step, optimizer = linear_step(device, adam)
        step()
        if device == "xla":
            step = torch.compile(step, backend="openxla_eval")
        losses = [step().item() for _ in range(3)]
        counts.append([losses, *(state["step"].item() for state in optimizer.state.values())])
    assert counts[1][1:] == counts[0][1:] == [4.0, 4.0]
    assert counts[1][0] == pytest.approx(counts[0][0], rel=1e-3)


@pytest.mark.parametrize("name", ["NAdam", "Adam", "RAdam"])
def test_an_optimizer_counts_its_steps_on_the_device(fresh: None, name: str) -> None:
    """As on CUDA. With a schedule, whose rates are inputs of the graph."""
    losses = []
    for device in ("cpu", "xla"):
        step, optimizer = linear_step(device, lambda p: getattr(torch.optim, name)(p, lr=0.05))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        if device == "xla":
            step = torch.compile(step, backend="openxla")
        losses.append([])
        for _ in range(4):
            losses[-1].append(step().item())
            schedule.step()
    assert all(state["step"].device.type == "xla" for state in optimizer.state.values())
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_a_checkpointed_region_draws_the_same_numbers_again(fresh: None) -> None:
    def block(x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.dropout(torch.sin(x * weight), 0.5)

    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return checkpoint(block, x, weight, use_reentrant=False)

    compiled = torch.compile(forward, backend="openxla")
    weight = torch.ones(64, device="xla", requires_grad=True)
    masks = []
    for _ in range(3):
        y = compiled(torch.ones(64, device="xla"), weight)
        before = torch.xla.get_rng_state()
        (gradient,) = torch.autograd.grad(y.sum(), weight)
        masks.append((y != 0).cpu())
        assert torch.equal((gradient != 0).cpu(), masks[-1])
        assert torch.equal(torch.xla.get_rng_state().cpu(), before.cpu())
    assert not torch.equal(masks[0], masks[1])


def test_the_backend_without_aot_autograd_trains(mode: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    other = copy.deepcopy(model).to("xla")
    compiled = torch.compile(other, backend="openxla_eval")
    x = torch.randn(3, 4)
    model(x).sum().backward()
    compiled(x.to("xla")).sum().backward()
    torch.testing.assert_close(other[0].weight.grad.cpu(), model[0].weight.grad)
