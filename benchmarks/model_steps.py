"""Training steps of many models (`dev/sample_models`: transformers, timm, diffusers; tiny, or in
the size that people have) from a process that has not met them, with nothing on disk: finds what
is slow of what nobody here wrote.

In each round CPU eager and xla have a process of their own, which trains model after model for some
steps with AdamW, new data and a read of the loss at each. They take turns, model by model; the one
whose turn it is not is stopped, with all its threads. Prints geometric means of the models' ratios
(each the median over the rounds), and the models with the largest. The interpreter that runs this
needs these libraries.
"""

import argparse
import json
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

from timing import ONLY_WHAT_IS_IMPORTED

sys.path.insert(0, str(Path(__file__).parents[1] / "dev"))


def train(name: str, device: str, steps: int, scale: str) -> list[float]:
    import sample_models
    import torch
    from library_models import moved, training_step

    case = sample_models.case(name, sample_models.SCALES[scale])
    generator = torch.Generator().manual_seed(1)
    model = case.model.to(device).train()
    step = training_step(model, model, device)
    seconds = []
    for _ in range(steps):
        given = case.inputs(generator)
        start = time.perf_counter()
        loss = step(moved(given, device))
        if device == "xla":
            sys.modules["torch_xla"].sync()
        loss.item()
        seconds.append(time.perf_counter() - start)
    return seconds


def work(device: str, steps: int, scale: str) -> None:
    """Reads models' names, and answers with the seconds of their steps or why there are none."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # models print, too
    if device == "xla":
        import torch_xla  # noqa: F401
    import sample_models  # noqa: F401

    for line in sys.stdin:
        try:
            answer: Any = train(line.strip(), device, steps, scale)
        except Exception as problem:
            answer = f"{type(problem).__name__}: {str(problem)[:200]}"
        print(json.dumps(answer), file=answers, flush=True)


class Contender:
    """A process that runs only while it is asked."""

    def __init__(self, device: str, steps: int, scale: str) -> None:
        cache = tempfile.mkdtemp(prefix="model_steps_")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", device, "--steps", str(steps),
             "--scale", scale],
            env={**os.environ, **ONLY_WHAT_IS_IMPORTED, "HF_HUB_OFFLINE": "1",
                 "TORCH_XLA_CACHE_DIR": cache}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, name: str) -> Any:
        self.process.send_signal(signal.SIGCONT)
        print(name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()  # type: ignore[union-attr]
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(answer) if answer else "its process ended"


def ratios(found: list[float], reference: list[float]) -> tuple[float, float, float]:
    """Of all steps, the first, and the later ones."""
    later = statistics.median(found[3:]) / statistics.median(reference[3:])
    return sum(found) / sum(reference), found[0] / reference[0], later


def measure(
    names: list[str], steps: int, rounds: int, scale: str
) -> dict[str, list[tuple[float, ...]]]:
    """Each model's ratios in every round, of those that train on the CPU."""
    rows = defaultdict(list)
    for number in range(rounds):
        with Contender("cpu", steps, scale) as cpu, Contender("xla", steps, scale) as xla:
            for name in names:
                turns = [cpu, xla] if number % 2 == 0 else [xla, cpu]
                answers = {turn: turn.ask(name) for turn in turns}
                if isinstance(answers[cpu], str):
                    print(f"{name} is left out: {answers[cpu]}", flush=True)
                elif isinstance(answers[xla], str):
                    print(f"{name} fails: {answers[xla]}", flush=True)
                else:
                    rows[name].append(ratios(answers[xla], answers[cpu]))
    return rows


def main() -> None:
    import sample_models

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models; all by default")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--scale", choices=sample_models.SCALES, default="tiny")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="only each nth model")
    parser.add_argument("--worst", type=int, default=10, help="how many models to list")
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.steps, options.scale)
        return
    names = (
        options.names or sample_models.names(sample_models.SCALES[options.scale])[:: options.every]
    )
    rows = measure(names, options.steps, options.rounds, options.scale)
    medians = {
        name: tuple(map(statistics.median, zip(*of, strict=True))) for name, of in rows.items()
    }
    means = [statistics.geometric_mean(of) for of in zip(*medians.values(), strict=True)]
    print(f"{len(rows)} models, {options.steps} steps, {options.rounds} rounds, times CPU eager's:")
    print(
        "  all {:.2f}  first step {:.2f}  fourth and later {:.2f}  (spread of all)".format(*means)
    )
    for name in sorted(medians, key=lambda name: -medians[name][0])[: options.worst]:
        spread = [of_all for of_all, _, _ in rows[name]]
        texts = [f"{median:.2f}" for median in medians[name]]
        print("  " + "  ".join(texts), f"({min(spread):.2f}-{max(spread):.2f})  {name}")


if __name__ == "__main__":
    main()
