"""Marked parts of a model as composites of StableHLO."""

import json

import pytest
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch import nn
from torch_xla import _XLAC, stablehlo
from torch_xla.experimental import xla_marker
from torch_xla.experimental.mark_pattern_utils import StableHLOCompositeBuilder


def text_of(*tensors: torch.Tensor) -> str:
    return _XLAC.export_graph([t.clone() for t in tensors], [], "text")[0]


def test_a_part_becomes_a_composite():
    attributes = {"approximate": "none", "scale": 0.5, "count": 3, "flag": True}
    builder = StableHLOCompositeBuilder("my.gelu", attributes)
    x = torch.linspace(-1, 1, 4).to("xla")
    y = builder.mark_outputs(F.gelu(builder.mark_inputs(x)) * 2) + 1
    text = text_of(y)
    main, _, function = text.partition("func.func public")[::-1]
    assert 'stablehlo.composite "my.gelu" %arg0' in main
    assert 'approximate = "none"' in main and "count = 3 : i64" in main and "flag = true" in main
    assert "scale = 5.000000e-01 : f32" in main and "decomposition = @my.gelu.impl}" in main
    assert "chlo.erf" in function and "chlo.erf" not in main
    torch.testing.assert_close(y.cpu(), F.gelu(torch.linspace(-1, 1, 4)) * 2 + 1)


def test_several_inputs_outputs_and_weights():
    weight = torch.randn(3, 3).to("xla")
    builder = StableHLOCompositeBuilder("test.pair")
    a, b = torch.randn(2, 3).to("xla"), torch.randn(2, 3).to("xla")
    x, y = builder.mark_inputs(a, b)
    z, w = builder.mark_outputs((x @ weight + y).T, x - y)
    result = z.T * w
    text = text_of(result)
    assert text.count("stablehlo.composite") == 1
    expected = (a.cpu() @ weight.cpu() + b.cpu()) * (a.cpu() - b.cpu())
    torch.testing.assert_close(result.cpu(), expected)


def test_caches_changed_in_place():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", torch.zeros(1, 8, 2), persistent=False)
            self.register_buffer("v", torch.zeros(1, 8, 2), persistent=False)

        def forward(self, place, key, value):
            builder = StableHLOCompositeBuilder("test.update")
            k, v, place, key, value = builder.mark_inputs(self.k, self.v, place, key, value)
            k, v = k.index_copy_(1, place, key), v.index_copy_(1, place, value)
            return builder.mark_outputs(k, v)

    given = (torch.arange(3), torch.ones(1, 3, 2), torch.full((1, 3, 2), 2.0))
    module = stablehlo.exported_program_to_stablehlo(torch.export.export(Cache(), given))
    assert module.get_stablehlo_text().count('stablehlo.composite "test.update"') == 1
    for result, value in zip(module(*given), (1, 2), strict=True):
        assert result[0, :, 0].tolist() == [value] * 3 + [0] * 5


def test_what_is_used_outside_too():
    builder = StableHLOCompositeBuilder("test.shared")
    x = builder.mark_inputs(torch.ones(3, device="xla"))
    inner = x * 3
    outer = builder.mark_outputs(inner + 1)
    assert (outer + inner).tolist() == [7, 7, 7]


def test_gradients_go_through_marks():
    builder = StableHLOCompositeBuilder("test.square")
    x = torch.arange(3.0, device="xla", requires_grad=True)
    builder.mark_outputs(builder.mark_inputs(x) ** 2).sum().backward()
    assert x.grad.tolist() == [0, 2, 4]


def test_composites_in_an_export():
    class Model(nn.Module):
        def forward(self, x):
            builder = StableHLOCompositeBuilder("test.softmax", {"dim": -1})
            return builder.mark_outputs(torch.softmax(builder.mark_inputs(x), -1)) * 2

    x = torch.randn(2, 5)
    program = torch.export.export(Model(), (x,))
    module = stablehlo.exported_program_to_stablehlo(program)
    assert 'stablehlo.composite "test.softmax"' in module.get_stablehlo_text()
    torch.testing.assert_close(module(x).cpu(), torch.softmax(x, -1) * 2)
    pending = torch.softmax(x.to("xla"), -1)
    assert "composite" not in xm.get_stablehlo([pending])


def test_marks_by_hand():
    attributes = {"a": 1, "b": "text"}
    flat = xla_marker.serialize_composite_attr(attributes)
    assert flat == ("a", 1, "b", "text")
    assert xla_marker.deserialize_composite_attr(flat) == attributes
    assert xla_marker.serialize_composite_attr(None) is None
    assert xla_marker.deserialize_composite_attr(None) is None
    x = torch.ones(2, device="xla")
    x = xla_marker.mark_tensor(x, "test.part", 0, "id", True)
    y = xla_marker.mark_tensor_xla(x + 1, "test.part", 0, "id", False, flat)
    assert 'composite "test.part"' in text_of(y) and 'b = "text"' in text_of(y)
    assert xla_marker.mark_tensor_meta(x, "test.part", 0, "id", True).shape == (2,)
    mark = xla_marker.BoundaryMetadata("test.part", "id", 1, False, attributes)
    written = json.dumps(mark, cls=xla_marker.BoundaryMetadataSerializer)
    assert json.loads(written)["attr"] == attributes
    lists = {"ints": [1, 2], "floats": [0.5], "flags": [True, False]}
    x = torch.ops.xla.mark_tensor(torch.ones(2, device="xla"), "test.part", 0, "id", True)
    y = torch.ops.xla.mark_tensor(
        x + 1, "test.part", 0, "id", False, xla_marker.serialize_composite_attr(lists)
    )
    assert "flags = dense<[true, false]> : tensor<2xi1>" in text_of(y)
    assert "ints = dense<[1, 2]> : tensor<2xi64>" in text_of(y) and y.tolist() == [2, 2]
    with pytest.raises(ValueError, match="attributes of a composite are"):
        xla_marker.BoundaryMetadata("test.part", "id", attr={"a": [1, "b"]})
    with pytest.raises(ValueError, match="with a namespace"):
        xla_marker.mark_tensor(x, "part", 0, "id", True)
    with pytest.raises(ValueError, match="numbered from 0"):
        xla_marker.mark_tensor(x, "test.part", -1, "id", True)
    with pytest.raises(ValueError, match="marks are put on tensors"):
        StableHLOCompositeBuilder("test.part").mark_inputs(3)
