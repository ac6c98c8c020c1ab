"""Run by test_spmd.py with 8 devices: wrappers, loaders, checkpoints and pictures."""

import functools
from pathlib import Path

import pytest
import tiny
import torch
import torch.distributed.checkpoint as dcp
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from models.decoder import DecoderLayer
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch_xla import _XLAC
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.distributed_checkpoint import (
    CheckpointManager,
    SPMDLoadPlanner,
    SPMDSavePlanner,
    prime_optimizer,
)
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

FSDP = xs.Mesh(range(8), (8,), ("fsdp",))
BOTH = xs.Mesh(range(8), (2, 4), ("data", "fsdp"))


def spec(tensor: Tensor) -> str:
    return _XLAC._get_xla_sharding_spec(tensor)


def test_fsdp_wraps_layers_by_a_policy_and_trains() -> None:
    case = tiny.MODELS["decoder"]
    reference, model = case.model(), case.model()
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={DecoderLayer})
    wrapped = SpmdFullyShardedDataParallel(
        model, mesh=BOTH, auto_wrap_policy=policy, extra_data_axis="data"
    )
    layers = [m for m in wrapped.modules() if isinstance(m, SpmdFullyShardedDataParallel)]
    assert len(layers) == 1 + case.model().config.layers
    for parameter in wrapped.parameters():
        largest = max(range(parameter.dim()), key=parameter.size)
        tiles = ",".join("4" if dim == largest else "1" for dim in range(parameter.dim()))
        assert f"devices=[{tiles}," in spec(parameter) and parameter.is_leaf
    assert wrapped.config is model.config  # attributes of the module
    expected = torch.optim.SGD(reference.parameters(), lr=0.1)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for inputs, targets in case.batches(3):
        losses = []
        for module, opt, device in ((reference, expected, "cpu"), (wrapped, optimizer, "xla")):
            opt.zero_grad()
            loss = tiny.loss_of(module, (inputs.to(device), targets.to(device)))
            loss.backward()
            opt.step()
            losses.append(loss.item())
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    with pytest.raises(xs.ShardingError, match="has no axis 'fsdp'"):
        SpmdFullyShardedDataParallel(nn.Linear(2, 2), xs.get_1d_mesh("data"))  # as 2.9's page


def test_loaders_send_batches_sharded() -> None:
    batches = [(torch.arange(16.0).reshape(8, 2) + i, torch.tensor([i])) for i in range(3)]
    sharding = xs.ShardingSpec(FSDP, ("fsdp", None))
    loader = pl.MpDeviceLoader(batches, "xla", input_sharding=sharding)
    seen = [(spec(x), x.cpu(), spec(i), i.cpu()) for x, i in loader]
    for (text, x, other, i), (expected_x, expected_i) in zip(seen, batches, strict=True):
        assert text == "{devices=[8,1]0,1,2,3,4,5,6,7}" and other == ""
        assert torch.equal(x, expected_x) and torch.equal(i, expected_i)
    named = [{"x": torch.ones(8, 2), "label": torch.ones(8)}]
    for batch in pl.MpDeviceLoader(named, "xla", input_sharding={"x": sharding, "label": None}):
        assert spec(batch["x"]) and not spec(batch["label"])
    for keys in ("y", "x"):  # what it lacks, and what it does not name
        with pytest.raises(KeyError, match="they must agree"):
            list(pl.MpDeviceLoader(named, "xla", input_sharding={keys: sharding}))


def trained(mesh: xs.Mesh, marks: tuple[object, ...], steps: int) -> tuple[nn.Module, object]:
    torch.manual_seed(0)
    model = nn.Linear(12, 16).to("xla")
    xs.mark_sharding(model.weight, mesh, marks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((8, 12), 0.1 * (step + 1), device="xla")).pow(2).sum().backward()
        optimizer.step()
    torch_xla.sync()
    return model, optimizer


def test_a_checkpoint_saved_on_one_mesh_is_loaded_on_another(tmp_path: Path) -> None:
    model, optimizer = trained(FSDP, ("fsdp", None), 2)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}
    dcp.save(state, checkpoint_id=tmp_path, planner=SPMDSavePlanner(), no_dist=True)
    stored = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    assert len(stored["model.weight"].chunks) == 8 and len(stored["model.bias"].chunks) == 1

    other, fresh = trained(BOTH, ("data", "fsdp"), 0)
    prime_optimizer(fresh)
    target = {"model": other.state_dict(), "optimizer": fresh.state_dict(), "step": 0}
    dcp.load(target, checkpoint_id=tmp_path, planner=SPMDLoadPlanner(), no_dist=True)
    fresh.load_state_dict(target["optimizer"])
    assert target["step"] == 2
    assert torch.equal(other.weight.cpu(), model.weight.cpu())
    assert torch.equal(other.bias.cpu(), model.bias.cpu())
    assert spec(other.weight) == "{devices=[2,4]0,1,2,3,4,5,6,7}"
    for before, after in zip(model.parameters(), other.parameters(), strict=True):
        for name, value in optimizer.state[before].items():
            torch.testing.assert_close(fresh.state[after][name].cpu(), value.cpu())


def test_the_wrong_shape_in_a_checkpoint_is_named(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(3)}, checkpoint_id=tmp_path, no_dist=True)
    target = {"w": torch.ones(4, device="xla")}
    with pytest.raises(dcp.CheckpointException, match="Size mismatch .* for w"):
        dcp.load(target, checkpoint_id=tmp_path, planner=SPMDLoadPlanner(), no_dist=True)


def test_a_manager_keeps_the_newest_checkpoints(tmp_path: Path) -> None:
    model, _ = trained(FSDP, ("fsdp", None), 1)
    manager = CheckpointManager(tmp_path, save_interval=2, max_to_keep=2)
    saved = [manager.save(step, model.state_dict()) for step in range(5)]
    assert saved == [True, False, True, False, True] and manager.all_steps() == [2, 4]
    assert manager.save_async(5, model.state_dict(), force=True)
    manager.join()
    assert manager.all_steps() == [4, 5]
    other, _ = trained(BOTH, (None, "fsdp"), 0)
    manager.restore(5, other.state_dict())
    assert torch.equal(other.weight.cpu(), model.weight.cpu())


def test_device_meshes_and_placements_of_pytorch() -> None:
    mesh = DeviceMesh("xla", torch.arange(8).reshape(2, 4), mesh_dim_names=("x", "y"))
    tensor = torch.ones(8, 8, device="xla")
    xs.mark_sharding(tensor, mesh, ("y", "x"))
    assert spec(tensor) == "{devices=[4,2]0,4,1,5,2,6,3,7}"
    distributed = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0), Replicate()])
    assert spec(distributed) == "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"
    xs.set_global_mesh(mesh)
    assert xs.get_global_mesh() == xs.Mesh(range(8), (2, 4), ("x", "y"))


def test_shardings_are_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensor = torch.ones(4, 6, device="xla")
    xs.mark_sharding(tensor, BOTH, (None, "data"))
    text = xs.visualize_tensor_sharding(tensor, file=tmp_path / "picture.svg")
    assert text._repr_html_() == (tmp_path / "picture.svg").read_text()
    assert text in capsys.readouterr().out
    assert f"{xr.device_type()} 0,1,2,3" in text and "0:3" in text and "3:6" in text
    assert (tmp_path / "picture.svg").read_text().count("<rect") == 2
    assert f"{xr.device_type()} 7" in xs.visualize_sharding("{devices=[2,4]0,1,2,3,4,5,6,7}")
    with pytest.raises(xs.ShardingError, match="not sharded"):
        xs.visualize_tensor_sharding(torch.ones(2, device="xla"))
