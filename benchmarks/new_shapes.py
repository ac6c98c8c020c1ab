"""What a call costs the host whose sizes were not met before, beside one whose sizes were.

Prints microseconds for each operator, the dearest first: PyTorch is asked what a call with new
sizes returns. Nothing is compared with CPU eager, which has no such question.
"""

import os

os.environ.setdefault("TORCH_XLA_TIERS", "never")  # no compiler beside it

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor

WIDTH = 64
KNOWN, NEW = (72, 80), range(96, 256, 8)


def with_gradient(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], object]:
    def call(x: Tensor) -> None:
        function(x.detach().requires_grad_()).sum().backward()

    return call


def operators() -> dict[str, Callable[[Tensor], object]]:
    weight = torch.randn(16, WIDTH, device="xla")
    kernel = torch.randn(1, 1, 3, 3, device="xla")
    index = torch.tensor([1, 2, 3], device="xla")
    return {
        "abs": torch.abs,
        "add": lambda x: x + x,
        "cat": lambda x: torch.cat([x, x], 1),
        "clone": torch.clone,
        "conv2d": lambda x: F.conv2d(x[None, None], kernel),
        "cross_entropy with logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
        "dropout": lambda x: F.dropout(x, 0.1),
        "fill_": lambda x: x.fill_(1),
        "foreach_mul": lambda x: torch._foreach_mul([x, x], 2.0),
        "gather": lambda x: x.gather(0, x.long()),
        "gelu": F.gelu,
        "group_norm": lambda x: F.group_norm(x.view(1, 8, -1), 4),
        "index": lambda x: x[index],
        "layer_norm": lambda x: F.layer_norm(x, (WIDTH,)),
        "layer_norm bf16": lambda x: F.layer_norm(x.bfloat16(), (WIDTH,)),
        "linear": lambda x: F.linear(x, weight),
        "logical_and": lambda x: torch.logical_and(x, x),
        "logsumexp": lambda x: x.logsumexp(-1),
        "max_pool2d": lambda x: F.max_pool2d(x[None, None], 2),
        "relu": F.relu,
        "softmax": lambda x: x.softmax(-1),
        "sort": torch.sort,
        "stack": lambda x: torch.stack([x, x]),
        "sum": lambda x: x.sum(-1),
        "where": lambda x: torch.where(x > 0, x, x),
    } | {
        f"{name} and gradient": with_gradient(function)
        for name, function in {
            "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
            "glu": F.glu,
            "grid_sample": lambda x: F.grid_sample(
                x[None, None], x[None, :, :2, None].mT, align_corners=False
            ),
            "hardswish": F.hardswish,
            "huber_loss": lambda x: F.huber_loss(x, x.detach()),
            "layer_norm": lambda x: F.layer_norm(x, (WIDTH,)),
            "logsigmoid": F.logsigmoid,
            "mish": F.mish,
            "mse_loss": lambda x: F.mse_loss(x, x.detach()),
            "relu6": F.relu6,
            "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x.detach()),
        }.items()
    }


def seconds(call: Callable[[Tensor], object], x: Tensor) -> float:
    start = time.perf_counter()
    call(x)
    return time.perf_counter() - start


def measure(call: Callable[[Tensor], object]) -> tuple[float, float]:
    for rows in KNOWN:
        call(torch.randn(rows, WIDTH, device="xla"))
    first, second = [], []
    for rows in NEW:
        x = torch.randn(rows, WIDTH, device="xla")
        torch_xla.sync()
        first.append(seconds(call, x))
        second.append(seconds(call, x))
        torch_xla.sync()
    return statistics.median(first) * 1e6, statistics.median(second) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="words of names")
    words = parser.parse_args().only
    rows = [
        (*measure(call), name)
        for name, call in operators().items()
        if any(word in name for word in words)
    ]
    print(f"{'':28} {'new sizes':>10} {'known':>10}  (microseconds)")
    for first, second, name in sorted(rows, reverse=True):
        print(f"{name:28} {first:10.0f} {second:10.0f}")


if __name__ == "__main__":
    main()
