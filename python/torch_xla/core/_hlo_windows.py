"""Products, convolutions, reductions and sorts, for `_hlo_ops`."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_xla._internal.stablehlo_text import array, joined
from torch_xla.core._hlo_module import Computation, Node, TensorShape, Tuple, Value
from torch_xla.core._hlo_ops import Sizes, constant, emit, operation, sized

Padding = str | Sequence[Sizes]


@operation("Dot")
def _dot(x: Value, y: Value) -> Value:
    """Over the last dimension of `x` and the first of `y` (vectors and matrices)."""
    shape = sized(x, (*x.sizes[:-1], *y.sizes[1:]))
    contracting = f"lhs_contracting_dimensions = [{x.rank - 1}], rhs_contracting_dimensions = [0]"
    numbers = f"dot_dimension_numbers = #stablehlo.dot<{contracting}>"
    return emit("stablehlo.dot_general", [x, y], shape, numbers)


def _pads(text: str, size: int, window: int, stride: int) -> tuple[int, int]:
    if text.lower() == "valid":
        return 0, 0
    if text.lower() != "same":
        raise ValueError(f"padding is 'valid', 'same' or a list of pairs, got '{text}'")
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def _padding(padding: Padding, sizes: Sizes, window: Sizes, strides: Sizes) -> list[Any]:
    if not isinstance(padding, str):
        return [tuple(pair) for pair in padding]
    dims = zip(sizes, window, strides, strict=True)
    return [_pads(padding, size, width, stride) for size, width, stride in dims]


def _padding_attribute(pads: Sequence[Any]) -> str:
    pairs = ", ".join(f"[{low}, {high}]" for low, high in pads)
    return f"padding = dense<[{pairs}]> : tensor<{len(pads)}x2xi64>"


def _windows(size: int, window: int, stride: int, pads: Sizes, dilation: int = 1) -> int:
    padded = (max(size - 1, 0) * dilation + 1 if size else 0) + sum(pads)
    return 0 if padded < window else (padded - window) // stride + 1


def _letters(batch: tuple[int, str], feature: tuple[int, str], spatial: Sizes) -> str:
    places = dict([batch, feature])
    places |= {dim: str(number) for number, dim in enumerate(spatial)}
    return f"[{', '.join(places[dim] for dim in sorted(places))}]"


@operation("ConvGeneralDilated")
def _convolution(
    x: Value,
    kernel: Value,
    window_strides: Sizes,
    padding: Padding = "valid",
    lhs_dilation: Sizes | None = None,
    rhs_dilation: Sizes | None = None,
    input_batch_dimension: int = 0,
    input_feature_dimension: int = 1,
    kernel_input_feature_dimension: int = 1,
    kernel_output_feature_dimension: int = 0,
    output_batch_dimension: int = 0,
    output_feature_dimension: int = 1,
    input_spatial_dimensions: Sizes | None = None,
    kernel_spatial_dimensions: Sizes | None = None,
    output_spatial_dimensions: Sizes | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Any = None,
) -> Value:
    places = list(range(2, x.rank))
    inputs = input_spatial_dimensions or places
    kernels = kernel_spatial_dimensions or places
    outputs = output_spatial_dimensions or places
    lhs, rhs = lhs_dilation or [1] * len(places), rhs_dilation or [1] * len(places)
    spatial = [x.sizes[dim] for dim in inputs]
    window = [
        (kernel.sizes[dim] - 1) * dilation + 1 for dim, dilation in zip(kernels, rhs, strict=True)
    ]
    pads = _padding(padding, spatial, window, window_strides)
    sizes = [0] * x.rank
    sizes[output_batch_dimension] = x.sizes[input_batch_dimension] // batch_group_count
    sizes[output_feature_dimension] = kernel.sizes[kernel_output_feature_dimension]
    for dim, place in enumerate(outputs):
        arguments = (spatial[dim], window[dim], window_strides[dim], pads[dim], lhs[dim])
        sizes[place] = _windows(*arguments)
    of_input = _letters((input_batch_dimension, "b"), (input_feature_dimension, "f"), inputs)
    of_kernel = _letters(
        (kernel_output_feature_dimension, "o"), (kernel_input_feature_dimension, "i"), kernels
    )
    of_output = _letters((output_batch_dimension, "b"), (output_feature_dimension, "f"), outputs)
    return emit(
        "stablehlo.convolution",
        [x, kernel],
        sized(x, sizes),
        f"window_strides = {array(window_strides)}",
        _padding_attribute(pads),
        f"lhs_dilation = {array(lhs)}",
        f"rhs_dilation = {array(rhs)}",
        f"dimension_numbers = #stablehlo.conv<{of_input}x{of_kernel}->{of_output}>",
        f"feature_group_count = {feature_group_count} : i64",
        f"batch_group_count = {batch_group_count} : i64",
    )


for _name in ("Conv", "ConvWithGeneralPadding", "ConvWithGeneralDimensions", "ConvGeneral"):
    operation(_name)(_convolution)


@operation("Reduce")
def _reduce(x: Value, init: Value, computation: Computation, dimensions: Sizes) -> Value:
    sizes = [size for dim, size in enumerate(x.sizes) if dim not in dimensions]
    attribute = f"dimensions = {array(list(dimensions))}"
    region = x.builder.region(computation)
    shape = sized(x, sizes)
    return x.builder.emit("stablehlo.reduce", [x, init], [shape], attribute, [region])[0]


@operation("ReduceAll")
def _reduce_all(x: Value, init: Value, computation: Computation) -> Node:
    return _reduce(x, init, computation, range(x.rank))


@operation("ReduceWindow")
def _reduce_window(
    x: Value,
    init: Value,
    computation: Computation,
    window_dimensions: Sizes,
    window_strides: Sizes,
    padding: Padding = "valid",
) -> Value:
    pads = _padding(padding, x.sizes, window_dimensions, window_strides)
    dims = zip(x.sizes, window_dimensions, window_strides, pads, strict=True)
    shape = sized(x, [_windows(*dim) for dim in dims])
    attributes = (
        f"window_dimensions = {array(window_dimensions)}, "
        f"window_strides = {array(window_strides)}, {_padding_attribute(pads)}"
    )
    region = x.builder.region(computation)
    return x.builder.emit("stablehlo.reduce_window", [x, init], [shape], attributes, [region])[0]


@operation("MaxPool")
def _max_pool(
    x: Value,
    kernel_size: Sizes,
    stride: Sizes,
    batch_dimension: int,
    feature_dimension: int,
    spatial_dimensions: Sizes,
    padding: Padding = "valid",
) -> Node:
    from torch_xla.core._hlo_module import Builder
    from torch_xla.core._hlo_ops import OPERATIONS

    lowest = -torch.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    window, strides = [1] * x.rank, [1] * x.rank
    for dim, size, step in zip(spatial_dimensions, kernel_size, stride, strict=True):
        window[dim], strides[dim] = size, step
    inner = Builder("max")
    number = TensorShape(x.dtype, ())
    pair = [inner.parameter(i, number) for i in range(2)]
    largest = inner.build(OPERATIONS["Max"](*pair))
    init = constant(x.builder, torch.tensor(lowest, dtype=x.dtype))
    return _reduce_window(x, init, largest, window, strides, padding)


@operation("SelectAndScatter")
def _select_and_scatter(
    x: Value,
    source: Value,
    init: Value,
    window_dimensions: Sizes,
    window_strides: Sizes,
    select_computation: Computation,
    scatter_computation: Computation,
    padding: Padding = "valid",
) -> Value:
    pads = _padding(padding, x.sizes, window_dimensions, window_strides)
    attributes = (
        f"window_dimensions = {array(window_dimensions)}, "
        f"window_strides = {array(window_strides)}, {_padding_attribute(pads)}"
    )
    regions = [x.builder.region(select_computation), x.builder.region(scatter_computation)]
    operands = [x, source, init]
    op = "stablehlo.select_and_scatter"
    return x.builder.emit(op, operands, [x.shape], attributes, regions)[0]


operation("SelectAndScatterWithGeneralPadding")(_select_and_scatter)


@operation("Scatter")
def _scatter(
    x: Value,
    indices: Value,
    updates: Value,
    computation: Computation,
    update_window_dims: Sizes,
    inserted_window_dims: Sizes,
    scatter_dims_to_operand_dims: Sizes,
    index_vector_dim: int,
    indices_are_sorted: bool | None = None,
    unique_indices: bool | None = None,
) -> Value:
    numbers = (
        f"#stablehlo.scatter<update_window_dims = [{joined(update_window_dims)}], "
        f"inserted_window_dims = [{joined(inserted_window_dims)}], "
        f"scatter_dims_to_operand_dims = [{joined(scatter_dims_to_operand_dims)}], "
        f"index_vector_dim = {index_vector_dim}>"
    )
    attributes = (
        f"scatter_dimension_numbers = {numbers}, "
        f"indices_are_sorted = {str(bool(indices_are_sorted)).lower()}, "
        f"unique_indices = {str(bool(unique_indices)).lower()}"
    )
    region = x.builder.region(computation)
    operands = [x, indices, updates]
    return x.builder.emit("stablehlo.scatter", operands, [x.shape], attributes, [region])[0]


@operation("TriangularSolve")
def _triangular_solve(
    a: Value,
    b: Value,
    left_side: bool | None = None,
    lower: bool | None = None,
    unit_diagonal: bool | None = None,
    transpose_a: bool | None = None,
) -> Value:
    flags = {"left_side": left_side, "lower": lower, "unit_diagonal": unit_diagonal}
    attributes = [f"{name} = {str(bool(flag)).lower()}" for name, flag in flags.items()]
    kind = "TRANSPOSE" if transpose_a else "NO_TRANSPOSE"
    attributes.append(f"transpose_a = #stablehlo<transpose {kind}>")
    return emit("stablehlo.triangular_solve", [a, b], b.shape, *attributes)


@operation("Sort")
def _sort(
    *xs: Value,
    comparator: Computation,
    dimension: int | None = None,
    is_stable: bool | None = None,
) -> Node:
    dim = xs[0].rank - 1 if dimension is None else dimension
    attributes = f"dimension = {dim} : i64, is_stable = {str(bool(is_stable)).lower()}"
    builder = xs[0].builder
    shapes = [x.shape for x in xs]
    regions = [builder.region(comparator)]
    results = builder.emit("stablehlo.sort", xs, shapes, attributes, regions)
    return results[0] if len(results) == 1 else Tuple(tuple(results))


@operation("Map")
def _map(
    *xs: Value, computation: Computation, dimensions: Sizes, static_operands: Sequence[Any] = ()
) -> Value:
    if static_operands:
        raise NotImplementedError("Map: static_operands are not supported; capture them by Call")
    result = computation.result
    assert isinstance(result, TensorShape)
    attribute = f"dimensions = {array(list(dimensions))}"
    shape = sized(xs[0], xs[0].sizes, result.dtype)
    regions = [xs[0].builder.region(computation)]
    return xs[0].builder.emit("stablehlo.map", xs, [shape], attribute, regions)[0]
