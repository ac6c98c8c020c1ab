"""How tensors lie on a mesh, in the words of torch.distributed.tensor."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor.placement_types import Placement, Replicate, Shard

from torch_xla import _XLAC
from torch_xla.distributed.spmd.api import spec_of
from torch_xla.distributed.spmd.mesh import as_mesh


class Undecided(Placement):
    """XLA chooses how the value lies, when it compiles the program, or chose what has no name."""

    def __repr__(self) -> str:
        return "Undecided()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undecided)

    def __hash__(self) -> int:
        return hash(Undecided)


def placements_of(
    tensor: torch.Tensor, device_mesh: Any, axes: Sequence[Sequence[int]] | None
) -> tuple[Placement, ...]:
    """A tensor was marked with the axes that shard each dimension; one that was not, is asked."""
    if axes is not None:
        dims = {axis: dim for dim, sharding in enumerate(axes) for axis in sharding}
        return tuple(
            Shard(dims[axis]) if axis in dims else Replicate() for axis in range(device_mesh.ndim)
        )
    sharding = _XLAC._get_xla_op_sharding(tensor)
    if sharding is not None:
        mesh = as_mesh(device_mesh)
        choices: list[Placement] = [Replicate(), *map(Shard, range(tensor.dim()))]
        for placements in itertools.product(choices, repeat=device_mesh.ndim):
            described = mesh.get_op_sharding(spec_of(placements, tensor.dim()))
            if str(described) == str(sharding):
                return tuple(placements)
    undecided: tuple[Placement, ...] = (Undecided(),) * device_mesh.ndim
    return undecided
