"""The fair comparison: what a step of common programs takes, as a ratio to CPU-eager PyTorch.

Each contender lives in a process of its own. One runs while the others sleep; they take turns
round by round; a ratio is made in each round, and their median and spread are printed, with the
seconds of the first step (compilation, imports not counted) and the process's peak memory.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time

from timing import Case, Contender, answer_turns, take_turns, write_json

CONTENDERS = ("eager", "lazy", "compiled", "openxla", "traced", "inductor")
SECONDS_A_TURN = 1.0
# Whether such programs are compiled at all is part of what is measured; others are at once, because
# they would be after some minutes.
TINY = ("mlp", "regression")
STEPS_TO_DECIDE = 600
STEPS_TO_TAKE_OVER = 6  # the third runs the program


def wrappers(contender: str):
    """How a contender wraps a step and a model."""
    import torch

    if contender == "cpu":
        return "cpu", lambda f: f, lambda m: m
    if contender == "inductor":
        return "cpu", lambda f: f, torch.compile
    import torch_xla

    if contender == "eager":
        torch_xla.experimental.eager_mode(True)

    def synced(function):
        def step(*arguments):
            result = function(*arguments)
            torch_xla.sync()
            return result

        return step

    step = {
        "lazy": synced,
        "openxla": synced,
        "compiled": torch_xla.compile,
        "traced": lambda f: torch_xla.compile(f, assume_pure=True),
    }.get(contender, lambda f: f)
    model = (lambda m: torch.compile(m, backend="openxla")) if contender == "openxla" else None
    return "xla", step, model or (lambda m: m)


def worker(workload: str, contender: str) -> None:
    """Says how long the first step took, then takes its turns."""
    import torch
    from workloads import make

    torch.manual_seed(0)
    device, wrap, wrap_model = wrappers(contender)
    step = make(workload)(device=device, wrap=wrap, wrap_model=wrap_model)
    began = time.perf_counter()
    step()
    first = time.perf_counter() - began
    for _ in range(STEPS_TO_DECIDE if workload in TINY else STEPS_TO_TAKE_OVER):
        step()
    print(json.dumps({"first": first}), flush=True)
    answer_turns(Case(contender, step))


def contend(
    workload: str, name: str, before: tuple[str, ...] = (), **environment: str
) -> Contender:
    """`before`: what starts the interpreter."""
    cache = tempfile.mkdtemp(prefix="suite_")
    runs = {} if workload in TINY else {"TORCH_XLA_TIER_RUNS": "2"}
    return Contender(
        name, *before, sys.executable, __file__, "--worker", workload, name,
        TORCH_XLA_CACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=cache, TORCH_XLA_PROGRESS="0",
        **runs, **environment,
    )  # fmt: skip


def measure(workload: str, names: list[str], rounds: int) -> dict[str, dict[str, float]]:
    contenders = [contend(workload, name) for name in ("cpu", *names)]
    ratios = take_turns(contenders, rounds, SECONDS_A_TURN)
    print(f"{workload}: CPU eager {statistics.median(contenders[0].turns):.2f} ms a step")
    result = {}
    for contender in contenders:
        found = ratios[contender.name]
        result[contender.name] = {
            "ratio": statistics.median(found), "least": min(found), "most": max(found),
            "ms": statistics.median(contender.turns),
            "first_s": json.loads(contender.ready)["first"], "peak_mb": contender.peak,
        }  # fmt: skip
        text = (
            "{ratio:6.3f} ({least:.3f} to {most:.3f})  first step {first_s:6.2f} s"
            "  peak {peak_mb:5.0f} MB"
        )
        print(f"  {contender.name:10s}", text.format(**result[contender.name]), flush=True)
    return result


def workload(name: str) -> str:
    from workloads import NAMES

    if name not in NAMES and "/" not in name:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(NAMES)}")
    return name


def main() -> None:
    from workloads import NAMES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--only", nargs="*", default=NAMES, type=workload, metavar="WORKLOAD",
        help="also timm/resnet18, transformers/bert, ... (dev/sample_models) where these are",
    )  # fmt: skip
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    results = {name: measure(name, options.contenders, options.rounds) for name in options.only}
    for name in options.contenders:
        found = [result[name]["ratio"] for result in results.values()]
        print(f"{name}: geometric mean {statistics.geometric_mean(found):.3f} of {len(found)}")
    write_json(options.json, results)


if __name__ == "__main__":
    main()
