"""Devices, seeds, ordinals, steps and data movement, as the public modules offer them."""

import copy
import io
import threading
import time

import numpy as np
import pytest
import torch
import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch import nn
from torch_xla.experimental.custom_kernel import flash_attention
from torch_xla.utils import dlpack, serialization, utils

DEVICE = torch.device("xla:0")


def test_devices():
    assert torch_xla.device() == DEVICE
    assert torch_xla.device(0) == DEVICE
    assert torch_xla.devices()[0] == DEVICE
    assert len(torch_xla.devices()) == torch_xla.device_count() == torch.xla.device_count()
    assert torch_xla.real_devices()[0] == f"{xr.device_type()}:0"
    assert xm.xla_device() == xm.xla_device(0) == xr.xla_device() == DEVICE
    assert xm.get_xla_supported_devices()[0] == "xla:0"
    assert xm.xla_real_devices([DEVICE]) == [f"{xr.device_type()}:0"]
    assert xm.xla_device_hw(DEVICE) == xr.device_type()
    assert xm.xla_device_hw("cpu") == "CPU"
    assert xm.parse_xla_device("TPU:3") == ("TPU", 3)


@pytest.mark.parametrize("make", [torch_xla.device, xm.xla_device, xr.xla_device])
def test_wrong_index_is_a_runtime_error(make):
    with pytest.raises(RuntimeError, match="xla:99"):
        make(99)


def test_several_cpu_devices(fresh_python):
    program = """
import torch, torch_xla, torch_xla.core.xla_model as xm
print(torch_xla.device_count(), xm.get_xla_supported_devices(max_devices=2))
with torch.xla.device(2):
    print(torch.ones(1, device="xla").device, torch_xla.device())
print(torch_xla.device(), (torch.ones(2, device="xla:1") + 1).sum().item())
a = torch.arange(3., device="xla:1")
print(a.to("xla:2").device, a.to("xla:2").tolist())
"""
    lines = fresh_python(program, PJRT_DEVICE="CPU", CPU_NUM_DEVICES="3").splitlines()
    assert lines == [
        "3 ['xla:0', 'xla:1']",
        "xla:2 xla:2",
        "xla:0 4.0",
        "xla:2 [0.0, 1.0, 2.0]",
    ]


def test_one_process_is_its_own_world():
    assert xr.world_size() == xr.process_count() == xr.global_device_count() == 1
    assert xr.global_ordinal() == xr.local_ordinal() == xr.process_index() == xr.host_index() == 0
    assert xm.get_ordinal() == xm.get_local_ordinal() == 0 and xm.xrt_world_size() == 1
    assert xr.global_runtime_device_count() == xr.addressable_runtime_device_count()
    assert xm.is_master_ordinal() and xm.is_master_ordinal(local=False)
    assert not xr.is_spmd() and xs.get_global_mesh() is None


def test_device_type_is_fixed_once_started():
    torch.ones(1, device=DEVICE).cpu()
    xr.set_device_type(xr.device_type())
    with pytest.raises(RuntimeError, match="before the first use"):
        xr.set_device_type("TPU")


def draw() -> list[float]:
    return torch.rand(4, device=DEVICE).tolist()


@pytest.mark.parametrize(
    "seed",
    [
        torch.manual_seed,
        torch.random.manual_seed,
        torch_xla.manual_seed,
        xm.set_rng_state,
        torch.xla.manual_seed,
        torch.xla.manual_seed_all,
    ],
)
def test_seeds_repeat(seed):
    seed(5)
    first = draw()
    seed(6)
    assert draw() != first
    seed(5)
    assert draw() == first


@pytest.mark.parametrize("seed", [-1, 2**64 - 1, 2**63, -(2**63)])
def test_seeds_of_all_sizes(seed):
    torch.manual_seed(seed)
    first = draw()
    torch.manual_seed(seed)
    assert draw() == first


def test_state_continues_the_sequence():
    draw()
    state = xm.get_rng_state()
    assert -(2**63) <= state < 2**63
    expected = draw()
    xm.set_rng_state(state, str(DEVICE))
    assert draw() == expected


def test_fork_rng_restores_the_device():
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="xla"):
        inside = draw()
    assert draw() == inside


def test_seeds_before_the_client_starts(fresh_python):
    program = """
import torch, torch_xla
torch.manual_seed(11)
print(torch.rand(3, device="xla").tolist())
"""
    assert fresh_python(program) == fresh_python(program)


def test_generator_follows_its_seed():
    first = torch.Generator(device="xla").manual_seed(3)
    second = torch.Generator(device="xla").manual_seed(3)
    draws = [torch.rand(3, device=DEVICE, generator=g).tolist() for g in (first, second)]
    assert draws[0] == draws[1]
    assert torch.xla.default_generators[0].device == DEVICE


def test_device_module_is_what_pytorch_expects():
    assert torch.xla.is_available() and torch.ones((), device=DEVICE).item() == 1
    assert torch.xla._initialized
    assert torch.xla.current_device() == 0
    torch.xla.synchronize()
    states = torch.xla.get_rng_state_all()
    assert states[0].dtype == torch.uint8
    torch.xla.set_rng_state_all(states)
    with pytest.raises(ValueError, match="get_rng_state"):
        torch.xla.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_the_device_that_is_asked_for_becomes_the_current_one(fresh_python):
    program = """
import torch, torch_xla, torch_xla.core.xla_model as xm
print(xm.xla_device(), xm.xla_device(1), xm.xla_device(), torch.ones(1, device="xla").device)
"""
    assert fresh_python(program, CPU_NUM_DEVICES="2").split() == ["xla:0"] + ["xla:1"] * 3


def test_sync_runs_what_is_pending(counters):
    tensor = torch.ones(3, device=DEVICE) * 2 + 1
    assert counters("ExecuteTime") == 0
    torch_xla.sync()
    assert counters("ExecuteTime") == 1
    torch_xla.sync()
    xm.mark_step()
    assert counters("ExecuteTime") == 1
    assert tensor.tolist() == [3, 3, 3]


def test_step_separates(counters):
    before = torch.ones(3, device=DEVICE) * 2

    @torch_xla.step()
    def double():
        return before * 2

    doubled = double()
    assert counters("ExecuteTime") == 2
    assert doubled.tolist() == [4, 4, 4]


def test_step_after_an_exception():
    with pytest.raises(KeyError), torch_xla.step():
        torch.ones(2, device=DEVICE).add_(1)
        raise KeyError
    assert (torch.ones(2, device=DEVICE) + 1).tolist() == [2, 2]


def test_closures_run_after_the_step():
    seen = []
    value = torch.full((2,), 3.0, device=DEVICE)
    xm.add_step_closure(lambda t, word: seen.append((t.sum().item(), word)), args=(value, "a"))
    assert not seen
    xm.mark_step()
    assert seen == [(6.0, "a")]
    xm.mark_step()
    assert len(seen) == 1


def test_asynchronous_closures_keep_order_and_raise_later():
    seen, done = [], threading.Event()
    main = threading.get_ident()
    for number in range(3):
        xm.add_step_closure(
            lambda n: seen.append((n, threading.get_ident() == main)), (number,), run_async=True
        )
    xm.add_step_closure(done.set, run_async=True)
    xm.mark_step()
    assert done.wait(10)
    assert seen == [(0, False), (1, False), (2, False)]
    xm.add_step_closure(lambda: 1 / 0, run_async=True)
    xm.mark_step()
    with pytest.raises(ZeroDivisionError):
        for _ in range(1000):
            time.sleep(0.01)
            xm.mark_step()


def model_and_optimizer():
    model = nn.Linear(3, 2).to(DEVICE)
    return model, torch.optim.SGD(model.parameters(), lr=0.5)


def test_optimizer_step_returns_the_result_and_ends_the_step(counters):
    model, optimizer = model_and_optimizer()
    torch_xla.sync()
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    before = model.bias.detach().clone()
    assert len(xm._fetch_gradients(optimizer)) == 2
    xm.reduce_gradients(optimizer)
    executed = counters("ExecuteTime")
    result = xm.optimizer_step(optimizer, barrier=True, optimizer_args={"closure": lambda: 7})
    assert result == 7
    assert counters("ExecuteTime") == executed + 1
    torch.testing.assert_close((before - model.bias).detach().cpu(), torch.full((2,), 0.5))


def test_collectives_of_one_member():
    one, two = torch.ones(2, device=DEVICE), torch.full((2,), 2.0, device=DEVICE)
    tensors = [one, two]
    assert xm.all_reduce(xm.REDUCE_SUM, tensors, scale=0.5) is tensors
    assert (one.tolist(), two.tolist()) == ([0.5, 0.5], [1, 1])
    assert xm.all_reduce("max", two, groups=[[0]]).tolist() == [1, 1]
    assert xm.all_gather(two).tolist() == [1, 1]
    assert xm.reduce_scatter("sum", two, 3.0, 0, 1).tolist() == [3, 3]
    assert xm.collective_permute(two, [[0, 0]]).tolist() == [1, 1]
    assert xm.all_to_all(two, 0, 0, 1).tolist() == [1, 1]
    assert xm.rendezvous("tag", b"payload") == [b"payload"]
    assert xm.mesh_reduce("tag", {"a": two}, lambda d: d[0]["a"]).device.type == "cpu"
    xm.collective_broadcast([one], root_ordinal=0)
    with pytest.raises(ValueError, match="average"):
        xm.all_reduce("average", two)
    with pytest.raises(ValueError, match="groups"):
        xm.all_gather(two, groups=[[0, 1]])


def test_collectives_are_differentiable():
    value = torch.ones(2, device=DEVICE, requires_grad=True)
    (xf.all_reduce("sum", value, scale=3.0) + xf.all_gather(value)).sum().backward()
    assert value.grad.tolist() == [4, 4]


def test_data_to_the_host_keeps_structure_and_ties():
    base = torch.arange(6.0, device=DEVICE)
    data = {
        "a": [base[2:4], base],
        "b": (torch.ones(1, device=DEVICE, requires_grad=True), "text"),
        "c": {1, 2},
        "same": base,
    }
    host = xm._maybe_convert_to_cpu(data)
    assert host["a"][0].device.type == "cpu" and host["a"][0].tolist() == [2, 3]
    assert host["a"][1] is host["same"]
    host["same"][2] = 9
    assert host["a"][0].tolist() == [9, 3]
    assert host["b"][0].requires_grad and host["b"][1] == "text" and host["c"] == {1, 2}
    assert data["a"][0].device == DEVICE
    assert xm._maybe_convert_to_cpu(data, convert=False) is data


def test_host_data_comes_from_one_run(counters):
    tensors = [torch.ones(2, device=DEVICE) * n for n in range(2, 6)]
    xm._maybe_convert_to_cpu(tensors)
    assert counters("ExecuteTime") == 1


def test_save_and_load(tmp_path):
    model, _ = model_and_optimizer()
    path = tmp_path / "model.pt"
    xm.save(model.state_dict(), path)
    state = torch.load(path, weights_only=True)
    assert state["weight"].device.type == "cpu"
    torch.testing.assert_close(state["weight"], model.weight.detach().cpu())


@pytest.mark.parametrize("map_location", ["xla", "xla:0", "cpu", torch.device("xla"), None])
@pytest.mark.parametrize("source", ["cpu", "xla"])
def test_load_with_map_location(source, map_location):
    base = torch.arange(6.0).to(source)
    file = io.BytesIO()
    torch.save({"whole": base, "half": base[:3].to(torch.bfloat16)}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location, weights_only=True)
    expected = torch.device(source if map_location is None else map_location).type
    assert loaded["whole"].device.type == loaded["half"].device.type == expected
    assert loaded["whole"].tolist() == [0, 1, 2, 3, 4, 5]
    assert loaded["half"].dtype == torch.bfloat16 and loaded["half"].tolist() == [0, 1, 2]
    assert (loaded["whole"] * 2).tolist() == [0, 2, 4, 6, 8, 10]


def test_loaded_storages_are_shared():
    base = torch.arange(6.0)
    file = io.BytesIO()
    torch.save([base, base[2:]], file)
    file.seek(0)
    whole, part = torch.load(file, map_location="xla")
    whole[2] = 7
    assert part.tolist() == [7, 3, 4, 5]


def test_serialization_with_a_file_a_tensor(tmp_path):
    path = str(tmp_path / "data")
    serialization.save({"x": [torch.arange(3, device=DEVICE)], "n": 4}, path)
    assert len(list((tmp_path / "data.tensors").iterdir())) == 1
    loaded = serialization.load(path)
    assert loaded["n"] == 4 and loaded["x"][0].tolist() == [0, 1, 2]


def test_send_cpu_data_to_device():
    sent = xm.send_cpu_data_to_device({"x": torch.ones(2), "y": "text"}, DEVICE)
    assert sent["x"].device == DEVICE and sent["y"] == "text"
    assert xm.send_cpu_data_to_device(torch.ones(2), DEVICE)[0].device == DEVICE


def test_rewrite_copies_only_what_changes():
    class Holder:
        def __init__(self, value):
            self.value = value

    kept, changed = Holder(1), Holder(2.5)
    cycle = [kept]
    cycle.append(cycle)
    data = {"k": kept, "c": changed, "cycle": cycle}
    result = utils.for_each_instance_rewrite(data, lambda v: isinstance(v, float), lambda v: "f")
    assert result["k"] is kept and result["c"].value == "f" and changed.value == 2.5
    assert result["cycle"] is cycle


def test_memory_info_counts_live_tensors():
    before = xm.get_memory_info(DEVICE)
    assert {"kb_free", "kb_total", "bytes_used", "bytes_limit"} <= before.keys()
    tensor = torch.ones(1 << 20, device=DEVICE)
    torch_xla.sync(wait=True)
    assert xm.get_memory_info(DEVICE)["bytes_used"] - before["bytes_used"] >= 4 << 20
    del tensor


def test_master_print(capsys):
    xm.master_print("hello", 3)
    assert capsys.readouterr().out == "hello 3\n"


def test_tensor_ids_are_stable_and_distinct():
    from torch_xla import _XLAC

    one, two = torch.ones(2, device=DEVICE), torch.ones(2, device=DEVICE)
    identity = _XLAC._xla_get_tensor_id(one)
    one.add_(1)
    torch_xla.sync()
    assert _XLAC._xla_get_tensor_id(one) == identity != _XLAC._xla_get_tensor_id(two)
    assert _XLAC._xla_get_tensor_id(one.detach()) == identity  # as transformers expects of ties
    assert _XLAC._xla_get_default_device() == "xla:0"


def test_texts_of_pending_graphs():
    from torch_xla import _XLAC

    tensor = torch.ones(3, device=DEVICE).cos()
    assert "cos" in _XLAC._get_xla_tensors_text([tensor])
    assert "stablehlo.cosine" in xm.get_stablehlo([tensor])
    assert "HloModule" in _XLAC._get_xla_tensors_hlo([tensor])


def test_spawn_runs_in_this_process():
    seen = []
    xmp.spawn(lambda index, value: seen.append((index, value)), args=(5,), start_method="fork")
    torch_xla.launch(lambda index: seen.append(index))
    assert seen == [(0, 5), 0]
    with pytest.raises(ValueError, match="nprocs"):
        xmp.spawn(print, nprocs=0)
    model = nn.Linear(2, 2)
    assert xmp.MpModelWrapper(model).to(DEVICE).weight.device == DEVICE
    assert xmp.MpSerialExecutor().run(lambda: 3) == 3


# Loaders


@pytest.mark.parametrize("device", [DEVICE, None])
def test_loader_uploads_and_ends_the_step_at_each_batch(counters, device):
    data = torch.utils.data.DataLoader(torch.arange(12.0), batch_size=4)
    total = torch.zeros((), device=DEVICE)
    torch_xla.sync()
    executed = counters("ExecuteTime")
    loader = pl.MpDeviceLoader(data, device)
    for batch in loader:
        assert batch.device == DEVICE
        total += batch.sum()
    assert len(loader) == 3
    assert counters("ExecuteTime") == executed + 3
    assert total.item() == 66


def test_loader_forwards_what_it_lacks():
    data = torch.utils.data.DataLoader(torch.arange(4.0), batch_size=2)
    loader = pl.MpDeviceLoader(data, DEVICE, batches_per_execution=2)
    assert loader.dataset is data.dataset and loader._loader is data
    assert loader._parallel_loader_kwargs == {"batches_per_execution": 2}
    assert copy.copy(loader)._loader is data
    with pytest.raises(AttributeError, match="nonsense"):
        _ = loader.nonsense


def test_loader_runs_several_times():
    loader = pl.MpDeviceLoader([torch.ones(1), torch.ones(1)], DEVICE)
    assert [len(list(loader)) for _ in range(3)] == [2, 2, 2]


def test_loader_raises_what_its_source_raises():
    def broken():
        yield torch.ones(1)
        raise KeyError("broken source")

    batches = iter(pl.MpDeviceLoader(broken(), DEVICE))
    assert next(batches).item() == 1
    with pytest.raises(KeyError, match="broken source"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def test_early_exit_ends_the_loading_thread():
    def endless():
        while True:
            yield torch.ones(1)

    for _ in pl.MpDeviceLoader(endless(), DEVICE, device_prefetch_size=2):
        break
    deadline = time.monotonic() + 10
    while any(t.name == "torch_xla-loader" for t in threading.enumerate()):
        assert time.monotonic() < deadline, "the loading thread still runs"
        time.sleep(0.01)


def test_parallel_loader_deals_in_turn():
    loader = pl.ParallelLoader([{"x": torch.tensor(n)} for n in range(4)], [DEVICE])
    assert loader.per_device_samples() == 4
    assert [batch["x"].item() for batch in loader.per_device_loader(DEVICE)] == [0, 1, 2, 3]


def test_a_loader_that_tells_the_last_batch_is_not_read_ahead():
    class Source:
        end_of_dataloader = False

        def __iter__(self):
            for n in range(3):
                self.end_of_dataloader = n == 2
                yield torch.tensor(n)

    source = Source()
    flags = [source.end_of_dataloader for _ in pl.MpDeviceLoader(source, DEVICE)]
    assert flags == [False, False, True]


# Interchange and attention


def test_dlpack_through_the_host():
    tensor = torch.arange(4.0, device=DEVICE)
    assert torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(tensor)).tolist() == [0, 1, 2, 3]
    assert dlpack.from_dlpack(torch.arange(3)).device == DEVICE
    with pytest.raises(ValueError, match="xla tensor"):
        dlpack.to_dlpack(torch.ones(1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_flash_attention(causal, segments):
    q, k, v = torch.randn(3, 2, 2, 6, 4).unbind()
    ids = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 2, 2]]) if segments else None
    scores = q @ k.transpose(-1, -2) * 0.5
    if segments:
        same = ids[:, None, :, None] == ids[:, None, None, :]
        scores = scores.masked_fill(~same, float("-inf"))
    if causal:
        scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    expected = scores.softmax(-1) @ v
    on_device = [t.to(DEVICE) for t in (q, k, v)]
    device_ids = ids.to(DEVICE) if segments else None
    result = flash_attention(*on_device, causal, device_ids, device_ids, sm_scale=0.5)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_dlpack_shares_what_stays_on_the_device() -> None:
    tensor = torch.arange(6.0, device="xla")
    shared = torch.from_dlpack(tensor[2:])
    shared.add_(1)
    assert tensor.tolist() == [0, 1, 3, 4, 5, 6]
    assert torch.utils.dlpack.from_dlpack(tensor, copy=True).add_(1).device == tensor.device
    assert tensor[0] == 0
    with pytest.raises(BufferError, match="detach"):
        torch.from_dlpack(tensor.clone().requires_grad_())


def test_dlpack_to_others_says_to_copy() -> None:
    with pytest.raises(BufferError, match=r"export tensor\.cpu\(\)"):
        np.from_dlpack(torch.arange(6.0, device="xla"))


@pytest.mark.parametrize("kind", ["torch_xla", "reentrant", "plain"])
def test_a_checkpointed_module_with_a_step_closure(kind: str) -> None:
    from torch.utils.checkpoint import checkpoint
    from torch_xla.utils import checkpoint as xla_checkpoint

    seen: list[float] = []

    class Layer(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(super().forward(x))
            xm.add_step_closure(lambda total: seen.append(total.item()), args=(y.sum(),))
            return y

    torch.manual_seed(0)
    layer = Layer(3, 3)
    x = torch.randn(2, 3)
    (layer(x).sum() * 2).backward()
    expected = [p.grad.clone() for p in layer.parameters()]
    torch_xla.sync()
    total = seen.pop()
    layer.zero_grad()
    layer.to("xla")
    given = x.to("xla").requires_grad_()
    if kind == "torch_xla":
        y = xla_checkpoint.checkpoint(layer, given)
    else:
        y = checkpoint(layer, given, use_reentrant=kind == "reentrant")
    (y.sum() * 2).backward()
    assert not seen  # closures wait for the end of the step
    torch_xla.sync()
    assert seen and seen == pytest.approx([total] * len(seen), rel=1e-5)
    for parameter, gradient in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient)


def test_a_device_is_named_as_pytorch_names_it() -> None:
    assert torch_xla.device("xla") == torch_xla.device(torch.device("xla:0")) == torch_xla.device(0)
    with pytest.raises(ValueError, match="expected an xla device, got 'cuda:0': write 'xla'"):
        torch_xla.device("cuda:0")
    with pytest.raises(IndexError, match="there is no device xla:7"):
        torch_xla.device("xla:7")
