"""Every model with every kind of optimizer: the CPU's losses, and one execution a step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import pytest
import tiny
import torch
import torch_xla
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from work import Work

STEPS = 20
WARM_UP_STEPS = 2
RELATIVE_TOLERANCE = 1e-3

Optimizer = torch.optim.Optimizer
Parameters = list[nn.Parameter]


def sgd(parameters: Parameters, learning_rate: float, **options: bool) -> Optimizer:
    return torch.optim.SGD(parameters, lr=3 * learning_rate, momentum=0.9, **options)


def adam(parameters: Parameters, learning_rate: float, **options: bool) -> Optimizer:
    return torch.optim.Adam(parameters, lr=learning_rate, **options)


def adamw(parameters: Parameters, learning_rate: float, **options: bool) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=learning_rate, **options)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"sgd": sgd, "adam": adam, "adamw": adamw}
IMPLEMENTATIONS = {
    "default": {},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False},
    "fused": {"fused": True},
}


@dataclass(frozen=True)
class Recipe:
    optimizer: str
    implementation: str = "default"
    clip: bool = False
    schedule: bool = False


@dataclass
class Run:
    """Losses of a training run, and what the device did in each of its steps."""

    losses: list[float]
    steps: list[Work] = field(default_factory=list)

    def compilations(self) -> int:
        return sum(step.compilations for step in self.steps)


def train(model_name: str, recipe: Recipe, device: str) -> Run:
    case = tiny.MODELS[model_name]
    model = case.model().to(device)
    parameters = list(model.parameters())
    options = IMPLEMENTATIONS[recipe.implementation]
    optimizer = OPTIMIZERS[recipe.optimizer](parameters, case.learning_rate, **options)
    scheduler = CosineAnnealingLR(optimizer, T_max=STEPS) if recipe.schedule else None
    losses, steps = [], []
    if device == "xla":
        torch_xla.sync()
    for batch in case.batches(STEPS):
        before = Work.so_far()
        optimizer.zero_grad()
        loss = tiny.loss_of(model, (batch[0].to(device), batch[1].to(device)))
        loss.backward()
        if recipe.clip:
            nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if device == "xla":
            torch_xla.sync(wait=True)
        losses.append(loss.detach())
        steps.append(Work.so_far().since(before))
    return Run([loss.item() for loss in losses], steps)


def assert_tracks_cpu(run: Run, model_name: str, recipe: Recipe) -> None:
    expected = torch.tensor(train(model_name, recipe, "cpu").losses)
    torch.testing.assert_close(
        torch.tensor(run.losses), expected, rtol=RELATIVE_TOLERANCE, atol=0.0
    )


def assert_steady(steps: list[Work]) -> None:
    """After the first steps, a step compiles nothing; in lazy mode it is one program."""
    if torch_xla.experimental.is_eager_mode():
        assert not any(step.compilations for step in steps)
        return
    one_execution = Work(executions=1, compilations=0, fallbacks=0, device_to_host=0)
    assert steps == [one_execution] * len(steps)


def selection() -> list[tuple[str, Recipe]]:
    """Almost every model once, with the optimizers in turn; every optimizer on the decoder."""
    optimizers = list(OPTIMIZERS)
    chosen = [
        (model, Recipe(optimizers[index % len(optimizers)]))
        for index, model in enumerate(tiny.MODELS)
        if model != "resnet50"  # half a minute, and resnet18 is here
    ]
    return chosen + [("decoder", recipe) for recipe in all_recipes()]


def all_recipes() -> list[Recipe]:
    recipes = [Recipe(*pair) for pair in product(OPTIMIZERS, IMPLEMENTATIONS)]
    return [*recipes, Recipe("adamw", clip=True), Recipe("sgd", clip=True)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.originalname != "test_tracks_cpu_and_is_steady":
        return
    full = metafunc.config.getoption("--full")
    cases = list(product(tiny.MODELS, all_recipes())) if full else selection()
    cases = list(dict.fromkeys(cases))
    metafunc.parametrize(("model_name", "recipe"), cases, ids=[case_id(*case) for case in cases])


def case_id(model_name: str, recipe: Recipe) -> str:
    clip = "-clip" if recipe.clip else ""
    return f"{model_name}-{recipe.optimizer}-{recipe.implementation}{clip}"


def test_tracks_cpu_and_is_steady(model_name: str, recipe: Recipe) -> None:
    run = train(model_name, recipe, "xla")
    assert_tracks_cpu(run, model_name, recipe)
    assert_steady(run.steps[WARM_UP_STEPS:])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_schedule_costs_at_most_one_compilation(optimizer: str) -> None:
    train("decoder", Recipe(optimizer), "xla")
    scheduled_recipe = Recipe(optimizer, schedule=True)
    scheduled = train("decoder", scheduled_recipe, "xla")
    assert_tracks_cpu(scheduled, "decoder", scheduled_recipe)
    assert scheduled.compilations() <= 1, "beyond the programs of the run without a schedule"
    assert_steady(scheduled.steps[WARM_UP_STEPS + 1 :])


def test_dropout_is_steady() -> None:
    """A step with random numbers neither recompiles nor talks to the host."""
    torch.manual_seed(0)
    model = tiny.gpt(dropout=0.2).to("xla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps, losses = [], []
    for inputs, targets in tiny.MODELS["gpt"].batches(8):
        before = Work.so_far()
        optimizer.zero_grad()
        loss = tiny.loss_of(model, (inputs.to("xla"), targets.to("xla")))
        loss.backward()
        optimizer.step()
        torch_xla.sync(wait=True)
        losses.append(loss.detach())
        steps.append(Work.so_far().since(before))
    assert_steady(steps[WARM_UP_STEPS:])
    assert all(torch.isfinite(loss).item() for loss in losses)


def test_dropout_learns_like_cpu() -> None:
    """Other random numbers, the same expectation: the mean loss agrees within its noise."""
    means = {}
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        model = tiny.gpt(dropout=0.1).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        inputs, targets = (part.to(device) for part in tiny.MODELS["gpt"].batches(1)[0])
        total = torch.zeros((), device=device)
        for _ in range(30):
            optimizer.zero_grad()
            loss = tiny.loss_of(model, (inputs, targets))
            loss.backward()
            optimizer.step()
            total += loss.detach()
            if device == "xla":
                torch_xla.sync()
        means[device] = total.item() / 30
    assert means["xla"] == pytest.approx(means["cpu"], rel=0.03)


def test_tied_weights_stay_tied_and_share_a_gradient() -> None:
    model = tiny.gpt(dropout=0.0).to("xla")
    assert model.head.weight is model.tokens.weight
    inputs, targets = tiny.MODELS["gpt"].batches(1)[0]
    tiny.loss_of(model, (inputs.to("xla"), targets.to("xla"))).backward()
    reference = tiny.gpt(dropout=0.0)
    reference.load_state_dict(model.state_dict())
    tiny.loss_of(reference, (inputs, targets)).backward()
    torch.testing.assert_close(model.tokens.weight.grad.cpu(), reference.tokens.weight.grad)


def test_evaluation_matches_cpu_and_leaves_batch_statistics() -> None:
    case = tiny.MODELS["resnet18"]
    reference = case.model()
    images, _ = case.batches(1)[0]
    with torch.no_grad():
        for _ in range(2):
            reference(images)
    model = case.model().to("xla")
    model.load_state_dict(reference.state_dict())
    reference.eval(), model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(images.to("xla")).cpu(), reference(images))
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer.cpu(), reference.get_buffer(name))
