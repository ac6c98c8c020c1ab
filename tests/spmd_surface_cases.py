"""2.9's names for shardings, on 8 devices (run by tests/test_spmd.py)."""

import copy
import os

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch_xla.distributed.spmd import api, debugging, xla_sharding
from torch_xla.distributed.spmd.xla_sharded_tensor import no_dispatch

MESH = xs.Mesh(range(8), (2, 4), ("x", "y"))
DEVICE_MESH = DeviceMesh("xla", torch.arange(8).reshape(2, 4), mesh_dim_names=("x", "y"))
ROWS = "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"


def spec(tensor: torch.Tensor) -> str:
    return torch_xla._XLAC._get_xla_sharding_spec(tensor)


def test_meshes_and_placements_as_ours():
    assert api.convert_to_xla_mesh(DEVICE_MESH) == MESH
    tensor = torch.ones(8, 4, 4)
    placements = [Replicate(), Shard(0)]
    assert api.convert_to_xla_partition_spec(tensor, placements) == (1, None, None)
    assert api.convert_to_xla_partition_spec(tensor, [Shard(1), Shard(1)]) == (None, (0, 1), None)
    with pytest.raises(xs.ShardingError, match="partial sums"):
        api.convert_to_xla_partition_spec(tensor, [Partial(), Replicate()])
    with pytest.raises(xs.ShardingError, match="all 8"):
        api.convert_to_xla_mesh(DeviceMesh("xla", torch.arange(4)))
    assert api.with_xla(lambda value: value + 1)(1) == 2


def test_shardings_in_the_words_of_pytorch():
    tensor = distribute_tensor(torch.arange(32.0).reshape(8, 4), DEVICE_MESH, [Shard(0), Shard(1)])
    assert tensor._spec.placements == tensor.placements == (Shard(0), Shard(1))
    assert tensor._spec.mesh.shape == (2, 4) and tensor._spec.tensor_meta.shape == (8, 4)
    other = tensor.redistribute(DEVICE_MESH, [Replicate(), Shard(0)])
    assert other.placements == (Replicate(), Shard(0))
    assert spec(other) == "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"
    assert torch.equal(other.full(), tensor.full())
    assert spec(tensor) == "{devices=[2,4]0,1,2,3,4,5,6,7}"
    whole = tensor.clone().requires_grad_().to_local()  # one process drives the mesh
    assert type(whole) is torch.Tensor and whole.requires_grad
    assert torch.equal(whole.detach().cpu(), tensor.full())
    for wrong, error in (
        ([Shard(2), Shard(0)], IndexError),
        ([Partial(), Shard(0)], NotImplementedError),
    ):
        with pytest.raises(error):
            tensor.redistribute(DEVICE_MESH, wrong)
    with pytest.raises(ValueError, match=r"placements \(1\) must match"):
        tensor.redistribute(DEVICE_MESH, [Shard(0)])
    with pytest.raises(ValueError, match="Placements not available"):
        _ = xs.wrap_as_sharded_tensor(torch.ones(8, 4, device="xla"))._spec
    with no_dispatch():
        assert tensor.shape == (8, 4)


def test_modules_are_distributed():
    def partition(name, module, mesh):
        if isinstance(module, nn.Linear):
            xs.mark_sharding(module.weight, mesh, ("x", None))

    model = distribute_module(nn.Sequential(nn.Linear(4, 8)), DEVICE_MESH, partition)
    assert spec(model[0].weight) == ROWS
    assert model(torch.ones(2, 4, device="xla")).shape == (2, 8)


@pytest.mark.parametrize("computed", [True, False])
def test_shardings_survive_copies(computed):
    layer = nn.Linear(4, 8).to("xla")
    xs.mark_sharding(layer.weight, MESH, ("x", None))
    if computed:
        torch_xla.sync()
    weight = layer.weight.detach()
    for copied in (
        weight.clone(),
        weight.to(torch.bfloat16),
        weight.to("xla", copy=True),
        copy.deepcopy(layer).weight,
        layer.to("xla").weight,
        copy.deepcopy(layer).to(torch.float16).weight,
    ):
        assert spec(copied) == ROWS
        torch.testing.assert_close(copied.float().cpu(), weight.cpu(), atol=1e-2, rtol=1e-2)
        assert spec(copied) == ROWS


def test_placements_survive_copies():
    tensor = distribute_tensor(torch.arange(32.0).reshape(8, 4), DEVICE_MESH, [Shard(0), Shard(1)])
    parameter = nn.Parameter(tensor)
    parameter.sum().backward()
    for other in (
        tensor.clone(),
        tensor.detach(),
        tensor.to(torch.bfloat16),
        copy.deepcopy(tensor),
        copy.deepcopy(parameter),
        parameter,
    ):
        assert other.placements == (Shard(0), Shard(1))
        assert spec(other) == "{devices=[2,4]0,1,2,3,4,5,6,7}"
        assert torch.equal(other.full().float(), tensor.full())
    twin = copy.deepcopy([parameter, parameter])
    assert twin[0] is twin[1] and isinstance(twin[0], nn.Parameter) and twin[0] is not parameter
    assert twin[0].grad.cpu().unique().tolist() == [1]
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(parameter * 2)
    reverse = DeviceMesh("xla", torch.arange(7, -1, -1).reshape(2, 4))
    backwards = distribute_tensor(torch.ones(8, 4), reverse, [Shard(0), Replicate()])
    assert backwards._spec.mesh.mesh.tolist() == reverse.mesh.tolist()
    again = backwards.redistribute(placements=[Replicate(), Shard(1)])
    assert spec(again) == "{devices=[1,4,2]7,3,6,2,5,1,4,0 last_tile_dim_replicate}"


def test_modules_of_distributed_parameters_train():
    def partition(name, module, mesh):
        for key, parameter in list(module.named_parameters(recurse=False)):
            sharded = distribute_tensor(parameter.detach(), mesh, [Shard(0), Replicate()])
            module.register_parameter(key, nn.Parameter(sharded))

    torch.manual_seed(0)
    plain = nn.Linear(4, 8)
    model = distribute_module(copy.deepcopy(plain), DEVICE_MESH, partition)
    batch = distribute_tensor(torch.ones(8, 4), DEVICE_MESH, [Shard(0), Replicate()])
    for network, x in ((plain, torch.ones(8, 4)), (model, batch)):
        optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
        network(x).square().sum().backward()
        optimizer.step()
    assert model.weight.placements == (Shard(0), Replicate()) and spec(model.weight) == ROWS
    torch.testing.assert_close(model.weight.full(), plain.weight.detach())


def test_hybrid_meshes_follow_the_wires(monkeypatch):
    devices = []
    for index, places in enumerate([{2: (0, 0), 1: (1, 0), 0: (0, 1), 3: (1, 1)}] * 2):
        for number, (x, y) in places.items():
            name = f"TPU:{number + 4 * index}"
            devices.append({"name": name, "slice_index": index, "coords": [x, y, 0]})
    monkeypatch.setattr(xr, "global_runtime_device_attributes", lambda: [dict(d) for d in devices])
    mesh = xs.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(2, 1))
    assert mesh.get_logical_mesh().tolist() == [[2, 1], [0, 3], [6, 5], [4, 7]]
    one = xs.HybridMesh(ici_mesh_shape=(1, 4), dcn_mesh_shape=(2, 1))
    assert one.get_logical_mesh().tolist() == [[2, 0, 1, 3], [6, 4, 5, 7]]
    with pytest.raises(xs.ShardingError, match="Number of slices 2 must equal"):
        xs.HybridMesh(ici_mesh_shape=(2, 4))


def test_refusals_begin_with_the_first_words_of_2_9():
    sharded = xs.mark_sharding(torch.ones(8, 4, device="xla"), MESH, ("x", None))
    shards = sharded.local_shards
    with pytest.raises(RuntimeError, match="Shards must be provided for all local devices"):
        sharded.load_local_shards_(shards[:3])
    shards[0].data = shards[0].data[:1]
    with pytest.raises(RuntimeError, match="Input shard shape must include padding"):
        sharded.load_local_shards_(shards)
    replicated = xs.mark_sharding(torch.ones(8, 4, device="xla"), MESH, (None, None))
    with pytest.raises(RuntimeError, match="Replicated tensor should not be loaded from"):
        replicated.load_local_shards_(replicated.local_shards)
    rows = xs.ShardingSpec(MESH, ("x", None), minibatch=True)
    (sent,) = xm.send_cpu_data_to_device([torch.ones(16, 4)], "xla", input_sharding=rows)
    assert spec(sent) == ROWS
    with pytest.raises(RuntimeError, match="When minibatch is configured, the per-host batch size"):
        xm.send_cpu_data_to_device([torch.ones(7, 4)], "xla", input_sharding=rows)


def test_two_tensors_alike():
    a = torch.ones(8, 4, device="xla")
    xs.mark_sharding(a, MESH, ("x", None))
    data = {"t": torch.zeros(8, 4, device="xla"), "n": 3}
    like, other = xs.shard_as({"t": a, "n": 3}, data)
    torch_xla.sync()
    assert spec(like["t"]) == spec(other["t"]) == ROWS
    with pytest.raises(xs.ShardingError, match="structures differ"):
        xs.shard_as(a, [a])
    with pytest.raises(xs.ShardingError, match="tensors correspond to tensors"):
        xs.shard_as([a], [3])


@pytest.mark.parametrize("kind", ["EinsumLinear", "patched"])
def test_linear_layers_that_keep_dimensions(kind):
    torch.manual_seed(0)
    plain = nn.Linear(4, 8)
    model = copy.deepcopy(nn.Sequential(plain)).to("xla")
    if kind == "patched":
        xla_sharding.apply_xla_patch_to_nn_linear(model)
        assert isinstance(model[0], xla_sharding.EinsumLinear)
        call = model
    else:
        call = lambda x: xs.xla_patched_nn_linear_forward(model[0], x)  # noqa: E731
    x = torch.randn(4, 3, 4)
    leaf = x.clone().requires_grad_()
    ours = x.to("xla").requires_grad_()
    plain(leaf).square().sum().backward()
    output = call(ours)
    assert "dot_general" in xm.get_stablehlo([output])
    output.square().sum().backward()
    torch.testing.assert_close(ours.grad.cpu(), leaf.grad)
    torch.testing.assert_close(model[0].weight.grad.cpu(), plain.weight.grad)
    torch.testing.assert_close(model[0].bias.grad.cpu(), plain.bias.grad)
    without = xs.XLAPatchedLinear.apply(ours, model[0].weight)
    torch.testing.assert_close(without.detach().cpu(), x @ plain.weight.detach().T)


def test_a_barrier_for_the_backward_pass():
    layer = nn.Linear(4, 4).to("xla")
    xs.mark_sharding(layer.weight, MESH, ("x", None))
    xs.apply_backward_optimization_barrier(layer)
    x = torch.ones(8, 4, device="xla", requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.shape == (8, 4)


def test_the_short_form_of_shardings():
    assert debugging.construct_v1_sharding_str("{devices=[2,4]<=[8]}") == (
        "{devices=[2,4]0,1,2,3,4,5,6,7}"
    )
    transposed = "{devices=[4,2]<=[2,4]T(1,0)}"
    assert debugging.construct_v1_sharding_str(transposed) == "{devices=[4,2]0,4,1,5,2,6,3,7}"
    assert debugging.construct_v1_sharding_str("{replicated}") == "{replicated}"
    marked = xs.mark_sharding(torch.ones(8, 4, device="xla"), MESH, ("x", None))
    assert debugging.construct_v1_sharding_str(marked) == ROWS
    assert f"{xr.device_type()} 7" in debugging.visualize_sharding("{devices=[2,4]<=[8]}")


def test_other_names_for_marks():
    tensor = torch.ones(8, 4, device="xla")
    marked = xs.annotate_custom_sharding(tensor, MESH, ("x", None))
    assert isinstance(xs.wrap_if_sharded(tensor), xs.XLAShardedTensor)
    assert xs.wrap_if_sharded(3) == 3 and not isinstance(
        xs.unwrap_sharded_tensor(marked), xs.XLAShardedTensor
    )
    assert isinstance(marked.local_shards[0], xs.XLAShard)
    leaf = torch.ones(8, 4, device="xla", requires_grad=True)
    xla_sharding.MarkShardingFunction.apply(leaf, MESH, ("x", None)).sum().backward()
    assert spec(leaf.grad) == ROWS
    assert spec(xs.xla_distribute_tensor(torch.ones(8, 4), DEVICE_MESH, [Shard(0), Replicate()]))
    module = xs.xla_distribute_module(nn.Linear(4, 8), DEVICE_MESH)
    assert spec(module.weight) == "{replicated}"
    with pytest.warns(UserWarning, match="SpmdFullyShardedDataParallel"):
        xs.auto_policy("name", module, MESH)


def test_another_mark_takes_the_place_of_the_first():
    tensor = torch.arange(32.0).reshape(8, 4).to("xla")
    xs.mark_sharding(tensor, MESH, ("x", None))
    torch_xla.sync()
    with pytest.raises(RuntimeError, match="annotate_custom_sharding instead"):
        xs.mark_sharding(tensor, MESH, ("x", "y"))
    xs.annotate_custom_sharding(tensor, MESH, ("x", "y"))
    assert spec(tensor) == "{devices=[2,4]0,1,2,3,4,5,6,7}"
    pending = tensor + 1
    xs.mark_sharding(pending, MESH, ("x", None))
    xs.mark_sharding(pending, MESH, ("x", "y"))  # it is nowhere yet
    torch_xla.sync()
    assert spec(tensor) == spec(pending) == "{devices=[2,4]0,1,2,3,4,5,6,7}"
    assert torch.equal(pending.cpu(), torch.arange(32.0).reshape(8, 4) + 1)


def test_a_sharded_leaf_has_gradients_of_its_own():
    plain = torch.ones(8, 4, device="xla", requires_grad=True)
    for leaf in (
        distribute_tensor(plain, DEVICE_MESH, [Shard(0), Replicate()]),
        xs.XLAShardedTensor(plain.detach(), requires_grad=True),
    ):
        assert leaf.is_leaf and leaf.global_tensor.requires_grad
        torch.optim.SGD([leaf], 0.1)
        (leaf * 3).sum().backward()
        assert leaf.grad.cpu().unique().tolist() == [3]
    assert xs.Mesh(range(8), (8,)).axis_names is None
    assert xla_sharding.MarkShardingFunction.apply(plain, MESH, ("x", None)).sum().item() == 32


def test_parts_computed_by_hand_and_shardings_in_parts():
    tensor = torch.zeros(8, 4, device="xla")
    marked = xs.mark_sharding(tensor, MESH, ("x", None))
    with pytest.raises(xs.ShardingError, match="enable_manual_sharding"):
        xs._mark_manual_sharding(tensor)
    part = torch_xla._XLAC._spmd_full_to_shard_shape(marked.global_tensor)
    part = xs._mark_manual_sharding(part + 1).global_tensor
    sharding = MESH.get_op_sharding(("x", None))
    whole = torch_xla._XLAC._spmd_shard_to_full_shape(part, sharding, (8, 4), torch.float32)
    assert whole.cpu().unique().tolist() == [1]
    make = torch_xla._XLAC.OpSharding
    assert make([], [[0], [1]], [[0, 1, 2, 3], [4, 5, 6, 7]], 5) == sharding
    assert make([[0, 1, 2, 3], [4, 5, 6, 7]], [], [], 3) == MESH.get_op_sharding(("x", "y"))
    assert str(make([], [], [], 0)) == "{replicated}"
    with pytest.raises(RuntimeError, match="tiled"):
        make([], [], [], 6)


def test_marks_in_graphs_of_aot_autograd():
    from functorch.compile import aot_function, make_boxed_func

    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return make_boxed_func(graph)

    def function(x):
        return xs.mark_sharding_with_gradients(x.sin(), MESH, ("x",)) + 42

    x = torch.arange(8.0).to("xla").requires_grad_()
    aot_function(function, keep)(x).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.arange(8.0).cos())
    names = [[str(node.target) for node in graph.graph.nodes] for graph in graphs]
    assert len(graphs) == 2 and all("xla.aot_mark_sharding.default" in n for n in names)


def test_an_automatic_partitioner_is_missed_with_a_warning():
    with pytest.warns(UserWarning, match="others are replicated"):
        xr.use_spmd(auto=True)
    assert os.environ["XLA_USE_SPMD"] == "1"


def test_marks_as_operators():
    tensor = torch.ones(8, 4, device="xla")
    arguments = (list(range(8)), [2, 4], "('x', 'y')", "('x', None)")
    torch.ops.xla.dynamo_mark_sharding(tensor, *arguments)
    assert spec(tensor) == ROWS

    @torch.compile(backend="openxla")
    def doubled(x):
        y = x * 2
        return torch.ops.xla.dynamo_mark_sharding(y, *arguments) + 1

    result = doubled(torch.ones(8, 4, device="xla"))
    assert result.unique().tolist() == [3]


def test_tensors_of_shards_and_shards_of_tensors():
    join = torch_xla._XLAC._global_tensor_from_cpu_shards
    shards = [torch.full((2, 1), float(device)) for device in range(8)]
    cut = MESH.get_op_sharding(("y", "x"))
    whole = join(shards, cut)
    assert spec(whole) == "{devices=[4,2]0,4,1,5,2,6,3,7}"
    assert whole.cpu()[::2].tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert join(shards, cut, (7, 2)).shape == (7, 2)
    copied = join([torch.arange(3)] * 8, MESH.get_op_sharding((None,)))
    assert copied.tolist() == [0, 1, 2]
    for wrong in ((shards[:3], cut), (shards, cut, (9, 2)), (shards, cut, (8,))):
        with pytest.raises(RuntimeError, match="shard"):
            join(*wrong)
    part = torch_xla._XLAC._spmd_full_to_shard_shape(whole)
    assert part.shape == (2, 1)
    again = torch_xla._XLAC._spmd_shard_to_full_shape(part + 1, cut, (8, 2), torch.float32)
    assert torch.equal(again.cpu(), whole.cpu() + 1)
    with pytest.raises(RuntimeError, match="no part of another"):
        torch_xla._XLAC._spmd_shard_to_full_shape(whole, cut, (8, 2), torch.float32)
    with pytest.raises(RuntimeError, match="mark the tensor"):
        torch_xla._XLAC._spmd_full_to_shard_shape(torch.ones(8, 2, device="xla"))
