"""Hints for the compiler as operators `torch.ops.xla.*`, which torch.compile leaves alone."""

import ast
from collections.abc import Sequence
from typing import Any

import torch

_library: Any = torch.library.Library("xla", "FRAGMENT")  # type: ignore[no-untyped-call]


def dynamo_mark_sharding(
    input: torch.Tensor,
    device_ids: Sequence[int],
    mesh_shape: Sequence[int],
    axis_names: str,
    partition_spec: str,
) -> torch.Tensor:
    """`mark_sharding` with a mesh in parts. Names and spec are Python tuples as text: "('x', 'y')".
    Nothing happens to tensors of other devices."""
    if input.device.type == "xla":
        from torch_xla.distributed.spmd import Mesh, mark_sharding

        names, spec = ast.literal_eval(axis_names), ast.literal_eval(partition_spec)
        mark_sharding(input, Mesh(list(device_ids), tuple(mesh_shape), names), spec)
    return input.clone()  # an operator's result is no argument of it


def aot_mark_sharding(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
    """A copy of `t`, marked; the mesh is the text of its devices, shape and axes, as a tuple."""
    from torch_xla.distributed.spmd import Mesh, mark_sharding, unwrap_sharded_tensor

    copy = t.clone()
    mark_sharding(copy, Mesh(*ast.literal_eval(mesh)), ast.literal_eval(partition_spec))
    plain: torch.Tensor = unwrap_sharded_tensor(copy)
    return plain


def mark_tensor(
    x: torch.Tensor, name: str, pos: int, id: str, is_input: bool, attr: Any = None
) -> torch.Tensor:
    """`xla_marker.mark_tensor`: of which the operator of that name is made."""
    from torch_xla.experimental import xla_marker

    given = tuple(attr) if isinstance(attr, list) else attr
    return xla_marker.mark_tensor(x, name, pos, id, is_input, given)


def _like(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(tensor)


def dynamo_set_buffer_donor_(t: torch.Tensor, should_donoate: bool) -> torch.Tensor:
    """Has no effect: memory that nobody refers to any more is given to results by itself."""
    return t.clone()


def install() -> None:
    _library.define(
        "mark_tensor(Tensor x, str name, int pos, str id, bool is_input, Any? attr=None) -> Tensor"
    )
    _library.impl("mark_tensor", mark_tensor, "CompositeImplicitAutograd")
    for schema, function in (
        (
            "dynamo_mark_sharding(Tensor input, int[] device_ids, int[] mesh_shape, "
            "str axis_names, str partition_spec) -> Tensor",
            dynamo_mark_sharding,
        ),
        (
            "aot_mark_sharding(Tensor t, str mesh, str partition_spec) -> Tensor",
            aot_mark_sharding,
        ),
        (
            "dynamo_set_buffer_donor_(Tensor t, bool should_donoate) -> Tensor",
            dynamo_set_buffer_donor_,
        ),
    ):
        _library.define(schema)
        for key in ("XLA", "CompositeExplicitAutograd"):
            _library.impl(function.__name__, function, key)
        _library.impl(function.__name__, _like, "Meta")  # while a graph is traced
