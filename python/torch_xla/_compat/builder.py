"""2.9's bindings under `torch_xla.core.xla_builder`, in terms of ours."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla.core import xla_builder as xb


def _shape_of(tensor: torch.Tensor, device: str = "") -> Any:
    return xb.tensor_shape(tensor, device).shape


def _parameter(builder: Any, number: int, shape: Any) -> Any:
    return xb.mkparam(builder, number, xb.Shape(shape)).op


def _create(builder: Any, name: str, operands: Sequence[Any], arguments: dict[str, Any]) -> Any:
    given = xb.mkop(name, operands, **arguments) if operands else None
    return (given or xb.mkleaf(name, builder, **arguments)).op


def _build(name: str, root: Any) -> Any:
    return xb.Op(root).build(name)


def _op_shape(op: Any) -> Any:
    return xb.Op(op).shape().shape


def _op_builder(op: Any) -> Any:
    return xb.Op(op).builder()


NAMES: dict[str, Callable[..., Any]] = {
    "_xla_computation_text": xb.get_computation_hlo,
    "_xla_op_build": _build,
    "_xla_op_builder": _op_builder,
    "_xla_op_computation_from_module_proto": xb.computation_from_module_proto,
    "_xla_op_create": _create,
    "_xla_op_create_builder": xb.create_builder,
    "_xla_op_param": _parameter,
    "_xla_op_shape": _op_shape,
    "_xla_op_tensor_shape": _shape_of,
}
