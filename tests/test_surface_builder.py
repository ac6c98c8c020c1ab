"""Computations built in Python as operators, StableHLO custom calls, and JAX functions."""

import sys

import pytest
import torch
import torch.nn.functional as F
import torch_xla.core.xla_builder as xb
import torch_xla.core.xla_op_registry as xor
from torch_xla.core.xla_builder import Op


def run(function, *tensors, **kwargs):
    """The results on the CPU of an operator that `function` builds."""
    result = xor.register(function.__name__, function)(*(t.to("xla") for t in tensors), **kwargs)
    return result.cpu() if isinstance(result, torch.Tensor) else [t.cpu() for t in result]


def check(function, expected, *tensors, **kwargs):
    torch.testing.assert_close(run(function, *tensors, **kwargs), expected, atol=1e-5, rtol=1e-5)


X = torch.linspace(-0.9, 0.9, 6).reshape(2, 3)
Y = torch.linspace(0.5, 2.0, 6).reshape(2, 3)

BINARY = {
    "__add__": torch.add,
    "__sub__": torch.sub,
    "__mul__": torch.mul,
    "__truediv__": torch.div,
    "__mod__": torch.fmod,
    "max": torch.maximum,
    "min": torch.minimum,
    "atan2": torch.atan2,
    "__eq__": torch.eq,
    "__ne__": torch.ne,
    "__le__": torch.le,
    "__lt__": torch.lt,
    "__ge__": torch.ge,
    "__gt__": torch.gt,
}
UNARY = ["acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor"]
UNARY += ["log1p", "sin", "sinh", "tan", "tanh"]


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations(name):
    check(lambda a, b: getattr(a, name)(b), BINARY[name](X, Y), X, Y)


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations(name):
    check(lambda a: getattr(a, name)(), getattr(torch, name)(X), X)


def test_other_operations_of_elements():
    for name in ("log", "sqrt", "rsqrt"):
        check(lambda a, name=name: getattr(a, name)(), getattr(torch, name)(Y), Y)
    check(lambda a: a.erfinf(), torch.erfinv(X), X)
    check(lambda a: -a, -X, X)
    check(lambda a, b: b**a, Y**X, X, Y)
    whole, other = torch.tensor([6, 5, -8]), torch.tensor([1, 2, 1])
    check(lambda a, b: (a & b) | (a ^ b), (whole & other) | (whole ^ other), whole, other)
    check(lambda a, b: a << b, whole << other, whole, other)
    check(lambda a, b: a >> b, whole >> other, whole, other)
    check(lambda a: ~a, ~whole, whole)
    check(lambda a: a.clz(), torch.tensor([61, 61, 0]), whole)
    number = torch.complex(X, Y)
    check(lambda a: a.real() + a.imag(), X + Y, number)
    check(lambda a: a.conj(), number.conj().resolve_conj(), number)
    check(lambda a: a.cast(xb.Type.S32), Y.int(), Y)
    check(lambda a: a.bitcast(xb.Type.S32), Y.view(torch.int32), Y)
    check(lambda a, b: (a < b).select(a, b), torch.minimum(X, Y), X, Y)
    zero, one = torch.tensor(0.0), torch.tensor(1.0)
    check(lambda a, low, high: a.clamp(low, high), X.clamp(0, 1), X, zero, one)
    check(lambda a: a.zeros_like() + a.ones_like() + a.scalar_like(2), torch.full((2, 3), 3.0), X)


def test_shapes():
    check(lambda a: a.reshape((3, 2)), X.reshape(3, 2), X)
    check(lambda a: a.reshape((6,), dimensions=(1, 0)), X.T.reshape(6), X)
    check(lambda a: a.broadcast((4,)), X.expand(4, 2, 3), X)
    check(lambda a: a.broadcast_in_dim((2, 5, 3), (0, 2)), X[:, None].expand(2, 5, 3), X)
    check(lambda a: a.slice((0, 0), (2, 3), (1, 2)), X[:, ::2], X)
    check(lambda a: a.slice((0, 1), (1, 3)), X[:1, 1:], X)
    check(lambda a: a.slice_in_dim(1, 3, 1), X[:, 1:], X)
    check(lambda a: a.transpose((1, 0)), X.T, X)
    check(lambda a: a.rev((1,)), X.flip(1), X)
    value = torch.tensor(7.0)
    expected = F.pad(X, (1, 2), value=7.0)
    check(lambda a, v: a.pad(v, ((0, 0, 0), (1, 2, 0))), expected, X, value)
    check(lambda a, b: Op.concat_in_dim([a, b], 0), torch.cat([X, Y]), X, Y)
    start = torch.tensor(1)

    def cut(a, zero, start):
        return a.dynamic_slice([zero, start], (2, 2))

    check(cut, X[:, 1:], X, torch.tensor(0), start)

    def put(a, b, zero, start):
        return a.dynamic_update_slice(b, [zero, start])

    written = X.clone()
    written[:, 1:] = Y[:, :2]
    check(put, written, X, Y[:, :2].contiguous(), torch.tensor(0), start)
    check(lambda a: a.get_dimension_size(1), torch.tensor(3, dtype=torch.int32), X)
    for refused in (lambda a: a.dynamic_reshape((6,)), lambda a: a.set_dimension_size(a, 0)):
        with pytest.raises(NotImplementedError, match="sizes of tensors are fixed"):
            run(refused, X)


def test_gather_and_scatter():
    rows = torch.tensor([[1], [0], [1]])

    def take(a, indices):
        return a.gather(
            indices,
            slice_sizes=(1, 3),
            offset_dims=(1,),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=1,
        )

    check(take, X[rows[:, 0]], X, rows)

    def add(a, indices, updates):
        return a.scatter(
            indices,
            updates,
            lambda x, y: x + y,
            update_window_dims=(1,),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
        )

    def by_position(a, indices, updates):
        taken = a.gather(indices, (1,), (0,), (0,), 1, slice_sizes=(1, 3))
        return a.scatter(indices, taken + updates, lambda x, y: x + y, (1,), (0,), (0,), 1)

    updates = torch.ones(3, 3)
    check(add, X.index_add(0, rows[:, 0], updates), X, rows, updates)
    taken = X[rows[:, 0]] + updates
    check(by_position, X.index_add(0, rows[:, 0], taken), X, rows, updates)
    with pytest.raises(TypeError, match="gather takes 6 arguments at most"):
        run(lambda a, i: a.gather(i, (1,), (0,), (0,), 1, True, (1, 3)), X, rows)


def test_products_and_windows():
    check(lambda a, b: a @ b, X @ Y.T, X, Y.T.contiguous())
    images, kernel = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    plain = F.conv2d(images, kernel)
    check(lambda a, k: a.conv(k, (1, 1)), plain, images, kernel)
    same = F.conv2d(images, kernel, padding=1)
    check(lambda a, k: a.conv(k, (1, 1), padding="same"), same, images, kernel)
    pads = ((1, 1), (1, 1))
    strided = F.conv2d(images, kernel, padding=1, stride=2)
    check(lambda a, k: a.conv_with_general_padding(k, (2, 2), pads), strided, images, kernel)
    check(lambda a, k: a.conv_general(k, (2, 2), pads), strided, images, kernel)
    dilated = F.conv2d(images, kernel, dilation=2)

    def dilate(a, k):
        return a.conv_general_dilated(k, (1, 1), "valid", (1, 1), (2, 2))

    check(dilate, dilated, images, kernel)
    places = {
        "input_batch_dimension": 0,
        "input_feature_dimension": 3,
        "kernel_input_feature_dimension": 2,
        "kernel_output_feature_dimension": 3,
        "output_batch_dimension": 0,
        "output_feature_dimension": 3,
        "input_spatial_dimensions": (1, 2),
        "kernel_spatial_dimensions": (0, 1),
        "output_spatial_dimensions": (1, 2),
    }
    last = images.permute(0, 2, 3, 1).contiguous(), kernel.permute(2, 3, 1, 0).contiguous()

    def channels_last(a, k):
        return a.conv_with_general_dimensions(k, (1, 1), **places)

    check(channels_last, plain.permute(0, 2, 3, 1), *last)

    def by_position(a, k):
        convolved = a.conv_general(k, (1, 1), ((0, 0), (0, 0)), *places.values(), 1, 1)
        return convolved.max_pool((2, 2), (2, 2), 0, 3, (1, 2), "valid")

    check(by_position, F.max_pool2d(plain, 2).permute(0, 2, 3, 1), *last)
    pool = {"batch_dimension": 0, "feature_dimension": 1, "spatial_dimensions": (2, 3)}
    check(lambda a: a.max_pool((2, 2), (2, 2), **pool), F.max_pool2d(images, 2), images)
    zero = torch.tensor(0.0)

    def sums(a, init):
        return a.reduce_window(init, lambda x, y: x + y, (1, 1, 2, 2), (1, 1, 2, 2))

    check(sums, F.avg_pool2d(images, 2) * 4, images, zero)

    def back(a, source, init):
        window = (1, 1, 2, 2)
        greater = lambda x, y: x >= y  # noqa: E731
        return a.select_and_scatter(source, init, window, window, greater, lambda x, y: x + y)

    leaf = images.clone().requires_grad_()
    F.max_pool2d(leaf, 2).sum().backward()
    check(back, leaf.grad, images, torch.ones(2, 3, 4, 4), zero)
    lower = torch.tensor([[2.0, 0.0], [1.0, 3.0]])
    right = torch.tensor([[2.0], [7.0]])

    def solve(a, b):
        return a.triangualr_solve(b, left_side=True, lower=True)

    check(solve, torch.linalg.solve(lower, right), lower, right)


def test_reductions_and_sorts():
    zero = torch.tensor(0.0)
    check(lambda a, i: a.reduce(i, lambda x, y: x + y, (1,)), X.sum(1), X, zero)
    check(lambda a, i: a.reduce_all(i, lambda x, y: x.max(y)), X.max(), X, torch.tensor(-9.0))
    check(lambda a: Op.sort([a], lambda x, y: x > y, 1), X.sort(1, descending=True)[0], X)

    def by_key(keys, values):
        smaller = lambda k, l, v, w: k < l  # noqa: E731, E741
        return Op.sort([keys, values], smaller, is_stable=True)

    keys, values = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0, 1, 2])
    sorted_keys, order = run(by_key, keys, values)
    assert sorted_keys.tolist() == [1, 2, 3] and order.tolist() == [1, 2, 0]
    check(lambda a, b: Op.map([a, b], lambda x, y: x * y + x, (0, 1)), X * Y + X, X, Y)


def test_control_flow_and_tuples():
    def choose(condition, a, b):
        return condition.mkconditional([a, b], lambda a, b: a + b, lambda a, b: a - b)

    for flag in (True, False):
        check(choose, X + Y if flag else X - Y, torch.tensor(flag), X, Y)

    def power(a, count):
        limit = Op.scalar(count.builder(), 5, xb.Type.S64)
        del limit  # a condition may not read what is outside: it has a limit of its own

        def condition(value, i):
            return i < Op.scalar(i.builder(), 5, xb.Type.S64)

        def body(value, i):
            return value * value.scalar_like(2.0), i + Op.one(i.builder(), xb.Type.S64)

        return Op.mkwhile([a, count], condition, body).get_tuple_element(0)

    check(power, X * 32, X, torch.tensor(0))
    both = run(lambda a, b: Op.tuple([a + b, a.cast(xb.Type.BF16)]), X, Y)
    torch.testing.assert_close(both[0], X + Y)
    assert both[1].dtype == torch.bfloat16
    inner = xb.create_computation("inner", lambda a: a * a, [xb.mkshape("f32", (2, 3))])
    check(lambda a: Op.call(inner, [Op.call(inner, [a])]), X**4, X)
    check(lambda a: Op.call(lambda v: v.exp(), [a]), X.exp(), X)


def test_constants():
    values = torch.tensor([[True, False], [False, True]])
    for tensor in (values, X, Y.bfloat16(), torch.arange(3), torch.complex(X, Y), X[:0]):
        check(
            lambda a, tensor=tensor: Op.tuple([Op.constant(a.builder(), tensor), a]),
            [tensor, X],
            X,
        )
    iota = xb.mkshape(xb.Type.S32, (2, 3))
    expected = torch.arange(3, dtype=torch.int32).expand(2, 3)
    check(lambda a: Op.iota(a.builder(), iota, 1), expected, X)
    check(lambda a: a + Op.zero(a.builder()) + Op.one(a.builder()), X + 1, X)
    assert Op.to_torch_type(xb.Type.F64) == torch.float64
    with pytest.raises(TypeError, match="no values of"):
        Op.from_torch_type(torch.float8_e5m2)


def test_shapes_as_objects():
    shape = xb.mkshape(xb.Type.F32, (2, 3))
    assert (shape.rank, shape.sizes, shape.dtype) == (2, (2, 3), "f32")
    assert shape.as_scalar().sizes == () and not shape.is_dynamic() and not shape.is_tuple()
    assert shape.dynamic_dimensions is None and xb.tensor_shape([X])[0].sizes == (2, 3)
    several = xb.Shape([shape.shape, shape.shape])
    assert several.tuple_size() == 2 and several.tuple_shape(1) == shape.shape
    with pytest.raises(ValueError, match="shape of a tuple"):
        _ = several.sizes
    with pytest.raises(NotImplementedError, match="shapes are static"):
        xb.mkshape(xb.Type.F32, (2, 3), (True, False))


def test_computations_as_functions():
    builder = xb.create_builder("sum")
    parameters = [xb.mkparam(builder, i, xb.mkshape("f32", (2, 3))) for i in range(2)]
    total = xb.mkop("Add", [p.op for p in parameters])
    total = total + xb.mkleaf("Constant", builder, value=torch.ones(()))
    computation = total.build("sum")
    text = xb.get_computation_hlo(computation)
    assert "stablehlo.add" in text and text == xb.get_computation_hlo(computation)
    function = xb.xla_computation_as_func(computation, "my_sum")
    assert function.__name__ == "my_sum"
    torch.testing.assert_close(function([X.to("xla"), Y.to("xla")])[0].cpu(), X + Y + 1)
    again = xb.computation_from_module_proto("again", text)
    result = xb.xla_computation_as_func(again)([X.to("xla"), Y.to("xla")])[0]
    torch.testing.assert_close(result.cpu(), X + Y + 1)
    with pytest.raises(RuntimeError, match=r"takes tensor<2x3xf32> as argument 1"):
        function([X.to("xla"), X.to("xla").double()])
    with pytest.raises(ValueError, match="expected StableHLO as text"):
        xb.computation_from_module_proto("hlo", b"\x0a\x03abc")
    with pytest.raises(ValueError, match="there is no operation 'Nothing'"):
        xb.mkop("Nothing", [parameters[0].op])
    with pytest.raises(TypeError, match="must return an Op"):
        xb.create_computation("wrong", lambda a: 3, [xb.mkshape("f32", ())])
    placeholder = xb.create_placeholder_tensor((2, 3), torch.int32)
    assert placeholder.shape == (2, 3) and placeholder.dtype == torch.int32


def test_nested_calls():
    def function(data, scale):
        return {"sum": data["a"] + data["b"][0], "scaled": data["a"] * data["a"].scalar_like(scale)}

    call = xb.XlaCallable(function)
    data = {"a": X.to("xla"), "b": [Y.to("xla")]}
    for scale in (2.0, 3.0, 2.0):
        result = call(data, scale)
        torch.testing.assert_close(result["sum"].cpu(), X + Y)
        torch.testing.assert_close(result["scaled"].cpu(), X * scale)
    assert len(call._cache) == 2 and isinstance(call, xb.CompiledCallableWithCache)
    flat = xb.FlattenedInputFunc(lambda a, *, b: (a, b))
    with pytest.raises(RuntimeError, match="call preprocess first"):
        flat.flat_call([])
    tensors = flat.preprocess((X,), {"b": 3})
    assert flat.postprocess(flat.flat_call(tensors)) == (X, 3)


def test_an_operator_is_built_once_for_each_kind_of_call():
    built = []

    def scaled(a, factor=1.0):
        built.append(factor)
        return a * a.scalar_like(factor)

    operator = xor.register("scaled", scaled)
    assert isinstance(operator, xor.Op)
    for factor in (2.0, 2.0, 3.0):
        torch.testing.assert_close(operator(X.to("xla"), factor=factor).cpu(), X * factor)
    assert built == [2.0, 3.0]


def test_operators_in_pure_functions_and_compiled_regions(counters):
    import torch_xla
    from torch_xla.experimental.assume_pure import assume_pure

    double = xor.register("double", lambda a: a + a)
    pure = assume_pure(lambda x: double(x) * 3)
    torch.testing.assert_close(pure(X.to("xla")).cpu(), X * 6)
    with torch_xla.compile():
        y = double(X.to("xla")) + 1
    torch.testing.assert_close(y.cpu(), X * 2 + 1)


def test_custom_calls():
    from torch_xla.core.xla_model import get_stablehlo
    from torch_xla.experimental import stablehlo_custom_call as custom

    x = X.to("xla")
    one = custom.stablehlo_custom_call([x], "my_target", [(3,)], [torch.int32])
    assert one.shape == (3,) and one.dtype == torch.int32
    text = get_stablehlo_without_compiling(one)
    assert "stablehlo.custom_call @my_target" in text
    two = custom.stablehlo_custom_call(
        [x], "t", [(3,), (2,)], [torch.float32] * 2, True, "config", 2, {"name": "value"}
    )
    text = get_stablehlo_without_compiling(two[1])
    assert 'mhlo.frontend_attributes = {name = "value"}' in text and "config" in text
    del one, two
    leaf = X.to("xla").requires_grad_()
    moved = custom.place_to_device(custom.place_to_host(leaf) + 1)
    moved.sum().backward()
    torch.testing.assert_close(moved.detach().cpu(), X + 1)
    assert leaf.grad.tolist() == torch.ones(2, 3).tolist()
    assert custom.to_host_backward(None, leaf) is leaf
    assert custom.to_device_backward(None, leaf) is leaf
    assert "func.func" in get_stablehlo([X.to("xla") + 2])


def get_stablehlo_without_compiling(tensor):
    from torch_xla import _XLAC

    return _XLAC.export_graph([tensor], [], "text")[0]


def test_jax_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    jax = xb.JaxCallable(abs)
    for call in (
        lambda: xb.call_jax(abs, (X.to("xla"),)),
        lambda: jax(X.to("xla")),
        lambda: xb.JaxFlattenedInputFunc(abs).preprocess((X,)),
    ):
        with pytest.raises(RuntimeError, match="needs JAX, which is not installed"):
            call()


def test_jax_functions():
    jnp = pytest.importorskip("jax.numpy")
    traced = []

    def function(data, factor):
        traced.append(factor)
        return {"out": jnp.sin(data["x"]) * factor, "i": data["i"] + 1}

    data = {"x": X.to("xla"), "i": torch.arange(3, device="xla")}
    for factor in (2.0, 2.0):
        result = xb.call_jax(function, (data, factor))
        torch.testing.assert_close(result["out"].cpu(), torch.sin(X) * factor)
        assert result["i"].tolist() == [1, 2, 3] and result["i"].dtype == torch.int64
    assert traced == [2.0]


def test_jax_functions_with_gradients():
    jnp = pytest.importorskip("jax.numpy")
    from torch_xla.experimental.assume_pure import j2t_autograd

    traced = []

    def function(a, *, b, power):
        traced.append(power)
        return {"y": jnp.sin(a) * b**power, "count": jnp.sum(b > 0)}

    call = j2t_autograd(function)
    for _ in range(2):
        a, b = (t.to("xla").requires_grad_() for t in (X, Y))
        result = call(a, b=b, power=2)
        assert result["count"].item() == 6
        result["y"].sum().backward()
        torch.testing.assert_close(a.grad.cpu(), torch.cos(X) * Y**2)
        torch.testing.assert_close(b.grad.cpu(), torch.sin(X) * 2 * Y)
    assert len(traced) == 2  # forward and backward, once


def test_parts_of_assume_pure(monkeypatch):
    from torch_xla.experimental import assume_pure as ap

    pure = ap.assume_pure_torch(lambda x: x * 2, use_cache=True)
    assert pure(X.to("xla")).cpu().tolist() == (X * 2).tolist()
    assert pure.cache_info().traces == 1
    fake = ap.make_fake_inputs(X.to("xla").requires_grad_())
    assert fake.shape == X.shape and fake.requires_grad and ap.make_fake_inputs(3) == 3

    class Context:
        def device_parameter_id_tensor_mapping(self):
            return {0: "weight", 1: fake}

        def tensor_parameter_id(self, tensor):
            return 1 if tensor is fake else -1

    inputs = ap.prepare_computation_inputs(Context(), [fake, 7, X], ["a", 7, "b"])
    assert inputs == (["weight", "a"], {0: "weight"}, {1: 0})
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(RuntimeError, match="needs JAX"):
        ap.j2t_autograd(abs)
