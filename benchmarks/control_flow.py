"""What loops inside a program cost: compiling `scan_layers` over 2 and 100 layers, each in a
process of its own with an empty cache, and a `while_loop` of 10,000 iterations.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def scan_layers_seconds(layers: int) -> float:
    """Of compiling a training step: forward and backward of decoder blocks."""
    import torch
    import torch_xla
    import torch_xla.debug.metrics as met
    from models.decoder import DecoderConfig, DecoderLayer, rotary_angles
    from torch_xla.experimental.scan_layers import scan_layers

    config = DecoderConfig.deep()

    class Block(DecoderLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x, *rotary_angles(config, x.shape[1], x.device))

    blocks = torch.nn.ModuleList(Block(config) for _ in range(layers)).to("xla")
    hidden = torch.randn(2, 32, config.hidden, device="xla")
    torch_xla.sync()
    met.clear_all()
    scan_layers(blocks, hidden).square().mean().backward()
    torch_xla.sync(wait=True)
    runs, nanoseconds, _ = met.metric_data("CompileTime")
    assert runs == 1, runs
    return nanoseconds / 1e9


def while_loop_seconds(iterations: int) -> float:
    import torch
    import torch_xla
    import torch_xla.debug.metrics as met
    from torch._higher_order_ops.while_loop import while_loop

    def run() -> float:
        counter = torch.zeros((), dtype=torch.int64, device="xla")
        _, value = while_loop(
            lambda i, x: i < iterations,
            lambda i, x: (i + 1, x * 0.999 + 0.001),
            (counter, torch.zeros(64, device="xla")),
        )
        return value.sum().item()

    run()
    programs = met.metric_data("ExecuteTime")[0]
    began = time.perf_counter()
    run()
    seconds = time.perf_counter() - began
    assert met.metric_data("ExecuteTime")[0] == programs + 1
    torch_xla.sync()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        function = {"scan": scan_layers_seconds, "while": while_loop_seconds}[options.child[0]]
        print(json.dumps(function(int(options.child[1]))))
        return

    def measure(kind: str, size: int) -> float:
        with tempfile.TemporaryDirectory() as cache:
            output = subprocess.run(
                [sys.executable, __file__, "--child", kind, str(size)],
                env={**os.environ, "TORCH_XLA_TIERS": "off", "TORCH_XLA_CACHE_DIR": cache},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        return float(json.loads(output.splitlines()[-1]))

    found = [(measure("scan", 2), measure("scan", 100)) for _ in range(options.rounds)]
    few, many = (statistics.median(column) for column in zip(*found, strict=True))
    ratios = [hundred / two for two, hundred in found]
    print(f"compiling scan_layers: 2 layers {few:.2f} s, 100 layers {many:.2f} s,", end=" ")
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"while_loop, 10,000 iterations in one program: {measure('while', 10_000) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
