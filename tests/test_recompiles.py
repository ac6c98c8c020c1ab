"""Every compilation is explained: the sentence a user reads for each cause."""

import re
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch_xla
import torch_xla.debug as xd
from torch_xla import _XLAC
from torch_xla.debug import recompilation
from torch_xla.experimental.assume_pure import assume_pure

DEVICE = "xla"
LINE = r"at test_recompiles\.py:\d+"


def rand(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor whose value is on the device, like data that a loader has uploaded."""
    return torch.ones(*sizes, dtype=dtype).to(DEVICE)


@dataclass
class Case:
    cause: str
    reason: str  # a regular expression, for the whole sentence
    first: Callable[[], object]  # what it returns is alive when the graph is made
    then: Callable[[], object]


def matmul(rows: int, width: int = 8, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return rand(rows, width, dtype=dtype) @ rand(width, 4, dtype=dtype)


def branch(x: torch.Tensor, relu: bool) -> torch.Tensor:
    y = x @ x
    if relu:
        return y.relu()
    return y.tanh()


def optional(x: torch.Tensor, extra: bool) -> torch.Tensor:
    y = x.exp()
    if extra:
        y = y.log()
    return y


def repeat(x: torch.Tensor, times: int) -> torch.Tensor:
    for _ in range(times):
        x = x.sin()
    return x


def prepared(pending: bool) -> torch.Tensor:
    def prepare(data: torch.Tensor) -> torch.Tensor:
        return (data - 1).div(255).neg()

    data = prepare(rand(4, 4))
    if not pending:
        torch_xla.sync()
    return data.exp()


def with_state(make: bool) -> torch.Tensor:
    state = torch.zeros(4, device=DEVICE) if make else rand(4)
    return state.add_(rand(4))


def scaled(factor: float) -> torch.Tensor:
    return rand(3, 3) * factor


def summed(dim: int) -> torch.Tensor:
    return rand(5, 5).sum(dim)


def row(index: int) -> torch.Tensor:
    return rand(5, 5)[index].cos()


def transposed(swap: bool) -> torch.Tensor:
    x = rand(5, 5)
    return (x.t() if swap else x).cosh()


def kept(both: bool, size: int) -> object:
    x = rand(size).sinh()
    y = x.cosh()
    return (x, y) if both else y


def replaced(hold: bool, size: int) -> object:
    x = rand(size)
    y = x.mul(2)
    return (x, y) if hold else y


def tied(same: bool) -> torch.Tensor:
    x = rand(4, 4)
    y = x if same else rand(4, 4)
    return x.atan2(y)


def wired(swap: bool) -> torch.Tensor:
    x, y = rand(4).tan(), rand(4).asin()
    a, b = (y, x) if swap else (x, y)
    return a.sub(b)


def sliced(size: int) -> torch.Tensor:
    return rand(size)[:4].acosh()


def varied(correction: int) -> torch.Tensor:
    return rand(7, 3).var(0, correction=correction)


def typed(factor: float) -> torch.Tensor:
    return rand(4).remainder(factor)


def filled(dtype: torch.dtype) -> torch.Tensor:
    return torch.full((4,), 2, dtype=dtype, device=DEVICE)


def dropped(train: bool) -> torch.Tensor:
    return torch.nn.functional.dropout(rand(8, 8).tanh(), 0.5, train)


def cast(low: bool) -> torch.Tensor:
    with torch.autocast("xla", dtype=torch.bfloat16, enabled=low):
        return rand(8, 8) @ rand(8, 8)


@assume_pure
def pure_sines(x: torch.Tensor, times: int) -> torch.Tensor:
    return repeat(x, times)


def different(other: bool) -> torch.Tensor:
    if other:
        return rand(4).asinh().atanh().erf().erfc().expm1()
    return rand(4).ceil().floor().round().trunc().frac()


def joined_at(*args: object) -> Callable[[], object]:
    return lambda: prepared(*args)


CASES = {
    "last_batch": Case(
        "shape",
        rf"argument 1 of aten::mm {LINE} had shape \[32, 8\], now \[17, 8\] \(last batch\?\)",
        lambda: matmul(32),
        lambda: matmul(17),
    ),
    "larger_batch": Case(
        "shape",
        rf"argument 1 of aten::mm {LINE} had shape \[8, 8\], now \[16, 8\]",
        lambda: matmul(8),
        lambda: matmul(16),
    ),
    "width": Case(
        "shape",
        rf"argument 1 of aten::mm {LINE} had shape \[9, 8\], now \[9, 6\]",
        lambda: matmul(9),
        lambda: matmul(9, 6),
    ),
    "rank": Case(
        "shape",
        rf"argument 1 of aten::exp {LINE} had shape \[4\], now \[4, 1\]",
        lambda: optional(rand(4), False),
        lambda: optional(rand(4, 1), False),
    ),
    "dtype": Case(
        "dtype",
        rf"argument 1 of aten::mm {LINE} had dtype float32, now float64",
        lambda: matmul(4),
        lambda: matmul(4, dtype=torch.float64),
    ),
    "result_dtype": Case(
        "argument",
        rf"argument 3 of aten::full {LINE} was float32, now int32",
        lambda: filled(torch.float32),
        lambda: filled(torch.int32),
    ),
    "new_operation": Case(
        "new operation",
        rf"operator aten::log {LINE} is new",
        lambda: optional(rand(5), False),
        lambda: optional(rand(5), True),
    ),
    "missing_operation": Case(
        "missing operation",
        rf"operator aten::log {LINE} is gone",
        lambda: optional(rand(6), True),
        lambda: optional(rand(6), False),
    ),
    "branch": Case(
        "new operation",
        rf"operator aten::relu {LINE} is new, where aten::tanh {LINE} was \(a branch\?\)",
        lambda: branch(rand(4, 4), False),
        lambda: branch(rand(4, 4), True),
    ),
    "loop": Case(
        "repetitions",
        rf"operator aten::sin {LINE} was recorded three times, now four times "
        r"\(a loop of varying length\?\)",
        lambda: repeat(rand(4), 3),
        lambda: repeat(rand(4), 4),
    ),
    "joined": Case(
        "joined",
        rf"three operations recorded before the region {LINE} joined this graph",
        joined_at(False),
        joined_at(True),
    ),
    "state_made_once": Case(
        "missing operation",
        rf"operator aten::zeros {LINE} is gone: what it computed is an input now",
        lambda: with_state(True),
        lambda: with_state(False),
    ),
    "number": Case(
        "number",
        rf"argument 2 of aten::mul {LINE} was 0\.5, now 0\.25: it is an input from now on, "
        "other values compile nothing",
        lambda: scaled(0.5),
        lambda: scaled(0.25),
    ),
    "literal": Case(
        "literal",
        rf"argument 3 of aten::var {LINE} was 0, now 1, in a place that must be a literal",
        lambda: varied(0),
        lambda: varied(1),
    ),
    "number_type": Case(
        "number type",
        rf"argument 2 of aten::remainder {LINE} was an int, now a float",
        lambda: typed(2),
        lambda: typed(2.5),
    ),
    "attribute": Case(
        "argument",
        rf"argument 2 of aten::sum {LINE} was \[0\], now \[1\]",
        lambda: summed(0),
        lambda: summed(1),
    ),
    "moving_index": Case(
        "slice",
        rf"argument 1 of aten::cos {LINE} began at element 0 of its storage, now at 5 "
        r"\(an index or a slice that moves\?\): it is an input from now on, other places compile "
        "nothing",
        lambda: row(0),
        lambda: row(1),
    ),
    "layout": Case(
        "layout",
        rf"argument 1 of aten::cosh {LINE} had strides \[5, 1\], now \[1, 5\] "
        r"\(a transpose or another memory format\?\)",
        lambda: transposed(False),
        lambda: transposed(True),
    ),
    "kept_result": Case(
        "results",
        rf"the result of aten::sinh {LINE} is now kept after the graph, it was not before",
        lambda: kept(False, 3),
        lambda: kept(True, 3),
    ),
    "dropped_result": Case(
        "results",
        rf"the result of aten::sinh {LINE} is no longer kept after the graph",
        lambda: kept(True, 4),
        lambda: kept(False, 4),
    ),
    "memory_held": Case(
        "donation",
        rf"the result of aten::mul {LINE} no longer takes the memory of an input: something "
        "still holds that",
        lambda: replaced(False, 1061),
        lambda: replaced(True, 1061),
    ),
    "memory_free": Case(
        "donation",
        rf"the result of aten::mul {LINE} now takes the memory of an input, which nothing else "
        "holds any more",
        lambda: replaced(True, 1063),
        lambda: replaced(False, 1063),
    ),
    "tied": Case(
        "sharing",
        rf"argument 2 of aten::atan2 {LINE} was the same tensor as another input of the graph, "
        "now it is one of its own",
        lambda: tied(True),
        lambda: tied(False),
    ),
    "links": Case(
        "links",
        rf"argument 1 of aten::sub {LINE} was the result of aten::tan {LINE}, now the result of "
        rf"aten::asin {LINE}",
        lambda: wired(False),
        lambda: wired(True),
    ),
    "storage": Case(
        "storage",
        rf"argument 1 of aten::acosh {LINE} was part of a storage of 8 elements, now of 9",
        lambda: sliced(8),
        lambda: sliced(9),
    ),
    "train_and_eval": Case(
        "missing operation",
        rf"operator aten::bernoulli {LINE} is gone, and two more operations",
        lambda: dropped(True),
        lambda: dropped(False),
    ),
    "autocast": Case(
        "new operation",
        rf"operator aten::copy {LINE} is new, and one more operation",
        lambda: cast(False),
        lambda: cast(True),
    ),
    "pure_function": Case(
        "function",
        rf"what pure::pure_sines {LINE} computes has changed",
        lambda: pure_sines(rand(4), 2),
        lambda: pure_sines(rand(4), 3),
    ),
    "another_computation": Case(
        "another computation",
        rf"a different computation: 5 of its 5 operations are new, the first is "
        rf"aten::asinh {LINE}",
        lambda: different(False),
        lambda: different(True),
    ),
}


def compile_named(name: str, record: Callable[[], object]) -> list[xd.CompileEvent]:
    torch_xla.sync(wait=True)
    before = _XLAC.last_compile_serial()
    alive = record()
    _XLAC.sync(name=name)
    del alive
    return [event for event in recompilation.events(before) if event.name == name]


@pytest.mark.parametrize("name", CASES)
def test_reason(name: str) -> None:
    case = CASES[name]
    (first,) = compile_named(name, case.first)
    assert first.cause == "first" and first.reason.startswith(f"first graph of {name}")
    (event,) = compile_named(name, case.then)
    assert re.fullmatch(case.reason, event.reason), event.reason
    assert event.cause == case.cause
    assert event.compilation == 2
    assert compile_named(name, case.then) == []


def run_pending(x: torch.Tensor) -> None:
    torch_xla.sync()
    del x


def test_first_graphs_are_named_by_line() -> None:
    before = _XLAC.last_compile_serial()
    run_pending(rand(11).sin())
    (event,) = recompilation.events(before)
    assert re.fullmatch(rf"first graph run {LINE}", event.reason.partition(";")[0])
    assert event.file == __file__ and event.location == f"test_recompiles.py:{event.line}"
    assert event.name == f"sync at {__file__}:{event.line}"
    assert event.operations == 1 and event.seconds > 0 and not event.from_disk


def test_a_read_elsewhere_names_the_graph_it_repeats() -> None:
    def work() -> torch.Tensor:
        return rand(13).sin().cos()

    compile_named("whole_step", work)
    before = _XLAC.last_compile_serial()
    work().cpu()
    (event,) = recompilation.events(before)
    assert event.cause == "first"
    assert "all of its operations are also in whole_step" in event.reason


def test_the_nearest_graph_has_the_same_shapes_too() -> None:
    def work(size: int, extra: bool) -> list[xd.CompileEvent]:
        return compile_named("nearest", lambda: optional(rand(size, 2, 2), extra))

    work(30, True)
    work(31, True)
    (event,) = work(30, False)
    assert re.fullmatch(rf"operator aten::log {LINE} is gone", event.reason)


def test_pending_work_that_joins_a_line() -> None:
    def step(data: torch.Tensor) -> None:
        run_pending(data.exp())

    def prepare(data: torch.Tensor) -> torch.Tensor:
        return data - 1

    step(rand(12, 2))
    before = _XLAC.last_compile_serial()
    step(prepare(rand(12, 2)))
    (event,) = recompilation.events(before)
    assert event.cause == "joined" and "sync()" in event.advice
    assert re.fullmatch(
        rf"one operation recorded {LINE} joined this graph: what it computes was an input before",
        event.reason,
    )


DROPPED = """
import torch, torch_xla
from torch_xla.debug import recompiles

def run(operator):
    x = torch.ones(3).to("xla")
    y = operator(x)
    torch_xla._XLAC.sync(name=operator.__name__)

for operator in (torch.sin, torch.cos, torch.sin):
    run(operator)
event = recompiles(show=False)[-1]
print(event.cause, event.from_disk, event.reason, event.advice, sep="|")
"""


def test_programs_dropped_from_memory(fresh_python: Callable[..., str]) -> None:
    printed = fresh_python(DROPPED, TORCH_XLA_MEMORY_PROGRAMS="1")
    assert printed == (
        "dropped|True|it was compiled before and has been dropped from memory"
        "|raise TORCH_XLA_MEMORY_PROGRAMS or, for hundreds of large programs on the CPU, the "
        "kernel's vm.max_map_count"
    )


def test_recompiles_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    compile_named("shown", lambda: rand(15).sin())
    events = xd.recompiles()
    printed = capsys.readouterr().out
    assert events[-1].name == "shown"
    assert re.search(r"shown +1 +1 +\d+\.\d{3}.? +first graph of shown", printed)
    assert xd.recompiles(show=False) == events and capsys.readouterr().out == ""


def test_compilations_of_other_threads_are_seen() -> None:
    with pytest.raises(RuntimeError, match="first graph of threaded"):
        with xd.expect_no_compile():
            thread = threading.Thread(
                target=lambda: compile_named("threaded", lambda: rand(17).sin())
            )
            thread.start()
            thread.join()


def test_expect_no_compile() -> None:
    def work() -> None:
        compile_named("expected", lambda: rand(16).sin())

    with pytest.raises(RuntimeError, match="1 unexpected compilation.*\n.*first graph of expected"):
        with xd.expect_no_compile():
            work()
    with xd.expect_no_compile():
        work()
    with pytest.raises(ValueError, match="own"), xd.expect_no_compile():
        compile_named("expected_too", lambda: rand(16).cos())
        raise ValueError("the block's own error comes first")


def test_the_eighth_recompilation_warns_once() -> None:
    def grow(size: int) -> None:
        compile_named("growing", lambda: rand(size).sin())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(20, 28):
            grow(size)
    with pytest.warns(UserWarning) as record:
        grow(28)
    assert re.search(
        r"growing has been compiled 9 times, most often because of: shape\. The last time: "
        rf"argument 1 of aten::sin {LINE} had shape \[27\], now \[28\]\. Advice: .*pad",
        str(record[0].message),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grow(29)


PROGRAM = """
import torch, torch_xla
x = torch.ones(3).to("xla")
y = x.sin()
torch_xla.sync()
"""


def test_each_compilation_is_logged_when_asked(fresh_python: Callable[..., str]) -> None:
    program = "import os; os.dup2(1, 2)\n" + PROGRAM
    logged = fresh_python(program, TORCH_XLA_EXPLAIN="1")
    assert re.search(
        r"torch_xla: (compiled|loaded) sync.* \(1 operation, .*\): first graph", logged
    )
    assert "torch_xla" not in fresh_python(program)


def test_in_a_notebook_events_are_a_table() -> None:
    event = recompilation.CompileEvent(
        *(7, 0.0, "sync at /home/me/train.py:4", "/home/me/train.py", 4, True, 0, 0.5, 12, False),
        *(1, "shape", "argument 1 had shape [<2>]", "pad"),
    )
    text = recompilation.CompileEvents([event])._repr_html_()
    assert text.count("<tr>") == 2
    assert "<td>sync at train.py:4</td><td>1</td><td>12</td><td>0.500</td>" in text
    assert "[&lt;2&gt;]</td><td>pad</td>" in text


def test_a_cell_of_a_notebook_is_named_as_in_its_tracebacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = {"/tmp/ipykernel_7/422149.py": ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    for file, name in ((next(iter(cells)), "Cell In[3]"), ("/tmp/ipykernel_7/8.py", None)):
        source = f"\ntorch.ones({len(file)}, 7, device='xla').mul(5).cpu()"
        exec(compile(source, file, "exec"), {"torch": torch})
        assert torch_xla.debug.recompiles(show=False)[-1].name == f"sync at {name or file}:2"


@pytest.mark.parametrize("cell", ["<stdin>", "<ipython-input-1-5e2b>", "/tmp/ipykernel_7/1.py"])
def test_what_prints_a_cells_result_is_not_the_users_code(cell: str) -> None:
    printer: dict[str, object] = {}
    exec(compile("def show(x): return repr(x)", "/site/IPython/lib/pretty.py", "exec"), printer)
    source = f"\nshow(torch.ones({len(cell)}, 3, device='xla').mul(5))"  # a program of its own
    exec(compile(source, cell, "exec"), {"show": printer["show"], "torch": torch})
    assert torch_xla.debug.recompiles(show=False)[-1].name == f"sync at {cell}:2"
