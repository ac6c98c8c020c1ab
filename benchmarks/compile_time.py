"""What compiling a training step costs, and whether the compiler's options would make it cheaper.

Prints processor seconds, which other programs on the machine disturb least: of compiling (the first
step's program and the second's, in which the optimizer has its state), and of a step afterwards.
Each set of options runs in a process of its own, without programs from the disk.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

WORKLOADS = ("decoder", "resnet50", "decoder100")
OPTIONS = (
    "",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_backend_optimization_level=1",
    "--xla_backend_optimization_level=2",
    "--xla_cpu_use_fusion_emitters=false",
)


def measure(workload: str, steps: int) -> dict[str, float]:
    import torch_xla  # noqa: F401
    import workloads
    from models import Decoder, DecoderConfig

    if workload == "decoder100":
        config = DecoderConfig.deep()
        batch = workloads.tokens(config.vocabulary, 2, 64)
        run = workloads.training(Decoder(config), batch, "xla", lambda step: step)
    else:
        run = workloads.make(workload)("xla", lambda step: step)
    seconds = []
    for _ in range(2 + steps):
        started = time.process_time()
        run()
        seconds.append(time.process_time() - started)
    step = statistics.median(seconds[2:])
    return {"compile": sum(seconds[:2]) - 2 * step, "step": step}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--options", nargs="+", default=OPTIONS, help="values of XLA_FLAGS")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.steps)))
        return
    for workload in arguments.only:
        for options in arguments.options:
            environment = {"TORCH_XLA_TIERS": "off", "TORCH_XLA_CACHE": "0", "XLA_FLAGS": options}
            command = [sys.executable, __file__, "--child", workload]
            command += ["--steps", str(arguments.steps)]
            done = subprocess.run(
                command, env=os.environ | environment, stdout=subprocess.PIPE, check=True
            )
            result = json.loads(done.stdout)
            row = f"{result['compile']:7.1f} s to compile {result['step'] * 1e3:8.0f} ms a step"
            print(f"{workload:10s} {row}  {options}", flush=True)


if __name__ == "__main__":
    main()
