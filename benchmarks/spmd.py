"""What several devices cost the host, and how fast a sharded decoder trains on them.

Prints the host's time to launch a step over many parameters on one device and on eight, and from
these the time per shard; then the time of a training step for each way to shard the decoder. The
devices are those of the CPU plugin and share its cores: more of them make no step faster here.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from training import Trainer

from models import Decoder, DecoderConfig  # isort: skip  (training extends the path)

DEVICES = 8
COLUMNS = ("query", "key", "value", "gate", "up", "head")
ROWS = ("output", "down")


def launch_time(parameters: int, rounds: int) -> float:
    """Seconds of the host for a step that updates so many small parameters."""
    values = [torch.ones(16, 16).to("xla") for _ in range(parameters)]
    if xr.is_spmd():
        for value in values:
            xs.mark_sharding(value, xs.get_1d_mesh("x"), ("x", None))
    times = []
    for _ in range(rounds + 5):
        torch._foreach_mul_(values, 0.999)
        start = time.perf_counter()
        torch_xla.sync()
        times.append(time.perf_counter() - start)
        torch_xla.sync(wait=True)
    return statistics.median(times[5:])


def one_device(model: Decoder) -> xs.Mesh | None:
    return None


def data_parallel(model: Decoder) -> xs.Mesh | None:
    return xs.get_1d_mesh("data")


def fsdp(model: Decoder) -> xs.Mesh | None:
    mesh = xs.get_1d_mesh("data")
    for parameter in model.parameters():
        xs.mark_sharding(parameter, mesh, ("data",) + (None,) * (parameter.dim() - 1))
    return mesh


def tensor_parallel(model: Decoder) -> xs.Mesh | None:
    mesh = xs.Mesh(range(DEVICES), (1, DEVICES), ("data", "model"))
    for name, parameter in model.named_parameters():
        layer = name.split(".")[-2]
        if layer in COLUMNS or layer in ROWS:
            spec = ("model", None) if layer in COLUMNS else (None, "model")
            xs.mark_sharding(parameter, mesh, spec)
    return mesh


LAYOUTS = {f.__name__: f for f in (one_device, data_parallel, fsdp, tensor_parallel)}


def step_time(layout: Callable[[Decoder], xs.Mesh | None], rounds: int) -> float:
    torch.manual_seed(0)
    config = DecoderConfig()
    tokens = torch.randint(config.vocabulary, (8, 129))
    data = (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    def loss(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    trainer = Trainer(Decoder(config), loss, lambda m: torch.optim.SGD(m.parameters()), data, "xla")
    mesh = layout(trainer.model)
    if mesh is not None:
        for part in (trainer.inputs, trainer.targets):
            xs.mark_sharding(part, mesh, ("data", None))
    times = []
    for _ in range(rounds + 3):
        start = time.perf_counter()
        trainer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


def in_child(what: str, argument: str, rounds: int, spmd: bool) -> float:
    """The number of devices is a process's for life."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", what, argument, "--rounds", str(rounds)],
        env={**os.environ, "CPU_NUM_DEVICES": str(DEVICES), "XLA_USE_SPMD": str(int(spmd))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, argument = options.child
        if what == "launch":
            print(launch_time(int(argument), options.rounds))
        else:
            print(step_time(LAYOUTS[argument], options.rounds))
        return
    print(f"launch of a step, host time ({DEVICES} devices)")
    for count in (100, 800):
        one = in_child("launch", str(count), options.rounds, spmd=False)
        all_devices = in_child("launch", str(count), options.rounds, spmd=True)
        per_shard = (all_devices - one) / (count * DEVICES)
        print(
            f"  {count} parameters: {one * 1e3:.2f} ms on one device, {all_devices * 1e3:.2f} ms "
            f"on {DEVICES}, {per_shard * 1e6:.2f} us a shard"
        )
    print("training step of the 2-layer decoder, 8 x 128 tokens")
    for name in LAYOUTS:
        seconds = in_child("step", name, options.rounds, spmd=name != "one_device")
        print(f"  {name:16s} {seconds * 1e3:8.1f} ms", flush=True)


if __name__ == "__main__":
    main()
