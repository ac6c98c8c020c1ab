"""The entry points that torch.distributed.tensor calls for meshes of the device type "xla"."""

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch.utils import _pytree

from torch_xla import _XLAC, runtime
from torch_xla._internal import world
from torch_xla.distributed.spmd.mesh import Mesh, ShardingError, as_mesh, required_mesh
from torch_xla.distributed.spmd.xla_sharded_tensor import XLAShardedTensor
from torch_xla.distributed.spmd.xla_sharding import (
    mark_sharding,
    unwrap_sharded_tensor,
    wrap_as_sharded_tensor,
)

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


def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """A DeviceMesh of all devices as a Mesh."""
    _check_size(dt_mesh)
    runtime.use_spmd()
    return as_mesh(dt_mesh)


def _check_size(mesh: Any) -> None:
    """Before SPMD mode is entered, which there is no way back from."""
    size = mesh.size() if isinstance(mesh, Mesh) else mesh._get_root_mesh().size()
    if size != runtime.global_runtime_device_count():
        others = (
            ". Its processes have devices of their own: let them exchange by torch.distributed, "
            "DistributedDataParallel or torch_xla.distributed.fsdp, or start one process for all "
            "devices"
        )
        raise ShardingError(
            f"the DeviceMesh has {size} devices, and a mesh of this program has all "
            f"{runtime.global_runtime_device_count()}{others if world.size() > 1 else ''}"
        )


@with_xla
def convert_to_xla_partition_spec(
    tensor: torch.Tensor, placements: Sequence[Any]
) -> tuple[Any, ...]:
    """PyTorch's placements, one for each axis of a mesh, as a partition spec by axis numbers."""
    return spec_of(placements, tensor.dim())


def spec_of(placements: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """PyTorch says what each axis of the mesh does (Shard(dim), Replicate()); a spec says which
    axes each dimension of the tensor has."""
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
    """`tensor` on the xla device, sharded over `device_mesh` as `placements` say. A leaf stays one,
    with a gradient of its own."""
    mesh = device_mesh if device_mesh is not None else required_mesh()
    _check_size(mesh)
    runtime.use_spmd()
    if tensor.device.type != "xla":
        leaf, wanted = tensor.is_leaf, tensor.requires_grad
        tensor = tensor.detach().to("xla").requires_grad_(wanted) if leaf else tensor.to("xla")
    return mark_sharding(tensor, mesh, _checked_spec(placements, mesh, tensor.dim()))


def _checked_spec(placements: Sequence[Any] | None, device_mesh: Any, rank: int) -> tuple[Any, ...]:
    sizes = device_mesh.mesh_shape if isinstance(device_mesh, Mesh) else device_mesh.shape
    if placements is None:
        return (None,) * rank
    if len(placements) != len(sizes):
        raise ShardingError(
            f"Number of placements ({len(placements)}) must match mesh dimensions ({len(sizes)}): "
            f"give one per axis of {device_mesh!r}"
        )
    return spec_of(placements, rank)


def distributed_copy(
    tensor: torch.Tensor, device_mesh: Any, placements: Sequence[Any] | None
) -> XLAShardedTensor:
    """The same values with a sharding of their own, and their gradients with them."""
    copy = unwrap_sharded_tensor(tensor)
    copy = copy.clone() if copy.device.type == "xla" else copy.to("xla")
    _XLAC._xla_clear_sharding(copy)
    return xla_distribute_tensor(copy, device_mesh, placements)


def xla_from_local(
    local_tensor: torch.Tensor,
    device_mesh: Any,
    placements: Sequence[Any] | None = None,
    shape: Sequence[int] | None = None,
) -> XLAShardedTensor:
    """What this process has of a tensor, which is all of it, since one process drives the whole
    mesh. Partial sums of one process are the sums."""
    if shape is not None and tuple(shape) != tuple(local_tensor.shape):
        raise ShardingError(
            "DTensor.from_local takes what this process has of the tensor, and one process drives "
            f"the whole mesh: pass all of shape {tuple(shape)}, not {tuple(local_tensor.shape)}. "
            "What single devices hold is given to XLAShardedTensor.load_local_shards_"
        )
    if placements is not None:
        from torch.distributed.tensor import Replicate

        placements = [Replicate() if part.is_partial() else part for part in placements]
    return distributed_copy(local_tensor, device_mesh, placements)


def xla_distribute_module(
    module: torch.nn.Module,
    device_mesh: Any = None,
    partition_fn: Callable[[str, torch.nn.Module, Any], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> torch.nn.Module:
    """Moves `module` to the xla device, and calls `partition_fn(name, submodule, mesh)` for each
    submodule; without it every parameter is replicated. `input_fn(module, inputs, mesh)` and
    `output_fn(module, outputs, mesh)` stand around its forward; the module may be left out."""
    module = module.to("xla")
    if partition_fn is not None:
        for name, submodule in module.named_modules():
            partition_fn(name, submodule, device_mesh)
    else:
        for tensor in (*module.parameters(), *module.buffers()):
            mark_sharding(tensor, device_mesh, (None,) * tensor.dim())
    if input_fn is not None:
        before = _with_module(input_fn)
        module.register_forward_pre_hook(lambda mod, inputs: before(mod, inputs, device_mesh))
    if output_fn is not None:
        after = _with_module(output_fn)
        module.register_forward_hook(
            lambda mod, _, outputs: after(mod, _lying_on(outputs, device_mesh), device_mesh)
        )
    return module


def _lying_on(outputs: Any, device_mesh: Any) -> Any:
    """What a distributed module returns is distributed, also where a compiled graph made it."""

    def named(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type != "xla":
            return value
        result = wrap_as_sharded_tensor(value)
        if result._mesh() is None:
            result._given_mesh = device_mesh
        return result

    return _pytree.tree_map(named, outputs)


def _with_module(function: Callable[..., Any]) -> Callable[..., Any]:
    """Functions of two arguments, as they were at first, take no module. Marks are made outside of
    the graphs of torch.compile, which knows no XLAShardedTensor."""
    given = function
    if len(inspect.signature(function).parameters) == 2:
        given = lambda _, values, mesh: function(values, mesh)  # noqa: E731
    outside: Callable[..., Any] = torch._dynamo.disable(given)  # type: ignore[no-untyped-call]
    return outside


def auto_policy(mod_name: str, mod: torch.nn.Module, mesh: Any) -> None:
    """For `distribute_module`: plugins have no automatic partitioner, so nothing is sharded."""
    warnings.warn(
        "auto_policy needs XLA's automatic partitioner, which plugins do not offer: everything is "
        "replicated. Mark tensors, or wrap the module in SpmdFullyShardedDataParallel",
        stacklevel=2,
    )
