"""What a step of an optimizer over many parameters costs, as a ratio to CPU-eager PyTorch, lazily
and in eager mode, as it chooses to work and one by one (`foreach=False`); and milliseconds of the
first ten steps over the largest, of a process that has made no other.

Each side lives in a process of its own, they take turns, and of each the best round counts.
"""

import statistics
import sys
import time

from timing import best_in_turn, options_of, workers_of, write_json

MODES = ("lazy", "lazy, one by one", "eager", "eager, one by one")
SIDES = dict[str, dict[str, str]].fromkeys(("cpu", *MODES), {})
# How many parameters of how many elements.
CASES = ((2, 100), (10, 100), (100, 100), (100, 4_096), (100, 16_384), (20, 1 << 20))
STEPS = 5
COLD_STEPS, COLD_ROUNDS = 10, 3


def worker(side: str) -> None:
    """Answers each line, a case's numbers, with the milliseconds of a known step, or with those of
    the first ten steps together if the line ends in "cold"."""
    import torch

    def milliseconds(steps: int) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            optimizers[case].step()
            if mode == "lazy":
                torch_xla.sync(wait=True)
        return (time.perf_counter() - started) * 1e3

    mode, _, one_by_one = side.partition(", ")
    if mode != "cpu":
        import torch_xla

        torch_xla.experimental.eager_mode(mode == "eager")
    device, options = "cpu" if mode == "cpu" else "xla", {"foreach": False} if one_by_one else {}
    optimizers: dict[str, torch.optim.Optimizer] = {}
    for case in sys.stdin:
        count, elements, *cold = case.split()
        if case not in optimizers:
            shape = (int(elements),)
            parameters = [
                torch.nn.Parameter(torch.rand(shape).to(device)) for _ in range(int(count))
            ]
            for parameter in parameters:
                parameter.grad = torch.rand(shape).to(device)
            optimizers[case] = torch.optim.AdamW(parameters, **options)
            if not cold:
                milliseconds(STEPS)
        print(milliseconds(COLD_STEPS) if cold else milliseconds(STEPS) / STEPS, flush=True)


def first_steps() -> dict[str, float]:
    """Milliseconds of a new process' first steps over the largest parameters."""
    count, elements = CASES[-1]
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(COLD_ROUNDS):
        for side in SIDES:  # alone: others that start beside it would slow it down
            with workers_of(__file__, {side: SIDES[side]}) as workers:
                times[side].append(float(workers[side].ask(f"{count} {elements} cold")))
    return {side: statistics.median(taken) for side, taken in times.items()}


def main() -> None:
    options = options_of(__doc__, worker, rounds=15)
    results: dict[str, dict[str, float]] = {}
    with workers_of(__file__, SIDES) as workers:
        for count, elements in CASES:
            best = best_in_turn(workers, f"{count} {elements}", options.rounds)
            name = f"{count} of {elements:,}"
            results[name] = {
                side: milliseconds / best["cpu"] for side, milliseconds in best.items()
            }
            ratios = "  ".join(f"{side} {results[name][side]:.2f}" for side in MODES)
            print(f"{name:16s} CPU eager {best['cpu']:7.3f} ms  {ratios}", flush=True)
    results["its first ten steps"] = cold = first_steps()
    print("its first ten steps", "  ".join(f"{side} {ms:.0f} ms" for side, ms in cold.items()))
    write_json(options.json, results)


if __name__ == "__main__":
    main()
