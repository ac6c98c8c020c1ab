"""The one timer of the benchmarks.

Candidates are timed in turn with the reference, round by round, so that a noisy moment on the
machine hits all of them; medians and their ratio are what is reported. In one process they also
share caches, memory and thread teams: what must not flatter gets a process each (`take_turns`).
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass


def nothing() -> None:
    pass


@dataclass
class Case:
    """`run` is timed, so often in a row; `between` follows outside the timer."""

    name: str
    run: Callable[[], object]
    between: Callable[[], None] = nothing
    repeat: int = 1


def time_once(case: Case) -> float:
    started = time.perf_counter()
    for _ in range(case.repeat):
        result = case.run()
    elapsed = (time.perf_counter() - started) / case.repeat
    del result
    case.between()
    return elapsed


def compare(
    title: str, reference: Case, candidates: Sequence[Case], rounds: int, warmup: int = 3
) -> dict[str, float]:
    """Time the cases in turn, print medians and ratios, return candidate name -> ratio."""
    return report(title, reference.name, medians([reference, *candidates], rounds, warmup))


def medians(cases: Sequence[Case], rounds: int, warmup: int = 3) -> dict[str, float]:
    """Seconds of each case, timed in turn."""
    for case in cases:
        for _ in range(warmup):
            time_once(case)
    times: dict[str, list[float]] = {case.name: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            times[case.name].append(time_once(case))
    return {name: statistics.median(t) for name, t in times.items()}


def report(title: str, reference: str, seconds: dict[str, float]) -> dict[str, float]:
    print(title)
    ratios = {}
    for name, median in seconds.items():
        ratios[name] = median / seconds[reference]
        print(f"  {name:24s} {median * 1e3:9.2f} ms   ratio {ratios[name]:.3f}", flush=True)
    return ratios


# PyTorch loads this package wherever it is installed: a rival's process is without it, and ours
# import it.
ONLY_WHAT_IS_IMPORTED = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


class Worker:
    """A contender in a process of its own: it answers lines on its stdin, and else sleeps."""

    def __init__(self, *command: object, **environment: str) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **ONLY_WHAT_IS_IMPORTED, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line: str = "") -> str:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.end()
            sys.exit(f"{self._process.args!r} ended early")
        return line

    def end(self) -> None:
        self._process.communicate()
        if self._process.returncode != 0:
            sys.exit(f"{self._process.args!r} failed")


def options_of(description: str, work: Callable[[str], None], rounds: int) -> argparse.Namespace:
    """Of a benchmark whose sides are its own script in processes (`workers_of`) that only work."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        sys.exit()
    return options


@contextlib.contextmanager
def workers_of(script: str, sides: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, Worker]]:
    """One for each side, in its environment."""
    workers = {
        side: Worker(sys.executable, script, "--worker", side, **environment)
        for side, environment in sides.items()
    }
    yield workers
    for worker in workers.values():
        worker.end()


def best_in_turn(workers: dict[str, Worker], line: str, rounds: int) -> dict[str, float]:
    """What each answers to the line at its best, where they are asked in turn."""
    best = dict.fromkeys(workers, float("inf"))
    for _ in range(rounds):
        for side, worker in workers.items():
            best[side] = min(best[side], float(worker.ask(line)))
    return best


def answer_turns(case: Case) -> None:
    """The worker's side of `Contender`: each line `SECONDS` on its stdin is answered with what a
    run took meanwhile, and with the process's peak of memory."""
    for line in sys.stdin:
        until = time.perf_counter() + float(line)
        time_once(case)
        took: list[float] = []
        while not took or time.perf_counter() < until:
            took.append(time_once(case))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"ms": statistics.fmean(took) * 1e3, "peak": peak}), flush=True)


class Contender:
    """One in a process of its own, which says a line when it is ready and then answers turns."""

    def __init__(self, name: str, *command: object, **environment: str) -> None:
        self.name = name
        self.turns: list[float] = []
        self.peak = 0.0
        self._worker = Worker(*command, **environment)
        self.ready = self._worker.answer()

    def turn(self, seconds: float) -> float:
        found = json.loads(self._worker.ask(str(seconds)))
        self.peak = found["peak"]
        self.turns.append(found["ms"])
        return self.turns[-1]

    def end(self) -> None:
        self._worker.end()


def take_turns(
    contenders: Sequence[Contender], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """One runs while the others sleep: name -> its ratio to the first in each round. Ends them."""
    ratios: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        reference = contenders[0].turn(seconds)
        ratios[contenders[0].name].append(1.0)
        for contender in contenders[1:]:
            ratios[contender.name].append(contender.turn(seconds) / reference)
    for contender in contenders:
        contender.end()
    return ratios


def write_json(path: str | None, results: dict[str, dict[str, float]]) -> None:
    if path:
        with open(path, "w") as file:
            json.dump(results, file, indent=2)
