"""A graph's first runs are interpreted while its program is compiled in the background."""

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.debug.metrics as met
from models import Decoder, DecoderConfig, LSTMLanguageModel, resnet18
from torch import Tensor, nn

Counters = Callable[[str], int]


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCH_XLA_TIERS", "counted")
    monkeypatch.setenv("TORCH_XLA_TIER_RUNS", "3")
    yield
    torch_xla._XLAC.wait_for_compiler()  # what one test began is not counted in the next


def runs(counters: Counters) -> tuple[int, int, int]:
    """Interpreted, launched, compiled."""
    return counters("InterpretTime"), launches(counters), counters("UncachedCompile")


def launches(counters: Counters) -> int:
    return counters("ExecuteTime") - counters("InterpretTime")


# ---- which tier runs -----------------------------------------------------------------------------


def test_the_program_takes_over_after_so_many_runs(counters: Counters) -> None:
    x = torch.ones(7, 3).to("xla")
    expected = torch.ones(7, 3)
    seen = []
    for _ in range(6):
        x = x * 1.5 + 0.125
        expected = expected * 1.5 + 0.125
        torch_xla.sync()
        seen.append(runs(counters)[:2])
    assert seen == [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3)]
    assert counters("UncachedCompile") == 1
    torch.testing.assert_close(x.cpu(), expected)


def test_a_graph_that_runs_once_is_never_compiled(counters: Counters) -> None:
    for size in range(20, 30):
        torch.ones(size, device="xla").cumsum(0).cpu()
    time.sleep(0.2)
    assert runs(counters) == (10, 0, 0)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(6),
        nn.LayerNorm(6),
        nn.GroupNorm(2, 6),
        nn.Conv1d(6, 4, 3),
        nn.InstanceNorm1d(6, affine=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_gradients_that_were_not_asked_for_need_no_program(
    layer: nn.Module, counters: Counters
) -> None:
    """Those of an input that lies column by column, as tables' do."""
    columns = torch.linspace(-1, 1, 6 * 40).view(6, 40).exp()
    input = (
        columns.t() if isinstance(layer, nn.BatchNorm1d | nn.LayerNorm) else columns[None, :, ::2]
    )
    found = []
    for device in ("cpu", "xla"):
        layer.to(device).zero_grad()
        (layer(input.to(device)) ** 3).sum().backward()
        found.append([parameter.grad.cpu().clone() for parameter in layer.parameters()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    assert runs(counters)[2] == 0


def test_a_long_list_read_one_by_one_is_not_looked_through_at_each_read(counters: Counters) -> None:
    x = torch.ones(4, device="xla")
    values = [(x * number).sum() for number in range(3000)]
    assert [value.item() for value in values] == [4 * number for number in range(3000)]
    assert counters("ExecuteTime") < 500  # a read that has looked often enough computes the rest


def test_a_loop_that_reads_computes_nothing_twice() -> None:
    """An integrator: the read needs the time, the slope the time and the state."""

    def integrate(device: str) -> float:
        state, clock = torch.ones(4).to(device), torch.zeros(()).to(device)
        for _ in range(20):
            clock = clock + 0.5
            slope = torch.cos(state) * clock
            if clock.item() > 100:
                break
            state = state + slope / 8
        return state.sum().item()

    serial = max((event.serial for event in torch_xla.debug.recompiles()), default=0)
    assert integrate("xla") == pytest.approx(integrate("cpu"), rel=1e-5)
    graphs = [event for event in torch_xla.debug.recompiles() if event.serial > serial]
    assert max(event.operations for event in graphs) <= 8 and len(graphs) <= 4


def test_numbers_that_change_while_interpreted_need_one_program(counters: Counters) -> None:
    x = torch.ones(11).to("xla")
    for step in range(8):
        x = x * (1.0 + step / 64)
        torch_xla.sync()
    assert runs(counters) == (3, 5, 1)
    expected = 1.0
    for step in range(8):
        expected *= 1.0 + step / 64
    torch.testing.assert_close(x.cpu(), torch.full((11,), expected))


def test_small_graphs_can_be_compiled_at_once(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_XLA_COMPILE_AT_ONCE", "2")
    (torch.ones(13).to("xla") + 1).cpu()
    assert runs(counters) == (0, 1, 1)


def test_a_compiled_function_chooses_its_tiers(counters: Counters) -> None:
    @torch_xla.compile(tiers="off")
    def at_once(x: Tensor) -> Tensor:
        return x.sin() * 3

    at_once(torch.ones(17).to("xla"))
    assert runs(counters) == (0, 1, 1)
    with pytest.raises(ValueError, match="counted, async, off, never"):
        torch_xla.compile(at_once, tiers="sometimes")


def test_a_wrong_policy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "sometimes")
    with pytest.raises(RuntimeError, match="TORCH_XLA_TIERS.*sometimes"):
        torch.ones(3, device="xla").cpu()
    monkeypatch.setenv("TORCH_XLA_TIERS", "counted")
    torch_xla.sync()


def test_async_uses_the_program_when_it_is_there(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "async")
    x = torch.ones(19).to("xla")
    deadline = time.monotonic() + 60
    while launches(counters) == 0 and time.monotonic() < deadline:
        x = x * 1.0625
        torch_xla.sync()
        time.sleep(0.01)
    assert launches(counters) == 1 and counters("UncachedCompile") == 1


def test_pure_functions_and_openxla_graphs_are_interpreted_too(counters: Counters) -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 2))
    x = torch.randn(3, 5)
    expected = model(x)
    compiled = torch.compile(model.to("xla"), backend="openxla")
    for _ in range(5):
        result = compiled(x.to("xla"))
    torch.testing.assert_close(result.detach().cpu(), expected)
    assert counters("InterpretTime") >= 3 and launches(counters) >= 1


def test_events_say_which_tier_ran(counters: Counters) -> None:
    before = torch_xla._XLAC.last_compile_serial()  # the oldest events go
    x = torch.ones(23).to("xla")
    x = x * 1.5
    torch_xla.sync()
    (event,) = (e for e in torch_xla.debug.recompiles(show=False) if e.serial > before)
    assert not event.compiled and "interpreted" in str(event)
    for _ in range(3):
        x = x * 1.5
        torch_xla.sync()
    event = torch_xla.debug.recompiles(show=False)[-1]
    assert event.compiled and event.interpreted == 3 and event.seconds > 0


# ---- numbers -------------------------------------------------------------------------------------


def train(
    model: nn.Module, tokens: bool, device: str, steps: int = 3
) -> tuple[list[float], list[Tensor]]:
    torch.manual_seed(1)
    data = torch.randint(50, (2, 9)) if tokens else torch.randn(2, 3, 32, 32)
    model = model.to(device)
    data = data.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        if tokens:
            loss = F.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
        else:
            loss = F.cross_entropy(model(data), torch.tensor([1, 5], device=device))
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


MODELS = {
    "lstm": (lambda: LSTMLanguageModel(), True),
    "resnet": (lambda: resnet18(), False),
}


@pytest.mark.parametrize("name", MODELS)
def test_interpreted_training_is_bitwise_that_of_the_cpu(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")
    make, tokens = MODELS[name]
    results = []
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        results.append(train(make(), tokens, device))
    (losses, parameters), (xla_losses, xla_parameters) = results
    assert losses == xla_losses
    for ours, theirs in zip(xla_parameters, parameters, strict=True):
        assert torch.equal(ours, theirs)


def test_equal_trainings_have_equal_bits_where_that_is_asked_for(counters: Counters) -> None:
    """The second would begin with the program that the first one was worth."""
    make, tokens = MODELS["lstm"]
    results = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            torch.manual_seed(0)
            results.append(train(make(), tokens, "xla"))
    finally:
        torch.use_deterministic_algorithms(False)
    (losses, parameters), (again, parameters_again) = results
    assert losses == again
    assert all(map(torch.equal, parameters, parameters_again))
    assert counters("UncachedCompile") == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_in_evaluation_is_interpreted(dtype: torch.dtype, counters: Counters) -> None:
    """Its CPU kernel returns no statistics: evaluation once waited for the compiler for them."""
    results = []
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(3).to(dtype)
        x = torch.randn(2, 3, 4, 4, dtype=dtype).to(memory_format=torch.channels_last)
        norm, x = norm.to(device), x.to(device).requires_grad_()
        norm(x)
        norm.eval()
        y = norm(x)
        y.sum().backward()  # as of a frozen layer
        assert x.grad is not None and norm.weight.grad is not None
        results.append((y.detach().cpu(), x.grad.cpu(), norm.weight.grad.cpu()))
    torch.testing.assert_close(results[1], results[0])
    assert counters("UncachedCompile") == 0
    x = torch.randn(2, 3, device="xla")
    mean, variance = torch.tensor([1.0, 2, 3]).to("xla"), torch.tensor([1.0, 4, 9]).to("xla")
    _, saved, deviation = torch.native_batch_norm(x, None, None, mean, variance, False, 0.1, 0.0)
    torch.testing.assert_close(saved.cpu(), mean.cpu())
    torch.testing.assert_close(deviation.cpu(), variance.cpu().rsqrt())


def test_interpreted_attention_is_that_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not bit for bit: attention is recorded as its parts, the CPU has a kernel of its own."""
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")
    results = []
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        model = Decoder(DecoderConfig(vocabulary=50, hidden=32, intermediate=64))
        results.append(train(model, True, device)[0])
    torch.testing.assert_close(torch.tensor(results[1]), torch.tensor(results[0]))


def test_a_program_of_real_size_takes_over_in_the_middle_of_training(counters: Counters) -> None:
    torch.manual_seed(0)
    expected = train(Decoder(DecoderConfig(vocabulary=3200)), True, "cpu", steps=7)[0]
    torch.manual_seed(0)
    losses = train(Decoder(DecoderConfig(vocabulary=3200)), True, "xla", steps=7)[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert counters("InterpretTime") >= 3 and launches(counters) >= 2


DRAWS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(5, 7, device="xla"),
    "rand of doubles": lambda: torch.rand(33, dtype=torch.float64, device="xla"),
    "rand of halves": lambda: torch.rand(33, dtype=torch.bfloat16, device="xla"),
    "transposed": lambda: torch.empty(4, 6, device="xla").t().uniform_(),
    "randint": lambda: torch.randint(-5, 1000, (101,), device="xla"),
    "random_": lambda: torch.empty(9, dtype=torch.int64, device="xla").random_(),
    "randperm": lambda: torch.randperm(50, device="xla"),
    "bernoulli": lambda: torch.full((64,), 0.3, device="xla").bernoulli(),
    "dropout": lambda: F.dropout(torch.ones(129, device="xla"), 0.4),
    "multinomial": lambda: torch.ones(6, 10, device="xla").multinomial(4),
    "randn": lambda: torch.randn(65, device="xla"),
    "normal of complex": lambda: torch.randn(5, dtype=torch.complex64, device="xla"),
    "exponential": lambda: torch.empty(33, device="xla").exponential_(2.0),
    "cauchy": lambda: torch.empty(33, device="xla").cauchy_(),
    "log_normal": lambda: torch.empty(33, device="xla").log_normal_(),
    "geometric": lambda: torch.empty(33, device="xla").geometric_(0.2),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_the_program(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = DRAWS[name]
    drawn = []
    for tiers in ("off", "counted"):
        monkeypatch.setenv("TORCH_XLA_TIERS", tiers)
        torch_xla.manual_seed(11)
        drawn.append([draw().cpu(), draw().cpu(), torch.rand(3, device="xla").cpu()])
    for compiled, interpreted in zip(*drawn, strict=True):
        assert torch.equal(compiled, interpreted)


PROGRAM = """
import torch, torch_xla, torch.nn.functional as F
from models import GPT, GPTConfig
torch.manual_seed(3)
model = GPT(GPTConfig(vocabulary=40, size=32, heads=2, layers=2)).to("xla")
optimizer = torch.optim.Adam(model.parameters())
data = torch.randint(40, (4, 17), device="xla")
for _ in range(6):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    print(loss.item().hex())
"""


def test_a_program_computes_the_same_in_every_process(
    fresh_python: Callable[..., str], tmp_path: "os.PathLike[str]"
) -> None:
    environment = {
        "TORCH_XLA_TIERS": "counted",
        "TORCH_XLA_TIER_RUNS": "3",
        "TORCH_XLA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": "examples",
    }
    first = fresh_python(PROGRAM, **environment)
    assert len(first.splitlines()) == 6
    assert fresh_python(PROGRAM, **environment) == first  # its programs are on disk now


# ---- errors --------------------------------------------------------------------------------------


def test_an_error_of_a_kernel_names_the_line_and_leaves_the_rest() -> None:
    weights = torch.ones(4, device="xla")
    torch_xla.sync()
    innocent = torch.arange(5, device="xla") * 2
    weights.mul_(3)
    table = torch.randn(5, 2, device="xla")
    with pytest.raises(IndexError, match="test_tiers.py:"):
        F.embedding(torch.tensor([1, 9]).to("xla"), table).sum().item()
    assert innocent.tolist() == [0, 2, 4, 6, 8]
    assert weights.tolist() == [3, 3, 3, 3]


def test_what_shares_a_sync_with_an_error_is_computed() -> None:
    table = torch.randn(5, 2, device="xla")
    weights = torch.ones(4, device="xla")
    torch_xla.sync()
    innocent = torch.arange(5, device="xla") * 2
    weights.mul_(3)
    lost = F.embedding(torch.tensor([1, 9]).to("xla"), table)
    with pytest.raises(IndexError):
        torch_xla.sync()
    assert innocent.tolist() == [0, 2, 4, 6, 8]
    assert weights.tolist() == [3, 3, 3, 3]
    with pytest.raises(IndexError):
        lost.cpu()


@torch.library.custom_op("tiers_test::refuse", mutates_args=(), device_types="cpu")
def refuse(x: Tensor, limit: float) -> Tensor:
    if x.max() > limit:
        raise ValueError("too large for refuse()")
    return x.clone()


@refuse.register_fake
def _(x: Tensor, limit: float) -> Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("tiers", ["off", "counted"])
def test_a_failure_after_donation_loses_no_parameter(
    tiers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", tiers)
    weights = torch.ones(1000, device="xla")
    torch_xla.sync(wait=True)
    for _ in range(2):
        weights.mul_(2)  # its buffer is donated
        weights.add_(torch.ops.tiers_test.refuse(weights, 100.0), alpha=0.0)
        torch_xla.sync(wait=True)
    weights.mul_(2)
    weights.add_(torch.ops.tiers_test.refuse(weights, 5.0), alpha=0.0)
    with pytest.raises((RuntimeError, ValueError), match="too large for refuse"):
        torch_xla.sync(wait=True)
    assert weights[:2].tolist() == [4, 4]
    weights.add_(1)
    assert weights[:2].tolist() == [5, 5]


def test_a_failure_on_one_device_leaves_the_other(fresh_python: Callable[..., str]) -> None:
    program = """
import torch, torch_xla, torch.nn.functional as F
from torch_xla import _XLAC
bad = F.embedding(torch.tensor([7]).to("xla:0"), torch.ones(3, 2, device="xla:0"))
good = torch.arange(4, device="xla:1") + 1
try:
    _XLAC.sync_tensors([bad, good])
except IndexError:
    print("raised")
print(good.tolist())
"""
    for order in (
        program,
        program.replace("xla:0", "xla:x").replace("xla:1", "xla:0").replace("xla:x", "xla:1"),
    ):
        printed = fresh_python(order, CPU_NUM_DEVICES="2", TORCH_XLA_TIERS="counted")
        assert printed.splitlines() == ["raised", "[1, 2, 3, 4]"]


def test_a_compile_error_is_a_warning_and_the_tier_below_goes_on() -> None:
    @torch_xla.compile(custom_compile_options={"xla_no_such_option": True})
    def step(x: Tensor) -> Tensor:
        return x * 2 + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.ones(29).to("xla")
        for _ in range(6):
            x = step(x)
    assert x[0].item() == 127
    messages = [str(w.message) for w in caught if "xla_no_such_option" in str(w.message)]
    assert len(messages) == 1 and "step" in messages[0]


# ---- processes and threads -----------------------------------------------------------------------

BUSY = """
import os, signal, sys, threading, time
import torch, torch_xla
os.environ["TORCH_XLA_TIERS"] = "counted"
def step(x, width):
    for i in range(width):
        x = (x @ x).sin() + i / 7
    return x
x = torch.ones(16, 16, device="xla")
def run(times, width=400):
    for _ in range(times):
        y = step(x, width)
        torch_xla.sync()
"""


def test_exit_with_a_compilation_under_way_is_quick_and_keeps_the_status() -> None:
    program = BUSY + "run(2, 3000); print('done', flush=True); sys.exit(3)"
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\n", "")
    assert time.monotonic() - begun < 60


def test_a_forked_child_ends_while_its_parent_compiles(fresh_python: Callable[..., str]) -> None:
    program = (
        BUSY
        + """
run(2)
child = os.fork()
if child == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
run(1)
print(x[0, 0].item())
"""
    )
    assert fresh_python(program) == "1.0"


def test_ctrl_c_interrupts_a_wait_for_the_compiler(fresh_python: Callable[..., str]) -> None:
    program = (
        BUSY
        + """
run(1, 2)
os.environ["TORCH_XLA_TIERS"] = "off"
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    run(1, 1200)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begun < 20)
print((x + 1)[0, 0].item())
"""
    )
    assert fresh_python(program).splitlines() == ["interrupted True", "2.0"]


def test_threads_share_what_is_compiled(counters: Counters) -> None:
    def work() -> None:
        x = torch.ones(31, device="xla")
        for _ in range(8):
            x = x.mul(1.5).sub(0.25)
            torch_xla._XLAC.sync_tensors([x])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # What a thread is just dropping is no result of another thread's sync.
    assert counters("UncachedCompile") <= 2  # of eight


def test_memory_is_freed_at_the_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of large values needs a few of them at a time, not all."""
    import resource

    monkeypatch.setenv("TORCH_XLA_TIERS", "never")
    megabyte = 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    x = torch.ones(16 * megabyte, device="xla")
    for i in range(30):
        x = x.cos() + i  # 64 MB each
    x[:2].cpu()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - before
    assert grown < 600
    assert met.metric_data("InterpretTime")


def test_what_is_written_to_out_is_computed_in_its_dtype() -> None:
    def program(device: str, dtype: torch.dtype) -> list[Tensor]:
        results = [torch.empty(0, dtype=dtype, device=device) for _ in range(5)]
        torch.linspace(0.1, 7.7, 9, out=results[0])
        torch.logspace(0.1, 1.7, 9, out=results[1])
        torch.arange(0.1, 7.7, 0.3, out=results[2])
        torch.full((3,), 2**24 + 1.1, out=results[3])
        torch.linspace(torch.tensor(0.1, device=device), 7.7, 9, out=results[4])
        window = torch.zeros(2, 3, dtype=dtype, device=device)
        torch.linspace(0, 3, 4, out=window[:, 1:])  # as many places as numbers: keeps its shape
        counted = torch.zeros(2, 3, dtype=dtype, device=device)
        torch.arange(4, out=counted[:, 1:])
        return [result.cpu() for result in [*results, window, counted]]

    for dtype in (torch.float64, torch.bfloat16):
        for expected, got in zip(program("cpu", dtype), program("xla", dtype), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
