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


def dynamo_set_buffer_donor_(t: torch.Tensor, should_donoate: bool) -> torch.Tensor:
    """Has no effect: memory that nobody refers to any more is given to results by itself."""
    return t.clone()


def install() -> None:
    for schema, function in (
        (
            "dynamo_mark_sharding(Tensor input, int[] device_ids, int[] mesh_shape, "
            "str axis_names, str partition_spec) -> Tensor",
            dynamo_mark_sharding,
        ),
        (
            "dynamo_set_buffer_donor_(Tensor t, bool should_donoate) -> Tensor",
            dynamo_set_buffer_donor_,
        ),
    ):
        _library.define(schema)
        for key in ("XLA", "CompositeExplicitAutograd"):
            _library.impl(function.__name__, function, key)
