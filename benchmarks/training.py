"""Training steps for the benchmarks: the same model and data on every contender."""

import copy
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch_xla  # noqa: F401  (the device)
from timing import Case
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

LossFunction = Callable[[nn.Module, Tensor, Tensor], Tensor]
OptimizerFactory = Callable[[nn.Module], torch.optim.Optimizer]


class Trainer:
    """Owns a copy of a model on one device and repeats its training step."""

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction,
        make_optimizer: OptimizerFactory,
        data: tuple[Tensor, Tensor],
        device: str,
        inductor: bool = False,
    ):
        self.model = copy.deepcopy(model).to(device)
        self.optimizer = make_optimizer(self.model)
        self.inputs, self.targets = (part.to(device) for part in data)
        self.forward = torch.compile(self.model) if inductor else self.model
        self.loss = loss
        self.lazy = device.startswith("xla")

    def step(self, wait: bool = True) -> None:
        self.optimizer.zero_grad()
        self.loss(self.forward, self.inputs, self.targets).backward()
        self.optimizer.step()
        if self.lazy:
            import torch_xla

            torch_xla.sync(wait=wait)

    def steps(self, count: int) -> None:
        """Steps in a row; only the last is waited for, as in a real loop."""
        for index in range(count):
            self.step(wait=index == count - 1)


def training_cases(
    model: nn.Module,
    loss: LossFunction,
    make_optimizer: OptimizerFactory,
    data: tuple[Tensor, Tensor],
    steps: int,
    inductor: bool,
) -> tuple[Case, list[Case]]:
    """The CPU-eager reference and its contenders, each running `steps` steps a round."""

    def case(name: str, device: str, compiled: bool = False) -> Case:
        trainer = Trainer(model, loss, make_optimizer, data, device, compiled)
        return Case(name, lambda: trainer.steps(steps))

    contenders = [case("xla", "xla")]
    if inductor:
        contenders.append(case("inductor", "cpu", compiled=True))
    return case("cpu eager", "cpu"), contenders
