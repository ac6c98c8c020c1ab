"""The entry points that torch.distributed.tensor calls for meshes of the device type "xla"."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch

from torch_xla import runtime
from torch_xla.distributed.spmd.mesh import Mesh, ShardingError, as_mesh, required_mesh
from torch_xla.distributed.spmd.xla_sharded_tensor import XLAShardedTensor
from torch_xla.distributed.spmd.xla_sharding import mark_sharding

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _NoSuchDimension(ShardingError, IndexError):
    """As PyTorch/XLA raises it."""


class _NoPartialSums(ShardingError, NotImplementedError):
    """As PyTorch/XLA raises it."""


def with_xla(func: Callable[_P, _T]) -> Callable[_P, _T]:
    """A decorator: turns SPMD mode on before each call."""

    @functools.wraps(func)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        runtime.use_spmd()
        return func(*args, **kwargs)

    return call


@with_xla
def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """A DeviceMesh of all devices as a Mesh."""
    if dt_mesh.size() != runtime.global_runtime_device_count():
        raise ShardingError(
            f"the DeviceMesh has {dt_mesh.size()} devices, and a mesh of this program has all "
            f"{runtime.global_runtime_device_count()}"
        )
    return as_mesh(dt_mesh)


@with_xla
def convert_to_xla_partition_spec(
    tensor: torch.Tensor, placements: Sequence[Any]
) -> tuple[Any, ...]:
    """PyTorch's placements, one for each axis of a mesh, as a partition spec by axis numbers."""
    return spec_of(placements, tensor.dim())


def placements_to_spec(placements: Sequence[Any], mesh: Mesh, rank: int) -> tuple[Any, ...]:
    """PyTorch says what each axis of the mesh does (Shard(dim), Replicate()); a spec says which
    axes each dimension of the tensor has."""
    if len(placements) != len(mesh.mesh_shape):
        raise ShardingError(f"{len(placements)} placements were given for {mesh}: one per axis")
    return spec_of(placements, rank)


def spec_of(placements: Sequence[Any], rank: int) -> tuple[Any, ...]:
    axes: list[list[int]] = [[] for _ in range(rank)]
    for axis, placement in enumerate(placements):
        if placement.is_partial():
            raise _NoPartialSums("a tensor cannot be given as partial sums: use Shard or Replicate")
        if not placement.is_replicate():
            if not -rank <= placement.dim < rank:
                raise _NoSuchDimension(f"{placement} of a tensor with {rank} dimensions")
            axes[placement.dim].append(axis)
    return tuple(tuple(dim) if len(dim) > 1 else dim[0] if dim else None for dim in axes)


def xla_distribute_tensor(
    tensor: torch.Tensor,
    device_mesh: Any = None,
    placements: Sequence[Any] | None = None,
) -> XLAShardedTensor:
    """`tensor` on the xla device, sharded over `device_mesh` as `placements` say."""
    mesh = required_mesh(device_mesh)
    if placements is None:
        from torch.distributed.tensor import Replicate

        placements = [Replicate()] * len(mesh.mesh_shape)
    moved = tensor if tensor.device.type == "xla" else tensor.to("xla")
    return mark_sharding(moved, mesh, placements_to_spec(placements, mesh, tensor.dim()))


def xla_distribute_module(
    module: torch.nn.Module,
    device_mesh: Any = None,
    partition_fn: Callable[[str, torch.nn.Module, Any], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> torch.nn.Module:
    """Moves `module` to the xla device, and calls `partition_fn(name, submodule, mesh)` for each
    submodule; without it every parameter is replicated."""
    module = module.to("xla")
    if partition_fn is not None:
        for name, submodule in module.named_modules():
            partition_fn(name, submodule, device_mesh)
    else:
        mesh = as_mesh(device_mesh)
        for tensor in (*module.parameters(), *module.buffers()):
            mark_sharding(tensor, mesh, (None,) * tensor.dim())
    if input_fn is not None:
        module.register_forward_pre_hook(lambda _, inputs: input_fn(inputs, device_mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda _, __, outputs: output_fn(outputs, device_mesh))
    return module


def auto_policy(name: str, module: torch.nn.Module, mesh: Any) -> None:
    """For `distribute_module`: plugins have no automatic partitioner, so nothing is sharded."""
    warnings.warn(
        "auto_policy needs XLA's automatic partitioner, which plugins do not offer: everything is "
        "replicated. Mark tensors, or wrap the module in SpmdFullyShardedDataParallel",
        stacklevel=2,
    )
