"""What a training step costs the host, whatever the device: on a platform that computes nothing.

Prints milliseconds a step, from the call to its return, each kind in a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

KINDS = ("lazy", "compiled", "traced", "traced, eager mode")
WORKLOADS = ("decoder 100", "decoder 2", "mlp")


def step_of(workload: str, kind: str) -> Callable[[], object]:
    import torch
    import torch_xla
    import workloads
    from models import Decoder, DecoderConfig
    from torch import Tensor
    from torch_xla.experimental.assume_pure import assume_pure

    if workload == "mlp":
        model, batch = workloads.mlp()
    else:
        config = DecoderConfig.deep() if workload == "decoder 100" else DecoderConfig()
        model, batch = Decoder(config), workloads.tokens(config.vocabulary, 2, 8)
    model.to("xla")
    inputs, targets = (part.to("xla") for part in batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = workloads.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    if kind.startswith("traced"):
        if "eager" in kind:
            torch_xla.experimental.eager_mode(True)
        step = assume_pure(step)
    elif kind == "compiled":
        step = torch_xla.compile(step)

    def run() -> None:
        step(inputs, targets)
        torch_xla.sync()

    return run


def measure(workload: str, kind: str, steps: int) -> float:
    run = step_of(workload, kind)
    for _ in range(5):
        run()
    times = []
    for _ in range(steps):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*options.child, options.steps)))
        return
    environment = {**os.environ, "PJRT_DEVICE": "NULL", "TORCH_XLA_TIERS": "off"}
    for workload in options.only:
        for kind in options.kinds:
            command = [sys.executable, __file__, "--child", workload, kind]
            command += ["--steps", str(options.steps)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            print(f"{workload:12s} {kind:20s} {json.loads(done.stdout):9.3f} ms", flush=True)


if __name__ == "__main__":
    main()
