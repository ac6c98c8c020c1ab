"""Whole training steps as people write them: each is traced, and equal to the undecorated one."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from steps import Batch, batches, losses, mlp, step_of
from torch import Tensor, nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch_xla.experimental.assume_pure import assume_pure

Step = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")


def check_same(make: Callable[[], tuple[nn.Module, Step]], data: list[Batch], traces: int) -> None:
    """The undecorated step and the pure one give the same losses and parameters."""
    results = []
    for pure in (False, True):
        model, step = make()
        run = assume_pure(step)
        found = losses(run if pure else step, data)
        results.append((found, [p.detach().cpu() for p in model.parameters()]))
    assert run.cache_info().traces == traces
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_a_hundred_learning_rates_are_one_trace() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1 / (1 + i))
    step = assume_pure(step_of(model, optimizer))
    losses(step, batches(1) * 102, schedule.step)
    assert step.cache_info()[:3] == (100, 2, 1)


def clamp(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.clamp_(-0.01, 0.01)


def test_hooks() -> None:
    def make() -> tuple[nn.Module, Step]:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model[0].weight.register_hook(lambda grad: grad * 0.5)
        model[0].bias.register_post_accumulate_grad_hook(clamp)
        model[1].register_forward_hook(lambda module, given, result: result * 1.5)
        model[2].register_full_backward_hook(lambda module, given, got: (given[0] * 2,))
        optimizer.register_step_post_hook(lambda *_: model[2].bias.detach().clamp_(-0.3, 0.3))
        return model, step_of(model, optimizer)

    check_same(make, batches(6), traces=1)


def test_an_autograd_function_of_one_s_own() -> None:
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
            ctx.save_for_backward(x)
            ctx.scale = scale
            return (x * scale).round() / scale

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
            (x,) = ctx.saved_tensors
            return grad * (x.abs() < ctx.scale), None

    def make() -> tuple[nn.Module, Step]:
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(Straight.apply(model(x), 4.0), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    check_same(make, batches(6), traces=1)


def test_several_backwards_and_batches_in_one_step() -> None:
    def make() -> tuple[nn.Module, Step]:
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x: Tensor, y: Tensor, count: int = 3) -> Tensor:
            optimizer.zero_grad(set_to_none=False)
            total = torch.zeros((), device="xla")
            for part in range(count):
                hidden = model[:2](x + part)
                loss = F.cross_entropy(model[2](hidden), y) / count
                loss.backward(retain_graph=True)
                (hidden.square().mean() * 0.1).backward()
                total += loss.detach()
            optimizer.step()
            return total

        return model, step

    check_same(make, batches(6), traces=1)


def test_training_and_evaluation_in_turns() -> None:
    results = []
    for pure in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).to("xla")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        step = step_of(model, optimizer)
        run = assume_pure(step) if pure else step
        found = []
        for i, batch in enumerate(batches(9)):
            model.train(i % 3 != 2)
            found.append(run(*batch).item())
        results.append((found, model[1].running_mean.cpu(), model[1].num_batches_tracked.item()))
    assert results[1][2] == 6
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_stochastic_weight_averaging_to_the_end() -> None:
    data = batches(8)
    results = []
    for pure in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).to("xla")
        averaged = AveragedModel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        schedule = SWALR(optimizer, swa_lr=0.05, anneal_epochs=3)
        step = step_of(model, optimizer)
        run = assume_pure(step) if pure else step
        for i, batch in enumerate(data):
            run(*batch)
            if i >= 3:
                averaged.update_parameters(model)
                schedule.step()
        update_bn((x for x, _ in data), averaged)
        results.append([averaged(data[0][0]).cpu(), torch.tensor(schedule.get_last_lr())])
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def fail_at(step: Step, line: int, *args: Any) -> bool:
    """Calls the step, which raises where its line begins; false if it never comes there."""
    code = step._function.__code__  # type: ignore[attr-defined]

    def local(frame: Any, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno == code.co_firstlineno + line:
            raise KeyError(line)
        return local

    sys.settrace(lambda frame, event, _: local if frame.f_code is code else None)
    try:
        step(*args)
    except KeyError:
        return True
    finally:
        sys.settrace(None)
    return False


def test_an_exception_at_any_line_leaves_everything_as_it_was() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    averaged = AveragedModel(model)

    @assume_pure
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        averaged.update_parameters(model)
        return loss

    def everything() -> list[Any]:
        kept = (model, optimizer, schedule, averaged)
        return [
            copy.deepcopy([x.state_dict() for x in kept]),
            [None if p.grad is None else p.grad.cpu() for p in model.parameters()],
            torch.get_rng_state(),
            torch.xla.get_rng_state(),
        ]

    data = batches(12)
    step(*data[0])
    for line in range(2, 10):
        before = everything()
        pending = torch_xla._XLAC.pending_node_count(0)
        assert fail_at(step, line, *data[line])
        assert torch_xla._XLAC.pending_node_count(0) == pending
        torch.testing.assert_close(everything(), before, rtol=0, atol=0)
    step(*data[10])
    step(*data[11])
    assert optimizer.state[model[0].weight]["step"].item() == 3
    assert step.cache_info().traces == 1


@pytest.mark.parametrize("how", ["argument", "parameter"])
def test_leaves_that_a_step_makes_of_what_was_there(how: str) -> None:
    """As attacks on inputs and on weights do: nobody asks for their gradients after the step."""
    aliases: dict[str, Callable[[Tensor], Tensor]] = {
        "detached": lambda x: x.detach(),
        "data": lambda x: x.data,
    }
    for alias in aliases.values():

        def make(alias: Callable[[Tensor], Tensor] = alias) -> tuple[nn.Module, Step]:
            model = mlp()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def step(x: Tensor, y: Tensor) -> Tensor:
                weight = model[0].weight
                leaf = alias(x if how == "argument" else weight).requires_grad_()
                hidden = F.linear(leaf, weight) if how == "argument" else F.linear(x, leaf)
                hidden.square().mean().backward()
                shift = 0.1 * leaf.grad.sign()
                optimizer.zero_grad()
                x = x + shift if how == "argument" else x + shift.mean()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                return loss

            return model, step

        check_same(make, batches(5), traces=1)


def test_a_leaf_that_the_caller_keeps_has_its_gradient() -> None:
    kept = []

    def step(x: Tensor) -> Tensor:
        kept.append(x.detach().requires_grad_())
        loss = (kept[-1] * x).square().sum()
        loss.backward()
        return loss.detach()

    run = assume_pure(step)
    for i in range(3):
        run(torch.full((4,), float(i), device="xla"))
        assert kept[-1].grad.tolist() == [2.0 * i**3] * 4
