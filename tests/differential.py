"""Runs random programs on the CPU and on the device, in every mode, and compares all they leave.

    python tests/differential.py --programs 2000           # seeds 0, 1, 2, ...
    python tests/differential.py --seed 17 --modes pure    # one program again

A failure prints the program, shortened for as long as it still fails. Programs run in a worker
process, so that a crash or a hang is a failure with a seed, too.
"""

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import random_helpers
import torch
import torch_xla
from functorch.compile import make_boxed_func
from random_outcomes import (
    FUNCTIONS,
    SIXTEEN_BITS,
    Outcome,
    Scope,
    distance,
    first_difference,
    first_excused,
)
from random_programs import Program, program_of, usable, values
from random_workers import Watch, ends_without_the_device
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch_xla.experimental.assume_pure import assume_pure

LINE_BY_LINE = ("off", "counted", "never", "eager", "habit")
# Of the program, of which all are compared, and those before: the habit of calling what is small
# (src/tiers/reading_habit.h) comes with 32 reads.
RUNS, RUNS_BEFORE = {"counted": 3}, {"habit": 34}
MODES = LINE_BY_LINE + FUNCTIONS


def observed(scope: Scope) -> Scope:
    """The variables that can be looked at."""
    kept = {n: v for n, v in scope.items() if n not in ("torch", "H", "values", "device")}
    return {
        n: v for n, v in kept.items() if n[0] != "_" and (usable(v) or not isinstance(v, Tensor))
    }


def gradients(variables: Scope) -> Scope:
    tensors = [v for v in variables.values() if isinstance(v, Tensor)]
    leaves = {
        n: v
        for n, v in variables.items()
        if isinstance(v, Tensor) and v.is_leaf and v.requires_grad
    }
    kept = {f"{n}.kept.grad": v.grad for n, v in leaves.items() if v.grad is not None}
    ends = [t for t in tensors if t.requires_grad and not t.is_leaf]
    if not ends or not leaves:
        return kept
    try:
        total = sum((end * weight(end)).sum().abs() for end in ends)
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    except Exception as error:  # noqa: BLE001  (a hook that is given no gradient, say)
        return {"gradients": type(error).__name__}
    return kept | {f"{name}.grad": gradient for name, gradient in zip(leaves, found, strict=True)}


def weight(tensor: Tensor) -> Tensor:
    steps = torch.arange(tensor.numel(), dtype=torch.float32).reshape(tensor.shape)
    return (0.5 + steps % 3).to(tensor.dtype).to(tensor.device)


def run_lines(program: Program, device: str, nudge: "Nudge | None" = None) -> Outcome:
    scope = inputs_of(program, device, 0, nudge)
    raised = {}
    for number, line in enumerate(program.lines):
        try:
            exec(compile(line.text, f"<line {number}>", "exec"), scope)
        except Exception as error:  # noqa: BLE001  (whatever is raised is compared)
            raised[number] = f"{type(error).__name__}: {error}"
    variables = observed(scope)
    return Outcome({**variables, **gradients(variables)}, raised)


def inputs_of(program: Program, device: str, shift: int, nudge: "Nudge | None" = None) -> Scope:
    def shifted(seed: int, *rest: Any) -> Tensor:
        tensor = values(seed + shift, *rest)
        return tensor if nudge is None else nudge.applied(tensor)

    scope = {"torch": torch, "H": random_helpers, "values": shifted, "device": device}
    for text in program.inputs:
        exec(text, scope)
    return scope


@dataclass(frozen=True)
class Nudge:
    """Changes numbers by as much as rounding changes them."""

    seed: int
    rounding: float

    def applied(self, tensor: Tensor) -> Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        generator = torch.Generator().manual_seed(self.seed)
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        rounding = max(self.rounding, torch.finfo(tensor.dtype).eps)
        return tensor * (1 + signs * rounding).to(tensor.dtype)


def as_function(program: Program) -> Callable[..., Scope]:
    """The inputs are the arguments, all that it made the result."""
    names = program.names()
    body = textwrap.indent("\n".join(line.text for line in program.lines) or "pass", "    ")
    made = sorted(
        {match[1] for line in program.lines if (match := re.match(r"(t\d+) = ", line.text))}
    )
    pairs = ", ".join(f"{name!r}: {name}" for name in made)
    scope: Scope = {"torch": torch, "H": random_helpers, "device": "cpu"}
    exec(
        compile(
            f"def program({', '.join(names)}):\n{body}\n    return {{{pairs}}}", "<program>", "exec"
        ),
        scope,
    )
    return scope["program"]


def run_function(
    program: Program,
    device: str,
    wrap: Callable[[Any], Any],
    shifts: tuple[int, ...],
    nudge: Nudge | None = None,
) -> list[Outcome]:
    function = as_function(program)
    function.__globals__["device"] = device
    wrapped, outcomes = wrap(function), []
    for shift in shifts:
        scope = inputs_of(program, device, shift, nudge)
        arguments = {name: scope[name] for name in program.names()}
        try:
            result = wrapped(*arguments.values())
        except Exception as error:  # noqa: BLE001
            outcomes.append(Outcome({}, {0: f"{type(error).__name__}: {error}"}))
            continue
        variables = observed({**arguments, **result})
        outcomes.append(Outcome({**variables, **gradients(variables)}, {}))
    return outcomes


@contextmanager
def mode_set(mode: str) -> Iterator[None]:
    policies = {"counted": "counted", "habit": "counted", "never": "never"}
    os.environ["TORCH_XLA_TIERS"] = policies.get(mode, "off")
    with torch_xla.experimental.eager_mode_context(mode == "eager"):
        yield


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "compile": torch_xla.compile,
    "pure": assume_pure,
    "openxla": lambda function: torch.compile(function, backend="openxla"),
}


def suits(program: Program, mode: str) -> bool:
    """Functions that raise half-way leave what nobody promises; pure ones read nothing."""
    if mode in FUNCTIONS and (program.raises or program.plain):
        return False
    if mode == "openxla" and " for q in " in program.source():
        return False  # Dynamo compiles the rest of the function anew for each element
    if mode == "openxla" and "_neg_view" in program.source():
        return False  # graphs that write their inputs take a negative view for the view it is of
    if mode == "pure" and "as_bytes" in program.source() and ".data = " in program.source():
        return False  # bytes of an argument that are given other memory have no value outside
    return not (mode == "pure" and program.reads)


SHIFTS = (0, 0, 1000)


def outcomes_on_cpu(program: Program, mode: str, nudge: Nudge | None = None) -> list[Outcome]:
    if mode in LINE_BY_LINE:
        return [run_lines(program, "cpu", nudge)] * RUNS.get(mode, 1)
    return run_function(program, "cpu", lambda function: function, SHIFTS, nudge)


def outcomes_on_device(program: Program, mode: str) -> list[Outcome]:
    with mode_set(mode):
        if mode in LINE_BY_LINE:
            for _ in range(RUNS_BEFORE.get(mode, 0)):
                run_lines(program, "xla").read()
            return [run_lines(program, "xla") for _ in range(RUNS.get(mode, 1))]
        torch._dynamo.reset()
        return run_function(program, "xla", WRAPPERS[mode], SHIFTS)


def difference(program: Program, mode: str) -> str | None:
    """What the device does differently in this mode, if anything."""
    expected = outcomes_on_cpu(program, mode)
    actual = outcomes_on_device(program, mode)
    excused = first_excused(actual, expected, mode)
    if excused is not None:  # what follows is another program; what comes before it is not
        before = replace(program, lines=program.lines[:excused])
        return difference(before, mode) if excused else None
    found = first_difference(actual, expected, mode)
    if found is None or (mode == "openxla" and compiler_differs(program, expected, SHIFTS)):
        return None
    # The CPU's other kernels, and other sums.
    for otherwise in (torch.backends.mkldnn.flags(enabled=False), random_helpers.SumsByPart()):
        with otherwise:
            other = outcomes_on_cpu(program, mode)
        if first_difference(actual, other, mode) is None:
            return None
    return first_difference(actual, expected, mode, movements(program, mode, expected))


def movements(program: Program, mode: str, expected: list[Outcome]) -> list[dict[str, float]]:
    """How far the CPU's own results move when the inputs are rounded differently."""
    kinds = {value.dtype for value in expected[0].variables.values() if isinstance(value, Tensor)}
    kinds |= {v.dtype for v in inputs_of(program, "cpu", 0).values() if isinstance(v, Tensor)}
    rounding = max((torch.finfo(kind).eps for kind in kinds & set(SIXTEEN_BITS)), default=0.0)
    found: list[dict[str, float]] = [{} for _ in expected]
    for seed in range(3):
        moved = outcomes_on_cpu(program, mode, Nudge(seed, rounding))
        for before, after, far in zip(expected, moved, found, strict=True):
            for name, value in before.variables.items():
                other = after.variables.get(name)
                far[name] = max(far.get(name, 0.0), distance(value, other))
    return found


def compiler_differs(program: Program, expected: list[Outcome], shifts: tuple[int, ...]) -> bool:
    """Whether PyTorch's own compiler makes something else of it on the CPU, around graphs that run
    as they are: the frame that PyTorch has put around `openxla`. Results of compiled graphs share
    memory (as inductor's do), and are no views of each other."""

    def unrelated(tensor: Any) -> Any:
        if not isinstance(tensor, Tensor) or tensor.is_conj() or tensor.is_neg():
            return tensor
        place = (tensor.storage_offset(), tensor.size(), tensor.stride())
        return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), *place)

    def as_it_is(graph: Any, _: Any) -> Any:
        return make_boxed_func(graph)

    def as_compiled(graph: Any, _: Any) -> Any:
        return make_boxed_func(lambda *args: [unrelated(result) for result in graph(*args)])

    # A mask ends a graph on the CPU unless PyTorch is told to go on, and none on the device.
    for run, goes_on in itertools.product((as_it_is, as_compiled), (False, True)):
        backend = aot_autograd(fw_compiler=run)

        def compiled(function: Any, backend: Any = backend) -> Any:
            return torch.compile(function, backend=backend)

        torch._dynamo.reset()
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=goes_on):
            own = run_function(program, "cpu", compiled, shifts)
        if first_difference(own, expected, "openxla") is not None:
            return True
    return False


def shortened(program: Program, mode: str) -> Program:
    """Without any line or input that the failure does not need."""
    again = True
    while again:
        again = False
        for index in reversed(range(len(program.lines))):
            lines = program.lines[:index] + program.lines[index + 1 :]
            candidate = replace(program, lines=lines)
            if still_fails(candidate, mode):
                program, again = candidate, True
        for index in reversed(range(len(program.inputs))):
            candidate = replace(
                program, inputs=program.inputs[:index] + program.inputs[index + 1 :]
            )
            if still_fails(candidate, mode):
                program, again = candidate, True
    return program


def still_fails(program: Program, mode: str) -> bool:
    try:
        if any("NameError" in text for text in run_lines(program, "cpu").raised.values()):
            return False
        return difference(program, mode) is not None
    except Exception:  # noqa: BLE001  (a program that cannot be run is no shorter failure)
        return False


def check(seed: int, modes: tuple[str, ...], shorten: bool = True) -> list[str]:
    """One report per mode in which the device differs."""
    program = program_of(seed)
    reports = []
    for mode in modes:
        if not suits(program, mode):
            continue
        found = difference(program, mode)
        if found is not None:
            smallest = shortened(program, mode) if shorten else program
            found = difference(smallest, mode) or found
            reports.append(
                f"seed {seed}, {mode}: {found}\n{textwrap.indent(smallest.source(), '    ')}"
            )
    return reports


def chosen_modes(seed: int, modes: tuple[str, ...]) -> tuple[str, ...]:
    """What compiles takes turns; the rest is quick."""
    quick = tuple(mode for mode in modes if mode in ("never", "eager"))
    slow = tuple(mode for mode in modes if mode not in quick)
    return quick + ((slow[seed % len(slow)],) if slow else ())


def work(seeds: range, modes: tuple[str, ...], all_modes: bool, shorten: bool) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for seed in seeds:
        print(f"seed {seed}", flush=True)
        for report in check(seed, modes if all_modes else chosen_modes(seed, modes), shorten):
            print(report, flush=True)


def supervise(options: argparse.Namespace) -> int:
    """Workers run the seeds; one that dies or hangs is replaced behind the seed that did it."""
    first, last, failures = options.seed, options.seed + options.programs, 0
    while first < last:
        before = first
        command = [sys.executable, "-X", "faulthandler", __file__, "--worker", "--seed", str(first)]
        command += ["--programs", str(last - first), "--modes", *options.modes]
        command += ["--all-modes"] * options.all_modes + ["--long"] * options.long
        with tempfile.TemporaryFile("w+") as errors:
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            assert worker.stdout is not None
            watch = Watch(worker, options.seconds)
            for line in worker.stdout:
                if line.startswith("seed ") and line[5:].strip().isdigit():
                    first = int(line[5:]) + 1
                    watch.restart()
                    continue
                failures += line.startswith("seed ")
                print(line, end="", flush=True)
            watch.timer.cancel()
            if worker.wait() == 0:
                break
            if first > before and not watch.late and ends_without_the_device(first - 1):
                continue
            errors.seek(0)
            failures += 1
            print(f"seed {first - 1}: the worker {watch.verdict()}")
            print(textwrap.indent("".join(errors.readlines()[:80]), "    "), flush=True)
        if first == before:
            break  # it did not reach a program
    print(f"{failures} failures in {options.programs} programs")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--all-modes", action="store_true", help="each program in every mode")
    parser.add_argument("--long", action="store_true", help="leave failing programs as they are")
    parser.add_argument("--seconds", type=float, default=120, help="for one program")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.worker:
        return supervise(options)
    work(
        range(options.seed, options.seed + options.programs),
        tuple(options.modes),
        options.all_modes,
        not options.long,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
