"""Export as StableHLO, and running what was exported."""

import json
import sys

import numpy as np
import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from torch_xla import stablehlo
from torch_xla.stablehlo import StableHLOExportOptions, StableHLOGraphModule


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 5)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))

    def forward(self, x, options):
        y = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        y = torch.nn.functional.gelu(self.linear(y)) * self.scale
        return {"logits": y, "shifted": y.T + options["shift"], "same": x}


def example():
    torch.manual_seed(0)
    return Model().eval(), (torch.randn(2, 3, 8, 8), {"shift": torch.tensor(1.5)})


def exported():
    model, args = example()
    return torch.export.export(model, args)


def check(module, other_args=None):
    model, args = example()
    for given in (args, (torch.randn(2, 3, 8, 8), {"shift": torch.tensor(-1.0)})):
        results, expected = module(*given), model(*given)
        assert list(results) == list(expected)
        for name, value in expected.items():
            torch.testing.assert_close(results[name].cpu(), value.detach(), atol=1e-5, rtol=1e-4)


def test_a_program_is_exported_and_run():
    module = stablehlo.exported_program_to_stablehlo(exported())
    check(module)
    text = module.get_stablehlo_text()
    assert "func.func public @main" in text and "custom_call" not in text
    meta = module._bundle.stablehlo_funcs[0].meta
    kinds = [location.type_ for location in meta.input_locations]
    assert kinds.count(stablehlo.VariableType.INPUT_ARG) == 2
    names = {location.name for location in meta.input_locations} - {""}
    assert {"convolution.weight", "norm.running_mean", "scale"} <= names
    assert meta.output_signature[0] == stablehlo.VariableSignature([2, 5], "float32")
    first = module.evaluate("forward", example()[1])
    assert first["logits"].device.type == "xla"
    with pytest.raises(KeyError, match="no other"):
        module.evaluate("other", ())


def test_a_folder(tmp_path):
    torch_xla.save_as_stablehlo(exported(), tmp_path)
    weight = np.load(tmp_path / "data" / "linear.weight")
    assert weight.shape == (5, 4)
    meta = json.loads((tmp_path / "functions" / "forward.meta").read_text())
    assert meta["name"] == "forward"
    assert (tmp_path / "functions" / "forward.mlir").read_text().startswith("module")
    check(StableHLOGraphModule.load(tmp_path))
    without = tmp_path / "without"
    options = StableHLOExportOptions(save_weights=False)
    torch_xla.save_torch_model_as_stablehlo(*example(), without, options)
    assert not (without / "data").exists()
    with pytest.raises(KeyError, match="without its weights"):
        StableHLOGraphModule.load(without)(*example()[1])
    with pytest.raises(FileNotFoundError, match="not a folder that save_as_stablehlo wrote"):
        StableHLOGraphModule.load(tmp_path / "functions")


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_weights_as_safetensors(tmp_path, dtype):
    from safetensors.torch import load_file

    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(dtype)
    model[1].weight = model[0].weight
    x = torch.randn(4, 3, dtype=dtype)
    options = StableHLOExportOptions(weights_format="safetensors")
    torch_xla.save_torch_model_as_stablehlo(model, (x,), tmp_path, options)
    assert not (tmp_path / "data").exists()
    kept = load_file(tmp_path / "weights.safetensors")
    assert torch.equal(kept["0.bias"], model[0].bias)
    result = StableHLOGraphModule.load(tmp_path)(x)
    torch.testing.assert_close(result.cpu(), model(x).detach(), atol=2e-2, rtol=2e-2)
    with pytest.raises(ValueError, match="expected one of"):
        StableHLOExportOptions(weights_format="pickle")


def test_bytecode(tmp_path):
    pytest.importorskip("jaxlib")
    options = StableHLOExportOptions(include_human_readable_text=False)
    module = stablehlo.exported_program_to_stablehlo(exported(), options)
    bytecode = module.get_stablehlo_bytecode()
    assert bytecode[:4] == b"ML\xefR"
    module.save(tmp_path)
    assert not (tmp_path / "functions" / "forward.mlir").exists()
    check(StableHLOGraphModule.load(tmp_path))
    x = torch.ones(3, device="xla") * 2
    assert xm.get_stablehlo_bytecode([x])[:4] == b"ML\xefR"


def test_bytecode_without_a_converter(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    module = stablehlo.exported_program_to_stablehlo(exported())
    assert module._bundle.stablehlo_funcs[0].bytecode is None
    check(module)
    for call in (module.get_stablehlo_bytecode, lambda: xm.get_stablehlo_bytecode([])):
        with pytest.raises(RuntimeError, match="package jaxlib, which is not installed"):
            call()


def test_dtypes_that_numpy_lacks(tmp_path):
    model = nn.Linear(3, 2).to(torch.bfloat16)
    x = torch.randn(4, 3, dtype=torch.bfloat16)
    torch_xla.save_torch_model_as_stablehlo(model, (x,), tmp_path)
    result = StableHLOGraphModule.load(tmp_path)(x)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.cpu(), model(x).detach(), atol=2e-2, rtol=2e-2)


def test_keywords_and_numbers():
    class Scaled(nn.Module):
        def forward(self, x, factor, *, shift):
            return x * factor + shift

    args, kwargs = (torch.ones(3), 2.0), {"shift": torch.ones(3)}
    program = torch.export.export(Scaled(), args, kwargs)
    module = stablehlo.exported_program_to_stablehlo(program)
    assert module(torch.full((3,), 2.0), 2.0, shift=torch.ones(3)).tolist() == [5.0] * 3
    options = StableHLOExportOptions(
        override_tracing_arguments=args, override_tracing_kwargs=kwargs
    )
    again = stablehlo.exported_program_to_stablehlo(program, options)
    assert again(*args, **kwargs).tolist() == [3.0] * 3


@torch.library.custom_op("surface_tests::twice", mutates_args=(), device_types="cpu")
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Twice(nn.Module):
    def forward(self, x):
        return twice(x) + 1


def test_operators_of_this_process_are_refused_or_custom_calls():
    program = torch.export.export(Twice(), (torch.ones(3),))
    with pytest.raises(RuntimeError, match="surface_tests::twice can only run in this process"):
        stablehlo.exported_program_to_stablehlo(program)
    options = StableHLOExportOptions(custom_ops_allowed_in_graph={"surface_tests"})
    module = stablehlo.exported_program_to_stablehlo(program, options)
    text = module.get_stablehlo_text()
    assert "stablehlo.custom_call" in text and "surface_tests.twice.default" in text


def test_operators_without_lowering_are_decomposed():
    class Sampled(nn.Module):
        def forward(self, x, grid):
            return nn.functional.grid_sample(x, grid, align_corners=False)

    torch.manual_seed(0)
    args = (torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1)
    module = stablehlo.exported_program_to_stablehlo(torch.export.export(Sampled(), args))
    assert "custom_call" not in module.get_stablehlo_text()
    torch.testing.assert_close(module(*args).cpu(), Sampled()(*args), atol=1e-5, rtol=1e-4)


def test_json_of_the_parts():
    location = stablehlo.InputLocation.parameter("weight")
    text = json.dumps(location, cls=stablehlo.StableHLOJSONSerializer)
    assert json.loads(text, object_hook=stablehlo.stablehlo_obj_hook) == location


def test_text_of_what_is_pending():
    torch_xla.sync()
    x = torch.ones(3, device="xla").cos()
    assert "stablehlo.cosine" in xm.get_stablehlo([x])
    assert "stablehlo.cosine" in xm.get_stablehlo()
    torch_xla.sync()
    assert "stablehlo.cosine" not in xm.get_stablehlo()


def test_exporting_leaves_nothing_pending_and_runs_nothing(counters):
    program = exported()
    before = counters("ExecuteTime")
    stablehlo.exported_program_to_stablehlo(program)
    assert counters("ExecuteTime") == before


def test_the_command_line(tmp_path, capsys):
    from torch_xla.__main__ import main

    program = exported()
    torch.export.save(program, tmp_path / "model.pt2")
    assert main(["export", str(tmp_path / "model.pt2"), str(tmp_path / "folder")]) == 0
    model, (x, options) = example()
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "shift.npy", options["shift"].numpy())
    inputs = [str(tmp_path / "x.npy"), str(tmp_path / "shift.npy")]
    assert main(["run", str(tmp_path / "folder"), *inputs, "--output", str(tmp_path / "out")]) == 0
    assert "output 0: float32[2, 5]" in capsys.readouterr().out
    result = np.load(tmp_path / "out" / "0.npy")
    np.testing.assert_allclose(result, model(x, options)["logits"].detach(), atol=1e-5)
    export = ["export", str(tmp_path / "model.pt2"), str(tmp_path / "safe")]
    assert main([*export, "--weights", "safetensors"]) == 0
    assert main(["run", str(tmp_path / "safe"), *inputs]) == 0
    assert (tmp_path / "safe" / "weights.safetensors").exists()
    assert main(["run", str(tmp_path / "folder"), inputs[0]]) == 1
    assert "takes 2 inputs" in capsys.readouterr().err


def test_tensorflow_is_missing(monkeypatch):
    from torch_xla import tf_saved_model_integration as tf

    monkeypatch.setitem(sys.modules, "tensorflow", None)
    module = stablehlo.exported_program_to_stablehlo(exported())
    for call in (
        lambda: tf.make_tf_function(module),
        lambda: tf.save_stablehlo_graph_as_tf(module, "unused"),
        lambda: tf.save_torch_module_as_tf_saved_model(*example(), "unused"),
    ):
        with pytest.raises(RuntimeError, match="TensorFlow, which is not installed"):
            call()


def test_a_bundle_of_ones_own():
    from torch_xla.experimental.stablehlo_custom_call import (
        extract_custom_call_outputs_shape_dtype,
    )

    text = (
        "module {func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {return %a : tensor<2xf32>}}"
    )
    signature = stablehlo.VariableSignature([2], "float32")
    meta = stablehlo.StableHLOFunctionMeta(
        "same", "1.0.0", [signature], [signature], [stablehlo.InputLocation.input_arg(0)], []
    )
    function = stablehlo.StableHLOFunc(meta, None, text)
    module = StableHLOGraphModule(stablehlo.StableHLOModelBundle({}, [], [function]))
    assert module(torch.ones(2))[0].tolist() == [1, 1]
    with pytest.raises(TypeError, match="argument number 0"):
        module()
    graph = torch.export.export(Twice(), (torch.ones(3),)).graph_module
    node = next(n for n in graph.graph.nodes if "twice" in str(n.target))
    assert extract_custom_call_outputs_shape_dtype(node) == ([(3,)], [torch.float32])
    device = torch.device("xla")
    (result,) = stablehlo.XLAExportInterpreter(graph, device).run(torch.ones(3, device="xla"))
    assert result.tolist() == [3, 3, 3]
