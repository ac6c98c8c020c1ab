"""Run by test_spmd_training.py with 8 devices: trains the decoder, prints what it saw."""

import json
import os
import sys
import tempfile
from pathlib import Path

import tiny
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn
from torch_xla.experimental.assume_pure import PureModule
from work import Work

STEPS = 20
COLUMNS = ("query", "key", "value", "gate", "up", "head")  # cut by output feature
ROWS = ("output", "down")  # cut by input feature


def layer_of(name: str) -> str:
    return name.split(".")[-2]


def data_parallel(model: nn.Module) -> tuple[xs.Mesh, str | None]:
    return xs.Mesh(range(8), (8,), ("data",)), "data"


def fsdp(model: nn.Module) -> tuple[xs.Mesh, str | None]:
    mesh = xs.Mesh(range(8), (8,), ("fsdp",))
    for parameter in model.parameters():
        xs.mark_sharding(parameter, mesh, ("fsdp",) + (None,) * (parameter.dim() - 1))
    return mesh, "fsdp"


def mark_tensor_parallel(model: nn.Module, mesh: xs.Mesh, other: str | None) -> None:
    for name, parameter in model.named_parameters():
        if layer_of(name) in COLUMNS:
            xs.mark_sharding(parameter, mesh, ("model", other))
        elif layer_of(name) in ROWS:
            xs.mark_sharding(parameter, mesh, (other, "model"))


def tensor_parallel(model: nn.Module) -> tuple[xs.Mesh, str | None]:
    mesh = xs.Mesh(range(8), (8,), ("model",))
    mark_tensor_parallel(model, mesh, None)
    return mesh, None


def two_dimensional(model: nn.Module) -> tuple[xs.Mesh, str | None]:
    mesh = xs.Mesh(range(8), (2, 4), ("data", "model"))
    mark_tensor_parallel(model, mesh, "data")
    return mesh, "data"


def no_mesh(model: nn.Module) -> tuple[xs.Mesh, str | None]:
    return xs.Mesh(range(8), (8,)), None


LAYOUTS = {f.__name__: f for f in (no_mesh, data_parallel, fsdp, tensor_parallel, two_dimensional)}


def bytes_per_device(tensor: torch.Tensor) -> int:
    return max(shard.data.nbytes for shard in xs.wrap_as_sharded_tensor(tensor).local_shards)


def train(layout: str, mode: str, folder: Path) -> dict[str, object]:
    case = tiny.MODELS["decoder"]
    model = case.model().to("xla")
    mesh, batch_axis = LAYOUTS[layout](model)
    if mode == "pure":
        model = PureModule(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=case.learning_rate)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = tiny.loss_of(model, (inputs, targets))
        loss.backward()
        optimizer.step()
        return loss.detach()

    if mode == "compile":
        step = torch_xla.compile(step)
    losses, works = [], []
    before = Work.so_far()
    for batch in case.batches(STEPS):
        inputs, targets = (tensor.to("xla") for tensor in batch)
        if batch_axis is not None:
            for tensor in (inputs, targets):
                xs.mark_sharding(tensor, mesh, (batch_axis, None))
        losses.append(step(inputs, targets))
        torch_xla.sync()
        now = Work.so_far()
        works.append(now.since(before))
        before = now
    state = [s for value in optimizer.state.values() for s in value.values() if s.dim() > 0]
    parameters = list(model.parameters())
    # The last program compiled is that of a step which finds the optimizer's state. None at all in
    # a mode that records the same graphs as the one before.
    programs = sorted(folder.glob("*.optimized.hlo"), key=lambda path: path.stat().st_mtime_ns)
    hlo = programs[-1].read_text() if programs else ""
    return {
        "losses": torch.stack(losses).tolist(),
        "executions": [work.executions for work in works],
        "compilations": [work.compilations for work in works],
        "host_calls": sum(work.fallbacks for work in works),
        "collectives": {
            name: hlo.count(f" {name}(")
            for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
        },
        "parameter_bytes": sum(map(bytes_per_device, parameters)),
        "whole_parameter_bytes": sum(p.nbytes for p in parameters),
        "state_bytes": sum(map(bytes_per_device, state)),
        "whole_state_bytes": sum(s.nbytes for s in state),
    }


if __name__ == "__main__":
    seen = {}
    for case in ("no_mesh-lazy", *sys.argv[1:]):
        if seen:
            xr.use_spmd()
        with tempfile.TemporaryDirectory() as programs:
            os.environ["TORCH_XLA_DUMP_DIR"] = programs
            seen[case] = train(*case.split("-"), Path(programs))
    print(json.dumps(seen))
