"""assume_pure inside eager mode, compiled regions and named regions, and beside CPU tensors."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch_xla
import torch_xla.debug.metrics as metrics
from torch import Tensor, nn
from torch_xla import _XLAC
from torch_xla.debug import profiler
from torch_xla.experimental.assume_pure import PureModule, assume_pure

on_the_host = torch.tensor([1.0, 2.0])
number_on_the_host = torch.tensor(3.0)


@pytest.fixture
def eager() -> Iterator[None]:
    torch_xla.sync(wait=True)
    with torch_xla.experimental.eager_mode_context(True):
        yield


def graphs_since(serial: int) -> list[str]:
    return [event.name for event in torch_xla.debug.recompiles() if event.serial > serial]


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def train(model: nn.Module, x: Tensor, step: Callable[[Callable[[], Tensor]], object]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def work() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        step(work)


def assert_same_state(model: nn.Module, reference: nn.Module) -> None:
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name].cpu(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.host_only("operations of eager mode are programs elsewhere")
def test_in_eager_mode_a_call_runs_at_once(eager: None) -> None:
    before = _XLAC.last_compile_serial()

    def scaled(x: Tensor) -> Tensor:
        return x.sin() * 2

    pure = assume_pure(scaled)
    for _ in range(3):
        x = torch.rand(4, 3, device="xla", requires_grad=True)
        y = pure(x)
        assert _XLAC.pending_node_count(0) == 0
        y.sum().backward()
        torch.testing.assert_close(x.grad, 2 * x.cos())
    assert graphs_since(before) == [scaled.__qualname__, f"{scaled.__qualname__}/backward"]


def test_in_eager_mode_what_was_pending_stays_out() -> None:
    pure = assume_pure(lambda x: x * 5)
    x = torch.ones(7, device="xla").cumsum(0)
    with torch_xla.experimental.eager_mode_context(True):
        pure(x)
        with torch_xla.debug.expect_no_compile():
            pure(x)


def test_training_in_eager_mode(eager: None) -> None:
    reference = small_model()
    model = copy.deepcopy(reference).to("xla")
    x = torch.randn(6, 3)
    train(reference, x, lambda work: work())
    pure = PureModule(model)
    train(pure, x.to("xla"), lambda work: work())
    assert_same_state(model, reference)
    assert pure.cache_info().traces == 1


@pytest.mark.parametrize("mode", [False, True], ids=["lazy", "eager"])
def test_layers_inside_a_compiled_step_are_one_program(mode: bool) -> None:
    torch_xla.sync()
    with torch_xla.experimental.eager_mode_context(mode):
        reference = small_model()
        model = copy.deepcopy(reference).to("xla")
        x = torch.randn(6 + mode, 3)  # each mode a program of its own
        train(reference, x, lambda work: work())
        before = _XLAC.last_compile_serial()
        pure = PureModule(model)
        name = f"step_of_pure_layers_{mode}"

        def run(work: Callable[[], Tensor]) -> object:
            with torch_xla.compile(name=name, full_graph=True):
                return work()

        train(pure, x.to("xla"), run)
        assert_same_state(model, reference)
        # The first step makes the momenta; the others are one program.
        assert graphs_since(before) == [name, name]


def test_named_regions_and_functions_are_in_the_program() -> None:
    @assume_pure
    def rotated(x: Tensor) -> Tensor:
        with profiler.Trace("rotation"):
            return x.sin()

    @assume_pure
    def around(x: Tensor) -> Tensor:
        return rotated(x).exp()

    x = torch.rand(2, 5).to("xla").requires_grad_()
    y = around(x)
    y.sum().backward()
    names = _XLAC.tensors_optimized_hlo_text([y, x.grad])
    inside = rotated.__qualname__
    assert f"{inside}/rotation/" in names
    assert f"{inside}/backward/aten::cos" in names
    assert f"{around.__qualname__}/aten::exp" in names


def test_counters_of_each_function() -> None:
    def counted_by_name(x: Tensor) -> Tensor:
        return x + 1

    pure = assume_pure(counted_by_name)
    for size in (2, 3, 2, 2):
        pure(torch.ones(size, device="xla"))
    prefix = f"pure::{counted_by_name.__qualname__}::"
    counted = {what: metrics.counter_value(prefix + what) for what in ("hit", "miss", "trace")}
    assert counted == {"hit": 2, "miss": 2, "trace": 2}


FROZEN: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda x: x * number_on_the_host,
    "moved": lambda x: x * on_the_host.to("xla"),
    "copied": lambda x: torch.empty(2, device="xla").copy_(on_the_host) + x,
    "computed": lambda x: x + (on_the_host.square() + 1).sum(),
    "index": lambda x: x[on_the_host.long() - 1],
    "random": lambda x: x + torch.rand(2).to("xla"),
    "written": lambda x: x + torch.zeros(2).add_(on_the_host).to("xla"),
    "numpy": lambda x: x + torch.from_numpy(on_the_host.numpy()).to("xla"),
}


@pytest.mark.parametrize("name", FROZEN)
def test_cpu_tensors_that_a_later_call_would_not_read_are_refused(name: str) -> None:
    pure = assume_pure(FROZEN[name])
    x = torch.ones(2, device="xla")
    with pytest.raises(RuntimeError, match=r"test_pure_contexts.py:\d+, the value of a CPU tensor"):
        pure(x)
    assert x.tolist() == [1, 1]


CONSTANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "tensor": lambda x: x * torch.tensor([3.0, 4.0], device="xla"),
    "scalar": lambda x: x * torch.tensor(3.0),
    "range": lambda x: x + torch.arange(2).float().to("xla"),
    "computed": lambda x: x + torch.linspace(0, 1, 2).cumsum(0).to("xla"),
    "index": lambda x: x[torch.tensor([1, 0])],
    "mask": lambda x: x.masked_fill(torch.ones(2, 2).triu().bool().to("xla")[1], 5),
    "written": lambda x: x + torch.zeros(2).fill_(2).to("xla"),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_cpu_tensors_made_from_numbers_are_constants(name: str) -> None:
    pure = assume_pure(CONSTANTS[name])
    x = torch.rand(2, device="xla")
    for _ in range(2):
        torch.testing.assert_close(pure(x), CONSTANTS[name](x))
    assert pure.cache_info().traces == 1
