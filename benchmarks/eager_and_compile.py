"""The modes of training side by side: tracing, eager, compiled, torch.compile; and CPU PyTorch.

Prints, for the 2-layer decoder and ResNet-50, the table of the document on eager mode: steps a
second (tokens or images a second), the ratio of step times to CPU-eager PyTorch, and how long the
first three steps took, compilation included.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
import torch_xla
from timing import write_json
from torch import Tensor, nn
from training import LossFunction, OptimizerFactory

from models import Decoder, DecoderConfig, resnet50  # isort: skip  (training extends the path)


@dataclass
class Workload:
    title: str
    unit: str
    units_a_step: int
    model: nn.Module
    data: tuple[Tensor, Tensor]
    loss: LossFunction
    make_optimizer: OptimizerFactory


@dataclass
class Contender:
    """One way to train: `prepare` may compile the model, `wrap` the step."""

    name: str
    device: str
    eager: bool = False
    prepare: Callable[[nn.Module], nn.Module] = lambda model: model
    wrap: Callable[[Callable[[], Tensor]], Callable[[], Tensor]] = lambda step: step
    first_seconds: float = 0.0
    rounds: list[float] = field(default_factory=list)  # seconds a step
    step: Callable[[], Tensor] = lambda: torch.empty(0)
    loss: float = 0.0

    def begin(self, work: Workload) -> None:
        model = copy.deepcopy(work.model).to(self.device)
        inputs, targets = (part.to(self.device) for part in work.data)
        optimizer = work.make_optimizer(model)
        forward = self.prepare(model)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = work.loss(forward, inputs, targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step = self.wrap(step)
        self.first_seconds = self.run(3)

    def run(self, steps: int) -> float:
        """Seconds for this many steps, the last one waited for."""
        with torch_xla.experimental.eager_mode_context(self.eager):
            started = time.perf_counter()
            for _ in range(steps):
                loss = self.step()
            if self.device == "xla":
                torch_xla.sync(wait=True)
            elapsed = time.perf_counter() - started
            self.loss = loss.item()
        return elapsed


def syncing(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def synced() -> Tensor:
        loss = step()
        torch_xla.sync()
        return loss

    return synced


def contenders(inductor: bool) -> list[Contender]:
    result = [
        Contender("CPU eager", "cpu"),
        Contender("tracing", "xla", wrap=syncing),
        Contender("eager", "xla", eager=True),
        Contender("eager + compile", "xla", eager=True, wrap=torch_xla.compile),
        Contender(
            "torch.compile openxla",
            "xla",
            eager=True,
            prepare=lambda model: torch.compile(model, backend="openxla"),
        ),
    ]
    if inductor:
        result.append(Contender("Inductor", "cpu", prepare=torch.compile))
    return result


def decoder() -> Workload:
    config = DecoderConfig()
    tokens = torch.randint(config.vocabulary, (8, 129))
    return Workload(
        "2-layer decoder, 8 x 128 tokens, Adam",
        "tokens/s",
        8 * 128,
        Decoder(config),
        (tokens[:, :-1], tokens[:, 1:]),
        lambda model, x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten()),
        lambda model: torch.optim.Adam(model.parameters(), lr=1e-3),
    )


def resnet() -> Workload:
    return Workload(
        "ResNet-50, 8 images of 64 x 64, SGD",
        "images/s",
        8,
        resnet50(),
        (torch.randn(8, 3, 64, 64), torch.randint(1000, (8,))),
        lambda model, x, y: F.cross_entropy(model(x), y),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
    )


def measure(work: Workload, steps: int, inductor: bool) -> dict[str, float]:
    """Trains all contenders in turn, a few steps at a time; returns ratios to the first."""
    print(f"{work.title}, {steps} steps")
    runners = contenders(inductor)
    for runner in runners:
        runner.begin(work)
    a_round = max(1, min(5, steps // 3))
    for _ in range(max(1, steps // a_round)):
        for runner in runners:
            runner.rounds.append(runner.run(a_round) / a_round)
    print(f"  {'':24s} {work.unit:>9} {'ms/step':>9} {'ratio':>7} {'first 3 steps':>14}    loss")
    reference = statistics.median(runners[0].rounds)
    ratios = {}
    for runner in runners:
        seconds = statistics.median(runner.rounds)
        ratios[runner.name] = seconds / reference
        print(
            f"  {runner.name:24s} {work.units_a_step / seconds:9.1f} {seconds * 1e3:9.1f} "
            f"{ratios[runner.name]:7.3f} {runner.first_seconds:12.1f} s {runner.loss:7.4f}",
            flush=True,
        )
        ratios[f"{runner.name}, first three steps in seconds"] = runner.first_seconds
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--model", choices=("decoder", "resnet", "both"), default="both")
    parser.add_argument("--no-inductor", action="store_true", help="leave Inductor out")
    parser.add_argument("--json", help="write the ratios to this file")
    options = parser.parse_args()
    results = {}
    for name, make in (("decoder", decoder), ("resnet", resnet)):
        if options.model in (name, "both"):
            torch.manual_seed(0)
            results[name] = measure(make(), options.steps, not options.no_inductor)
            torch.compiler.reset()
    write_json(options.json, results)


if __name__ == "__main__":
    main()
