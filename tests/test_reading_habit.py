"""Programs of small operations run them as they are called, once they have read or synced often."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from process import output_of, run_python
from torch import Tensor, nn
from torch_xla.experimental.assume_pure import assume_pure

Counters = Callable[[str], int]
Result = TypeVar("Result")


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "counted")
    monkeypatch.delenv("TORCH_XLA_TIER_RUNS", raising=False)
    if torch_xla.experimental.is_eager_mode():
        pytest.skip("in eager mode all operations run as they are called")


def in_new_thread(program: Callable[[], Result]) -> Result:
    """Habits are a thread's own."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(program).result()


def read_often(x: Tensor, times: int = 36) -> list[float]:
    return [((x + i % 8) * x).sum().item() for i in range(times)]


def test_operations_run_as_they_are_called_after_many_reads(counters: Counters) -> None:
    x = torch.randn(6, 6)
    found = in_new_thread(lambda: read_often(x.to("xla")))
    assert found == read_often(x)
    assert counters("EagerOpExecuteTime") == 4 * 3
    assert counters("InterpretTime") == 32
    assert counters("UncachedCompile") == 0


@pytest.mark.parametrize("policy", ["off", "never"])
def test_not_where_the_user_says_who_runs_graphs(
    policy: str, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", policy)
    x = torch.randn(6, 6)
    found = in_new_thread(lambda: read_often(x.to("xla")))
    assert found == pytest.approx(read_often(x), rel=1e-5)
    assert counters("EagerOpExecuteTime") == 0


def test_training_that_reads_each_loss_gives_the_cpus_bits() -> None:
    def train(device: str) -> list[float]:
        torch.manual_seed(1)
        model = nn.Linear(4, 1).to(device)
        x, y = torch.randn(8, 4).to(device), torch.randn(8, 1).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        losses = []
        for _ in range(140):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert in_new_thread(lambda: train("xla")) == train("cpu")


def test_draws_do_not_depend_on_it() -> None:
    def draw() -> list[float]:
        torch_xla.manual_seed(7)
        x = torch.ones(6, 6, device="xla")
        return [(torch.rand(6, 6, device="xla") * x).sum().item() for _ in range(140)] + [
            F.dropout(x, 0.5).sum().item() for _ in range(4)
        ]

    def draw_with_the_habit() -> list[float]:
        read_often(torch.ones(6, 6, device="xla"))
        return draw()

    assert in_new_thread(draw_with_the_habit) == in_new_thread(draw)


def test_a_compiled_function_has_habits_of_its_own(counters: Counters) -> None:
    @torch_xla.compile
    def step(x: Tensor) -> Tensor:
        return (x * 2 + 1).sum()

    def run() -> int:
        x = torch.ones(6, 6, device="xla")
        read_often(x)
        before = counters("EagerOpExecuteTime")
        assert step(x).item() == 108
        return counters("EagerOpExecuteTime") - before

    assert in_new_thread(run) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"full_graph": True},
        {"max_different_graphs": 2},
        {"tiers": "never"},
        {"custom_compile_options": {"xla_cpu_enable_fast_math": False}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_asks_for_more_than_to_run_is_recorded_in_compiled_functions(
    options: dict[str, object], counters: Counters
) -> None:
    plain, asking = (
        torch_xla.compile(lambda x, i: (x + i).mul(x).sum(), **given)  # type: ignore[arg-type]
        for given in ({}, options)
    )

    def calls(function: Callable[..., Tensor]) -> int:
        x = torch.full((6, 6), 2.0, device="xla")
        before = counters("EagerOpExecuteTime")
        assert [function(x, i % 8).item() for i in range(36)] == [
            72.0 * (2 + i % 8) for i in range(36)
        ]
        return counters("EagerOpExecuteTime") - before

    assert in_new_thread(lambda: calls(plain)) == 4 * 3
    assert in_new_thread(lambda: (calls(plain), calls(asking))[1]) == 0


def test_a_compiled_training_step_of_a_small_model_runs_as_it_is_called(
    counters: Counters,
) -> None:
    def train(device: str) -> list[float]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
        x, y = torch.randn(8, 4).to(device), torch.randn(8, 1).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        step = torch_xla.compile(step) if device == "xla" else step
        return [step().item() for _ in range(140)]

    assert in_new_thread(lambda: train("xla")) == train("cpu")
    assert counters("UncachedCompile") == 0
    assert counters("EagerOpExecuteTime") > 90 * 20


def test_a_step_that_has_grown_is_recorded(counters: Counters) -> None:
    def run() -> None:
        x = torch.ones(6, 6, device="xla")
        read_often(x)
        before = counters("EagerOpExecuteTime")
        y = x + 1
        for _ in range(100):
            y = y * 1.0078125
        assert counters("EagerOpExecuteTime") - before == 2 * 3  # twice as many as usual
        z = torch.full((6, 6), 2.0)
        for _ in range(100):
            z = z * 1.0078125
        assert torch.equal(y.cpu(), z)
        read_often(x)
        assert counters("EagerOpExecuteTime") - before == 2 * 3  # harder to acquire again

    in_new_thread(run)


TRAINING = """
import sys
import torch.nn.functional as F
from torch import nn

def counter(name):
    data = metrics.metric_data(name)
    return data[0] if data else 0

def train(device, ends, draws):
    torch.manual_seed(1)
    torch_xla.manual_seed(1)
    drop = [nn.Dropout(0.25)] if draws else []
    layers = nn.Linear(16, 32), nn.ReLU(), *drop, nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
    model = nn.Sequential(*layers).to(device)
    x, y = torch.randn(64, 16).to(device), torch.randint(4, (64,)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)
    losses = []
    for i in range(600):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if ends == "sync" and device == "xla":
            torch_xla.sync()
        if ends == "read" or i % 40 == 39:
            losses.append(loss.item())
    return losses, model[0].weight.detach().cpu().sum().item()
"""


@pytest.mark.parametrize("ends", ["read", "sync"])
def test_the_training_of_a_small_model_is_never_compiled(ends: str) -> None:
    """A hundred operations in a step: a program would be slower than they are."""
    output = output_of(
        TRAINING
        + """
assert train("xla", sys.argv[1], False) == train("cpu", sys.argv[1], False)
print(counter("UncachedCompile"), counter("InterpretTime"), counter("EagerOpExecuteTime"))
""",
        ends,
    )
    compiled, interpreted, called = (int(number) for number in output.split())
    assert compiled == 0
    assert 32 <= interpreted < 44
    assert called > 550 * 60


def test_layers_that_draw_are_called_too() -> None:
    """They draw the same numbers, whether their neighbours are recorded or called."""
    program = (
        TRAINING
        + """
print(train("xla", "read", True))
print(counter("EagerOpExecuteTime"), file=sys.stderr)
"""
    )
    called, recorded = run_python(program), run_python(program, TORCH_XLA_TIERS="never")
    assert called.stdout == recorded.stdout != ""
    assert int(called.stderr) > 550 * 60
    assert int(recorded.stderr) == 0


def test_a_large_step_becomes_a_program(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> float:
        x = torch.ones(400, 400, device="xla")
        for _ in range(140):
            y = x
            for _ in range(20):
                y = (y * 0.5).tanh() + x
            value = y.sum().item()
        return value

    in_new_thread(run)
    assert counters("UncachedCompile") == 1
    assert counters("EagerOpExecuteTime") == 0


def test_an_agents_acts_are_told_from_its_training(counters: Counters) -> None:
    def run(device: str) -> tuple[list[float], int]:
        weight = torch.linspace(-1, 1, 8).view(4, 2).to(device)
        seen = torch.linspace(-1, 2, 20).view(5, 4)
        found: list[float] = []
        for _ in range(20):
            before = counters("EagerOpExecuteTime")
            for state in seen[:4]:
                found.append(state.to(device).mul(2).matmul(weight).argmax().item())
            trained = seen.to(device).mm(weight)
            for _ in range(60):
                trained = trained.tanh()
            weight = weight + trained.sum() * 0.01
            found.append(weight.sum().item())
            at_once = counters("EagerOpExecuteTime") - before
        return found, at_once

    expected, _ = run("cpu")
    found, at_once = in_new_thread(lambda: run("xla"))
    assert found == expected
    assert at_once == 4 * 3  # 80 acts have come, and 20 trainings


def test_a_large_operation_is_recorded(counters: Counters) -> None:
    def run() -> None:
        x = torch.ones(6, 6, device="xla")
        read_often(x)
        before = counters("EagerOpExecuteTime")
        y = x + 1
        assert torch.ones(300, 300, device="xla").mul(2).sum().item() == 180_000
        assert counters("EagerOpExecuteTime") - before <= 2  # what makes ones has no operands
        assert y.sum().item() == 72

    in_new_thread(run)


def test_values_that_are_pending_when_it_begins() -> None:
    def run(device: str) -> tuple[list[float], Tensor]:
        pending = torch.ones(6, 6).to(device)
        pending = pending * 3
        view = pending[1]
        found = read_often(torch.full((6, 6), 2.0).to(device))
        view.add_(1)
        pending.mul_(2)
        return found, (pending + view).cpu()

    found, result = in_new_thread(lambda: run("xla"))
    expected, expected_result = run("cpu")
    assert found == expected
    assert torch.equal(result, expected_result)


def test_errors_are_raised_by_the_operation_and_lose_nothing() -> None:
    def run() -> float:
        x = torch.ones(6, 6, device="xla")
        read_often(x)
        y = x + 1
        with pytest.raises(RuntimeError, match="must match the size"):
            x.add_(torch.ones(5, device="xla"))
        return (x + y).sum().item()

    assert in_new_thread(run) == 108


def test_a_pure_functions_trace_records() -> None:
    def run() -> list[float]:
        x = torch.full((6, 6), 2.0, device="xla")
        read_often(x)
        pure = assume_pure(lambda t: (t * t).sum())
        return [pure(x + i).item() for i in range(4)]

    assert in_new_thread(run) == [144, 324, 576, 900]
