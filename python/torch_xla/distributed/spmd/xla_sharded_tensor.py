"""Tensors that lie on several devices: what each device holds."""

import contextlib
import copy
import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import get_default_nowrap_functions

from torch_xla import _XLAC, runtime


class ShardingType(enum.IntEnum):
    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5  # tiles, each on several devices
    UNKNOWN = 6


@dataclass
class XLAShard:
    """What one device holds."""

    data: torch.Tensor  # on the CPU; padded where the dimension does not divide evenly
    indices: Any  # a slice per dimension of the whole tensor, or `...` for all of it
    shard_device: str
    replica_id: int

    @property
    def unpadded_data(self) -> torch.Tensor:
        if self.indices is Ellipsis:
            return self.data
        return self.data[tuple(slice(0, index.stop - index.start) for index in self.indices)]

    @unpadded_data.setter
    def unpadded_data(self, value: torch.Tensor) -> None:
        self.unpadded_data.copy_(value)


def local_shards(tensor: torch.Tensor) -> list[XLAShard]:
    """What each device of this process holds of a tensor."""
    sharding = _XLAC._get_xla_op_sharding(tensor)
    whole = sharding is None or sharding.is_replicated
    kind = runtime.device_type()
    return [
        XLAShard(data, ... if whole else indices, f"{kind}:{device}", replica)
        for data, indices, device, replica in _XLAC.local_shards(tensor)
    ]


def sharding_type(tensor: torch.Tensor) -> ShardingType | None:
    sharding = _XLAC._get_xla_op_sharding(tensor)
    if sharding is None:
        return None
    if sharding.is_manual:
        return ShardingType.MANUAL
    if sharding.is_replicated:
        return ShardingType.REPLICATED
    return ShardingType.PARTIAL if sharding.copies > 1 else ShardingType.TILED


@contextlib.contextmanager
def no_dispatch() -> Iterator[None]:
    """Inside, subclasses of tensors are as plain tensors to PyTorch."""
    guard = torch._C._DisableTorchDispatch()
    try:
        yield
    finally:
        del guard


def _wrapped(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        plain = value.device.type == "xla" and not isinstance(value, XLAShardedTensor)
        return value.as_subclass(XLAShardedTensor) if plain else value
    if type(value) in (tuple, list) or type(value).__module__ == "torch.return_types":
        return type(value)([_wrapped(part) for part in value])
    return value


class XLAShardedTensor(torch.Tensor):
    """Another name for a sharded tensor, on the same storage. What its operations give on the
    device has this type, too. That of a leaf is a leaf, with gradients of its own."""

    mesh_shape: tuple[int, ...] | None = None
    partition_spec: Sequence[Any] | None = None
    _given_mesh: Any = None  # what it was marked on, or an operand of its operation: of either kind
    # The numbers of the axes that shard each dimension, if it was marked.
    _axes: Sequence[Sequence[int]] | None = None

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            if func in get_default_nowrap_functions():
                return result
            result = _wrapped(result)
            if isinstance(result, XLAShardedTensor) and func in _COPIES:
                result._lie_as(args[0])
            several = isinstance(result, tuple | list)
            for part in result if several else (result,):
                if isinstance(part, XLAShardedTensor) and part._given_mesh is None:
                    part._given_mesh = _mesh_among(args)
            return result

    @staticmethod
    def __new__(
        cls,
        elem: torch.Tensor,
        mesh_shape: tuple[int, ...] | None = None,
        partition_spec: Sequence[Any] | None = None,
        requires_grad: bool | None = None,
        **_: Any,
    ) -> "XLAShardedTensor":
        with torch._C.DisableTorchFunctionSubclass():
            wanted = elem.requires_grad if requires_grad is None else requires_grad
            source = elem.detach() if wanted and elem.is_leaf else elem
            tensor: XLAShardedTensor = source.as_subclass(cls)
            tensor.requires_grad_(wanted)
        tensor.mesh_shape = mesh_shape
        tensor.partition_spec = partition_spec
        return tensor

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def _lie_as(self, other: "XLAShardedTensor") -> None:
        self.mesh_shape, self.partition_spec = other.mesh_shape, other.partition_spec
        self._given_mesh, self._axes = other._given_mesh, other._axes

    def __deepcopy__(self, memo: dict[int, Any]) -> "XLAShardedTensor":
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment: detach() this one first"
            )
        copied: XLAShardedTensor = self.detach().clone()  # type: ignore[assignment]
        memo[id(self)] = copied.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copied.grad = copy.deepcopy(self.grad, memo)
        memo[id(self._given_mesh)] = self._given_mesh  # a mesh is no part of its tensors
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Files hold the whole tensor, which anybody can load."""
        if not isinstance(self, torch.nn.Parameter):
            return self.global_tensor.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]
        parameter = torch.nn.Parameter(self.global_tensor.detach(), self.requires_grad)
        return parameter.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    @property
    def global_tensor(self) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(torch.Tensor)

    @property
    def sharding_spec(self) -> str:
        """XLA's text: "{devices=[2,4]0,1,2,3,4,5,6,7}"."""
        spec: str = _XLAC._get_xla_sharding_spec(self)
        return spec

    @property
    def sharding_type(self) -> ShardingType | None:
        return sharding_type(self)

    @property
    def local_shards(self) -> list[XLAShard]:
        return local_shards(self)

    def load_local_shards_(self, shards: Sequence[XLAShard]) -> None:
        """Replaces what each device of this process holds."""
        if any(shard.data.device.type != "cpu" for shard in shards):
            raise ValueError("load_local_shards_: the data of shards must be on the CPU")
        _XLAC.load_local_shards(self, [shard.data for shard in shards])

    @property
    def device_mesh(self) -> Any:
        """The DeviceMesh that it lies on."""
        from torch.distributed.device_mesh import DeviceMesh

        mesh = self._mesh()
        if mesh is None:
            raise ValueError(
                "Placements not available: XLAShardedTensor requires mesh_shape and "
                "partition_spec to be set. Use mark_sharding() to properly initialize sharding "
                "information."
            )
        if isinstance(mesh, DeviceMesh):
            return mesh
        ids = torch.from_numpy(mesh.get_logical_mesh())
        return DeviceMesh("xla", ids, mesh_dim_names=mesh.axis_names)

    def _mesh(self) -> Any:
        """What it was marked on, or would be by its `mesh_shape`."""
        if self._given_mesh is None and self.mesh_shape is not None:
            from torch_xla.distributed.spmd.mesh import Mesh

            mesh = Mesh(range(runtime.global_runtime_device_count()), self.mesh_shape)
            self._given_mesh, self._axes = mesh, mesh.translate(self.partition_spec or ())
        return self._given_mesh

    @property
    def _spec(self) -> Any:
        """How it lies, in the words of torch.distributed.tensor: a DTensorSpec."""
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

        meta = TensorMeta(self.shape, self.stride(), self.dtype)
        return DTensorSpec(self.device_mesh, self.placements, tensor_meta=meta)

    @property
    def placements(self) -> tuple[Any, ...]:
        """One for each axis of `device_mesh`. A result that nobody marked lies as XLA chooses:
        `Undecided()` until it is computed."""
        from torch_xla.distributed.spmd.placements import placements_of

        mesh = self.device_mesh
        return placements_of(self, mesh, self._axes)

    def redistribute(
        self, device_mesh: Any = None, placements: Sequence[Any] | None = None, **_: Any
    ) -> "XLAShardedTensor":
        """The same values, lying as `placements` say on the mesh, by default its own; this tensor
        stays as it is."""
        from torch_xla.distributed.spmd.api import distributed_copy

        device_mesh = self._mesh() if device_mesh is None else device_mesh
        return distributed_copy(self, device_mesh, placements)

    def to_local(self, **_: Any) -> torch.Tensor:
        """What this process has of the tensor, as a plain one, with gradients: all of it, since one
        process drives the whole mesh. What each device has are its `local_shards`."""
        return self.global_tensor

    def full_tensor(self, **_: Any) -> torch.Tensor:
        """The whole on each device, as a plain tensor, with gradients."""
        return self.global_tensor if self._mesh() is None else self.redistribute().to_local()

    def full(self) -> torch.Tensor:
        """The whole tensor on the CPU."""
        return self.global_tensor.detach().cpu()


def _mesh_among(arguments: Sequence[Any]) -> Any:
    """The mesh of the first operand that has one."""
    for argument in arguments:
        nested = isinstance(argument, tuple | list)
        mesh = _mesh_among(argument) if nested else getattr(argument, "_given_mesh", None)
        if mesh is not None:
            return mesh
    return None


_COPIES = {
    torch.clone,
    torch.detach,
    torch.Tensor.clone,
    torch.Tensor.detach,
    torch.Tensor.to,
    torch.Tensor.type,
    torch.Tensor.contiguous,
    torch.Tensor.float,
    torch.Tensor.half,
    torch.Tensor.bfloat16,
    torch.Tensor.double,
    torch.Tensor.data.__get__,  # type: ignore[attr-defined]
}
