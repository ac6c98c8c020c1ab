"""Export with dynamic sizes: one program for all of them, its text, its folder, and refusals."""

import json

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch_xla import stablehlo
from torch_xla import tf_saved_model_integration as tf
from torch_xla._internal import stablehlo_bytecode
from torch_xla._internal.stablehlo_sizes import Samples, specialised, template_of, value_of
from torch_xla._internal.stablehlo_text import type_of
from torch_xla.stablehlo import StableHLOGraphModule, _Call, exported_program_to_stablehlo


def exported(model, args, shapes):
    torch.manual_seed(0)
    return torch.export.export(model.eval(), args, dynamic_shapes=shapes)


def same(actual, expected):
    torch.testing.assert_close(actual.cpu(), expected.detach(), atol=1e-5, rtol=1e-4)


def refined(module, inputs):
    """What another consumer makes of the text with `?` for these inputs: static StableHLO."""
    text = stablehlo_bytecode.to_text(module.get_stablehlo_bytecode())
    types = ",".join(map(type_of, inputs))
    with stablehlo_bytecode._converter() as (ir, passmanager, dialect):
        dialect.register_stablehlo_passes()
        parsed = ir.Module.parse(text)
        passes = "stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism)"
        first = f"inline,stablehlo-refine-arguments{{types={types}}}"
        pipeline = f"builtin.module({first},{passes},{passes})"
        passmanager.PassManager.parse(pipeline).run(parsed.operation)
        text = str(parsed)
    assert "?" not in text and "dynamic_" not in text
    return text


def check(model, args, shapes, *others):
    """Here, and as others would run the text, for the example and other arguments."""
    module = exported_program_to_stablehlo(exported(model, args, shapes))
    for given in (args, *others):
        same(module(*given), model(*given))
    if stablehlo_bytecode.available():
        function = module._bundle.stablehlo_funcs[0]
        meta = function.meta
        places = zip(meta.input_locations, meta.input_signature, strict=True)
        inputs = [module._input(*place, others[-1]) for place in places]
        call = _Call(refined(module, inputs), meta.output_pytree_spec)
        same(call.run(inputs)[0], model(*others[-1]))
    return module


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")

    def forward(self, tokens):
        return self.layer(self.embedding(tokens)).mean(1)


def test_numbers_become_polynomials():
    samples = Samples({"b": [0, None], "t": [2, 64]})
    points = samples.points
    assert samples.size(tuple(3 * b * t * t - b + 2 for b, t in points)) == "3*b*t*t+-1*b+2"
    assert samples.size(tuple(b // 2 for b, _ in points)) is None
    assert value_of("3*b*t*t+-1*b+2", {"b": 2, "t": 3}) == 54
    for b, t in points:
        assert b >= 2 and 2 <= t <= 64 and b != t
    texts = [
        f'"x"(%{1}) [0:{b}, 3.0] dense<{b}.000000e+00> tensor<{2 * t}x{b}x4xf32>' for b, t in points
    ]
    template = template_of(texts, samples)
    assert template == '"x"(%1) [0:⟦b⟧, 3.0] dense<⟦b⟧.0> tensor<⟦2*t⟧x⟦b⟧x4xf32>\n'
    assert "dense<3.0> tensor<8x3x4xf32>" in specialised(template, {"b": 3, "t": 4})
    assert [p[0] for p in Samples({"b": [0, 3]}).points] == [3, 2]  # all that there are


def test_a_batch_of_any_size(tmp_path):
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    images = [(torch.randn(n, 3, 8, 8),) for n in (4, 1, 7)]
    module = check(model, images[0], ({0: Dim("batch", max=9)},), *images[1:])
    text = module.get_stablehlo_text()
    assert "tensor<?x3x8x8xf32>) -> tensor<?x2xf32>" in text
    meta = module._bundle.stablehlo_funcs[0].meta
    assert meta.input_signature[-1] == stablehlo.VariableSignature([4, 3, 8, 8], "float32", [0])
    assert meta.output_signature == [stablehlo.VariableSignature([4, 2], "float32", [0])]
    module.save(tmp_path)
    assert (tmp_path / "functions" / "forward.mlir").read_text() == text
    loaded = StableHLOGraphModule.load(tmp_path)
    assert loaded.get_stablehlo_text() == text
    same(loaded(*images[2]), model(*images[2]))
    for given, message in (
        (torch.randn(10, 3, 8, 8), "for sizes s.* from 0 to 9, and is given 10"),
        (torch.randn(4, 3, 8, 9), r"the sizes \[s.*, 3, 8, 8\], and was given \[4, 3, 8, 9\]"),
        (torch.randn(4, 3, 8), r"and was given \[4, 3, 8\]"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded(given)


def test_batch_and_length_of_any_size():
    tokens = [(torch.randint(20, sizes),) for sizes in ((4, 6), (1, 1), (5, 9))]
    shapes = ({0: Dim("batch"), 1: Dim("length", max=64)},)
    module = check(Encoder(), tokens[0], shapes, *tokens[1:])
    assert "tensor<?x?xi64>) -> tensor<?x8xf32>" in module.get_stablehlo_text()


class Operators(nn.Module):
    """Each that StableHLO writes in another way where sizes are dynamic."""

    def forward(self, x, places):
        batch, length = x.shape[:2]
        y = (
            torch.cat([x, x * 2], 1)[:, 1 : length + 1]
            + torch.arange(length)[None, :, None] * batch
        )
        y = nn.functional.pad(y, (1, 0, 0, 2)).flip(0).sum((0, 1))[1:]
        mask = torch.where(torch.ones(length, length).tril().bool(), 1.0, -1.0).sum()
        y = y + x.new_full((length, 8), 2.0).sum(0) + torch.zeros(batch, 8).sum(0) + mask
        y = y + x.index_select(1, places).sum((0, 1)) + nn.functional.gelu(x).sum((0, 1)) / length
        y = y + x.sort(0).values[0, 0] + x.flatten()[: 2 * length].sum()
        return torch.cond(y.sum() > 0, lambda y, x: y + x[0, 0], lambda y, x: y - x[0, 0], (y, x))


def test_operators_with_dynamic_forms():
    args = [
        (torch.randn(4, 6, 8), torch.tensor([0, 2])),
        (torch.randn(2, 3, 8), torch.tensor([1])),
        (torch.randn(5, 9, 8), torch.tensor([1, 2, 3])),
    ]
    shapes = ({0: Dim("b", min=2), 1: Dim("t", min=3)}, {0: Dim("n")})
    module = check(Operators(), args[0], shapes, *args[1:])
    text = module.get_stablehlo_text()
    for operation in (
        "dynamic_iota",
        "dynamic_broadcast_in_dim",
        "dynamic_reshape",
        "real_dynamic_slice",
    ):
        assert f"stablehlo.{operation} " in text


def test_sizes_that_are_multiples():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.MaxPool2d(2))
    images = [(torch.randn(2, 3, 4 * n, 8),) for n in (4, 3, 5)]
    check(model, images[0], ({2: 4 * Dim("quarter")},), *images[1:])


def test_what_has_no_text_runs(tmp_path):
    class Total(nn.Module):
        def forward(self, x):
            return x.cumsum(1)

    x = torch.randn(2, 5)
    module = exported_program_to_stablehlo(exported(Total(), (x,), ({1: Dim("length")},)))
    module.save(tmp_path)
    loaded = StableHLOGraphModule.load(tmp_path)
    for given in (x, torch.randn(2, 8)):
        same(loaded(given), given.cumsum(1))
    with pytest.raises(ValueError, match="cannot say this for any size.*window_dimensions"):
        loaded.get_stablehlo_text()


def test_tensorflow_is_told_of_dynamic_sizes():
    class Named:
        float32 = "float32"
        TensorSpec = staticmethod(lambda shape, dtype: (shape, dtype))

    program = exported(nn.Linear(4, 2), (torch.ones(3, 4),), ({0: Dim("batch")},))
    function = exported_program_to_stablehlo(program)._bundle.stablehlo_funcs[0]
    assert tf._signature(Named, function) == [([None, 4], "float32")]
    assert tf._shape(function.meta.output_signature[0]) == [None, 2]


def test_what_cannot_be_exported():
    class Reciprocal(nn.Module):
        def forward(self, x):
            return x * (1 / x.shape[0])

    class Number(nn.Module):
        def forward(self, x, n):
            return x * n

    program = exported(Reciprocal(), (torch.ones(4, 3),), ({0: Dim("batch")},))
    message = r"any size of dimension 0 of x, because.*no polynomial.*out of torch.export's dynamic"
    with pytest.raises(RuntimeError, match=message):
        exported_program_to_stablehlo(program)
    program = exported(Number(), (torch.ones(3), 4), (None, Dim.DYNAMIC))
    with pytest.raises(TypeError, match="argument n is a number that torch.export left dynamic"):
        exported_program_to_stablehlo(program)


def test_static_programs_are_written_as_2_9_reads_them(tmp_path):
    stablehlo.save_as_stablehlo(exported(nn.Linear(3, 2), (torch.ones(4, 3),), None), tmp_path)
    meta = json.loads((tmp_path / "functions" / "forward.meta").read_text())
    assert not {"dynamic_sizes", "changed_buffers"} & meta.keys()
    assert not (tmp_path / "functions" / "forward.template").exists()


def test_sizes_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(stablehlo, "_MOST_CALLS", 4)
    model = nn.Linear(3, 2)
    program = exported(model, (torch.ones(2, 3),), ({0: Dim("batch", max=64)},))
    module = exported_program_to_stablehlo(program)
    for size in (*range(1, 12), 2):
        x = torch.randn(size, 3)
        same(module(x), model(x))
        same(module(x[:1]), model(x[:1]))  # one that is asked for all the time
        assert len(module._calls) <= 4
    assert [int(key[1]) for key in module._calls] == [10, 11, 2, 1]
