"""Whole training steps as one pure function: what a call repeats, notices, and refuses."""

import copy
import gc
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from steps import Step, batches, losses, mlp, step_of
from tiny import MODELS, WITH_DROPOUT
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import PureModule, assume_pure

ALL_MODELS = MODELS | WITH_DROPOUT
# Most tests are about what a call repeats: interpreted, they are over in seconds.
COMPILED = ("test_a_schedule_inside", "test_compiled", "test_many_steps")


@pytest.fixture(autouse=True)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.name.startswith(COMPILED):
        monkeypatch.setenv("TORCH_XLA_TIERS", "never")


@pytest.mark.parametrize("name", ALL_MODELS)
def test_models(name: str) -> None:
    tiny = ALL_MODELS[name]
    results = []
    for pure in (False, True):
        model = tiny.model().to("xla")
        step = step_of(model, torch.optim.Adam(model.parameters(), lr=1e-3))
        torch.manual_seed(4)
        data = [(x.to("xla"), y.to("xla")) for x, y in tiny.batches(5)]
        results.append(losses(assume_pure(step) if pure else step, data))
    torch.testing.assert_close(results[1], results[0], rtol=2e-5, atol=2e-5)


def test_python_runs_on_a_miss_only() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    runs = 0

    @assume_pure
    def step(x: Tensor, y: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for x, y in batches(10):
        step(x, y)
        torch_xla.sync()
    assert runs == 2  # as it is, then traced
    step(*batches(1, size=4)[0])
    assert runs == 3
    assert optimizer.state[model[0].weight]["step"].item() == 11


def test_hyperparameters_are_read_at_each_call() -> None:
    data = batches(30)
    results = []
    for pure in (False, True):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step = step_of(model, optimizer)
        traced = assume_pure(step)
        rates = itertools.count(1)

        def change(optimizer: Any = optimizer, rates: Any = rates) -> None:
            n = next(rates)
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / n
                group["weight_decay"] = 1e-2 * n
                group["betas"] = (0.9 - 0.01 * n, 0.999)

        results.append(losses(traced if pure else step, data, change))
    assert traced.cache_info().traces == 1
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)


def test_a_hyperparameter_that_changes_what_is_computed() -> None:
    data = batches(8)
    results = []
    for pure in (False, True):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = step_of(model, optimizer)
        traced = assume_pure(step)

        def change(optimizer: Any = optimizer) -> None:
            group = optimizer.param_groups[0]
            group["weight_decay"] = 0.1 - group["weight_decay"]

        results.append(losses(traced if pure else step, data, change))
    assert traced.cache_info().traces == 2
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)


def test_a_schedule_inside() -> None:
    data = batches(8)
    results, rates = [], []
    for pure in (False, True):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

        def step(x: Tensor, y: Tensor, m: Any = model, o: Any = optimizer, s: Any = schedule):
            o.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            o.step()
            s.step()
            return loss

        traced = assume_pure(
            lambda x, y, step=step, model=model, o=optimizer, s=schedule: step(x, y)
        )
        results.append(losses(traced if pure else step, data))
        rates.append(schedule.get_last_lr())
    assert rates[0] == rates[1]
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)


def accumulating(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(x: Tensor, y: Tensor, last: bool) -> Tensor:
        loss = F.cross_entropy(model(x), y) / 3
        loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


def test_accumulated_and_clipped_gradients() -> None:
    data = [(*batch, i % 3 == 2) for i, batch in enumerate(batches(18))]
    results = []
    for pure in (False, True):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        step = accumulating(model, optimizer)
        traced = assume_pure(step)
        results.append(losses(traced if pure else step, data))  # type: ignore[arg-type]
    assert traced.cache_info().traces <= 4
    assert traced.cache_info().hits >= 8
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("set_to_none", [False, True])
def test_gradients_are_where_users_look(set_to_none: bool) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = assume_pure(step_of(model, optimizer, set_to_none=set_to_none))
    for x, y in batches(5):
        before = model[0].weight.grad
        step(x, y)
        expected = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        for p, grad in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, grad)
        if before is not None and not set_to_none:
            assert model[0].weight.grad is before
    assert step.cache_info().traces <= 2


def test_pure_layers_inside() -> None:
    data = batches(5)
    results = []
    for pure in (False, True):
        model = mlp()
        inner = PureModule(model) if pure else model
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        step = step_of(inner, optimizer)
        results.append(losses(assume_pure(step) if pure else step, data))
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("eager", [False, True])
def test_compiled(eager: bool) -> None:
    data = batches(8)
    results = []
    torch_xla.experimental.eager_mode(eager)
    try:
        for pure in (False, True):
            model = mlp()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
            step = step_of(model, optimizer)
            run = torch_xla.compile(step, assume_pure=True) if pure else step
            results.append(losses(run, data, schedule.step))
    finally:
        torch_xla.experimental.eager_mode(False)
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_state_is_saved_and_loaded_between_calls() -> None:
    data = batches(9)
    results = []
    for pure in (False, True):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        step = step_of(model, optimizer)
        run = assume_pure(step) if pure else step
        found = losses(run, data[:4])
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        found += losses(run, data[4:6])
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        found += losses(run, data[6:])
        results.append(found)
        assert optimizer.state[model[0].weight]["step"].item() == 7
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)


def test_a_parameter_is_frozen_or_added_between_calls() -> None:
    data = batches(9)
    results = []
    for pure in (False, True):
        model = mlp()
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
        step = step_of(model, optimizer)
        run = assume_pure(step) if pure else step
        found = losses(run, data[:3])
        model[0].bias.requires_grad_(False)
        found += losses(run, data[3:6])
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.01})
        found += losses(run, data[6:])
        results.append(found)
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("where", ["forward", "backward", "step"])
def test_an_exception_leaves_everything_as_it_was(where: str) -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    fails = False

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            if fails and where == "forward":
                raise KeyError("forward")
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            if fails and where == "backward":
                raise KeyError("backward")
            return grad

    @assume_pure
    def step(x: Tensor, y: Tensor, fail: bool) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(Fails.apply(model(x)), y)
        loss.backward()
        optimizer.step()
        if fail and where == "step":
            raise KeyError("step")
        return loss

    data = batches(4)
    for x, y in data[:3]:
        step(x, y, False)
    torch_xla.sync()
    before = copy.deepcopy([p.detach() for p in model.parameters()])
    gradients = [p.grad for p in model.parameters()]
    state = copy.deepcopy(optimizer.state_dict())
    fails = True
    with pytest.raises(KeyError, match=where):
        step(*data[3], True)
    fails = False
    for p, q, g in zip(model.parameters(), before, gradients, strict=True):
        assert torch.equal(p.detach(), q) and p.grad is g
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)
    assert type(optimizer.param_groups[0]["lr"]) is float
    step(*data[3], False)
    assert optimizer.state[model[0].weight]["step"].item() == 4


def test_what_cannot_be_repeated_is_refused() -> None:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters())

    @assume_pure
    def step(x: Tensor, y: Tensor) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    batch = batches(1)[0]
    step(*batch)
    with pytest.raises(RuntimeError, match="cannot be traced"):
        step(*batch)


def test_many_steps_do_not_grow() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    step = torch_xla.compile(step_of(model, optimizer), assume_pure=True)
    batch = batches(1)[0]
    for _ in range(300):
        loss = step(*batch)
    assert loss.item() < 0.7
    assert step.cache_info().traces == 1


def test_autocast_and_checkpoint() -> None:
    data = batches(6)
    results = []
    for pure in (False, True):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x: Tensor, y: Tensor, model: Any = model, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            with torch.autocast("xla", dtype=torch.bfloat16):
                hidden = torch.utils.checkpoint.checkpoint(model[:2], x, use_reentrant=False)
                loss = F.cross_entropy(model[2](hidden), y)
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
            optimizer.step()
            return loss

        results.append(losses(assume_pure(step) if pure else step, data))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_averaged_models(kind: str) -> None:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    data = batches(7)
    results = []
    for pure in (False, True):
        model = mlp()
        average = get_ema_multi_avg_fn(0.9) if kind == "ema" else None
        averaged = AveragedModel(model, multi_avg_fn=average)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Tensor, y: Tensor, m: Any = model, o: Any = optimizer, a: Any = averaged):
            o.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            o.step()
            a.update_parameters(m)
            return loss

        losses(assume_pure(step) if pure else step, data)
        assert averaged.n_averaged.item() == len(data)
        results.append([p.detach() for p in averaged.parameters()])
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_accelerate() -> None:
    from accelerate import Accelerator

    data = batches(6)
    results = []
    for pure in (False, True):
        accelerator = Accelerator()
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model, optimizer = accelerator.prepare(model, optimizer)

        def step(x: Tensor, y: Tensor, m: Any = model, o: Any = optimizer, a: Any = accelerator):
            o.zero_grad()
            loss = F.cross_entropy(m(x), y)
            a.backward(loss)
            a.clip_grad_norm_(m.parameters(), 1.0)
            o.step()
            return loss

        traced = assume_pure(step)
        results.append(losses(traced if pure else step, data))
    assert traced.cache_info().traces == 1
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_a_trace_that_is_over_keeps_nothing_pending() -> None:
    """Until Python's collector runs, what was traced first may be alive."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = assume_pure(optimizer.step)
    torch_xla.sync()
    gc.disable()
    try:
        for x, y in batches(4):
            F.cross_entropy(model(x), y).backward()
            step()
            optimizer.zero_grad()
            torch_xla.sync()
            assert torch_xla._XLAC.pending_node_count(0) == 0
    finally:
        gc.enable()
    assert step.cache_info().traces == 1


def is_pending(tensor: Tensor) -> bool:
    return torch_xla._XLAC.value_state(tensor) == "pending"


def test_a_step_is_launched_at_once_unless_work_is_pending() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    @assume_pure
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    data = batches(8)
    for batch in data[:4]:
        step(*batch).item()
    weight = next(model.parameters())
    loss = step(*data[4])
    assert not is_pending(loss) and not is_pending(weight)
    before = weight.detach().clone()  # pending: the step must not overwrite what it reads
    loss = step(*data[5])
    assert is_pending(loss) and is_pending(before)
    assert not torch.equal(before, weight)


def test_gradients_that_somebody_holds_are_not_overwritten() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @assume_pure
    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    first, *others = model.parameters()
    kept: list[tuple[Any, Tensor]] = []
    for i, batch in enumerate(batches(9)):
        step(*batch)
        torch_xla.sync()
        held = (first.grad, first.grad.detach(), first.grad[:1], others[0].grad.untyped_storage())
        kept.append((held[i % 4], first.grad.cpu()))
        for other in others:
            assert other.grad is not None and torch.isfinite(other.grad).all()
    for i, (held, value) in enumerate(kept):
        if i % 4 < 2:
            assert torch.equal(held.cpu(), value)
        elif i % 4 == 2:
            assert torch.equal(held.cpu(), value[:1])
    assert len({value.sum().item() for _, value in kept}) == len(kept)


@pytest.mark.parametrize("wrap", [assume_pure, torch_xla.compile(assume_pure=True)])
@pytest.mark.parametrize("updates", [True, False])
def test_what_an_argument_was_made_of_gets_its_gradient(
    wrap: Any, updates: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pass inside goes on into the graph outside, as without the function."""

    def train(wrap: Any) -> list[Tensor]:
        torch.manual_seed(0)
        encoder, head = nn.Linear(4, 4).to("xla"), nn.Linear(4, 2).to("xla")
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

        def step(hidden: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = head(hidden).square().mean()
            loss.backward()
            if updates:
                optimizer.step()
            return loss.detach()

        step = wrap(step)
        values = []
        for _ in range(4):
            values.append(step(encoder(torch.ones(3, 4, device="xla"))))
        leaf = torch.ones(3, 4, device="xla", requires_grad=True)
        step(leaf)
        step(leaf)
        step(encoder(leaf))
        return [*values, encoder.weight.grad, leaf.grad, *head.parameters()]

    plain, wrapped = train(lambda step: step), train(wrap)
    torch.testing.assert_close(wrapped, plain)
    assert "not a leaf" not in capfd.readouterr().err
