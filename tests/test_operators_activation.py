"""Activations and losses at their corners: infinities, NaN, thresholds, ignored targets."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from compare import assert_same
from torch import Tensor

INF, NAN = float("inf"), float("nan")
CORNERS = [-INF, -30.0, -6.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 19.0, 21.0, INF, NAN]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": lambda x: F.elu(x, 1.5),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.5, -2.0),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 2.0, 10.0),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": lambda x: F.gelu(x[1:14]),
    "gelu tanh": lambda x: F.gelu(x[1:14], approximate="tanh"),
    "glu": lambda x: F.glu(x, 0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_corners(name: str, dtype: torch.dtype) -> None:
    def program(device: str) -> list[Tensor]:
        every = torch.tensor(CORNERS, dtype=dtype, device=device)
        # The gradient at NaN depends on whether the CPU's kernel is vectorised.
        x = every[:-2].requires_grad_()
        y = ACTIVATIONS[name](x)
        (grad,) = torch.autograd.grad(y, x, torch.linspace(0.5, 2.0, y.numel()).to(y))
        return [ACTIVATIONS[name](every), grad]

    tolerance = 1.6e-2 if dtype == torch.bfloat16 else 2e-5
    assert_same(program, rtol=tolerance, atol=tolerance)


LOGARITHMS: dict[str, Callable[[Tensor], Tensor]] = {
    "log1p": torch.log1p,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
}


@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_are_as_precise_for_every_magnitude(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative to the result, however small: what 1 + x rounds off counts."""
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")

    small = torch.logspace(-36, 0, 3001)
    every = torch.cat([small, -small[:-1], torch.linspace(-80, 300, 9001)])
    assert_same(lambda device: LOGARITHMS[name](every.to(device)), rtol=4e-7, atol=1e-34)


@pytest.mark.parametrize("eps", [None, 0.2])
def test_logit_outside_of_its_domain(eps: float | None) -> None:
    def program(device: str) -> list[Tensor]:
        x = torch.tensor([-0.1, 0.0, 0.1, 0.5, 0.9, 1.0, 1.1], device=device, requires_grad=True)
        y = torch.logit(x, eps)
        y.backward(torch.ones_like(y))
        return [y.detach(), x.grad]

    assert_same(program)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(reduction: str, weighted: bool) -> None:
    """Ignored targets, also in batches where all are, also with NaN where they point."""

    def program(device: str) -> list[Tensor]:
        weight = torch.tensor([0.5, 2.0, 1.0], device=device) if weighted else None
        results = []
        for targets in ([2, -100, 0, 1], [-100] * 4):
            x = torch.linspace(-3, 2, 12).view(4, 3).to(device).requires_grad_()
            target = torch.tensor(targets, device=device)
            for scores, classes in ((x, target), (x.t()[None], target[None]), (x[0], target[0])):
                loss = F.nll_loss(scores, classes, weight, reduction=reduction)
                (grad,) = torch.autograd.grad(loss.sum(), x)
                results += [loss.detach(), grad]
        return results

    assert_same(program)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_cross_entropy_of_certain_predictions(reduction: str) -> None:
    def program(device: str) -> list[Tensor]:
        p = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.3], device=device, requires_grad=True)
        target = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0], device=device)
        loss = F.binary_cross_entropy(p, target, reduction=reduction)
        loss.sum().backward()
        return [loss.detach(), p.grad]

    assert_same(program)


@pytest.mark.parametrize("shape", [(5,), (6, 5), (2, 5, 3), (0, 5)])
@pytest.mark.parametrize("ignored", [-100, 1])
def test_mean_of_smoothed_and_weighted_labels_reads_no_value(shape, ignored: int) -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        x = torch.randn(shape).to(device).requires_grad_()
        target = torch.randint(5, shape[:1] + shape[2:] if len(shape) > 1 else ()).to(device)
        weight = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0], device=device)

        def step() -> tuple[Tensor, Tensor]:
            loss = F.cross_entropy(x, target, weight, ignore_index=ignored, label_smoothing=0.1)
            return loss.detach(), torch.autograd.grad(loss, x)[0]

        if device == "xla":  # raises where a value is read
            step = torch_xla.compile(step, full_graph=True)
        return list(step())

    assert_same(program)
