"""What the first call of an operator takes in a process that has computed a little, and its
gradient, beside the same on the CPU.

Each operator is called in a process of its own on each device; prints milliseconds, the dearest
first, and those of a call with other sizes afterwards.
"""

import argparse
import os
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torch_xla  # noqa: F401
from torch import Tensor, nn

OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[None, None], 1),
    "arange": lambda x: x[torch.arange(5, device=x.device)],
    "batch_norm, evaluation": lambda x: nn.BatchNorm1d(x.shape[1]).to(x.device).eval()(x),
    "Categorical": lambda x: torch.distributions.Categorical(logits=x).sample(),
    "cdist": lambda x: torch.cdist(x, x + 1),
    "clamp": lambda x: x.clamp(0, 1),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x[None, None], x[None, None, :3, :3]),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x + 1),
    "cross_entropy of images": lambda x: F.cross_entropy(
        x[None, :2], torch.ones(1, x.shape[1], dtype=torch.long).to(x.device)
    ),
    "cumsum": lambda x: x.cumsum(1),
    "flip": lambda x: x.flip(0),
    "hann_window": lambda x: x[0, 0] * torch.hann_window(8, device=x.device),
    "index": lambda x: x[torch.tensor([0, 2]).to(x.device)],
    "kl_div": lambda x: F.kl_div(x.log_softmax(1), x.softmax(1).detach()),
    "linspace": lambda x: x[0, 0] * torch.linspace(0, 1, 5, device=x.device),
    "max": torch.max,
    "median": torch.median,
    "multinomial": lambda x: x.softmax(1).multinomial(2),
    "nan_to_num": torch.nan_to_num,
    "norm": torch.norm,
    "normalize": F.normalize,
    "pad, reflected": lambda x: F.pad(x[None], (1, 1), mode="reflect"),
    "randperm": lambda x: torch.randperm(5, device=x.device),
    "relu6": F.relu6,
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[1],)),
    "std": torch.std,
    "stft": lambda x: torch.stft(x.flatten(), 8, return_complex=True).abs(),
    "unfold": lambda x: F.unfold(x[None, None], 2),
    "var": lambda x: x.var(1),
    "where": lambda x: torch.where(x > 0, x, 0.0),
}


def milliseconds(function: Callable[[Tensor], Tensor], x: Tensor) -> float:
    start = time.perf_counter()
    result = function(x)
    if result.requires_grad:
        result.square().sum().backward()
    return 1000 * (time.perf_counter() - start)


def measure(name: str, device: str) -> tuple[float, float]:
    """Of the first call, and of one with sizes not met before."""
    warm = torch.ones(3, 3).to(device).requires_grad_()
    (warm * 2 + warm.relu()).square().sum().backward()
    warm.grad.cpu()
    inputs = [torch.randn(6 + i, 9 + i).to(device).requires_grad_() for i in (0, 3, 5)]
    first, *others = (milliseconds(OPERATORS[name], x) for x in inputs)
    return first, min(others)


def in_a_process(name: str, device: str) -> list[float]:
    """Forked before any device is in use: what is imported is there."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writes, " ".join(map(str, measure(name, device))).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return [float(number) for number in found.split()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], help="words of names")
    only = parser.parse_args().only
    names = [name for name in OPERATORS if not only or any(word in name for word in only)]
    rows = [(in_a_process(name, "xla"), in_a_process(name, "cpu"), name) for name in names]
    print(f"{'':28}{'first':>8}{'(CPU)':>9}{'new sizes':>11}{'(CPU)':>9}   milliseconds")
    for (first, new), (first_on_cpu, new_on_cpu), name in sorted(rows, reverse=True):
        print(f"{name:28}{first:8.1f}{first_on_cpu:9.1f}{new:11.2f}{new_on_cpu:9.2f}")


if __name__ == "__main__":
    main()
