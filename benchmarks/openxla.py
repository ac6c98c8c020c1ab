"""What torch.compile(backend="openxla") costs the host, and a whole training step under it.

The launch: a call of a ready graph as dynamo makes it once its guards have passed. What remains
after the PJRT execute call is ours, and must stay below 100 us. The step: the 2-layer decoder with
Adam, against torch_xla.compile.
"""

import argparse
import copy
import gc
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch_xla
import torch_xla.debug.metrics as metrics
from decoder import next_token_loss
from timing import Case, compare, write_json
from torch import Tensor, nn
from torch_xla.core.dynamo_bridge import extract_compiled_graph
from torch_xla.experimental import eager_mode_context

from models import Decoder, DecoderConfig  # isort: skip  (decoder extends the path)

LAUNCH_LIMIT = 100e-6
CALLS_PER_ROUND = 50


def additions(inputs: int, outputs: int) -> torch.fx.GraphModule:
    """A graph that computes next to nothing on many tensors."""
    graph = torch.fx.Graph()
    values = [graph.placeholder(f"x{i}") for i in range(inputs)]
    last = graph.call_function(torch.ops.aten.add.Tensor, (values[0], values[-1]))
    results = [
        graph.call_function(torch.ops.aten.add.Tensor, (value, last)) for value in values[:outputs]
    ]
    graph.output(tuple(results))
    return torch.fx.GraphModule(nn.Module(), graph)


def executing() -> float:
    """Seconds spent in PJRT's execute call so far."""
    data = metrics.metric_data("ExecuteTime")
    return data[1] / 1e9 if data else 0.0


def launch(inputs: int, outputs: int, rounds: int) -> dict[str, float]:
    """The host's time for one call of a ready graph in the best round, and how much of it was
    PJRT's."""
    values = [torch.ones(4, device="xla") for _ in range(inputs)]
    torch_xla.sync(wait=True)
    graph = extract_compiled_graph(additions(inputs, outputs), values)
    best: tuple[float, float] = (math.inf, 0.0)
    gc.collect()
    gc.disable()  # it walks over everything dynamo keeps, whenever tensors have been made
    with torch.no_grad():
        for _ in range(rounds):
            before, calling = executing(), 0.0
            for _ in range(CALLS_PER_ROUND):
                started = time.perf_counter()
                results = graph(*values)
                calling += time.perf_counter() - started
                torch_xla._XLAC.wait_device_ops()
                del results
            took = (calling / CALLS_PER_ROUND, (executing() - before) / CALLS_PER_ROUND)
            best = min(best, took)
    gc.enable()
    whole, pjrt = best
    verdict = "ok" if whole - pjrt <= LAUNCH_LIMIT else "TOO SLOW"
    print(
        f"launch, {inputs:3d} inputs, {outputs:3d} outputs: {whole * 1e6:6.1f} us, of which "
        f"execute {pjrt * 1e6:6.1f} us, ours {(whole - pjrt) * 1e6:6.1f} us  ({verdict})",
        flush=True,
    )
    return {"call": whole, "execute": pjrt, "ours": whole - pjrt}


class Training:
    """One way to train: `step(model, optimizer)` is made of the plain step."""

    def __init__(self, model: nn.Module, tokens: Tensor, how: str):
        self.model = copy.deepcopy(model).to("xla")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.inputs, self.targets = tokens[:, :-1].to("xla"), tokens[:, 1:].to("xla")
        self.eager = how.endswith("eager")
        forward: Any = self.model
        if "model" in how:
            forward = torch.compile(self.model, backend="openxla")

        def step() -> Tensor:
            self.optimizer.zero_grad()
            loss = next_token_loss(forward, self.inputs, self.targets)
            loss.backward()
            self.optimizer.step()
            return loss

        self.step: Callable[[], Tensor] = step
        if "step" in how:
            self.step = torch.compile(step, backend="openxla")
        elif how == "torch_xla.compile":
            self.step = torch_xla.compile(step)

    def steps(self, count: int) -> None:
        with eager_mode_context(self.eager):
            for _ in range(count):
                self.step()
                torch_xla.sync()
            torch_xla.sync(wait=True)


def training(rounds: int, steps: int) -> dict[str, float]:
    torch.manual_seed(0)
    config = DecoderConfig()
    tokens = torch.randint(config.vocabulary, (8, 129))
    model = Decoder(config)

    def case(how: str) -> Case:
        contender = Training(model, tokens, how)
        return Case(how, lambda: contender.steps(steps))

    title = f"{steps} training steps of the 2-layer decoder, 8x128 tokens, Adam"
    ways = ["openxla, model", "openxla, model, eager", "openxla, step", "openxla, step, eager"]
    return compare(title, case("torch_xla.compile"), [case(how) for how in ways], rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only-launch", action="store_true", help="do not train")
    parser.add_argument("--steps", type=int, default=3, help="training steps a round")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    results = {
        f"launch {inputs}/{outputs}": launch(inputs, outputs, 2 * options.rounds)
        for inputs, outputs in ((3, 1), (123, 1), (123, 40), (300, 200))
    }
    if not options.only_launch:
        results["decoder"] = training(options.rounds, options.steps)
    write_json(options.json, results)


if __name__ == "__main__":
    main()
