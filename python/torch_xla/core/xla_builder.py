"""Computations built in Python, operation by operation, which become operators on tensors.

A computation is StableHLO text; `xla_computation_as_func` calls it on tensors, with shapes checked
at the line of the call, and `torch_xla.core.xla_op_registry` builds one per kind of call. JAX
functions become computations, too (`call_jax`), where JAX is installed.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from torch_xla import _XLAC
from torch_xla._internal import jax_interop, stablehlo_bytecode
from torch_xla.core import _hlo_windows  # noqa: F401  (more operations)
from torch_xla.core._hlo_module import (
    Builder,
    Computation,
    TensorShape,
    shapes_of,
)
from torch_xla.core._hlo_op import Op
from torch_xla.core._hlo_shape import TORCH_TYPES as _XLA_PT_TYPE_MAP  # noqa: F401
from torch_xla.core._hlo_shape import Shape, Type

__all__ = [
    "CompiledCallableWithCache",
    "FlattenedInputFunc",
    "JaxCallable",
    "JaxFlattenedInputFunc",
    "Op",
    "Shape",
    "Type",
    "XlaCallable",
    "call_jax",
    "computation_from_module_proto",
    "create_builder",
    "create_computation",
    "create_placeholder_tensor",
    "get_computation_hlo",
    "mkleaf",
    "mkop",
    "mkparam",
    "mkshape",
    "tensor_shape",
    "xla_computation_as_func",
]


def create_builder(name: str) -> Builder:
    """A function to be built."""
    return Builder(name)


def mkshape(dtype: str, sizes: Sequence[int], dynamic_dimensions: Any = None) -> Shape:
    return Shape.create(dtype, sizes, dynamic_dimensions)


def mkop(name: str, ops: Sequence[Any], **kwargs: Any) -> Op:
    """The operation of that name in XLA ("Add", "Reduce"), of what `Op.op` of others is."""
    return Op.make(name, ops, **kwargs)


def mkleaf(name: str, builder: Builder, **kwargs: Any) -> Op:
    """An operation without operands: "Constant", "Iota"."""
    return Op.leaf(name, builder, **kwargs)


def mkparam(builder: Builder, param_no: int, shape: Shape) -> Op:
    """A parameter of the function."""
    return Op(builder.parameter(param_no, shape.nested()))


def tensor_shape(tensor: Any, device: str = "") -> Any:
    """The shape of a tensor, or of each in a list."""
    if isinstance(tensor, (list, tuple)):
        return [tensor_shape(t, device) for t in tensor]
    return Shape.create(Op.from_torch_type(tensor.dtype), tensor.shape)


def create_computation(
    name: str, fn: Callable[..., Op], shapes: Sequence[Shape], **kwargs: Any
) -> Computation:
    """What `fn` computes of parameters of these shapes. `fn(*ops, **kwargs)` returns an Op."""
    builder = create_builder(name)
    parameters = [mkparam(builder, number, shape) for number, shape in enumerate(shapes)]
    root = fn(*parameters, **kwargs)
    if not isinstance(root, Op):
        raise TypeError(f"{name}: the function must return an Op, it returned {root!r}")
    return root.build(name)


def _of_text(name: str, text: str) -> "_TextComputation":
    parameters, results = _XLAC.stablehlo_function_type(text)
    return _TextComputation(name, text, shapes_of(parameters), shapes_of(results))


class _TextComputation:
    """A computation that came as text."""

    def __init__(
        self, name: str, text: str, parameters: list[TensorShape], results: list[TensorShape]
    ) -> None:
        self.name, self.text = name, text
        self.parameters = tuple(parameters)
        self.result: Any = results[0] if len(results) == 1 else tuple(results)

    def module_text(self) -> str:
        return self.text


def computation_from_module_proto(name: str, proto: "bytes | str") -> _TextComputation:
    """A computation from StableHLO: text, or portable bytecode where jaxlib is installed. (HLO
    protocol buffers cannot be read: they are XLA's own, and programs here are StableHLO.)"""
    if isinstance(proto, bytes) and not proto.startswith(b"ML\xefR"):
        raise ValueError(
            f"computation_from_module_proto('{name}'): expected StableHLO as text or as portable "
            "bytecode, got other bytes; of a lowered JAX function take "
            "lowered.compiler_ir('stablehlo')"
        )
    text = stablehlo_bytecode.to_text(proto) if isinstance(proto, bytes) else proto
    return _of_text(name, text)


def get_computation_hlo(computation: Any) -> str:
    """The computation as StableHLO text."""
    text: str = computation.module_text()
    return text


def xla_computation_as_func(
    computation: Any, name: str | None = None
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """The computation as a function: a list of tensors in, a list of tensors out."""
    text = get_computation_hlo(computation)

    def call(input_tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results: list[torch.Tensor] = torch.ops.torch_xla.stablehlo(list(input_tensors), text)
        return results

    call.__name__ = name or computation.name
    return call


class FlattenedInputFunc:
    """A function of nested data as one of a list of tensors: `postprocess(flat_call(preprocess(
    args, kwargs)))` is `orig_func(*args, **kwargs)`."""

    def __init__(self, orig_func: Callable[..., Any]) -> None:
        self.orig_func = orig_func
        self.non_tensors: tuple[Any, ...] | None = None
        self.in_spec: Any = None
        self.out_spec: Any = None
        self._place = object()  # stands where a tensor was

    def preprocess(self, args: Any, kwargs: Any = None) -> tuple[Any, ...]:
        """The tensors; everything else is kept for `flat_call`."""
        found, self.in_spec = self.flatten((args, kwargs or {}))
        is_tensor = [isinstance(leaf, torch.Tensor) for leaf in found]
        pairs = list(zip(found, is_tensor, strict=True))
        self.non_tensors = tuple(self._place if tensor else leaf for leaf, tensor in pairs)
        return tuple(leaf for leaf, tensor in pairs if tensor)

    def flat_call(self, flat_input: Sequence[Any]) -> list[Any]:
        if self.non_tensors is None:
            raise RuntimeError("flat_call: call preprocess first")
        tensors = iter(flat_input)
        filled = [next(tensors) if leaf is self._place else leaf for leaf in self.non_tensors]
        args, kwargs = self.unflatten(filled, self.in_spec)
        results, self.out_spec = self.flatten(self.orig_func(*args, **kwargs))
        return results

    def postprocess(self, res_flattened: Sequence[Any]) -> Any:
        if self.out_spec is None:
            raise RuntimeError("postprocess: call flat_call first")
        return self.unflatten(list(res_flattened), self.out_spec)

    def flatten(self, inputs: Any) -> tuple[list[Any], Any]:
        return _pytree.tree_flatten(inputs)

    def unflatten(self, flattened: list[Any], spec: Any) -> Any:
        return _pytree.tree_unflatten(flattened, spec)


class JaxFlattenedInputFunc(FlattenedInputFunc):
    """The same for a JAX function: containers are JAX's, dtypes are translated."""

    def preprocess(self, args: Any, kwargs: Any = None) -> tuple[Any, ...]:
        tensors = super().preprocess(args, kwargs)
        self.non_tensors = tuple(
            jax_interop.dtype_of(leaf) if isinstance(leaf, torch.dtype) else leaf
            for leaf in self.non_tensors or ()
        )
        return tensors

    def flatten(self, inputs: Any) -> tuple[list[Any], Any]:
        flat: tuple[list[Any], Any] = jax_interop.jax("call_jax").tree.flatten(inputs)
        return flat

    def unflatten(self, flattened: list[Any], spec: Any) -> Any:
        return jax_interop.jax("call_jax").tree.unflatten(spec, flattened)


class CompiledCallableWithCache(abc.ABC):
    """A function that `specialize`s for each kind of call: shapes, dtypes and other values."""

    def __init__(self, flat_input_func: FlattenedInputFunc) -> None:
        self._flat_input_func = flat_input_func
        self._cache: dict[Any, tuple[Callable[..., Any], Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._flat_input_func
        tensors = function.preprocess(args, kwargs)
        kinds = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        key = (kinds, function.non_tensors, function.in_spec)
        if key not in self._cache:
            specialized = self.specialize(tensors)
            self._cache[key] = (specialized, function.out_spec)
        specialized, function.out_spec = self._cache[key]
        return function.postprocess(specialized(tensors))

    @abc.abstractmethod
    def specialize(self, sample_flat_args: tuple[Any, ...]) -> Callable[..., Any]:
        """A function of lists of tensors such as these. It calls `flat_call` once, which notes the
        structure of the results."""


class XlaCallable(CompiledCallableWithCache):
    """A function of Ops as a function of tensors, nested as they may be."""

    def __init__(self, xla_func: Callable[..., Any]) -> None:
        super().__init__(FlattenedInputFunc(xla_func))

    def specialize(self, sample_flat_args: tuple[Any, ...]) -> Callable[..., Any]:
        flat = self._flat_input_func.flat_call

        def build(*parameters: Op) -> Op:
            return Op.tuple(flat(parameters))

        name = getattr(self._flat_input_func.orig_func, "__name__", "computation")
        computation = create_computation(name, build, tensor_shape(sample_flat_args))
        return xla_computation_as_func(computation)


class JaxCallable(CompiledCallableWithCache):
    """A JAX function as a function of tensors."""

    def __init__(self, jax_func: Callable[..., Any]) -> None:
        super().__init__(JaxFlattenedInputFunc(jax_func))

    def specialize(self, sample_flat_args: tuple[Any, ...]) -> Callable[..., Any]:
        jax = jax_interop.jax("call_jax")
        given = [jax_interop.struct_of(tensor) for tensor in sample_flat_args]
        # Numbers of 64 bits are what tensors have; JAX has them only when asked.
        with jax.enable_x64(True):
            jitted = jax.jit(self._flat_input_func.flat_call, keep_unused=True)
            text = jitted.lower(given).as_text()
        return xla_computation_as_func(_of_text("jax_callable", text))


_JAX_TO_XLA_COMPUTATION_CACHE: dict[Any, JaxCallable] = {}


def _jax_to_xla_computation_cache_elements() -> int:
    """How many programs call_jax has made of functions."""
    return sum(len(callable._cache) for callable in _JAX_TO_XLA_COMPUTATION_CACHE.values())


def call_jax(
    jax_func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    name: str | None = None,
    override_hash: Any = None,
) -> Any:
    """Calls a JAX function with tensors among its arguments: what it computes becomes part of the
    program, and its results are tensors, without gradients.

    It is traced once for each kind of call. A function that is defined again is traced again,
    unless `override_hash` says that it is the same.
    """
    jax_interop.jax("call_jax")
    key = jax_func if override_hash is None else override_hash
    if key not in _JAX_TO_XLA_COMPUTATION_CACHE:
        _JAX_TO_XLA_COMPUTATION_CACHE[key] = JaxCallable(jax_func)
    return _JAX_TO_XLA_COMPUTATION_CACHE[key](*args, **(kwargs or {}))


def create_placeholder_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of the device of which only the sizes matter, for recording a computation. Its
    values are zeros, and nothing is computed or sent for it until they are read."""
    return torch.zeros(tuple(shape), dtype=dtype, device="xla")
