"""Operations of XLA's builder by their names there: what shape they give, and their StableHLO."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla._internal.stablehlo_text import array, joined
from torch_xla.core._hlo_module import (
    Builder,
    Computation,
    Node,
    TensorShape,
    Tuple,
    Value,
    leaves,
    literal,
    structured,
)

Sizes = Sequence[int]
OPERATIONS: dict[str, Callable[..., Node]] = {}

_UNARY = {
    "Neg": "stablehlo.negate",
    "Not": "stablehlo.not",
    "Acos": "chlo.acos",
    "Asin": "chlo.asin",
    "Atan": "chlo.atan",
    "Ceil": "stablehlo.ceil",
    "Cos": "stablehlo.cosine",
    "Cosh": "chlo.cosh",
    "Erf": "chlo.erf",
    "Erfc": "chlo.erfc",
    "ErfInv": "chlo.erf_inv",
    "Exp": "stablehlo.exponential",
    "Expm1": "stablehlo.exponential_minus_one",
    "Floor": "stablehlo.floor",
    "Log": "stablehlo.log",
    "Log1p": "stablehlo.log_plus_one",
    "Sqrt": "stablehlo.sqrt",
    "Clz": "stablehlo.count_leading_zeros",
    "Conj": "chlo.conj",
    "Rsqrt": "stablehlo.rsqrt",
    "Sin": "stablehlo.sine",
    "Sinh": "chlo.sinh",
    "Tan": "chlo.tan",
    "Tanh": "stablehlo.tanh",
}
_BINARY = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Pow": "power",
    "Rem": "remainder",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "Max": "maximum",
    "Min": "minimum",
    "Atan2": "atan2",
    "ShiftLeft": "shift_left",
}
_COMPARISONS = ("Eq", "Ne", "Le", "Lt", "Ge", "Gt")
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def operation(name: str) -> Callable[[Callable[..., Node]], Callable[..., Node]]:
    def register(function: Callable[..., Node]) -> Callable[..., Node]:
        OPERATIONS[name] = function
        return function

    return register


def emit(op: str, operands: Sequence[Value], shape: TensorShape, *attributes: str) -> Value:
    given = ", ".join(filter(None, attributes))
    return operands[0].builder.emit(op, operands, [shape], given)[0]


def constant(builder: Builder, value: torch.Tensor) -> Value:
    shape = TensorShape(value.dtype, tuple(value.shape))
    return builder.emit("stablehlo.constant", [], [shape], f"value = {literal(value)}")[0]


def sized(x: Value, sizes: Sizes, dtype: torch.dtype | None = None) -> TensorShape:
    return TensorShape(dtype or x.dtype, tuple(sizes))


# Element by element


def broadcast_in_dim(x: Value, sizes: Sizes, dimensions: Sizes) -> Value:
    attribute = f"broadcast_dimensions = {array(dimensions)}"
    return emit("stablehlo.broadcast_in_dim", [x], sized(x, sizes), attribute)


def _together(x: Value, y: Value) -> tuple[Value, Value]:
    """Two operands of one shape: numbers and dimensions of size 1 are broadcast."""
    if x.sizes == y.sizes:
        return x, y
    if x.rank and y.rank and x.rank != y.rank:
        raise ValueError(
            f"operands of shapes {x.sizes} and {y.sizes}: broadcast one of them explicitly "
            "(broadcast_in_dim)"
        )
    sizes = torch.broadcast_shapes(x.sizes, y.sizes)  # type: ignore[no-untyped-call]
    return tuple(  # type: ignore[return-value]
        v if v.sizes == sizes else broadcast_in_dim(v, sizes, range(v.rank)) for v in (x, y)
    )


def _unary(op: str) -> Callable[..., Node]:
    return lambda x: emit(op, [x], x.shape)


def _binary(op: str) -> Callable[..., Node]:
    def build(x: Value, y: Value) -> Value:
        x, y = _together(x, y)
        return emit(f"stablehlo.{op}", [x, y], x.shape)

    return build


def _comparison(direction: str) -> Callable[..., Node]:
    attribute = f"comparison_direction = #stablehlo<comparison_direction {direction.upper()}>"

    def build(x: Value, y: Value) -> Value:
        x, y = _together(x, y)
        return emit("stablehlo.compare", [x, y], sized(x, x.sizes, torch.bool), attribute)

    return build


OPERATIONS |= {name: _unary(op) for name, op in _UNARY.items()}
OPERATIONS |= {name: _binary(op) for name, op in _BINARY.items()}
OPERATIONS |= {name: _comparison(name) for name in _COMPARISONS}


@operation("ShiftRight")
def _shift_right(x: Value, y: Value) -> Value:
    signed = x.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    x, y = _together(x, y)
    kind = "arithmetic" if signed else "logical"
    return emit(f"stablehlo.shift_right_{kind}", [x, y], x.shape)


@operation("Real")
def _real(x: Value) -> Value:
    return emit("stablehlo.real", [x], sized(x, x.sizes, _REAL[x.dtype]))


@operation("Imag")
def _imag(x: Value) -> Value:
    return emit("stablehlo.imag", [x], sized(x, x.sizes, _REAL[x.dtype]))


@operation("Convert")
def _convert(x: Value, to_type: torch.dtype) -> Value:
    return emit("stablehlo.convert", [x], sized(x, x.sizes, to_type))


@operation("BitcastConvert")
def _bitcast(x: Value, to_type: torch.dtype) -> Value:
    before, after = x.dtype.itemsize, to_type.itemsize
    sizes = x.sizes
    if after > before:
        sizes = sizes[:-1]
    elif after < before:
        sizes = (*sizes, before // after)
    return emit("stablehlo.bitcast_convert", [x], sized(x, sizes, to_type))


@operation("Select")
def _select(predicate: Value, yes: Value, no: Value) -> Value:
    yes, no = _together(yes, no)
    return emit("stablehlo.select", [predicate, yes, no], yes.shape)


@operation("Clamp")
def _clamp(x: Value, low: Value, high: Value) -> Value:
    return emit("stablehlo.clamp", [low, x, high], x.shape)


# Shapes


@operation("Reshape")
def _reshape(
    x: Value, sizes: Sizes, dimensions: Sizes | None = None, inferred_dimension: int | None = None
) -> Value:
    if dimensions is not None and list(dimensions) != list(range(x.rank)):
        x = _transpose(x, dimensions)  # type: ignore[assignment]
    return emit("stablehlo.reshape", [x], sized(x, sizes))


@operation("Broadcast")
def broadcast(x: Value, sizes: Sizes) -> Value:
    first = len(sizes)
    return broadcast_in_dim(x, (*sizes, *x.sizes), range(first, first + x.rank))


OPERATIONS["BroadcastInDim"] = broadcast_in_dim


@operation("Slice")
def _slice(x: Value, start_indices: Sizes, limit_indices: Sizes, strides: Sizes) -> Value:
    ranges = zip(start_indices, limit_indices, strides, strict=True)
    sizes = [len(range(start, limit, stride)) for start, limit, stride in ranges]
    return emit(
        "stablehlo.slice",
        [x],
        sized(x, sizes),
        f"start_indices = {array(start_indices)}",
        f"limit_indices = {array(limit_indices)}",
        f"strides = {array(strides)}",
    )


@operation("SliceInDim")
def _slice_in_dim(
    x: Value, start_index: int, limit_index: int, dimno: int, stride: int = 1
) -> Value:
    starts, limits, strides = [0] * x.rank, list(x.sizes), [1] * x.rank
    starts[dimno], limits[dimno], strides[dimno] = start_index, limit_index, stride
    return _slice(x, starts, limits, strides)  # type: ignore[return-value]


@operation("DynamicSlice")
def _dynamic_slice(x: Value, start_indices: Sequence[Value], slice_sizes: Sizes) -> Value:
    attribute = f"slice_sizes = {array(slice_sizes)}"
    return emit("stablehlo.dynamic_slice", [x, *start_indices], sized(x, slice_sizes), attribute)


@operation("DynamicUpdateSlice")
def _dynamic_update_slice(x: Value, update: Value, start_indices: Sequence[Value]) -> Value:
    return emit("stablehlo.dynamic_update_slice", [x, update, *start_indices], x.shape)


@operation("Transpose")
def _transpose(x: Value, permutation: Sizes) -> Value:
    sizes = [x.sizes[dim] for dim in permutation]
    attribute = f"permutation = {array(list(permutation))}"
    return emit("stablehlo.transpose", [x], sized(x, sizes), attribute)


@operation("Rev")
def _rev(x: Value, dimensions: Sizes) -> Value:
    return emit("stablehlo.reverse", [x], x.shape, f"dimensions = {array(dimensions)}")


@operation("Pad")
def _pad(x: Value, value: Value, config: Sequence[Sizes]) -> Value:
    low, high, interior = ([part[i] for part in config] for i in range(3))
    sizes = [
        before + size + after + max(size - 1, 0) * inner
        for size, before, after, inner in zip(x.sizes, low, high, interior, strict=True)
    ]
    return emit(
        "stablehlo.pad",
        [x, value],
        sized(x, sizes),
        f"edge_padding_low = {array(low)}",
        f"edge_padding_high = {array(high)}",
        f"interior_padding = {array(interior)}",
    )


@operation("ConcatInDim")
def _concatenate(*xs: Value, dimension: int) -> Value:
    sizes = list(xs[0].sizes)
    sizes[dimension] = sum(x.sizes[dimension] for x in xs)
    return emit("stablehlo.concatenate", xs, sized(xs[0], sizes), f"dimension = {dimension} : i64")


@operation("Iota")
def _iota(builder: Builder, shape: Any, iota_dimension: int) -> Value:
    attribute = f"iota_dimension = {iota_dimension} : i64"
    return builder.emit("stablehlo.iota", [], [shape], attribute)[0]


@operation("Constant")
def _constant(builder: Builder, value: torch.Tensor) -> Value:
    return constant(builder, value)


@operation("GetDimensionSize")
def _dimension_size(x: Value, dimension: int) -> Value:
    return constant(x.builder, torch.tensor(x.sizes[dimension], dtype=torch.int32))


def _static_only(name: str) -> Callable[..., Node]:
    def refuse(*_: Any, **__: Any) -> Node:
        raise NotImplementedError(
            f"{name}: sizes of tensors are fixed when a computation is built; build one for each "
            "size, or compute with a mask"
        )

    return refuse


OPERATIONS |= {name: _static_only(name) for name in ("DynamicReshape", "SetDimensionSize")}


@operation("Gather")
def _gather(
    x: Value,
    indices: Value,
    slice_sizes: Sizes,
    offset_dims: Sizes,
    collapsed_slice_dims: Sizes,
    start_index_map: Sizes,
    index_vector_dim: int,
    indices_are_sorted: bool | None = None,
) -> Value:
    batch = [size for dim, size in enumerate(indices.sizes) if dim != index_vector_dim]
    kept = [s for dim, s in enumerate(slice_sizes) if dim not in collapsed_slice_dims]
    sizes, rest, inner = [], iter(batch), iter(kept)
    for dim in range(len(batch) + len(kept)):
        sizes.append(next(inner) if dim in offset_dims else next(rest))
    numbers = (
        f"#stablehlo.gather<offset_dims = [{joined(offset_dims)}], "
        f"collapsed_slice_dims = [{joined(collapsed_slice_dims)}], "
        f"start_index_map = [{joined(start_index_map)}], index_vector_dim = {index_vector_dim}>"
    )
    return emit(
        "stablehlo.gather",
        [x, indices],
        sized(x, sizes),
        f"dimension_numbers = {numbers}",
        f"slice_sizes = {array(slice_sizes)}",
        f"indices_are_sorted = {str(bool(indices_are_sorted)).lower()}",
    )


# Tuples and functions


@operation("Tuple")
def _tuple(*parts: Node) -> Node:
    return Tuple(parts)


@operation("GetTupleElement")
def _element(x: Tuple, index: int) -> Node:
    part: Node = x.parts[index]
    return part


@operation("Call")
def _call(*arguments: Node, computation: Computation) -> Node:
    values = leaves(Tuple(arguments))
    builder = values[0].builder
    call, _ = builder.call_text(computation, values)
    results = [builder.value(shape) for shape in leaves(computation.result)]
    builder.line(f"{', '.join(v.name for v in results)} = {call}")
    return structured(computation.result, results)


@operation("Conditional")
def _conditional(
    predicate: Value,
    yes: Node,
    no: Node,
    true_computation: Computation,
    false_computation: Computation,
) -> Node:
    builder = predicate.builder
    regions = [
        builder.region(true_computation, leaves(yes)),
        builder.region(false_computation, leaves(no)),
    ]
    shapes = leaves(true_computation.result)
    results = builder.emit("stablehlo.if", [predicate], shapes, regions=regions)
    return structured(true_computation.result, results)


@operation("While")
def _while(init: Node, condition_computation: Computation, body_computation: Computation) -> Node:
    values = leaves(init)
    builder = values[0].builder
    regions = [builder.region(condition_computation), builder.region(body_computation)]
    shapes = [value.shape for value in values]
    results = builder.emit("stablehlo.while", values, shapes, regions=regions)
    return structured(init.shape, results)
