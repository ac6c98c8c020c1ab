"""The examples of "Eager Mode + Compile API", word for word, run as a user would."""

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import models.resnet
import pytest
import torch
import torch_xla
from torch_xla.experimental import eager_mode, is_eager_mode
from work import Work

TRACING = """
import torch
import torch_xla
import torchvision

device = torch_xla.device()
model = torchvision.models.resnet18().to(device)
input = torch.randn(64, 3, 224, 224).to(device)

# model tracing
res = model(input)

# model execution, same as `xm.mark_step`
torch_xla.sync()
"""

BASIC_USAGE = """
import torch
import torch_xla
import torchvision

# Run ops eagerly by default
torch_xla.experimental.eager_mode(True)

device = torch_xla.device()
model = torchvision.models.resnet18().to(device)

# Mark the function to be compiled
compiled_model = torch_xla.compile(model)
input = torch.randn(64, 3, 224, 224).to(device)

# Compilation and execution happens right away.
res = compiled_model(input)
"""

INFERENCE = """
torch_xla.experimental.eager_mode(True)

compiled_model = torch.compile(model, backend="openxla")
"""

TRAINING = """
torch_xla.experimental.eager_mode(True)

def step_fn(model, data, target, loss_fn, optimizer):
    optimizer.zero_grad()
    logits = model(data)
    loss = loss_fn(logits, target)
    loss.backward()
    optimizer.step()
    return loss

step_fn = torch_xla.compile(step_fn)
"""


@pytest.fixture(autouse=True)
def mode_restored() -> Iterator[None]:
    yield
    eager_mode(False)
    torch_xla.sync(wait=True)


@functools.cache
def declare_operators_of_torchvision() -> None:
    """Its package index has no build for the CPU, only one whose library needs CUDA. Models do not
    use the operators in it, but the package is not imported unless they are declared."""
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
        )


@pytest.fixture(params=["torchvision", "examples"])
def torchvision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where resnet18 comes from: torchvision, or this repository under that name."""
    if request.param == "torchvision":
        monkeypatch.syspath_prepend(Path(sys.prefix) / "torchvision")  # dev/setup put it there
        declare_operators_of_torchvision()
        importlib.import_module("torchvision")
        return
    stand_in: Any = ModuleType("torchvision")
    stand_in.models = models.resnet
    monkeypatch.setitem(sys.modules, "torchvision", stand_in)


def run(snippet: str, **names: Any) -> dict[str, Any]:
    namespace = dict(names)
    exec(snippet, namespace)
    return namespace


def check(names: dict[str, Any]) -> None:
    """Nothing is left to do, and `res` is what the CPU's PyTorch computes."""
    assert torch_xla._XLAC.pending_node_count(0) == 0
    result = names.pop("res").detach().cpu()
    model = names["model"].cpu()
    with torch.no_grad():
        expected = model(names["input"].cpu())
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)


def test_tracing(torchvision: None) -> None:
    names = run(TRACING)
    check(names)


def test_basic_usage(torchvision: None) -> None:
    before = Work.so_far()
    names = run(BASIC_USAGE)
    work = Work.so_far().since(before)
    assert (work.executions, is_eager_mode()) == (1, True)
    again = Work.so_far()
    names["compiled_model"](names["input"])
    work = Work.so_far().since(again)
    assert (work.executions, work.compilations) == (1, 0)
    check(names)


def test_inference() -> None:
    device = torch_xla.device()
    model = models.resnet.resnet18().to(device).eval()
    names = run(INFERENCE, torch=torch, torch_xla=torch_xla, model=model)
    names["input"] = torch.randn(2, 3, 64, 64).to(device)
    with torch.no_grad():
        names["compiled_model"](names["input"])
        before = Work.so_far()
        names["res"] = names["compiled_model"](names["input"])
    work = Work.so_far().since(before)
    assert (work.executions, work.compilations, is_eager_mode()) == (1, 0, True)
    check(names)


def test_training() -> None:
    step_fn = run(TRAINING, torch_xla=torch_xla)["step_fn"]
    losses = {}
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
        ).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        data, target = torch.randn(16, 8).to(device), torch.randint(4, (16,)).to(device)
        step = step_fn if device == "xla" else step_fn.__wrapped__
        arguments = model, data, target, torch.nn.functional.cross_entropy, optimizer
        losses[device] = [step(*arguments).item() for _ in range(4)]
    assert losses["xla"] == pytest.approx(losses["cpu"], rel=1e-4)
    before = Work.so_far()
    step_fn(*arguments)
    work = Work.so_far().since(before)
    assert (work.executions, work.compilations) == (1, 0)
