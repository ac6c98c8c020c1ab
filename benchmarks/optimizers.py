"""What a step of an optimizer over many parameters costs, as a ratio to CPU-eager PyTorch, lazily
and in eager mode, as it chooses to work and one by one (`foreach=False`).

Each side lives in a process of its own, they take turns, and of each the best round counts.
"""

import sys
import time

from timing import best_in_turn, options_of, workers_of, write_json

MODES = ("lazy", "lazy, one by one", "eager", "eager, one by one")
SIDES = dict[str, dict[str, str]].fromkeys(("cpu", *MODES), {})
# How many parameters of how many elements.
CASES = ((2, 100), (10, 100), (100, 100), (100, 4_096), (100, 16_384), (20, 1 << 20))
STEPS = 5


def worker(side: str) -> None:
    """Answers each line, a case's numbers, with the milliseconds of a step."""
    import torch

    def computed() -> None:
        if mode == "lazy":
            torch_xla.sync(wait=True)

    mode, _, one_by_one = side.partition(", ")
    if mode != "cpu":
        import torch_xla

        torch_xla.experimental.eager_mode(mode == "eager")
    device, options = "cpu" if mode == "cpu" else "xla", {"foreach": False} if one_by_one else {}
    optimizers: dict[str, torch.optim.Optimizer] = {}
    for line in sys.stdin:
        if line not in optimizers:
            count, elements = map(int, line.split())
            parameters = [torch.nn.Parameter(torch.rand(elements).to(device)) for _ in range(count)]
            for parameter in parameters:
                parameter.grad = torch.rand(elements).to(device)
            optimizers[line] = torch.optim.AdamW(parameters, **options)
            for _ in range(STEPS):
                optimizers[line].step()
                computed()
        started = time.perf_counter()
        for _ in range(STEPS):
            optimizers[line].step()
            computed()
        print((time.perf_counter() - started) / STEPS * 1e3, flush=True)


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
    write_json(options.json, results)


if __name__ == "__main__":
    main()
