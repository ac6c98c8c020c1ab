"""Values of a computation with XLA's operations as methods. `xla_builder` publishes the class."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla.core._hlo_module import Builder, Computation, Node, Tuple
from torch_xla.core._hlo_ops import OPERATIONS
from torch_xla.core._hlo_shape import TORCH_TYPES, XLA_TYPES, Shape

Sizes = Sequence[int]
# A finished computation, or a function of Ops that it is made of.
AnyComputation = Computation | Callable[..., Any]


_GROUPS = ("feature_group_count", "batch_group_count")
_SORTED = ("indices_are_sorted",)
_SCATTERED = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
_DIMENSIONS = (
    "input_batch_dimension",
    "input_feature_dimension",
    "kernel_input_feature_dimension",
    "kernel_output_feature_dimension",
    "output_batch_dimension",
    "output_feature_dimension",
    "input_spatial_dimensions",
    "kernel_spatial_dimensions",
    "output_spatial_dimensions",
)


def _by_position(*names: str) -> Callable[[Callable[..., "Op"]], Callable[..., "Op"]]:
    """The options `names` of a method may be given by position, too, in 2.9's order."""

    def decorate(method: Callable[..., "Op"]) -> Callable[..., "Op"]:
        own = method.__code__.co_argcount

        @functools.wraps(method)
        def call(*args: Any, **options: Any) -> "Op":
            if len(args) > own + len(names):
                raise TypeError(f"{method.__name__} takes {own + len(names) - 1} arguments at most")
            return method(*args[:own], **dict(zip(names, args[own:], strict=False)), **options)

        return call

    return decorate


class Op:
    """A value of the computation under construction, `op`. Comparisons are operations, too."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, op: Node) -> None:
        self.op = op

    @classmethod
    def make(cls, name: str, ops: Sequence[Any], builder: Any = None, **kwargs: Any) -> "Op":
        if name not in OPERATIONS:
            raise ValueError(f"there is no operation '{name}': {', '.join(sorted(OPERATIONS))}")
        if not ops:
            raise ValueError(f"{name} needs an operand")
        return cls(OPERATIONS[name](*ops, **kwargs))

    @classmethod
    def leaf(cls, name: str, builder: Builder, **kwargs: Any) -> "Op":
        if name not in ("Constant", "Iota"):
            raise ValueError(f"'{name}' is no operation without operands: Constant, Iota")
        return cls(OPERATIONS[name](builder, **kwargs))

    def _do(self, name: str, *others: "Op", **kwargs: Any) -> "Op":
        return Op.make(name, [self.op, *(other.op for other in others)], **kwargs)

    def shape(self) -> Shape:
        return Shape.of(self.op.shape)

    def builder(self) -> Builder:
        return self.op.builder

    def build(self, name: str) -> Computation:
        """The computation whose result this is."""
        computation = self.builder().build(self.op)
        return computation

    def __add__(self, rhs: "Op") -> "Op":
        return self._do("Add", rhs)

    def __sub__(self, rhs: "Op") -> "Op":
        return self._do("Sub", rhs)

    def __mul__(self, rhs: "Op") -> "Op":
        return self._do("Mul", rhs)

    def __matmul__(self, rhs: "Op") -> "Op":
        return self._do("Dot", rhs)

    def __truediv__(self, rhs: "Op") -> "Op":
        return self._do("Div", rhs)

    def __pow__(self, rhs: "Op") -> "Op":
        return self._do("Pow", rhs)

    def __mod__(self, rhs: "Op") -> "Op":
        return self._do("Rem", rhs)

    def __and__(self, rhs: "Op") -> "Op":
        return self._do("And", rhs)

    def __or__(self, rhs: "Op") -> "Op":
        return self._do("Or", rhs)

    def __xor__(self, rhs: "Op") -> "Op":
        return self._do("Xor", rhs)

    def __le__(self, rhs: "Op") -> "Op":
        return self._do("Le", rhs)

    def __lt__(self, rhs: "Op") -> "Op":
        return self._do("Lt", rhs)

    def __ge__(self, rhs: "Op") -> "Op":
        return self._do("Ge", rhs)

    def __gt__(self, rhs: "Op") -> "Op":
        return self._do("Gt", rhs)

    def __lshift__(self, rhs: "Op") -> "Op":
        return self._do("ShiftLeft", rhs)

    def __rshift__(self, rhs: "Op") -> "Op":
        return self._do("ShiftRight", rhs)

    def __eq__(self, rhs: "Op") -> "Op":  # type: ignore[override]
        return self._do("Eq", rhs)

    def __ne__(self, rhs: "Op") -> "Op":  # type: ignore[override]
        return self._do("Ne", rhs)

    def __neg__(self) -> "Op":
        return self._do("Neg")

    def __invert__(self) -> "Op":
        return self._do("Not")

    __not__ = __invert__

    def acos(self) -> "Op":
        return self._do("Acos")

    def asin(self) -> "Op":
        return self._do("Asin")

    def atan(self) -> "Op":
        return self._do("Atan")

    def ceil(self) -> "Op":
        return self._do("Ceil")

    def cos(self) -> "Op":
        return self._do("Cos")

    def cosh(self) -> "Op":
        return self._do("Cosh")

    def erf(self) -> "Op":
        return self._do("Erf")

    def erfc(self) -> "Op":
        return self._do("Erfc")

    def exp(self) -> "Op":
        return self._do("Exp")

    def expm1(self) -> "Op":
        return self._do("Expm1")

    def floor(self) -> "Op":
        return self._do("Floor")

    def log(self) -> "Op":
        return self._do("Log")

    def log1p(self) -> "Op":
        return self._do("Log1p")

    def sqrt(self) -> "Op":
        return self._do("Sqrt")

    def real(self) -> "Op":
        return self._do("Real")

    def imag(self) -> "Op":
        return self._do("Imag")

    def clz(self) -> "Op":
        return self._do("Clz")

    def conj(self) -> "Op":
        return self._do("Conj")

    def rsqrt(self) -> "Op":
        return self._do("Rsqrt")

    def sin(self) -> "Op":
        return self._do("Sin")

    def sinh(self) -> "Op":
        return self._do("Sinh")

    def tan(self) -> "Op":
        return self._do("Tan")

    def tanh(self) -> "Op":
        return self._do("Tanh")

    def erfinf(self) -> "Op":
        return self._do("ErfInv")

    def atan2(self, other: "Op") -> "Op":
        return self._do("Atan2", other)

    def max(self, other: "Op") -> "Op":
        return self._do("Max", other)

    def min(self, other: "Op") -> "Op":
        return self._do("Min", other)

    def cast(self, to_type: str) -> "Op":
        return self._do("Convert", to_type=Op.to_torch_type(to_type))

    def bitcast(self, to_type: str) -> "Op":
        return self._do("BitcastConvert", to_type=Op.to_torch_type(to_type))

    def select(self, true_value: "Op", false_value: "Op") -> "Op":
        return self._do("Select", true_value, false_value)

    def clamp(self, min_value: "Op", max_value: "Op") -> "Op":
        return self._do("Clamp", min_value, max_value)

    # Shapes

    def reshape(
        self, sizes: Sizes, dimensions: Sizes | None = None, inferred_dimension: int | None = None
    ) -> "Op":
        options = {"dimensions": dimensions, "inferred_dimension": inferred_dimension}
        return self._do("Reshape", sizes=sizes, **options)

    def dynamic_reshape(self, sizes: Sizes) -> "Op":
        return self._do("DynamicReshape", sizes=sizes)

    def broadcast(self, sizes: Sizes) -> "Op":
        return self._do("Broadcast", sizes=sizes)

    def broadcast_in_dim(self, sizes: Sizes, dimensions: Sizes) -> "Op":
        return self._do("BroadcastInDim", sizes=sizes, dimensions=dimensions)

    def slice(
        self, start_indices: Sizes, limit_indices: Sizes, strides: Sizes | None = None
    ) -> "Op":
        strides = [1] * len(start_indices) if strides is None else strides
        ends = {"start_indices": start_indices, "limit_indices": limit_indices}
        return self._do("Slice", strides=strides, **ends)

    def slice_in_dim(self, start_index: int, limit_index: int, dimno: int, stride: int = 1) -> "Op":
        ends = {"start_index": start_index, "limit_index": limit_index}
        return self._do("SliceInDim", dimno=dimno, stride=stride, **ends)

    def dynamic_slice(self, start_indices: Sequence["Op"], slice_sizes: Sizes) -> "Op":
        starts = [start.op for start in start_indices]
        return self._do("DynamicSlice", start_indices=starts, slice_sizes=slice_sizes)

    def dynamic_update_slice(self, update: "Op", start_indices: Sequence["Op"]) -> "Op":
        starts = [start.op for start in start_indices]
        return self._do("DynamicUpdateSlice", update, start_indices=starts)

    @_by_position(
        "offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim", *_SORTED
    )
    def gather(self, start_indices: "Op", **options: Any) -> "Op":
        """`slice_sizes`, `offset_dims`, `collapsed_slice_dims`, `start_index_map`,
        `index_vector_dim`, `indices_are_sorted`, as XLA's."""
        return self._do("Gather", start_indices, **options)

    @_by_position(*_SCATTERED, "index_vector_dim", *_SORTED, "unique_indices")
    def scatter(
        self, scatter_indices: "Op", updates: "Op", computation: AnyComputation, **options: Any
    ) -> "Op":
        """`update_window_dims`, `inserted_window_dims`, `scatter_dims_to_operand_dims`,
        `index_vector_dim`, `indices_are_sorted`, `unique_indices`, as XLA's."""
        combine = self._of_numbers("Scatter", computation)
        return self._do("Scatter", scatter_indices, updates, computation=combine, **options)

    def pad(self, value: "Op", config: Sequence[Sizes]) -> "Op":
        """`config`: (low, high, interior) for each dimension."""
        return self._do("Pad", value, config=config)

    def transpose(self, permutation: Sizes) -> "Op":
        return self._do("Transpose", permutation=permutation)

    def rev(self, dimensions: Sizes) -> "Op":
        return self._do("Rev", dimensions=dimensions)

    def get_dimension_size(self, dimension: int) -> "Op":
        return self._do("GetDimensionSize", dimension=dimension)

    def set_dimension_size(self, size: "Op", dimension: int) -> "Op":
        return self._do("SetDimensionSize", size, dimension=dimension)

    # Windows

    @_by_position(*_GROUPS, "padding", "precision_config")
    def conv(self, kernel: "Op", window_strides: Sizes, **options: Any) -> "Op":
        """A convolution of (batch, features, ...) by (out, in, ...). `padding`: "valid", "same"."""
        return self._do("Conv", kernel, window_strides=window_strides, **options)

    @_by_position(*_GROUPS, "precision_config")
    def conv_with_general_padding(
        self, kernel: "Op", window_strides: Sizes, padding: Sequence[Sizes], **options: Any
    ) -> "Op":
        options |= {"window_strides": window_strides, "padding": padding}
        return self._do("ConvWithGeneralPadding", kernel, **options)

    @_by_position(*_DIMENSIONS, "padding", *_GROUPS, "precision_config")
    def conv_with_general_dimensions(
        self, kernel: "Op", window_strides: Sizes, **options: Any
    ) -> "Op":
        """`input_batch_dimension`, ..., `output_spatial_dimensions`: where dimensions stand."""
        options["window_strides"] = window_strides
        return self._do("ConvWithGeneralDimensions", kernel, **options)

    @_by_position(*_DIMENSIONS, *_GROUPS, "precision_config")
    def conv_general(
        self, kernel: "Op", window_strides: Sizes, padding: Any, **options: Any
    ) -> "Op":
        options |= {"window_strides": window_strides, "padding": padding}
        return self._do("ConvGeneral", kernel, **options)

    @_by_position(*_DIMENSIONS, *_GROUPS, "precision_config")
    def conv_general_dilated(
        self,
        kernel: "Op",
        window_strides: Sizes,
        padding: Any,
        lhs_dilation: Sizes,
        rhs_dilation: Sizes,
        **options: Any,
    ) -> "Op":
        options |= {"window_strides": window_strides, "padding": padding}
        options |= {"lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
        return self._do("ConvGeneralDilated", kernel, **options)

    @_by_position("batch_dimension", "feature_dimension", "spatial_dimensions", "padding")
    def max_pool(self, kernel_size: Sizes, stride: Sizes, **options: Any) -> "Op":
        """`batch_dimension`, `feature_dimension`, `spatial_dimensions`, `padding`."""
        return self._do("MaxPool", kernel_size=kernel_size, stride=stride, **options)

    def reduce(self, init_value: "Op", computation: AnyComputation, dimensions: Sizes) -> "Op":
        combine = self._of_numbers("Reduce", computation)
        return self._do("Reduce", init_value, computation=combine, dimensions=dimensions)

    def reduce_all(self, init_value: "Op", computation: AnyComputation) -> "Op":
        combine = self._of_numbers("ReduceAll", computation)
        return self._do("ReduceAll", init_value, computation=combine)

    @_by_position("window_dimensions", "window_strides", "padding")
    def reduce_window(self, init_value: "Op", computation: AnyComputation, **options: Any) -> "Op":
        """`window_dimensions`, `window_strides`, `padding`."""
        options["computation"] = self._of_numbers("ReduceWindow", computation)
        return self._do("ReduceWindow", init_value, **options)

    def select_and_scatter(
        self,
        source: "Op",
        init_value: "Op",
        window_dimensions: Sizes,
        window_strides: Sizes,
        select_computation: AnyComputation,
        scatter_computation: AnyComputation,
        padding: Any = "valid",
    ) -> "Op":
        options: dict[str, Any] = {"window_dimensions": window_dimensions}
        options |= {"window_strides": window_strides, "padding": padding}
        options["select_computation"] = self._of_numbers("Select", select_computation)
        options["scatter_computation"] = self._of_numbers("Scatter", scatter_computation)
        return self._do("SelectAndScatter", source, init_value, **options)

    select_and_scatter_with_general_padding = select_and_scatter

    def triangualr_solve(
        self,
        b: "Op",
        left_side: bool | None = None,
        lower: bool | None = None,
        unit_diagonal: bool | None = None,
        transpose_a: bool | None = None,
    ) -> "Op":
        """The solution x of `self @ x = b`. (2.9 spells it so.)"""
        options = {"left_side": left_side, "lower": lower, "unit_diagonal": unit_diagonal}
        return self._do("TriangularSolve", b, **options, transpose_a=transpose_a)

    # Computations

    @classmethod
    def wrap_function(cls, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` of the parts of a tuple, if it is called with one; lists become tuples."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 1 and args[0].shape().is_tuple():
                args = tuple(cls(part) for part in args[0].op.parts)
            result = fn(*args, **kwargs)
            return cls.tuple(result) if isinstance(result, (tuple, list)) else result

        return call

    @classmethod
    def make_computation(
        cls, name: str, computation: AnyComputation, args_or_shapes: Sequence[Any], **kwargs: Any
    ) -> Computation:
        """A computation of arguments of these shapes, if it is not one already."""
        if isinstance(computation, Computation):
            return computation
        builder = Builder(name)
        given = [arg if isinstance(arg, Shape) else arg.shape() for arg in args_or_shapes]
        shapes = enumerate(shape.nested() for shape in given)
        parameters = [cls(builder.parameter(number, shape)) for number, shape in shapes]
        root: Op = cls.wrap_function(computation)(*parameters, **kwargs)
        return root.build(name)

    def _of_numbers(self, name: str, computation: AnyComputation) -> Computation:
        number = self.shape().as_scalar()
        return Op.make_computation(name, computation, (number, number))

    def get_tuple_element(self, index: int) -> "Op":
        return self._do("GetTupleElement", index=index)

    def conditional(
        self,
        true_operand: "Op",
        false_operand: "Op",
        true_computation: AnyComputation,
        false_computation: AnyComputation,
    ) -> "Op":
        yes = Op.make_computation("CondTrue", true_computation, (true_operand,))
        no = Op.make_computation("CondFalse", false_computation, (false_operand,))
        computations = {"true_computation": yes, "false_computation": no}
        return self._do("Conditional", true_operand, false_operand, **computations)

    def mkconditional(
        self, ops: Sequence["Op"], true_fn: AnyComputation, false_fn: AnyComputation, **_: Any
    ) -> "Op":
        given = Op.tuple(ops)
        return self.conditional(given, given, true_fn, false_fn)

    def while_loop(
        self, condition_computation: AnyComputation, body_computation: AnyComputation
    ) -> "Op":
        condition = Op.make_computation("Condition", condition_computation, (self,))
        body = Op.make_computation("Body", body_computation, (self,))
        computations = {"condition_computation": condition, "body_computation": body}
        return self._do("While", **computations)

    @classmethod
    def mkwhile(
        cls, ops: Sequence["Op"], condition_fn: AnyComputation, body_fn: AnyComputation, **_: Any
    ) -> "Op":
        return cls.tuple(ops).while_loop(condition_fn, body_fn)

    @classmethod
    def call(cls, computation: AnyComputation, ops: Sequence["Op"], builder: Any = None) -> "Op":
        made = cls.make_computation("Call", computation, ops)
        return cls.make("Call", [op.op for op in ops], computation=made)

    @classmethod
    def sort(
        cls,
        ops: Sequence["Op"],
        comparator: AnyComputation,
        dimension: int | None = None,
        is_stable: bool | None = None,
    ) -> "Op":
        numbers = [op.shape().as_scalar() for op in ops for _ in range(2)]
        options: dict[str, Any] = {"dimension": dimension, "is_stable": is_stable}
        options["comparator"] = cls.make_computation("Comparator", comparator, numbers)
        return cls.make("Sort", [op.op for op in ops], **options)

    @classmethod
    def map(
        cls,
        ops: Sequence["Op"],
        computation: AnyComputation,
        dimensions: Sizes,
        static_operands: Sequence["Op"] = (),
        builder: Any = None,
    ) -> "Op":
        numbers = [op.shape().as_scalar() for op in ops]
        options: dict[str, Any] = {"dimensions": dimensions, "static_operands": static_operands}
        options["computation"] = cls.make_computation("Map", computation, numbers)
        return cls.make("Map", [op.op for op in ops], **options)

    # New values

    @classmethod
    def tuple(cls, ops: Sequence["Op"], builder: Any = None) -> "Op":
        return cls(Tuple(tuple_of(op.op for op in ops)))

    @classmethod
    def concat_in_dim(cls, ops: Sequence["Op"], dimension: int, builder: Any = None) -> "Op":
        return cls.make("ConcatInDim", [op.op for op in ops], dimension=dimension)

    @classmethod
    def constant(cls, builder: Builder, value: torch.Tensor) -> "Op":
        return cls.leaf("Constant", builder, value=value)

    @classmethod
    def scalar(cls, builder: Builder, value: Any, dtype: str | None = None) -> "Op":
        return cls.constant(builder, torch.tensor(value, dtype=cls.to_torch_type(dtype)))

    @classmethod
    def zero(cls, builder: Builder, dtype: str | None = None) -> "Op":
        return cls.scalar(builder, 0, dtype)

    @classmethod
    def one(cls, builder: Builder, dtype: str | None = None) -> "Op":
        return cls.scalar(builder, 1, dtype)

    @classmethod
    def iota(cls, builder: Builder, shape: Shape, iota_dimension: int) -> "Op":
        return cls.leaf("Iota", builder, shape=shape.nested(), iota_dimension=iota_dimension)

    def scalar_like(self, value: Any) -> "Op":
        shape = self.shape()
        return Op.scalar(self.builder(), value, shape.dtype).broadcast(shape.sizes)

    def zeros_like(self) -> "Op":
        return self.scalar_like(0)

    def ones_like(self) -> "Op":
        return self.scalar_like(1)

    @classmethod
    def to_torch_type(cls, dtype: str | None) -> torch.dtype:
        return TORCH_TYPES[dtype] if dtype else torch.float32

    @classmethod
    def from_torch_type(cls, dtype: torch.dtype) -> str:
        if dtype not in XLA_TYPES:
            raise TypeError(f"computations have no values of {dtype}")
        return XLA_TYPES[dtype]


# Op.tuple hides the builtin inside the class.
tuple_of: type[tuple[Any, ...]] = tuple
