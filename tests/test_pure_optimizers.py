"""Whole training steps as one pure function, with every optimizer."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from steps import (
    OPTIMIZERS,
    RADAM_TRACES,
    Batch,
    Optimize,
    Step,
    batches,
    losses,
    mlp,
    step_of,
)
from tiny import MODELS, WITH_DROPOUT
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import assume_pure

COMPILED = ("test_fused", "test_gan")  # others are interpreted, and over in seconds


@pytest.fixture(autouse=True)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.name.startswith(COMPILED):
        monkeypatch.setenv("TORCH_XLA_TIERS", "never")


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_with_a_schedule(name: str, foreach: bool) -> None:
    data = batches(12)
    models = [mlp(), mlp()]
    results = []
    for model, pure in zip(models, (False, True), strict=True):
        optimizer = OPTIMIZERS[name](model.parameters(), foreach=foreach)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        step = step_of(model, optimizer)
        traced = assume_pure(step)
        results.append(losses(traced if pure else step, data, schedule.step))
    assert traced.cache_info().traces <= (RADAM_TRACES if name == "radam" else 1)
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)


def gan_of(make: Optimize, of_judge: Optimize) -> tuple[Step, list[torch.optim.Optimizer]]:
    maker, judge = nn.Linear(4, 6).to("xla"), nn.Linear(6, 1).to("xla")
    better = [make(maker.parameters()), of_judge(judge.parameters())]

    def step(real: Tensor, _: Tensor) -> Tensor:
        noise = torch.randn(5, 4, device="xla")
        better[1].zero_grad()
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(maker(noise).detach())).mean()
        loss.backward()
        better[1].step()
        better[0].zero_grad()
        fooled = F.softplus(-judge(maker(noise))).mean()
        fooled.backward()
        better[0].step()
        return loss + fooled

    return step, better


WHOLE = {name: MODELS[name] for name in ("decoder", "resnet18", "lstm")} | WITH_DROPOUT


def whole_step(name: str, make: Optimize) -> tuple[Step, list[Batch], list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    if name == "gan":
        step, optimizers = gan_of(make, make)
        return step, batches(20, size=5), optimizers
    model = WHOLE[name].model().to("xla")
    optimizer = make(model.parameters())
    data = [(x.to("xla"), y.to("xla")) for x, y in WHOLE[name].batches(20)]
    return step_of(model, optimizer), data, [optimizer]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --full each model with each optimizer, else each of both at least once."""
    if metafunc.definition.originalname == "test_whole_models_with_every_optimizer":
        models = [*WHOLE, "gan"]
        pairs = list(itertools.product(models, OPTIMIZERS))
        if not metafunc.config.getoption("--full"):
            small = ("decoder", "gpt with dropout")
            pairs = [(small[i % 2], name) for i, name in enumerate(OPTIMIZERS)]
            pairs += [("lstm", "adam"), ("resnet18", "momentum"), ("gan", "adamw")]
        metafunc.parametrize(("model", "name"), pairs)


def test_whole_models_with_every_optimizer(model: str, name: str) -> None:
    results = []
    for pure in (False, True):
        step, data, optimizers = whole_step(model, OPTIMIZERS[name])
        schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 20) for o in optimizers]
        traced = assume_pure(step)

        def after(schedules: Any = schedules) -> None:
            for schedule in schedules:
                schedule.step()

        torch.manual_seed(7)
        results.append(losses(traced if pure else step, data, after))
    assert traced.cache_info().traces == (RADAM_TRACES if name == "radam" else 1)
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_fused_optimizers(name: str) -> None:
    data = batches(6)
    results = []
    for pure in (False, True):
        model = mlp()
        optimizer = OPTIMIZERS[name](model.parameters(), fused=True)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        step = step_of(model, optimizer)
        traced = assume_pure(step)
        results.append(losses(traced if pure else step, data, schedule.step))
    assert traced.cache_info().traces == 1
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_gan() -> None:
    results = []
    for pure in (False, True):
        torch.manual_seed(0)
        step, _ = gan_of(OPTIMIZERS["adam"], lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
        torch.manual_seed(7)
        results.append(losses(assume_pure(step) if pure else step, batches(6)))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)
