"""The one timer of the benchmarks.

Candidates are timed in turn with the reference, round by round, so that a noisy moment on the
machine hits all of them; medians and their ratio are what is reported.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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


class Worker:
    """A contender in a process of its own: it answers lines on its stdin, and else sleeps."""

    def __init__(self, *command: object, **environment: str) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **environment},
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


def write_json(path: str | None, results: dict[str, dict[str, float]]) -> None:
    if path:
        with open(path, "w") as file:
            json.dump(results, file, indent=2)
