"""Names of the core that programs of PyTorch/XLA 2.9 reach for, and what they do here."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
import torch_xla
import torch_xla.core.xla_builder as xb
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla.experimental import xla_quantized_matmul  # noqa: F401  (PyTorch's operators)
from torch_xla.experimental.distributed_checkpoint import CheckpointManager


def test_collectives_with_tokens():
    x = torch.arange(4.0, device="xla")
    token = _XLAC._get_all_reduce_token("xla:0")
    assert _XLAC._xla_all_reduce("sum", x, 0.5, [], True).tolist() == [0, 0.5, 1, 1.5]
    y = x.clone()
    _XLAC._xla_all_reduce_inplace("sum", [y], 2.0, [], True)
    assert y.tolist() == [0, 2, 4, 6]
    assert torch.equal(_XLAC._xla_all_gather(x, 0, 1, [], True).cpu(), x.cpu())
    out = torch.empty_like(x)
    assert _XLAC._xla_all_gather_out(out, x, token, 0, 1, [], True) is token
    *gathered, last = _XLAC._xla_all_gather_coalesced([x, y], token, 0, 1, [], True)
    assert last is token and torch.equal(gathered[1].cpu(), y.cpu())
    part, last = _XLAC._xla_reduce_scatter("sum", x, token, 1.0, 0, 1, [], True)
    assert last is token and torch.equal(part.cpu(), out.cpu())
    _XLAC._xla_reduce_scatter_out("sum", out, y, token, 1.0, 0, 1, [], True)
    *parts, _ = _XLAC._xla_reduce_scatter_coalesced("sum", [x], token, 1.0, 0, 1, [], True)
    assert torch.equal(out.cpu(), y.cpu()) and torch.equal(parts[0].cpu(), x.cpu())
    outs = [torch.empty_like(x)]
    _XLAC._xla_reduce_scatter_coalesced_out("sum", outs, [x], token, 1.0, 0, 1, [], True)
    _XLAC._xla_all_gather_coalesced_out(outs, [y], token, 0, 1, [], True)
    assert torch.equal(outs[0].cpu(), y.cpu())
    assert torch.equal(_XLAC._xla_all_to_all(x, token, 0, 0, 1, [], True)[0].cpu(), x.cpu())
    assert torch.equal(_XLAC._xla_collective_permute(x, token, [[0, 0]])[0].cpu(), x.cpu())
    _XLAC._set_all_reduce_token("xla:0", 7)
    assert _XLAC._get_all_reduce_token("xla:0") == 7
    for call in (_XLAC._xla_send, _XLAC._xla_recv):
        with pytest.raises(RuntimeError, match="this process is alone"):
            call(x, token, 1)
    with pytest.raises(NotImplementedError, match="mark how the result lies"):
        _XLAC._xla_spmd_all_reduce("sum", x, 1.0, [])


def test_devices_and_processes():
    assert _XLAC._xla_get_runtime_devices() == ["CPU:0"] == _XLAC._xla_get_all_runtime_devices()
    counts = ("_xla_num_runtime_devices", "_xla_num_global_devices", "_xla_get_num_processes")
    assert [getattr(_XLAC, name)() for name in counts] == [1, 1, 1]
    assert _XLAC._xla_get_device_ordinal("xla:0") == 0 == _XLAC._xla_get_process_index()
    assert _XLAC._xla_get_device_attributes("xla:0") == xr.runtime_device_attributes("xla:0")
    assert len(_XLAC._xla_get_all_device_attributes()) == 1
    assert _XLAC._xla_get_device_hw_type(torch.ones(1, device="xla")) == "CPU"
    assert _XLAC._xla_device_kind() and _XLAC._xla_get_platform_version()
    assert _XLAC._xla_get_replication_devices_count() == 0
    _XLAC._xla_set_replication_devices(["CPU:0"])
    assert _XLAC._xla_get_replication_devices() == ["CPU:0"]
    _XLAC._xla_set_replication_devices([])
    assert not _XLAC._xla_get_auto_sharding() and _XLAC._xla_get_spmd_config_is_locked()


def test_graphs_and_settings():
    x = torch.arange(3.0, device="xla")
    torch_xla.sync()
    dot = _XLAC._get_xla_tensors_dot([x * 2 + 1])
    assert dot.startswith("digraph G {") and "node0 -> node1" in dot and "aten::add" in dot
    assert b"main" in _XLAC._get_xla_tensors_hlo_proto([x + 1])
    text = _XLAC._get_stablehlo([x + x])  # a number could be one of its inputs
    assert _XLAC._run_stablehlo(text, [x])[0].tolist() == [0, 2, 4]
    assert _XLAC._get_allow_execution()
    _XLAC._set_allow_execution(False)
    assert not _XLAC._get_allow_execution()
    _XLAC._set_allow_execution(True)
    _XLAC._set_current_graph_name("step")
    assert _XLAC._get_current_graph_name() == "step"
    _XLAC._set_ir_debug(True)
    assert _XLAC._get_ir_debug()
    pending = x + 5
    _XLAC._clear_pending_irs("xla:0")
    assert pending.tolist() == [5, 6, 7]
    assert _XLAC._xla_get_cpu_tensors([x])[0].device.type == "cpu"
    assert _XLAC._from_dlpack(_XLAC._to_dlpack(x)).tolist() == [0, 1, 2]
    alias = _XLAC._xla_get_tensor_view_alias_id
    assert alias(x) == alias(x[1:]) and _XLAC._unique_id_for_ir_and_data(x) == str(alias(x))
    _XLAC._xla_optimization_barrier_([x])
    assert _XLAC._xla_create_placeholder_tensor(xb.mkshape("f32", (2, 3))).shape == (2, 3)
    done = threading.Event()
    _XLAC._on_ready_callback(x, done.set)
    assert done.wait(60)
    mark = {"name": "my.op", "pos": 0, "id": "1", "is_input": True, "attr": None}
    assert torch.equal(_XLAC._xla_mark_tensor(x, json.dumps(mark)).cpu(), x.cpu())
    with pytest.raises(NotImplementedError, match="programs have static shapes"):
        _XLAC._xla_mark_dynamic(x, 0)
    assert _XLAC.profiler.TraceMe("region").name == "region"


def test_the_builder_underneath():
    x = torch.arange(3.0, device="xla")
    builder = _XLAC._xla_op_create_builder("double")
    parameter = _XLAC._xla_op_param(builder, 0, _XLAC._xla_op_tensor_shape(x, "xla:0"))
    doubled = _XLAC._xla_op_create(builder, "Add", [parameter, parameter], {})
    assert _XLAC._xla_op_shape(doubled) == {"type": "f32", "sizes": (3,)}
    assert _XLAC._xla_op_builder(doubled) is builder
    computation = _XLAC._xla_op_build("double", doubled)
    assert "stablehlo.add" in _XLAC._xla_computation_text(computation)
    assert _XLAC._xla_user_computation("xla::double", [x], computation)[0].tolist() == [0, 2, 4]
    context = _XLAC.lowering.LoweringContext("first")
    context.set_name_string("second")
    context.build([x + 1])
    again = _XLAC._xla_op_computation_from_module_proto("m", context.hlo())
    assert context.get_name_string() == "second" and "second" in again.text


def test_steps_of_optimizers_and_quantized_numbers():
    zero = torch.zeros((), device="xla")
    param, buffer, gradient, step = (torch.full((2,), v, device="xla") for v in (1.0, 0, 0.5, 0))
    _XLAC._xla_sgd_optimizer_step_(
        zero, step, param, buffer, gradient, 0, 0.9, 0.1, 0, False, False
    )
    assert param.tolist() == pytest.approx([0.95, 0.95])
    moments = [torch.zeros(2, device="xla") for _ in range(3)]
    count = torch.zeros((), device="xla")
    numbers = (0.9, 0.999, 0.1, 0.0, 1e-8)
    _XLAC._xla_adam_optimizer_step_(
        zero, count, param, gradient, *moments, *numbers, False, False, False
    )
    assert param.tolist() == pytest.approx([0.85, 0.85], abs=1e-5) and count.item() == 1
    x = torch.tensor([[0.1, 0.5], [1.0, -1.0]], device="xla")
    scales, zeros = [0.1, 0.5], [0, 1]
    q = _XLAC._xla_quantize_tensor(x, scales, zeros, -128, 127, "torch.int8", 0)
    assert q.dtype == torch.int8 and q.tolist() == [[1, 5], [3, -1]]
    back = _XLAC._xla_dequantize_tensor(q, scales, zeros, -128, 127, "torch.int8", 0)
    torch.testing.assert_close(back.cpu(), x.cpu())
    assert _XLAC._xla_cast_int4(q, [1, 2, 3, -4]).tolist() == [[1, 2], [3, -4]]
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor
    assert quantize(x, 0.5, 0, -128, 127, torch.int8).tolist() == [[0, 1], [2, -2]]


def test_checkpoint_before_the_end(tmp_path):
    state = {"w": torch.ones(2, device="xla")}
    with pytest.raises(RuntimeError, match="Preemption detection not enabled"):
        CheckpointManager(tmp_path / "off", 10, chkpt_on_preemption=False).reached_preemption(1)
    before = signal.getsignal(signal.SIGTERM)
    try:
        manager = CheckpointManager(tmp_path / "on", 10)
        assert not manager.save(1, state)
        os.kill(os.getpid(), signal.SIGTERM)
        assert manager.save(2, state) and manager.reached_preemption(2)
        assert not manager.save(3, state) and manager.all_steps() == [2]
        assert signal.getsignal(signal.SIGTERM) is before  # the second one ends the process
    finally:
        signal.signal(signal.SIGTERM, before)


def test_shards_of_the_core():
    program = """
import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
from torch_xla import _XLAC
xr.use_spmd()
mesh = xs.Mesh(list(range(2)), (2,), ("x",))
t = torch.arange(4.0).to("xla")
xs.mark_sharding(t, mesh, ("x",))
(shards,) = _XLAC._get_local_shards([t])
assert [(s.tolist(), d) for s, d in shards] == [([0, 1], "CPU:0"), ([2, 3], "CPU:1")]
(places,) = _XLAC._get_local_shard_replica_and_indices([t])
assert [r for r, _ in places] == [0, 0] and places[1][1] == [slice(2, 4, 1)]
_XLAC._load_local_shards(t, [torch.full((2,), v) for v in (7.0, 5.0)], ["CPU:1", "CPU:0"])
assert t.tolist() == [5, 5, 7, 7]
"""
    environment = {**os.environ, "CPU_NUM_DEVICES": "2"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
