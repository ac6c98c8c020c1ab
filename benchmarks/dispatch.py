"""What a call of a small operator costs in eager mode, as a ratio to CPU-eager PyTorch.

Tensors are so small that computing takes little of a call: what is timed is the way to the
kernel. Each side lives in a process of its own; they take turns, operator by operator and round by
round, and of each operator the best round counts.
"""

import statistics
import sys
import time
from collections.abc import Callable

from timing import best_in_turn, options_of, workers_of, write_json

SIDES = dict.fromkeys(("cpu", "eager"), {"OMP_NUM_THREADS": "1"})
CALLS = 1000


def operators(device: str) -> dict[str, Callable[[], object]]:
    import torch
    import torch.nn.functional as F

    def random(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes).to(device)

    a, b, weight, bias = random(8, 16), random(8, 16), random(16, 16), random(16)
    learnt, index = random(16, 16).requires_grad_(), torch.arange(4).to(device)
    parameters, gradients = ([random(16, 16) for _ in range(6)] for _ in range(2))
    return {
        "add": lambda: a + b,
        "add_": lambda: a.add_(b),
        "mul by a number": lambda: a * 2.0,
        "relu": lambda: a.relu(),
        "linear": lambda: F.linear(a, weight, bias),
        "linear, recorded for its gradient": lambda: F.linear(a, learnt, bias),
        "softmax": lambda: a.softmax(1),
        "layer_norm": lambda: F.layer_norm(a, (16,), bias, bias),
        "sum": lambda: a.sum(),
        "transposed view": lambda: a.t(),
        "cat": lambda: torch.cat((a, b)),
        "rows by index": lambda: a[index],
        "zeros": lambda: torch.zeros(8, 16, device=device),
        "item": lambda: a.sum().item(),
        "_foreach_add_ of 6": lambda: torch._foreach_add_(parameters, gradients),
        "linear and its backward": lambda: F.linear(a, learnt, bias).sum().backward(),
    }


def worker(side: str) -> None:
    """Answers each operator's name on stdin with the microseconds of a call."""
    import torch

    torch.manual_seed(0)
    if side == "eager":
        import torch_xla

        torch_xla.experimental.eager_mode(True)
    calls = operators("cpu" if side == "cpu" else "xla")
    for line in sys.stdin:
        call = calls[line.strip()]
        for _ in range(20):
            call()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        print((time.perf_counter() - started) / CALLS * 1e6, flush=True)


def main() -> None:
    options = options_of(__doc__, worker, rounds=15)
    results: dict[str, dict[str, float]] = {}
    with workers_of(__file__, SIDES) as workers:
        for name in operators("cpu"):
            best = best_in_turn(workers, name, options.rounds)
            results[name] = {**best, "ratio": best["eager"] / best["cpu"]}
            text = "{cpu:7.2f} us on the CPU {eager:7.2f} in eager mode   ratio {ratio:.2f}"
            print(f"{name:34s}" + text.format(**results[name]), flush=True)
    mean = statistics.geometric_mean([found["ratio"] for found in results.values()])
    print(f"geometric mean {mean:.2f} of {len(results)}")
    write_json(options.json, results)


if __name__ == "__main__":
    main()
