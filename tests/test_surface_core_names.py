"""Names of the core that programs and tests written for PyTorch/XLA 2.9 look into."""

import re
import threading
from functools import partial
from pathlib import Path

import pytest
import torch
import torch_xla
import torch_xla.core.xla_builder as xb
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.experimental.assume_pure as ap
import torch_xla.utils.utils as xu
from torch import nn
from torch_xla import _XLAC
from torch_xla._dynamo import config, dynamo_backend2, dynamo_bridge
from torch_xla._internal import jax_workarounds, pjrt
from torch_xla.core.xla_model import ToXlaTensorArena
from torch_xla.distributed.fsdp import checkpoint_module
from torch_xla.experimental import scan as scan_module
from torch_xla.experimental import scan_layers as layers_module
from torch_xla.test import test_utils
from torch_xla.utils import stablehlo_test_utils


def on_device(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    value = torch.arange(torch.Size(sizes).numel()).reshape(sizes).to("xla", dtype)
    torch_xla.sync()
    return value


def test_graphs_are_written_as_before():
    x, y = on_device(2, 3), on_device(3, 4)
    product = (x @ y) * 2.5
    first, *lines, last = _XLAC._get_xla_tensors_text([product, x]).splitlines()
    assert (first, last, len(lines)) == ("IR {", "}", 4)
    assert lines[0] == ("  %0 = f32[2,3]{1,0} xla::device_data(), xla_shape=f32[2,3]{1,0}, ROOT=1")
    here = Path(__file__).name
    assert re.match(rf"  %2 = f32\[2,4\]\{{1,0\}} aten::mm\(%0, %1\), .*@.*{here}:\d+$", lines[2])
    assert "aten::mul(%2)" in lines[3] and "numbers=(2.5)" in lines[3] and "ROOT=0" in lines[3]
    values, indices = torch.ones(4, dtype=torch.bool, device="xla").to(torch.int8).sort()
    text = _XLAC._get_xla_tensors_text([indices])
    assert "(s8[4]{0}, s64[4]{0}) aten::sort" in text


def test_what_is_said_of_a_tensor():
    assert "Not a XLATensor" in _XLAC._get_xla_tensor_debug_info(torch.ones(2))
    x = on_device(5) + 1
    assert _XLAC._check_tensor_need_materialization([x, torch.ones(1)]) == [True, False]
    text = _XLAC._get_xla_tensor_debug_info(x)
    assert "XLA Shape: f32[5]" in text and "aten::add" in text and "XLAData: None" in text
    torch_xla.sync()
    text = _XLAC._get_xla_tensor_debug_info(x)
    assert "IR: None" in text and "Data Shape: f32[5]" in text and "Data Handle: 0x" in text
    assert _XLAC._get_xla_tensor_shape_type(x.to(torch.bfloat16)) == "bf16"
    assert _XLAC._get_xla_tensor_dimension_size(x, 0).item() == 5
    assert not _XLAC._is_placecholder(x)
    assert len(set(_XLAC._get_tensors_handle([x, on_device(1)]))) == 2
    _XLAC._replace_xla_tensor(x, on_device(2))
    assert x.tolist() == [0, 1]
    assert _XLAC._xla_get_all_devices() == ["CPU:0"] and _XLAC._get_git_revs()["xla"]


def test_hashes_tell_graphs_apart():
    x = on_device(3)
    hashes = [_XLAC._get_graph_hash([r]) for r in (x + 2, x + 2, x + 3, x * 2)]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3
    assert _XLAC._get_graph_hash([on_device(4) + 2]) != hashes[0]


def test_counters_that_users_look_for():
    x, y = on_device(7), on_device(7)
    met.clear_all()
    x += 17.5
    z = x * y
    torch_xla.sync()
    assert met.counter_value("MarkStep") == 1
    assert met.metric_data("TensorsGraphSize")[:2] == (1, 2.0)
    assert met.metric_data("InputOutputAliasCount")[:2] == (1, 1.0)
    with torch_xla.step():
        z += 1
    assert met.counter_value("MarkStep") == 3
    assert met.executed_fallback_ops() == []
    float(z[0])
    assert met.executed_fallback_ops() == _XLAC._get_executed_fallback_ops()
    assert met.executed_fallback_ops() == ["aten::_local_scalar_dense"]
    _XLAC._xla_increment_counter("MarkStep", 4)
    assert met.counter_value("MarkStep") == 7


def test_running_can_be_forbidden_everywhere():
    _XLAC._set_allow_execution(False)
    try:
        x = torch.ones(2, device="xla") + 1
        with pytest.raises(RuntimeError, match="Unexpected execution happens inside the compiled"):
            x.tolist()
    finally:
        _XLAC._set_allow_execution(True)
    assert x.tolist() == [2, 2]


def test_products_over_any_dimensions():
    x, y = torch.randn(4, 2, 3), torch.randn(4, 3, 5)
    found = _XLAC._xla_dot_general(x.to("xla"), y.to("xla"), (([-1], [1]), ([0], [0])))
    torch.testing.assert_close(found.cpu(), x @ y)
    w = torch.randint(-99, 99, (5, 3), dtype=torch.int8)
    a = torch.randint(-99, 99, (2, 4, 3), dtype=torch.int8)
    found = _XLAC._xla_dot_general(
        a.to("xla"), w.to("xla"), (([2], [1]), ()), preferred_element_type=torch.int32
    )
    assert torch.equal(found.cpu(), a.int() @ w.int().t())
    with pytest.raises(RuntimeError, match="first argument is on cpu"):
        _XLAC._xla_dot_general(x, y.to("xla"), (([2], [1]), ([0], [0])))


def test_calls_of_computations_and_kernels():
    x = on_device(3)
    shapes = xb.tensor_shape([x, x])
    computation = xb.create_computation("both", lambda a, b: xb.Op.tuple([a + b, a * b]), shapes)
    total, product = _XLAC._xla_user_computation("xla::both", [x, x], computation)
    assert (total.tolist(), product.tolist()) == ([0, 2, 4], [0, 1, 4])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        _XLAC._xla_user_computation("xla::both", [], computation)
    for call in (_XLAC._xla_tpu_custom_call, _XLAC._xla_custom_call):
        with pytest.raises(RuntimeError, match="at least one tensor"):
            call([], "f", [[1]], [torch.int8])
        with pytest.raises(RuntimeError, match="2 shapes of results were given, and 1 dtypes"):
            call([x], "f", [[1], [1]], [torch.int8])


def test_triangular_solve_takes_its_options_in_order():
    a, b = torch.randn(2, 2).triu() + 3 * torch.eye(2), torch.randn(2, 3)

    def solve(a: xb.Op, b: xb.Op) -> xb.Op:
        return a.triangualr_solve(b, True, False, False, False)

    tensors = [a.to("xla"), b.to("xla")]
    computation = xb.create_computation("solve", solve, xb.tensor_shape(tensors))
    (found,) = xb.xla_computation_as_func(computation)(tensors)
    torch.testing.assert_close(a @ found.cpu(), b)
    assert {xb.Op.from_torch_type(xb.Op.to_torch_type(t)) for t in xb._XLA_PT_TYPE_MAP} == set(
        xb._XLA_PT_TYPE_MAP
    )


def test_a_pending_graph_as_a_module():
    x, y = on_device(3), on_device(3)
    context = _XLAC.lowering.LoweringContext("my_graph")
    with pytest.raises(RuntimeError, match="build"):
        context.hlo()
    context.build([x - y, x * 2])
    assert "@my_graph" in context.hlo_text()
    inputs = context.device_parameter_id_tensor_mapping()
    assert {i: t.tolist() for i, t in context.parameter_id_tensor_mapping().items()} == {
        i: t.tolist() for i, t in inputs.items()
    }
    function = xb.xla_computation_as_func(xb.computation_from_module_proto("g", context.hlo()))
    results = function([inputs[i] for i in range(len(inputs))])
    assert [r.tolist() for r in results] == [[0, 0, 0], [0, 2, 4]]
    with pytest.raises(NotImplementedError, match="StableHLO"):
        context.hlo_json()


def test_marks_of_donors_are_remembered_and_harmless():
    x = on_device(3)
    met.clear_all()
    assert _XLAC._set_buffer_donation(x, True) and _XLAC._get_buffer_donation(x)
    assert met.counter_value("XlaSetBufferDonation") == 1
    assert not _XLAC._set_buffer_donation(x + 1, True)
    with dynamo_bridge.alias_with_buffer_donor_config() as before:
        assert not before and _XLAC._xla_get_enable_alias_with_buffer_donor_config()
        y = x + 1
        torch_xla.sync()
    assert not _XLAC._xla_get_enable_alias_with_buffer_donor_config()
    assert (x.tolist(), y.tolist()) == ([0, 1, 2], [1, 2, 3])


def test_caches_of_traces_can_be_looked_at_and_cleared():
    def step(carry, x):
        return carry + x, x

    scan_module._SCAN_COMPUTATION_CACHE.clear()
    scan_module.scan(step, on_device(2), on_device(3, 2), is_fn_pure=True)
    assert len(scan_module._SCAN_COMPUTATION_CACHE[step]) == 1
    layers = [nn.Linear(2, 2).to("xla") for _ in range(2)]
    layers_module._ONE_LAYER_CACHE.clear()
    layers_module.scan_layers(layers, on_device(2))
    assert len(layers_module._ONE_LAYER_CACHE) == 0
    layers_module.scan_layers(layers, on_device(2), is_layer_pure=True)
    assert list(layers_module._ONE_LAYER_CACHE) == [layers[0]]
    pure = ap.assume_pure(torch.sin)
    pure(on_device(2))
    assert pure.cache_info().currsize == 1 and len(ap._XLA_COMPUTATION_CACHE) >= 1
    ap._XLA_COMPUTATION_CACHE.clear()
    assert pure.cache_info().currsize == 0 == len(ap._XLA_COMPUTATION_CACHE)
    xb._JAX_TO_XLA_COMPUTATION_CACHE.clear()
    assert xb._jax_to_xla_computation_cache_elements() == 0


def test_keys_of_nested_data_are_tensors_too():
    keys = [torch.ones(2), torch.zeros(2)]
    data = {keys[0]: (keys[1], {3.0, keys[1]}), "name": keys[0]}
    to_device = partial(map, lambda t: t.to("xla"))
    moved = ToXlaTensorArena(lambda ts: list(to_device(ts)), torch.is_tensor).transform(data)
    (key, (value, values)), named = next(iter(moved.items())), moved["name"]
    assert key is named and key.device.type == value.device.type == "xla"
    assert {getattr(v, "device", v) for v in values} == {3.0, value.device}
    words: list[str] = []
    xu.for_each_instance({"a": ["b", 1]}, lambda v: isinstance(v, str), words.append)
    assert sorted(words) == ["a", "b"]


def test_step_closures_of_a_backward_pass_run():
    class Noted(nn.Module):
        def forward(self, x):
            xm.add_step_closure(seen.append, args=(x.detach(),))
            return torch.nn.functional.dropout(x, 0.5)

    seen: list[torch.Tensor] = []
    module = checkpoint_module(Noted().to("xla"))
    x = on_device(4).requires_grad_()
    module(x).sum().backward()
    torch_xla.sync()
    assert [t.tolist() for t in seen] == [[0, 1, 2, 3]] * 2
    here = threading.current_thread()
    xm.add_step_closure(lambda: seen.append(threading.current_thread()))
    torch_xla.sync()
    assert seen[-1] is here


def test_helpers_of_the_bridge(monkeypatch):
    remover = dynamo_bridge.NoneRemover()
    values = [1, None, 2, None]
    assert remover.remove_nones(values) is values == [1, 2] and remover.none_poslist == [1, 3]
    remover.add_nones(values)
    assert values == [1, None, 2, None] and remover.add_nones((5, 6)) == (5, None, 6, None)
    matcher = dynamo_bridge.GraphInputMatcher({7: 0}, [7, 8], ["x", "weight"], {7})
    assert matcher.graph_input_xla_values == [None, "weight"] and matcher(["y"]) == ["y", "weight"]
    met.clear_all()
    compiled = torch.compile(lambda x: x.sin() + 1, backend=dynamo_backend2.dynamo_backend)
    torch.testing.assert_close(compiled(on_device(2)).cpu(), torch.tensor([0.0, 1.0]).sin() + 1)
    assert met.counter_value("DynamoExtractCompiledGraph") == 1
    monkeypatch.setattr(config, "skip_input_data_check", True)
    with pytest.raises(RuntimeError, match="argument 0 is still to be computed"):
        compiled(on_device(2) + 1)
    module = torch.fx.symbolic_trace(lambda x: x.sin())
    assert dynamo_bridge.UnsupportedNodesCollector(module).get_unsupported_nodes() == []


def test_helpers_of_training_scripts(capsys):
    x = on_device(1)
    test_utils.print_training_update(x.device, 3, x.sum(), 10.0, 20.0, epoch=1)
    test_utils.print_test_update(x.device, 97.5, epoch=1)
    out = capsys.readouterr().out
    assert "Epoch=1 Step=3 Loss=0.00000 Rate=10.00 GlobalRate=20.00" in out
    assert "Accuracy=97.50" in out

    class Writer(list):
        def add_scalar(self, *args):
            self.append(args)

    writer = Writer()
    test_utils.write_to_summary(writer, 5, {"loss": 1.0}, write_xla_metrics=True)
    assert ("loss", 1.0, 5) in writer and len(writer) > 1
    assert test_utils.get_summary_writer(None) is None
    test_utils.close_summary_writer(None)
    assert re.match(r"\d\d:\d\d:\d\d$", test_utils.now())
    assert jax_workarounds.requires_jax(lambda: 3)() == 3
    with jax_workarounds.jax_env_context():
        jax_workarounds.jax_import_guard()
    assert stablehlo_test_utils.wrap_func_as_nn_module(torch.sin)(torch.zeros(1)).item() == 0


def squared_ordinal(base):
    return base + torch_xla.runtime.global_ordinal() ** 2


def test_a_function_in_every_process(monkeypatch):
    assert pjrt.spawn_threads(lambda ordinal, word: word, ("a",)) == {0: "a"}
    monkeypatch.setenv("CPU_NUM_DEVICES", "2")
    assert pjrt.run_multiprocess(squared_ordinal, 10) == {0: 10, 1: 11}


def test_what_is_not_there_is_no_attribute():
    with pytest.raises(AttributeError, match="_no_such_name"):
        _XLAC._no_such_name  # noqa: B018
