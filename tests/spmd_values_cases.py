"""Run by test_spmd.py with 8 devices: what a mark does to values, storages and programs."""

import copy
import io

import pytest
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import Tensor, nn
from torch_xla import _XLAC
from torch_xla.experimental.assume_pure import assume_pure
from work import Work

MESH = xs.Mesh(range(8), (2, 4), ("x", "y"))
TWO_BY_FOUR = "{devices=[2,4]0,1,2,3,4,5,6,7}"
MARK = "stablehlo.custom_call @Sharding"
DOWN = "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"


def numbers(*shape: int) -> Tensor:
    return torch.arange(torch.tensor(shape).prod().item(), dtype=torch.float32).reshape(shape)


def on_mesh(tensor: Tensor, *spec: object, mesh: xs.Mesh = MESH) -> Tensor:
    moved = tensor.to("xla")
    xs.mark_sharding(moved, mesh, spec)
    return moved


def spec(tensor: Tensor) -> str:
    return _XLAC._get_xla_sharding_spec(tensor)


@pytest.fixture(autouse=True)
def nothing_pending() -> None:
    torch_xla.sync()


def test_the_runtime_counts_devices() -> None:
    assert xr.is_spmd() and torch_xla.device_count() == 1
    assert xr.global_runtime_device_count() == xr.addressable_runtime_device_count() == 8
    with pytest.raises(RuntimeError, match="xla:0 stands for all"):
        torch_xla.device(1)
    with pytest.raises(RuntimeError):
        torch.ones(1, device="xla:1")


@pytest.mark.parametrize(
    ("shape", "marks"),
    [
        ((8, 8), ("x", "y")),
        ((8, 8), ("y", "x")),
        ((8, 8), (("x", "y"), None)),
        ((8, 8), (None, ("y", "x"))),
        ((8, 8), (1, 0)),
        ((8, 8), (None, None)),
        ((5, 7), ("x", "y")),  # uneven
        ((3, 3), (("x", "y"), None)),  # fewer rows than devices
        ((4, 6, 5), ("y", None, "x")),
        ((1,), ("y",)),
        ((), ()),
        ((0, 4), ("x", "y")),
    ],
)
def test_values_survive_and_lie_as_marked(shape: tuple[int, ...], marks: tuple[object]) -> None:
    plain = numbers(*shape) if shape else torch.tensor(3.0)
    tensor = on_mesh(plain, *marks)
    assert torch.equal(tensor.cpu(), plain)  # from the host
    torch.testing.assert_close((tensor * 2 + 1).cpu(), plain * 2 + 1)
    tensor += 1
    torch_xla.sync()
    assert torch.equal(tensor.cpu(), plain + 1)  # from the devices
    whole = torch.full_like(plain, -1)
    for shard in xs.wrap_as_sharded_tensor(tensor).local_shards:
        index = shard.indices if shard.indices is ... else tuple(shard.indices)
        whole[index] = shard.unpadded_data
    assert torch.equal(whole, plain + 1)


def test_a_sharded_tensor_describes_itself() -> None:
    tensor = numbers(8, 6).to("xla")
    sharded = xs.mark_sharding(tensor, MESH, ("x", None))
    assert isinstance(sharded, xs.XLAShardedTensor)
    assert sharded.sharding_spec == spec(tensor) == DOWN
    assert sharded.sharding_type == xs.ShardingType.PARTIAL
    assert sharded.mesh_shape == (2, 4) and sharded.partition_spec == ("x", None)
    shards = sharded.local_shards
    assert [shard.shard_device for shard in shards] == [f"{xr.device_type()}:{i}" for i in range(8)]
    assert [shard.replica_id for shard in shards] == [0, 1, 2, 3] * 2
    assert shards[4].indices == [slice(4, 8, 1), slice(0, 6, 1)]
    assert torch.equal(sharded.full(), numbers(8, 6))
    assert xs.wrap_as_sharded_tensor(on_mesh(numbers(2, 4), "x", "y")).sharding_type == (
        xs.ShardingType.TILED
    )
    whole = xs.wrap_as_sharded_tensor(on_mesh(numbers(4), None))
    assert whole.sharding_spec == "{replicated}" and whole.local_shards[3].indices is ...


def test_operations_on_a_sharded_tensor_give_sharded_tensors() -> None:
    sharded = xs.mark_sharding(numbers(8, 6).to("xla"), MESH, ("x", None))
    result = sharded + numbers(8, 6).to("xla")
    assert isinstance(result, xs.XLAShardedTensor) and result.size() == sharded.size()
    assert torch.equal(result.cpu(), numbers(8, 6) * 2) and type(result.cpu()) is torch.Tensor
    assert isinstance(sharded.split(4)[0], xs.XLAShardedTensor)
    assert type(result.global_tensor) is torch.Tensor
    with pytest.raises(RuntimeError, match="no one address"):
        _XLAC.host_address(sharded)


def test_shards_can_be_replaced() -> None:
    sharded = xs.mark_sharding(numbers(4, 4).to("xla"), MESH, ("x", "y"))
    shards = sharded.local_shards
    for shard in shards:
        shard.data += 10
    sharded.load_local_shards_(shards)
    assert torch.equal(sharded.cpu(), numbers(4, 4) + 10)
    assert sharded.sharding_spec == TWO_BY_FOUR


def test_the_order_of_devices_is_the_meshs() -> None:
    mesh = xs.Mesh([3, 2, 1, 0, 7, 6, 5, 4], (8,), ("x",))
    tensor = on_mesh(numbers(8), "x", mesh=mesh)
    assert spec(tensor) == "{devices=[8]3,2,1,0,7,6,5,4}"
    assert torch.equal((tensor + 1).cpu(), numbers(8) + 1)
    assert xs.wrap_as_sharded_tensor(tensor).local_shards[3].data.item() == 0


def test_a_hybrid_mesh_keeps_slices_together() -> None:
    mesh = xs.HybridMesh(ici_mesh_shape=(1, 4), dcn_mesh_shape=(2, 1), axis_names=("data", "fsdp"))
    assert mesh.shape() == {"data": 2, "fsdp": 4}
    assert mesh.get_logical_mesh().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    inner = xs.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(1, 2))
    assert inner.get_logical_mesh().tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_layouts_in_memory_other_than_row_major_are_marked_by_their_dimensions() -> None:
    plain = numbers(4, 6)
    tensor = plain.t().contiguous().to("xla").t()  # a window that covers its storage
    xs.mark_sharding(tensor, MESH, ("y", "x"))
    assert spec(tensor) == "{devices=[4,2]0,4,1,5,2,6,3,7}"
    torch.testing.assert_close((tensor + 1).cpu(), plain + 1)
    shard = xs.wrap_as_sharded_tensor(tensor).local_shards[5]
    assert torch.equal(shard.data, plain[tuple(shard.indices)])


def test_a_marked_parameter_is_sent_once_in_pieces() -> None:
    parameter = numbers(64, 64).to("xla")
    before = [_XLAC.memory_stats(i)["bytes_used"] for i in range(8)]
    xs.mark_sharding(parameter, MESH, ("x", "y"))
    (parameter.sum()).item()
    grown = [_XLAC.memory_stats(i)["bytes_used"] - b for i, b in enumerate(before)]
    assert all(grow < 64 * 64 * 4 / 8 + 256 for grow in grown)


def test_updates_keep_the_sharding_and_reuse_the_memory() -> None:
    weight = on_mesh(numbers(64, 64), "x", "y")
    for _ in range(2):
        weight.mul_(0.5)
        torch_xla.sync(wait=True)
    before = _XLAC.live_buffer_count()
    weight.mul_(2).add_(1)
    torch_xla.sync(wait=True)
    assert _XLAC.live_buffer_count() == before
    assert spec(weight) == TWO_BY_FOUR
    torch.testing.assert_close(weight.cpu(), numbers(64, 64) / 2 + 1)
    weight.copy_(torch.ones(64, 64))  # from the host
    assert spec(weight) == TWO_BY_FOUR and weight.sum().item() == 64 * 64


def test_what_the_compiler_chose_can_be_read() -> None:
    result = on_mesh(numbers(8, 4), "x", None) @ on_mesh(numbers(4, 8), None, "y")
    assert spec(result) == ""
    torch_xla.sync()
    assert spec(result) == TWO_BY_FOUR


def test_marks_on_values_of_a_graph() -> None:
    x = on_mesh(numbers(8, 8), "x", None)
    hidden = x * 2
    xs.mark_sharding(hidden, MESH, ("x", "y"))
    result = hidden.sum(1)
    text = _XLAC.tensors_stablehlo_text([result])
    assert MARK in text and TWO_BY_FOUR in text
    torch.testing.assert_close(result.cpu(), (numbers(8, 8) * 2).sum(1))
    assert spec(hidden) == TWO_BY_FOUR


def test_a_mark_on_a_part_of_a_tensor_keeps_the_rest() -> None:
    base = numbers(8, 8).to("xla")
    xs.mark_sharding(base[2:6], MESH, ("x", None))
    torch.testing.assert_close((base + 1).cpu(), numbers(8, 8) + 1)
    with pytest.raises(RuntimeError, match="expand"):
        xs.mark_sharding(base[:1].expand(4, 8), MESH, ("x", None))


def test_resharding_between_steps() -> None:
    tensor = on_mesh(numbers(8, 8), "x", None)
    (tensor + 1).cpu()
    xs.clear_sharding(tensor)
    assert spec(tensor) in ("", "{replicated}")
    xs.mark_sharding(tensor, MESH, (None, "y"))
    torch.testing.assert_close((tensor * 2).cpu(), numbers(8, 8) * 2)
    assert spec(tensor) == "{devices=[1,4,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"
    assert xs.wrap_as_sharded_tensor(tensor).local_shards[0].data.shape == (8, 2)


def test_gradients_are_sharded_like_their_parameters() -> None:
    weight = nn.Parameter((numbers(16, 8) / 100).to("xla"))
    xs.mark_sharding(weight, MESH, ("x", "y"))
    x = on_mesh(numbers(8, 8) / 10, "x", None)
    (x @ weight.t()).pow(2).sum().backward()
    torch_xla.sync()
    assert spec(weight.grad) == TWO_BY_FOUR
    assert xs.wrap_as_sharded_tensor(weight.grad).local_shards[0].data.shape == (8, 2)
    reference = (numbers(16, 8) / 100).requires_grad_()
    (numbers(8, 8) / 10 @ reference.t()).pow(2).sum().backward()
    torch.testing.assert_close(weight.grad.cpu(), reference.grad)


def test_marking_with_gradients() -> None:
    x = numbers(8, 8).to("xla").requires_grad_()
    y = xs.mark_sharding_with_gradients(x * 2, MESH, ("x", "y"))
    y.pow(2).sum().backward()
    assert _XLAC.tensors_stablehlo_text([x.grad]).count(MARK) == 2
    torch.testing.assert_close(x.grad.cpu(), numbers(8, 8) * 8)


def test_random_numbers_are_those_of_one_device() -> None:
    drawn = []
    for marks in ((None, None), ("x", "y")):
        torch_xla.manual_seed(3)
        tensor = on_mesh(torch.zeros(16, 16), *marks)
        drawn.append((nn.functional.dropout(tensor + 1) + torch.rand_like(tensor)).cpu())
    assert torch.equal(*drawn)


def test_a_pure_layer_called_eight_times() -> None:
    @assume_pure
    def layer(x: Tensor, weight: Tensor) -> Tensor:
        hidden = x @ weight
        xs.mark_sharding(hidden, MESH, ("x", "y"))
        return torch.tanh(hidden)

    start = numbers(8, 8) / 64
    matrix = (torch.eye(8) + 0.01).requires_grad_()
    expected = start
    for _ in range(8):
        expected = torch.tanh(expected @ matrix)
    expected.sum().backward()

    weight = nn.Parameter((torch.eye(8) + 0.01).to("xla"))
    xs.mark_sharding(weight, MESH, (None, "y"))
    x = on_mesh(start, "x", None)
    for _ in range(8):
        x = layer(x, weight)
    x.sum().backward()
    assert layer.cache_info().traces <= 2
    text = _XLAC.tensors_stablehlo_text([x])
    assert text.count("func.call @") == 8 and text.count(MARK) == 1
    torch.testing.assert_close(x.detach().cpu(), expected.detach())
    torch.testing.assert_close(weight.grad.cpu(), matrix.grad)


def test_marking_a_closed_over_parameter_in_a_pure_function() -> None:
    weight = nn.Parameter(numbers(8, 8).to("xla"))
    xs.mark_sharding(weight, MESH, ("x", None))

    @assume_pure
    def scale(x: Tensor) -> Tensor:
        xs.mark_sharding(weight, MESH, ("x", None))
        return x * weight

    x = on_mesh(torch.ones(8, 8), "x", None)
    for _ in range(2):
        torch.testing.assert_close(scale(x).detach().cpu(), numbers(8, 8))
    scale(x).sum().backward()
    assert torch.equal(weight.grad.cpu(), torch.ones(8, 8))


def test_a_compiled_step_over_a_mesh() -> None:
    weight = on_mesh(torch.ones(8, 8), "x", "y")

    @torch_xla.compile
    def step(x: Tensor) -> Tensor:
        weight.add_(1)
        return x @ weight

    for i in range(4):
        before = Work.so_far()
        result = step(on_mesh(torch.ones(8, 8), "x", None))
        assert Work.so_far().since(before).executions == 1
        assert torch.equal(result.cpu(), torch.full((8, 8), 8.0 * (i + 2)))


def test_eager_operations_on_sharded_tensors() -> None:
    from torch_xla.experimental import eager_mode

    eager_mode(True)
    try:
        x = on_mesh(numbers(8, 8), "x", "y")
        y = x @ x + 1
        y.relu_()
        torch.testing.assert_close(y.cpu(), (numbers(8, 8) @ numbers(8, 8) + 1).relu())
    finally:
        eager_mode(False)


@pytest.mark.parametrize("eager", [False, True])
def test_torch_compile_of_a_sharded_module(eager: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    sharded = copy.deepcopy(plain).to("xla")
    xs.mark_sharding(sharded[0].weight, MESH, ("y", None))
    xs.mark_sharding(sharded[2].weight, MESH, (None, "y"))
    compiled = torch.compile(sharded, backend="openxla")
    with torch_xla.experimental.eager_mode_context(eager):
        for step in range(3):
            x = torch.randn(4, 8) + step
            plain.zero_grad()
            sharded.zero_grad()
            plain(x).square().mean().backward()
            before = Work.so_far()
            compiled(on_mesh(x, "x", None)).square().mean().backward()
            torch_xla.sync()
            if step == 2 and not eager:
                assert Work.so_far().since(before).compilations == 0
        for expected, parameter in zip(plain.parameters(), sharded.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad.cpu(), expected.grad)
    assert spec(sharded[0].weight).startswith("{devices=[4,1")
    torch.compiler.reset()


def test_manual_regions_see_one_devices_piece() -> None:
    x = numbers(8, 8).to("xla")
    piece = xs.enable_manual_sharding(x, ("x", "y"), mesh=MESH)
    assert piece.shape == (4, 2)
    whole = xs.disable_manual_sharding(piece + 1, ("x", "y"), x.shape, mesh=MESH)
    assert whole.shape == (8, 8)
    torch.testing.assert_close(whole.cpu(), numbers(8, 8) + 1)


def test_host_operators_see_the_whole_tensor() -> None:
    plain = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    x = on_mesh(plain, "x", "y")
    values, indices = x.sort(dim=1)  # has a lowering, which is partitioned
    assert torch.equal(values.cpu(), plain.sort(dim=1).values)
    torch.testing.assert_close(torch.linalg.svdvals(x).cpu(), torch.linalg.svdvals(plain))
    assert torch.equal(x[x > 0].cpu(), plain[plain > 0])
    image = on_mesh(torch.ones(8, 3, 6, 6), ("x", "y"), None, None, None)
    kernel = torch.ones(4, 3, 3, 3)
    result = nn.functional.conv2d(image, kernel.to("xla"))
    torch.testing.assert_close(result.cpu(), nn.functional.conv2d(torch.ones(8, 3, 6, 6), kernel))


def test_copies_and_files_hold_whole_tensors() -> None:
    module = nn.Linear(8, 8).to("xla")
    xs.mark_sharding(module.weight, MESH, ("x", "y"))
    torch_xla.sync()
    twin = copy.deepcopy(module)
    assert torch.equal(twin.weight.cpu(), module.weight.cpu())
    state = {name: tensor.cpu() for name, tensor in module.state_dict().items()}
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    restored = torch.load(file)
    for name, tensor in state.items():
        assert torch.equal(restored[name].cpu(), tensor)
    module.load_state_dict({name: tensor + 1 for name, tensor in state.items()})
    assert spec(module.weight) == TWO_BY_FOUR
    assert torch.equal(module.weight.detach().cpu(), state["weight"] + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: xs.mark_sharding(t, MESH, ("x",)), r"1 entries .* \(8, 6\) on Mesh\(x=2, y=4\)"),
        (lambda t: xs.mark_sharding(t, MESH, ("z", None)), r"'z', which is not an axis of Mesh"),
        (lambda t: xs.mark_sharding(t, MESH, ("x", "x")), "more than once"),
        (lambda t: xs.mark_sharding(t, MESH, (2, None)), "2, which is not an axis"),
        (lambda t: xs.mark_sharding(t.cpu(), MESH, ("x", None)), "only xla tensors"),
        (lambda t: xs.Mesh(range(8), (3, 2)), r"Number of device IDs \(8\) must match mesh size"),
        (lambda t: xs.Mesh([0, 0], (2,)), "Device IDs must be unique"),
        (
            lambda t: xs.Mesh(range(8), (8,), ("a", "b")),
            r"Number of axis names \(2\) must match mesh dim",
        ),
        (lambda t: xs.Mesh(range(8), (2, 4), ("a", "a")), "Axis names must be unique"),
        (lambda t: xs.Mesh(range(9, 17), (8,)), "Device IDs must be less than mesh size"),
        (lambda t: xs.Mesh(range(4), (4,)), "must match the global number of devices"),
        (lambda t: xs.enable_manual_sharding(t, ("x", None)), "no mesh"),
    ],
)
def test_wrong_specs_state_mesh_shape_and_rule(make: object, message: str) -> None:
    with pytest.raises((xs.ShardingError, RuntimeError), match=message):
        make(numbers(8, 6).to("xla"))


def test_conflicting_marks_are_refused() -> None:
    tensor = on_mesh(numbers(8, 6), "x", None)
    xs.mark_sharding(tensor, MESH, ("x", None))
    with pytest.raises(RuntimeError, match=r"\[8, 6\] is marked as .* call clear_sharding first"):
        xs.mark_sharding(tensor, MESH, (None, "y"))


def test_recurrent_layers_are_composed_of_what_can_be_partitioned() -> None:
    module = nn.LSTM(4, 8).to("xla")
    inputs = on_mesh(numbers(2, 2, 4), None, "x", None)
    output = module(inputs)[0]
    assert "rnn_layer" not in _XLAC.tensors_ir_text([output])
    expected = copy.deepcopy(module).cpu()(numbers(2, 2, 4))[0]
    torch.testing.assert_close(output.cpu(), expected)
