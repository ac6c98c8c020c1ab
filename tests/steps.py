"""Small training steps, and what training with them gives."""

from collections.abc import Callable
from typing import Any

import torch
from tiny import loss_of
from torch import Tensor, nn

Step = Callable[..., Tensor]
Batch = tuple[Tensor, Tensor]
Optimize = Callable[..., torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimize] = {
    "sgd": lambda p, **k: torch.optim.SGD(p, lr=0.1, **k),
    "momentum": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, **k),
    "nesterov": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **k),
    "adam": lambda p, **k: torch.optim.Adam(p, lr=0.01, **k),
    "amsgrad": lambda p, **k: torch.optim.Adam(p, lr=0.01, amsgrad=True, **k),
    "adamw": lambda p, **k: torch.optim.AdamW(p, lr=0.01, **k),
    "nadam": lambda p, **k: torch.optim.NAdam(p, lr=0.01, **k),
    "radam": lambda p, **k: torch.optim.RAdam(p, lr=0.01, **k),
    "adamax": lambda p, **k: torch.optim.Adamax(p, lr=0.01, **k),
    "adagrad": lambda p, **k: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.1, **k),
    "adadelta": lambda p, **k: torch.optim.Adadelta(p, lr=1.0, **k),
    "rmsprop": lambda p, **k: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True, **k),
    "rprop": lambda p, **k: torch.optim.Rprop(p, lr=0.01, **k),
    "asgd": lambda p, **k: torch.optim.ASGD(p, lr=0.05, **k),
}
RADAM_TRACES = 2  # it changes its formula at the sixth step


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to("xla")


def batches(count: int, size: int = 5) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 6, generator=generator).to("xla"),
            torch.randint(3, (size,), generator=generator).to("xla"),
        )
        for _ in range(count)
    ]


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, **zero: bool) -> Step:
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(**zero)
        loss = loss_of(model, (x, y))
        loss.backward()
        optimizer.step()
        return loss

    return step


def losses(step: Step, data: list[Batch], after: Callable[[], Any] = lambda: None) -> list[float]:
    result = []
    for batch in data:
        result.append(step(*batch).item())
        after()
    return result
