"""torch.distributed's meshes of the device type "xla", and its DTensors on them.

One process drives the whole mesh (SPMD), so PyTorch makes it without process groups, and asks
`torch_xla.distributed.spmd` to distribute tensors and modules. What else needs no groups works
here. What does, says so; and so do questions for the process's place in the mesh: it has all.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_xla._internal.devices import type_name


class NoProcessGroups(RuntimeError):
    """Asked of a mesh that one process drives."""


def install() -> None:
    if not torch.distributed.is_available():
        return
    from torch.distributed.device_mesh import DeviceMesh

    _let_slice(DeviceMesh)
    for name in (
        "get_group",
        "get_rank",
        "get_local_rank",
        "get_coordinate",
        "_sym_get_coordinate",
        "_is_current_rank_part_of_mesh",
    ):
        _instead(DeviceMesh, name, _refuse)


def _instead(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    """For meshes of this device type another method takes the place of one of `DeviceMesh`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(mesh: Any, *arguments: Any, **options: Any) -> Any:
        chosen = ours if mesh.device_type == type_name else original
        return chosen(mesh, *arguments, **options)

    setattr(owner, name, method)


def _refuse(mesh: Any, *_: Any, **__: Any) -> Any:
    raise NoProcessGroups(
        f"DeviceMesh process groups not initialized: one process drives all devices of {mesh}, so "
        "it has no groups, and no place in them. Shard with distribute_tensor, distribute_module, "
        "parallelize_module or torch_xla's SpmdFullyShardedDataParallel; between several processes "
        "use torch.distributed's functions, DistributedDataParallel or torch_xla.distributed.fsdp, "
        "without a mesh"
    )


def _let_slice(device_mesh: Any) -> None:
    """`mesh["name"]` looks for the groups, and for the part of the mesh that has this process: of
    parts that are all alike we take the first."""
    initialize, whole = device_mesh.__init__, device_mesh.mesh

    @functools.wraps(initialize)
    def initialize_without_groups(
        self: Any, device_type: str, *arguments: Any, **options: Any
    ) -> None:
        if device_type == type_name:
            # Its place, which nobody may ask for, is among what torch.compile looks at.
            self._dim_group_names, self._coordinate_on_dim = [], None
        initialize(self, device_type, *arguments, **options)

    def mesh(self: Any) -> Any:
        if self._device_type != type_name:
            return whole.fget(self)
        places = self._layout.remap_to_tensor(self._rank_map)
        return self._get_mesh_tensor_from_full_mesh(places, int(self._rank_map[0]))

    device_mesh.__init__ = initialize_without_groups
    device_mesh.mesh = property(mesh, doc=whole.__doc__)


def correct_dtensor(module: Any) -> None:
    """`DTensor.from_local` and `zeros`, `rand`, ... of torch.distributed.tensor."""
    from_local, initialized = module.DTensor.from_local, module._dtensor_init_helper

    def is_ours(mesh: Any) -> bool:
        used = mesh or module._mesh_resources.get_current_mesh()
        return bool(used.device_type == type_name)

    @functools.wraps(from_local)
    def from_local_ours(
        local_tensor: torch.Tensor,
        device_mesh: Any = None,
        placements: Any = None,
        *,
        shape: Any = None,
        **options: Any,
    ) -> Any:
        if not is_ours(device_mesh):
            return from_local(local_tensor, device_mesh, placements, shape=shape, **options)
        from torch_xla.distributed.spmd.api import xla_from_local

        mesh = device_mesh or module._mesh_resources.get_current_mesh()
        return xla_from_local(local_tensor, mesh, placements, shape)

    @functools.wraps(initialized)
    def initialized_ours(
        init_op: Any, size: Any, device_mesh: Any = None, placements: Any = None, **options: Any
    ) -> Any:
        if not is_ours(device_mesh):
            return initialized(init_op, size, device_mesh, placements, **options)
        mesh = device_mesh or module._mesh_resources.get_current_mesh()
        value = init_op(size, **{**options, "device": type_name})
        return module.distribute_tensor(value, mesh, placements)

    module.DTensor.from_local = staticmethod(from_local_ours)
    module._dtensor_init_helper = initialized_ours
