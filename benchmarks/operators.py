"""Single operators: what a call takes, as a ratio to CPU-eager PyTorch.

Each side lives in a process of its own, and they take turns: for each case every side calls the
operator for a while, round by round, and its best round counts. `compiled` runs the operator as a
graph of its own, which is interpreted where that is faster; `program` is always a program, as the
operator is inside a large one; `eager` is eager mode. A call has ended when its results are there.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable

from timing import Worker, write_json

SIDES = ("compiled", "program", "eager")
DTYPES = ("f32", "bf16", "f16")
ROUNDS, SECONDS = 5, 0.05


SETTINGS = {"TORCH_XLA_TIER_RUNS": "2", "TORCH_XLA_PROGRESS": "0"}
SETTINGS_OF = {"program": {"TORCH_XLA_TIERS": "off"}}


def cases(source: str) -> tuple[dict[str, Callable], Callable[[str], bool]]:
    """Cases by name, and which have gradients. `source`: fixed, opinfo, or `random SEED COUNT`."""
    if source == "opinfo":
        from opinfo_cases import opinfo_cases

        found, differentiable = opinfo_cases()
        return found, differentiable.__contains__
    if source.startswith("random"):
        from random_cases import random_cases

        seed, count = map(int, source.split()[1:])
        return random_cases(seed, count), lambda name: True
    from operator_cases import CASES, is_differentiable

    return CASES, is_differentiable


def worker(side: str, source: str) -> None:
    """Answers each line `CASE DTYPE GRADIENTS` on stdin with whether it can, then each empty line
    with the seconds of a call, until the next case comes."""
    import torch

    all_cases, _ = cases(source)
    dtypes = dict(zip(DTYPES, (torch.float32, torch.bfloat16, torch.float16), strict=True))
    device, wait = "cpu", lambda: None
    wrap: Callable = lambda f: f  # noqa: E731 - one of two
    if side != "cpu":
        import torch_xla

        device, wait = "xla", lambda: torch_xla.sync(wait=True)
        torch_xla.experimental.eager_mode(side == "eager")
        wrap = wrap if side == "eager" else torch_xla.compile

    call: Callable[[], object] = lambda: None  # noqa: E731
    for line in sys.stdin:
        if line.strip():
            name, dtype, gradients = line.strip().rsplit(" ", 2)
            torch.manual_seed(0)
            try:
                call = bound(all_cases[name], device, dtypes[dtype], gradients == "1", wrap, wait)
                for _ in range(6):  # a program takes over in the third
                    call()
                print(json.dumps(""), flush=True)
            except Exception as error:
                print(json.dumps(f"{type(error).__name__}: {error}".splitlines()[0]), flush=True)
        else:
            print(json.dumps(seconds_of(call)), flush=True)


def bound(case, device, dtype, gradients: bool, wrap, wait) -> Callable[[], object]:
    import torch

    function, operands = case(device, dtype)
    function = wrap(function if not gradients else with_gradients(function, operands))
    if gradients:
        for operand in operands:
            operand.requires_grad_(operand.is_floating_point())

    def call() -> None:
        with torch.set_grad_enabled(gradients):
            result = function(*operands)
        wait()
        del result

    return call


def with_gradients(function: Callable, operands: list) -> Callable:
    import torch

    result = function(*operands)
    seed = torch.ones_like(result[0] if isinstance(result, tuple) else result)

    def forward_and_backward(*operands):
        result = function(*operands)
        result = result[0] if isinstance(result, tuple) else result
        return torch.autograd.grad(result, [o for o in operands if o.requires_grad], seed)

    return forward_and_backward


def seconds_of(call: Callable[[], object]) -> float:
    began, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() < began + SECONDS:
        call()
        count += 1
    return (time.perf_counter() - began) / count


def measure(sides: dict[str, Worker], case: str) -> dict[str, float] | str:
    """The best seconds of each side, or what one of them cannot."""
    for name, side in sides.items():
        if trouble := json.loads(side.ask(case)):
            return f"{name}: {trouble}"
    rounds = [[float(side.ask()) for side in sides.values()] for _ in range(ROUNDS)]
    return dict(zip(sides, map(min, zip(*rounds, strict=True)), strict=True))


def report(case: str, found: dict[str, float]) -> None:
    ratios = "".join(
        f"{side:>10s} {seconds / found['cpu']:6.2f}"
        for side, seconds in found.items()
        if side != "cpu"
    )
    print(f"{case:48s} CPU {found['cpu'] * 1e3:9.3f} ms {ratios}", flush=True)


def summary(all_found: dict[str, dict[str, float]], side: str) -> str:
    ratios = {case: found[side] / found["cpu"] for case, found in all_found.items()}
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    above = sum(ratio > 1.1 for ratio in ratios.values())
    worst = max(ratios, key=lambda case: ratios[case])
    return (
        f"{side}: {len(ratios)} cases, geometric mean {mean:.2f}, {above} above 1.1, "
        f"worst {worst} {ratios[worst]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--source", default="fixed", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", default=[""], help="cases with one of these words")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["compiled", "eager"])
    parser.add_argument("--gradients", choices=("with", "without"), help="only these")
    parser.add_argument("--opinfo", action="store_const", const="opinfo", dest="source",
                        help="operators of PyTorch's database")  # fmt: skip
    parser.add_argument("--random", type=int, metavar="COUNT", help="calls of random shapes")
    parser.add_argument("--seed", type=int, default=0, help="of --random")
    parser.add_argument("--json", help="write the seconds to this file")
    options = parser.parse_args()
    source = f"random {options.seed} {options.random}" if options.random else options.source
    if options.worker:
        worker(options.worker, source)
        return
    all_cases, is_differentiable = cases(source)
    sides = {
        name: Worker(
            sys.executable,
            __file__,
            "--worker",
            name,
            "--source",
            source,
            **SETTINGS | SETTINGS_OF.get(name, {}),
        )
        for name in ("cpu", *options.sides)
    }
    all_found = {}
    for name in (n for n in all_cases if any(word in n for word in options.only)):
        for dtype in options.dtypes:
            for gradients in (0, 1):
                skipped = options.gradients and (options.gradients == "with") != bool(gradients)
                if skipped or (gradients and not is_differentiable(name)):
                    continue
                found = measure(sides, f"{name} {dtype} {gradients}")
                case = f"{name} {dtype}" + (" with gradients" if gradients else "")
                if isinstance(found, str):
                    print(f"{case:48s} left out, {found}", flush=True)
                else:
                    all_found[case] = found
                    report(case, found)
    for side in sides.values():
        side.end()
    if not all_found:
        parser.error("no case of these names that every side can compute")
    for name in options.sides:
        print(summary(all_found, name))
    write_json(options.json, all_found)


if __name__ == "__main__":
    main()
