"""Run by test_spmd.py with 8 devices: torch.distributed.tensor on meshes of the device type xla."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
import torch.distributed.tensor as dt
import torch_xla
import torch_xla.distributed.spmd as xs
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch_xla import _XLAC
from torch_xla.distributed.spmd.placements import Undecided

LINE = init_device_mesh("xla", (8,))
GRID = init_device_mesh("xla", (2, 4), mesh_dim_names=("dp", "tp"))


def spec(tensor: Tensor) -> str:
    return _XLAC._get_xla_sharding_spec(tensor)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_from_local_takes_all_that_the_process_has(device: str) -> None:
    local = torch.arange(16.0).reshape(8, 2)
    leaf = local.to(device).requires_grad_()
    tensor = DTensor.from_local(leaf, GRID, [Shard(0), Replicate()], run_check=False)
    assert spec(tensor) == "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"
    assert tensor.device_mesh is GRID and tensor.placements == (Shard(0), Replicate())
    assert torch.equal(tensor.to_local().detach().cpu(), local)
    (tensor * tensor).sum().backward()
    assert torch.equal(leaf.grad.cpu(), 2 * local)
    moved = DTensor.from_local(leaf, GRID, [Replicate(), Shard(1)])  # the leaf was not marked
    assert moved.placements == (Replicate(), Shard(1))
    assert DTensor.from_local(leaf, LINE, [Partial()]).placements == (Replicate(),)
    with pytest.raises(xs.ShardingError, match="pass all of shape .64, 2., not .8, 2."):
        DTensor.from_local(leaf, LINE, [Shard(0)], shape=torch.Size((64, 2)), stride=(2, 1))


def test_tensors_are_made_on_a_mesh() -> None:
    for make in (dt.zeros, dt.ones, dt.rand, dt.randn, dt.empty):
        made = make(8, 4, device_mesh=LINE, placements=[Shard(0)], requires_grad=True)
        assert made.shape == (8, 4) and made.is_leaf and made.requires_grad
        assert made.placements == (Shard(0),) and made.device.type == "xla"
    filled = dt.full((8, 4), 3.0, dtype=torch.bfloat16, device_mesh=LINE)
    assert filled.dtype is torch.bfloat16 and filled.placements == (Replicate(),)
    with LINE:
        assert dt.ones(4, 2).full_tensor().sum().item() == 8


def test_results_say_how_they_lie() -> None:
    weights = torch.randn(8, 8, requires_grad=True)
    tensor = dt.distribute_tensor(weights, LINE, [Shard(0)])
    assert tensor.is_leaf
    result = torch.cat([tensor @ torch.ones(8, 8, device="xla")])
    assert result.device_mesh is LINE and result.placements == (Undecided(),)
    torch_xla.sync()
    assert result.placements in [(Shard(0),), (Shard(1),), (Replicate(),)]
    assert result.redistribute(placements=[Shard(1)]).placements == (Shard(1),)
    whole = result.full_tensor()
    assert type(whole) is Tensor and whole.device.type == "xla"
    whole.sum().backward()
    assert torch.equal(tensor.grad.cpu(), torch.full((8, 8), 8.0))
    with pytest.raises(NotImplementedError, match="partial sums"):
        result.redistribute(LINE, [Partial()])
    with pytest.raises(ValueError, match=r"Number of placements \(2\) must match"):
        result.redistribute(LINE, [Shard(0), Shard(1)])


def test_meshes_as_text() -> None:
    mesh = xs.Mesh(range(8), (2, 4), ("x", "y"))
    assert xs.Mesh.from_str(str(mesh)) == mesh and xs.Mesh.from_str("Mesh") is None


def test_shapes_of_meshes_tell_placements() -> None:
    tensor = xs.wrap_as_sharded_tensor(torch.ones(8, 4, device="xla"), (2, 4), (0, 1))
    assert tensor.placements == (Shard(0), Shard(1)) and tensor.device_mesh.shape == (2, 4)
    assert xs.wrap_as_sharded_tensor(tensor, (8,), (None, 0)).placements == (Shard(1),)


def test_slices_of_meshes() -> None:
    tp = GRID["tp"]
    assert tp.size() == 4 and tp.mesh.tolist() == [0, 1, 2, 3]
    tensor = dt.distribute_tensor(torch.ones(8, 4), tp, [Shard(0)])
    assert tensor.placements == (Shard(0),) and tensor.device_mesh is tp
    expected = torch.ones(8, 4, device="xla")
    xs.mark_sharding(expected, GRID, ("tp", None))
    assert [s.indices for s in tensor.local_shards] == [
        s.indices for s in xs.wrap_as_sharded_tensor(expected).local_shards
    ]
    cube = init_device_mesh("xla", (2, 2, 2), mesh_dim_names=("a", "b", "c"))
    flat = cube["b", "c"]._flatten("bc")
    with pytest.raises(xs.ShardingError, match="was flattened from a part"):
        dt.distribute_tensor(torch.ones(8), flat, [Shard(0)])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(self.norm(x)).relu())


PLANS: dict[str, Callable[[], dict[str, object]]] = {
    "tensor": lambda: {"up": ColwiseParallel(), "down": RowwiseParallel()},
    "sequence": lambda: {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    },
    "inputs": lambda: {
        "up": PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate()),
        "down": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0)),
    },
}


@pytest.mark.parametrize("mesh", [LINE, GRID["tp"]], ids=["line", "slice"])
@pytest.mark.parametrize("plan", PLANS)
def test_modules_are_parallelized(plan: str, mesh: DeviceMesh) -> None:
    torch.manual_seed(0)
    reference, x = Block(), torch.randn(4, 8, 8)
    model = parallelize_module(copy.deepcopy(reference).to("xla"), mesh, PLANS[plan]())
    if plan != "inputs":
        assert model.up.weight.placements == (Shard(0),)
        assert model.down.weight.placements == (Shard(1),)
    for module, values in ((reference, x), (model, x.to("xla"))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            module(values).square().mean().backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
    for expected, actual in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_parallelized_modules_are_compiled() -> None:
    x = torch.randn(4, 8, 8, device="xla")
    model = parallelize_module(Block().to("xla"), LINE, PLANS["tensor"]())
    expected = model(x).cpu()
    for compiled in (torch.compile(model, backend="openxla"), torch_xla.compile(model)):
        torch.testing.assert_close(compiled(x).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_extremes_over_a_sharded_dimension(dtype: torch.dtype) -> None:
    x = (10 * torch.randn(8, 6)).to(dtype)
    for nan in (False, True) if dtype.is_floating_point else (False,):
        x[3, 2] = float("nan") if nan else 7
        tensor = dt.distribute_tensor(x, LINE, [Shard(0)])
        for expected, actual in (
            (x.amax(0), tensor.amax(0)),
            (x.min(), tensor.min()),
            (x.max(0).values, tensor.max(0).values),
            (x.argmin(0), tensor.argmin(0)),
            (x.argmax(), tensor.argmax()),
        ):
            torch.testing.assert_close(actual.full(), expected, equal_nan=True)


def test_hooks_of_distribute_module_are_given_the_module() -> None:
    seen: list[object] = []

    def before(module: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> object:
        seen.append(module)
        return tuple(dt.distribute_tensor(value, mesh, [Shard(0)]) for value in inputs)

    linear = nn.Linear(8, 8)
    model = dt.distribute_module(linear, LINE, None, before, lambda outputs, mesh: outputs + 1)
    assert model(torch.ones(8, 8)).shape == (8, 8) and seen == [model]


def test_functions_over_pieces_see_the_whole() -> None:
    x, w = torch.randn(8, 4), torch.randn(4, 4)
    rows = dt.distribute_tensor(x, LINE, [Shard(0)])
    product = local_map(torch.mm, [Shard(0)], ([Shard(0)], [Replicate()]), device_mesh=LINE)
    torch.testing.assert_close(product(rows, w.to("xla")).cpu(), x @ w)
    labels = torch.zeros(8, dtype=torch.long)
    with loss_parallel():
        loss = nn.functional.cross_entropy(rows, labels.to("xla"))
    torch.testing.assert_close(loss.cpu(), nn.functional.cross_entropy(x, labels))


def test_files_hold_whole_tensors() -> None:
    model = dt.distribute_module(nn.Linear(8, 8), LINE)
    file = io.BytesIO()
    torch.save({"state": model.state_dict(), "parameter": model.weight}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert torch.equal(loaded["state"]["weight"].cpu(), model.weight.detach().cpu())
    assert type(loaded["parameter"]) is nn.Parameter


@pytest.mark.parametrize(
    "call",
    [
        lambda: fully_shard(nn.Linear(2, 2).to("xla"), mesh=LINE),
        lambda: FullyShardedDataParallel(nn.Linear(2, 2).to("xla"), device_mesh=LINE),
        lambda: LINE.get_group(),
        lambda: GRID.get_local_rank("tp"),
        lambda: GRID.get_coordinate(),
    ],
)
def test_what_needs_groups_says_what_to_use(call: Callable[[], object]) -> None:
    with pytest.raises(
        RuntimeError, match="one process drives all .* SpmdFullyShardedDataParallel"
    ):
        call()
