"""Loss scaling in whole training steps: a step whose gradients overflow changes nothing, without a
value read."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from compare import FOREIGN
from steps import OPTIMIZERS, Batch, batches, mlp
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import assume_pure

INFINITE = (1, 4, 5, 11, 19)  # steps whose gradients overflow
STEPS = 20
# Counts have a float's digits where the device has no doubles: 1 - 0.999 has three.
ROUNDED = 100 if FOREIGN else 1


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = request.node.name.startswith("test_compiled")
    monkeypatch.setenv("TORCH_XLA_TIERS", "off" if compiled else "never")


def scaler_of(**options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("xla", init_scale=4.0, growth_interval=3, **options)


def step_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> Callable[..., Tensor]:
    def step(x: Tensor, y: Tensor, factor: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * factor
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def factors(count: int) -> list[Tensor]:
    values = [float("inf") if i in INFINITE else 1.0 for i in range(count)]
    return [torch.tensor(value).to("xla") for value in values]


def run(step: Callable[..., Tensor], data: list[Batch]) -> list[float]:
    given = zip(data, factors(len(data)), strict=True)
    return [step(*batch, factor).item() for batch, factor in given]


def numbers_of(optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    return [
        {k: v.item() for k, v in state.items() if isinstance(v, Tensor) and v.dim() == 0}
        for state in optimizer.state.values()
    ]


def check_equal(make: Callable[[bool], tuple[Any, ...]], traces: int) -> None:
    data = batches(STEPS)
    results = []
    for pure in (False, True):
        model, optimizer, scaler, step = make(pure)
        found = run(step, data)
        results.append(
            {
                "losses": [x for x in found if x != float("inf")],
                "parameters": [p.detach().cpu() for p in model.parameters()],
                "numbers": numbers_of(optimizer),
                "scale": scaler.get_scale(),
                "growth": scaler._get_growth_tracker(),
            }
        )
    plain, traced = results
    assert len(plain["losses"]) == len(traced["losses"]) == STEPS - len(INFINITE)
    close = {"rtol": 1e-6 * ROUNDED, "atol": 1e-7 * ROUNDED}
    torch.testing.assert_close(traced["losses"], plain["losses"], **close)
    close = {"rtol": 1e-5 * ROUNDED, "atol": 1e-6 * ROUNDED}
    torch.testing.assert_close(traced["parameters"], plain["parameters"], **close)
    torch.testing.assert_close(traced["numbers"], plain["numbers"], rtol=1e-6, atol=0)
    assert traced["scale"] == plain["scale"] and traced["growth"] == plain["growth"]
    assert step.cache_info().traces == traces


def training(name: str, **options: bool) -> Callable[[bool], tuple[Any, ...]]:
    def make(pure: bool) -> tuple[Any, ...]:
        model, scaler = mlp(), scaler_of()
        optimizer = OPTIMIZERS[name](model.parameters(), **options)
        step = step_of(model, optimizer, scaler)
        return model, optimizer, scaler, assume_pure(step) if pure else step

    return make


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_overflows_changes_nothing(name: str, foreach: bool) -> None:
    check_equal(training(name, foreach=foreach), traces=1)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
def test_fused_steps_that_overflow(name: str) -> None:
    check_equal(training(name, fused=True), traces=1)


@pytest.mark.parametrize("name", ["adamw", "adagrad", "nadam"])
def test_compiled_steps_that_overflow(name: str) -> None:
    def make(pure: bool) -> tuple[Any, ...]:
        model, scaler = mlp(), scaler_of()
        optimizer = OPTIMIZERS[name](model.parameters(), foreach=False)
        step = step_of(model, optimizer, scaler)
        return model, optimizer, scaler, torch_xla.compile(step, assume_pure=True) if pure else step

    check_equal(make, traces=1)


def test_a_scaled_step_reads_nothing(counters: Callable[[str], int]) -> None:
    model, scaler = mlp(), scaler_of()
    optimizer = torch.optim.Adam(model.parameters())
    step = torch_xla.compile(step_of(model, optimizer, scaler), assume_pure=True)
    data = [(*batch, factor) for batch, factor in zip(batches(6), factors(6), strict=True)]
    for given in data[:3]:
        step(*given)
    before = counters("aten::_local_scalar_dense"), counters("PureHit")
    for given in data[3:]:
        step(*given)
    after = counters("aten::_local_scalar_dense"), counters("PureHit")
    assert after == (before[0], before[1] + 3)


def test_the_first_steps_overflow() -> None:
    results = []
    for pure in (False, True):
        model, scaler = mlp(), scaler_of()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        step = step_of(model, optimizer, scaler)
        step = assume_pure(step) if pure else step
        for i, batch in enumerate(batches(8)):
            step(*batch, torch.tensor(float("inf") if i < 3 else 1.0).to("xla"))
        results.append([p.detach().cpu() for p in model.parameters()])
        assert numbers_of(optimizer)[0] == {"step": 5.0}
        assert scaler.get_scale() == 1.0
    torch.testing.assert_close(results[1], results[0], rtol=1e-5 * ROUNDED, atol=1e-6 * ROUNDED)


def test_a_state_is_loaded_between_scaled_steps() -> None:
    results = []
    for pure in (False, True):
        model, scaler = mlp(), scaler_of()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        step = step_of(model, optimizer, scaler)
        step = assume_pure(step) if pure else step
        data = [(*batch, factor) for batch, factor in zip(batches(9), factors(9), strict=True)]
        for given in data[:4]:
            step(*given)
        everything = (model, optimizer, scaler)
        saved = [copy.deepcopy(x.state_dict()) for x in everything]
        for given in data[4:6]:
            step(*given)
        for x, state in zip(everything, saved, strict=True):
            x.load_state_dict(state)
        scaler.set_growth_factor(3.0)
        for given in data[6:]:
            step(*given)
        results.append([p.detach().cpu() for p in model.parameters()])
        assert numbers_of(optimizer)[0]["step"] == 6.0 and scaler.get_scale() == 2.0 * 3.0
    torch.testing.assert_close(results[1], results[0], rtol=1e-5 * ROUNDED, atol=1e-6 * ROUNDED)


def test_two_optimizers_of_which_one_overflows() -> None:
    results = []
    for pure in (False, True):
        first, second, scaler = mlp(), mlp(), scaler_of()
        adam = torch.optim.Adam(first.parameters(), lr=0.01)
        sgd = torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9)

        def step(x: Tensor, y: Tensor, f: Tensor, a=first, b=second, o=adam, p=sgd, s=scaler):
            o.zero_grad()
            p.zero_grad()
            s.scale(F.cross_entropy(a(x), y) * f + F.cross_entropy(b(x), y)).backward()
            s.step(o)
            s.step(p)
            s.update()

        run = assume_pure(step) if pure else step
        for batch, factor in zip(batches(8), factors(8), strict=True):
            run(*batch, factor)
        results.append([p.detach().cpu() for m in (first, second) for p in m.parameters()])
        assert numbers_of(adam)[0]["step"] == 5.0
    torch.testing.assert_close(results[1], results[0], rtol=1e-5 * ROUNDED, atol=1e-6 * ROUNDED)


def test_an_exception_after_a_scaled_step_leaves_everything_as_it_was() -> None:
    model, scaler = mlp(), scaler_of()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    @assume_pure
    def step(x: Tensor, y: Tensor, factor: Tensor, fail: bool) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        if fail:
            raise KeyError("between the step and the update")
        scaler.update()
        return loss

    data = [(*batch, factor) for batch, factor in zip(batches(3), factors(3), strict=True)]
    step(*data[0], False)
    state = copy.deepcopy(optimizer.state_dict())
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(KeyError):
        step(*data[1], True)
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, q)
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)
    assert optimizer.state_dict()["state"][0]["step"].device.type == "cpu"
    step(*data[2], False)
    assert numbers_of(optimizer)[0]["step"] == 2.0


class CountsInPython(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] / state["step"])


def test_steps_that_are_counted_in_python_are_refused_by_name() -> None:
    model, scaler = mlp(), scaler_of()
    optimizer = CountsInPython(model.parameters())
    step = assume_pure(step_of(model, optimizer, scaler))
    data = [(*batch, factor) for batch, factor in zip(batches(2), factors(2), strict=True)]
    step(*data[0])
    with pytest.raises(RuntimeError, match=r"CountsInPython counts its steps.*torch.tensor\(0.0\)"):
        step(*data[1])
    assert numbers_of(optimizer) == [{}] * 4 and optimizer.state[model[0].weight]["step"] == 1
