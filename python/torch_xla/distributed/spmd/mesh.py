"""Meshes: the devices of all processes as an array whose axes have names."""

import ast
import itertools
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torch_xla import _XLAC, runtime

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# How one dimension of a tensor is sharded: not (None), over an axis of the mesh by name or index,
# or over several axes, the first of them outermost.
Axis = str | int
DimSpec = None | Axis | Sequence[Axis]
PartitionSpec = Sequence[DimSpec]


class ShardingError(ValueError, AssertionError):
    """A mesh or a sharding that cannot be. An AssertionError too, which PyTorch/XLA raises."""


class Mesh:
    """`device_ids`, every device once, as an array of `mesh_shape`."""

    def __init__(
        self,
        device_ids: "np.ndarray | Sequence[int]",
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ) -> None:
        self.device_ids = np.asarray(device_ids).flatten()
        self.mesh_shape = tuple(int(size) for size in mesh_shape)
        self.axis_names = None if axis_names is None else tuple(axis_names)
        # Axes without names are called by their numbers.
        self._names = self.axis_names or tuple(map(str, range(len(self.mesh_shape))))
        self._check()

    def _check(self) -> None:
        # The first words are PyTorch/XLA's, which people's tests look for.
        ids, count, places = self.device_ids, len(self.device_ids), int(np.prod(self.mesh_shape))
        if places != count:
            raise ShardingError(
                f"Number of device IDs ({count}) must match mesh size ({places}): a mesh of shape "
                f"{self.mesh_shape} has {places} places, got {count} devices"
            )
        if len(set(ids.tolist())) != count:
            raise ShardingError(
                f"Device IDs must be unique: a mesh has each device once, got {ids}"
            )
        if any(not 0 <= number < count for number in ids):
            raise ShardingError(
                f"Device IDs must be less than mesh size ({count}): a mesh has each device once, "
                f"numbered from 0, got {ids}"
            )
        if len(self._names) != len(self.mesh_shape):
            raise ShardingError(
                f"Number of axis names ({len(self._names)}) must match mesh dimensions "
                f"({len(self.mesh_shape)}): give one name per axis of {self.mesh_shape}, not "
                f"{self._names}"
            )
        if len(set(self._names)) != len(self._names):
            raise ShardingError(f"Axis names must be unique, got {self._names}")
        devices = runtime.global_runtime_device_count() if runtime.is_spmd() else count
        if count != devices:
            raise ShardingError(
                f"Number of device IDs ({count}) must match the global number of devices "
                f"({devices}): a mesh over {count} devices cannot shard programs that run on all"
            )

    def size(self) -> int:
        return len(self.device_ids)

    def shape(self) -> "OrderedDict[str, int]":
        """The sizes of the axes by name."""
        return OrderedDict(zip(self._names, self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> np.ndarray:
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        return self._names.index(name) if name in self._names else None

    def get_op_sharding(
        self, partition_spec: PartitionSpec, flatten_opsharding: bool = False
    ) -> Any:
        """What XLA is told for a tensor with this spec; with `flatten_opsharding`, whose only
        dimension is the product of all others."""
        axes = self.translate(partition_spec)
        tiles = [int(np.prod([self.mesh_shape[axis] for axis in dim])) for dim in axes]
        used = list(itertools.chain.from_iterable(axes))
        rest = [axis for axis in range(len(self.mesh_shape)) if axis not in used]
        devices = self.get_logical_mesh().transpose(used + rest).flatten().tolist()
        if flatten_opsharding:
            tiles = [int(np.prod(tiles))]
        return _XLAC.OpSharding.tiled(tiles, devices)

    def translate(self, partition_spec: PartitionSpec) -> list[list[int]]:
        """The indices of the axes that each dimension is sharded over."""
        axes = [self._axes_of(dim, partition_spec) for dim in partition_spec]
        used = list(itertools.chain.from_iterable(axes))
        if len(set(used)) != len(used):
            raise ShardingError(
                f"the spec {tuple(partition_spec)} uses an axis of {self!r} more than once: an "
                "axis can shard one dimension"
            )
        return axes

    def _axes_of(self, dim: DimSpec, partition_spec: PartitionSpec) -> list[int]:
        if dim is None:
            return []
        if isinstance(dim, (tuple, list)):
            return [axis for part in dim for axis in self._axes_of(part, partition_spec)]
        if isinstance(dim, str) and dim in self._names:
            return [self._names.index(dim)]
        if isinstance(dim, (int, np.integer)) and 0 <= dim < len(self.mesh_shape):
            return [int(dim)]
        raise ShardingError(
            f"the spec {tuple(partition_spec)} names {dim!r}, which is not an axis of {self!r}: "
            f"use one of {self._names}, an index below {len(self.mesh_shape)}, a tuple of them, "
            "or None"
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mesh)
            and self.shape() == other.shape()
            and bool(np.array_equal(self.device_ids, other.device_ids))
        )

    def __hash__(self) -> int:
        return hash((self.mesh_shape, self._names, self.device_ids.tobytes()))

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self.shape().items())
        return f"Mesh({axes})"

    def __str__(self) -> str:
        return str(
            {
                "device_ids": self.device_ids.tolist(),
                "mesh_shape": self.mesh_shape,
                "axis_names": self.axis_names,
            }
        )

    @classmethod
    def from_str(cls, mesh_str: str) -> "Mesh | None":
        """The mesh of which this is `str`; None of another text."""
        try:
            return cls(**ast.literal_eval(mesh_str))
        except (ValueError, SyntaxError, TypeError):
            return None


class HybridMesh(Mesh):
    """A mesh over slices: `ici_mesh_shape` inside a slice, with its fast links, times
    `dcn_mesh_shape` across slices. Both have one entry per axis. Slices, and where a device is in
    its slice, are what the plugin says (`slice_index`, `coords`); otherwise devices are numbered
    slice by slice."""

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        dcn = tuple(dcn_mesh_shape or (1,) * len(ici_mesh_shape))
        ici = tuple(ici_mesh_shape)
        if len(dcn) != len(ici):
            raise ShardingError(f"ici_mesh_shape {ici} and dcn_mesh_shape {dcn} differ in length")
        self.ici_mesh_shape, self.dcn_mesh_shape = ici, dcn
        count = int(np.prod(dcn))
        slices = [_in_slice(devices, ici) for devices in _slices(count, int(np.prod(ici)))]
        # Axis i of the mesh is slices first, then inside.
        blocks = np.array(slices).reshape(dcn + ici)
        rank = len(ici)
        order = [axis + offset for axis in range(rank) for offset in (0, rank)]
        shape = tuple(outer * inner for outer, inner in zip(dcn, ici, strict=True))
        super().__init__(blocks.transpose(order).reshape(shape), shape, axis_names)


def _slices(count: int, size: int) -> list[list[dict[str, Any]]]:
    """What the plugin says of the devices, slice by slice, in the order of their numbers."""
    devices = runtime.global_runtime_device_attributes()
    for device in devices:
        device["number"] = int(device["name"].rpartition(":")[2])
    devices.sort(key=lambda device: int(device["number"]))
    if "slice_index" not in devices[0]:
        if len(devices) != count * size:  # the mesh's own check says so
            devices = [{"number": number} for number in range(count * size)]
        return [devices[i * size : (i + 1) * size] for i in range(count)]
    slices: dict[int, list[dict[str, Any]]] = {}
    for device in devices:
        slices.setdefault(device["slice_index"], []).append(device)
    if len(slices) != count:
        raise ShardingError(
            f"Number of slices {len(slices)} must equal the product of dcn_mesh_shape, got {count}"
        )
    return [slices[index] for index in sorted(slices)]


def _in_slice(devices: list[dict[str, Any]], shape: tuple[int, ...]) -> "np.ndarray":
    """The devices of a slice as an array of `shape`. The last axes communicate most: each takes the
    first physical axes whose product it is. Where none are left that fit, the order of the physical
    places is kept."""
    numbers = np.array([device["number"] for device in devices])
    if len(numbers) != np.prod(shape):
        raise ShardingError(
            f"Number of devices {len(numbers)} must equal the product of mesh_shape {shape}"
        )
    if "coords" not in devices[0]:
        return numbers.reshape(shape)
    places = np.array([device["coords"] for device in devices])
    sizes = places.max(axis=0) + 1
    if np.prod(sizes) != len(devices):  # several on one chip
        return numbers.reshape(shape)
    physical = np.empty(sizes, dtype=int)
    physical[tuple(places.T)] = numbers
    free = list(range(len(sizes)))
    taken: list[int] = []
    for size in reversed(shape):
        choices = (c for n in range(len(free) + 1) for c in itertools.combinations(free, n))
        chosen = next((c for c in choices if np.prod(sizes[list(c)], dtype=int) == size), None)
        if chosen is None:
            return physical.reshape(shape)
        taken = [*chosen, *taken]
        free = [axis for axis in free if axis not in chosen]
    ordered: np.ndarray = physical.transpose(*free, *taken).reshape(shape)
    return ordered


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices along one axis."""
    count = runtime.global_runtime_device_count()
    return Mesh(range(count), (count,), None if axis_name is None else (axis_name,))


_global_mesh: Mesh | None = None


def set_global_mesh(mesh: "Mesh | DeviceMesh | None") -> None:
    global _global_mesh
    _global_mesh = None if mesh is None else as_mesh(mesh)


def get_global_mesh() -> Mesh | None:
    if _global_mesh is None and os.environ.get("XLA_AUTO_SPMD_MESH"):
        raise ShardingError("XLA_AUTO_SPMD_MESH is not supported: call set_global_mesh(mesh)")
    return _global_mesh


def as_mesh(mesh: Any) -> Mesh:
    """A Mesh, or a torch.distributed DeviceMesh as one. A slice of a DeviceMesh (`mesh["tp"]`) is
    the whole one with the slice's axes first, so that its numbers and names of axes hold."""
    if isinstance(mesh, Mesh):
        return mesh
    ids, names = getattr(mesh, "mesh", None), getattr(mesh, "mesh_dim_names", None)
    if not isinstance(ids, torch.Tensor):
        raise ShardingError(f"expected a Mesh or a DeviceMesh, got {type(mesh).__name__}")
    root = mesh._get_root_mesh()
    if root.size() > mesh.size():
        names, others = names or (), root.mesh_dim_names or ()
        if not set(names) <= set(others):
            raise ShardingError(
                f"{mesh!r} was flattened from a part of {root!r}: slice the axes {others} instead, "
                "and shard a dimension over several of them by a placement for each"
            )
        names = (*names, *(name for name in others if name not in names))
        ids = root.mesh.permute([others.index(name) for name in names])
    return Mesh(ids.numpy(), tuple(ids.shape), names)


def required_mesh(mesh: Any = None) -> Mesh:
    """`mesh`, or the global one; it must be there."""
    if mesh is not None:
        return as_mesh(mesh)
    if _global_mesh is None:
        raise ShardingError("no mesh: pass one, or call torch_xla.distributed.spmd.set_global_mesh")
    return _global_mesh
