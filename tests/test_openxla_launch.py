"""Launching a ready graph: nothing is recorded, and everything a recorded call would do is done."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import Tensor
from torch_xla import _XLAC
from torch_xla.core.dynamo_bridge import extract_compiled_graph
from torch_xla.experimental import eager_mode_context
from torch_xla.experimental.assume_pure import assume_pure
from work import Work

DEVICE = "xla"


@pytest.fixture(autouse=True, params=[True, False], ids=["eager", "lazy"])
def mode(request: pytest.FixtureRequest) -> Iterator[bool]:
    torch_xla.sync(wait=True)
    with eager_mode_context(request.param):
        yield request.param
    torch_xla.sync(wait=True)


def graph_of(function: Any, *args: Tensor) -> Any:
    return extract_compiled_graph(torch.fx.symbolic_trace(function), args)


def accumulate(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    total.add_(x)
    return total.sum(), x * 2


def test_calls_after_the_first_only_launch() -> None:
    total, x = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
    graph = graph_of(accumulate, total, x)
    graph(total, x)
    before = Work.so_far()
    for _ in range(3):
        graph(total, x)
    work = Work.so_far().since(before)
    assert (work.executions, work.compilations) == (3, 0)
    assert total.tolist() == [4.0, 4.0, 4.0]


def test_a_written_argument_gives_up_its_memory() -> None:
    count = 1 << 20
    total, x = torch.zeros(count, device=DEVICE), torch.ones(1, device=DEVICE)

    def step(total: Tensor, x: Tensor) -> Tensor:
        total.add_(x)
        return x + 1

    graph = graph_of(step, total, x)
    graph(total, x)
    torch_xla.sync(wait=True)
    used = xm.get_memory_info(DEVICE)["bytes_used"]
    before = total._version
    for _ in range(3):
        graph(total, x)
        assert xm.get_memory_info(DEVICE)["bytes_used"] - used < 4 * count
    assert total._version > before
    assert total.sum().item() == 4 * count


def test_a_written_argument_whose_old_value_is_needed_keeps_it() -> None:
    total, x = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
    graph = graph_of(accumulate, total, x)
    graph(total, x)
    for step in range(1, 4):
        later = total * 10 if step == 2 else None  # lazily, it still wants the bytes
        graph(total, x)
        if later is not None:
            assert later.tolist() == [20.0] * 3
    assert total.tolist() == [4.0] * 3


def test_a_pending_argument_is_computed_first() -> None:
    x = torch.ones(3, device=DEVICE)
    graph = graph_of(lambda x: x + 1, x)
    assert graph(x).tolist() == [2.0] * 3
    assert graph(x * 5).tolist() == [6.0] * 3
    assert graph(torch.empty(3, device=DEVICE).fill_(7)).tolist() == [8.0] * 3


def test_results_that_share_a_value_are_tensors_of_their_own() -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x + 1

    x = torch.ones(3, device=DEVICE)
    graph = graph_of(twice, x)
    for _ in range(2):
        first, second = graph(x)
        first.mul_(10)
        assert (first.tolist(), second.tolist()) == ([20.0] * 3, [2.0] * 3)


def test_a_result_that_is_the_written_argument_or_a_view_of_it() -> None:
    def step(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        total.add_(x)
        return total, total[1:]

    total, x = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
    graph = graph_of(step, total, x)
    for _ in range(2):
        same, tail = graph(total, x)
    assert same is total
    tail.zero_()
    assert total.tolist() == [2.0, 0.0, 0.0]


def test_arguments_that_hold_one_value() -> None:
    """A detached tensor shares its storage; a copy has one of its own with the same value."""
    total = torch.zeros(3, device=DEVICE)
    x = torch.ones(3, device=DEVICE)
    graph = graph_of(accumulate, total, x)
    graph(total, x)
    copy = x.clone()
    graph(copy, x)
    graph(x, x.detach())
    assert (total.tolist(), copy.tolist(), x.tolist()) == ([1.0] * 3, [2.0] * 3, [2.0] * 3)


def test_a_program_that_cannot_be_compiled_changes_nothing() -> None:
    function = _XLAC.PureFunction(accumulate, "accumulate", 8, False)
    good, bad = (
        _XLAC.CompiledFunction(
            name="accumulate", full_graph=False, max_different_graphs=None, xla_options=options
        )
        for options in ({}, {"xla_no_such_flag": "1"})
    )
    total, x = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
    function.launch(good, total, x)
    with pytest.raises(RuntimeError, match="xla_no_such_flag"):
        function.launch(bad, total, x)
    assert total.tolist() == [1.0] * 3
    function.launch(good, total, x)
    assert total.tolist() == [2.0] * 3


def test_an_argument_that_failed_says_so() -> None:
    x = torch.ones(3, device=DEVICE)
    graph = graph_of(lambda x: x + 1, x)
    graph(x)
    with pytest.raises(RuntimeError):
        graph(torch.ones(3))  # on the CPU


def test_threads_launch_one_graph_while_another_reads_what_it_writes() -> None:
    total, x = torch.zeros(64, device=DEVICE), torch.ones(64, device=DEVICE)
    graph = graph_of(accumulate, total, x)
    graph(total, x)
    done = threading.Event()

    def read() -> list[list[float]]:
        seen = []
        while not done.is_set():
            seen.append(total.clone().cpu().tolist())
        return seen

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        for _ in range(200):
            graph(total, x)
        done.set()
        seen = reader.result()
    assert total.tolist() == [201.0] * 64
    assert all(len(set(values)) == 1 for values in seen), "a value that was never there"


def test_a_graph_that_computes_nothing() -> None:
    x = torch.ones(1, 2, device=DEVICE)
    assert graph_of(lambda x: x.view(2, 1), x)(x).shape == (2, 1)
    assert graph_of(lambda x: x, x)(x) is x
    assert graph_of(lambda x: None, x)(x) is None
    assert assume_pure(lambda x: (x, x.T))(x)[0] is x
    (view,) = torch.compile(lambda x: (x.T,), backend="openxla")(x)
    view.zero_()
    assert x.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    "view",
    [
        lambda z: z[1:].real,
        lambda z: z.imag,
        lambda z: torch.view_as_real(z),
        lambda z: torch.view_as_real(z).view(torch.int32),
        lambda z: torch.view_as_complex(torch.view_as_real(z)[:2]),
    ],
)
def test_a_view_of_an_argument_with_another_dtype(view: Any) -> None:
    z = torch.tensor([1 + 2j, 3 + 4j, 5 - 6j], device=DEVICE)
    for result in (assume_pure(view)(z), graph_of(view, z)(z)):
        torch.testing.assert_close(result.cpu(), view(z.cpu()))
        assert result._version == z._version
        result.zero_()
        assert z.abs().min().item() < 5
        z.copy_(torch.tensor([1 + 2j, 3 + 4j, 5 - 6j]))


def test_gradients_through_such_a_view() -> None:
    z = torch.tensor([1 + 2j, 3 + 4j], device=DEVICE).requires_grad_()
    assume_pure(lambda z: z.imag)(z).square().sum().backward()
    assert z.grad.tolist() == [4j, 8j]


@torch.library.custom_op("test_launch::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    time.sleep(0.05)  # others are launched meanwhile
    if x.min() < 0:
        raise ValueError("a negative number")
    return x.clone()


@positive.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.mark.host_only("programs call no kernels of this process elsewhere")
def test_a_program_that_fails_on_values_harms_nobody_else() -> None:
    x, total = torch.ones(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    large = torch.ones(1500, 1500, device=DEVICE)
    checked = torch.compile(lambda x: positive(x @ x @ x), backend="openxla")
    graph = graph_of(accumulate, total, x)
    checked(large)
    graph(total, x)
    with pytest.raises(ValueError, match="a negative number"):
        checked(-large)
    for _ in range(4):
        graph(total, x)
        torch_xla.sync()
    assert total.tolist() == [5.0] * 3
