"""How tensors are spread over a mesh: the user marks some, XLA partitions the program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree

from torch_xla import _XLAC, runtime
from torch_xla.core._barrier import barrier
from torch_xla.core._linear import XLAPatchedLinear, xla_patched_nn_linear_forward
from torch_xla.distributed.spmd.mesh import (
    HybridMesh,
    Mesh,
    PartitionSpec,
    ShardingError,
    as_mesh,
    get_1d_mesh,
    get_global_mesh,
    required_mesh,
    set_global_mesh,
)
from torch_xla.distributed.spmd.xla_sharded_tensor import (
    ShardingType,
    XLAShard,
    XLAShardedTensor,
)

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "EinsumLinear",
    "HybridMesh",
    "Mesh",
    "PartitionSpec",
    "ShardingError",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "XLAShard",
    "XLAShardedTensor",
    "annotate_custom_sharding",
    "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear",
    "clear_sharding",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "get_logical_mesh",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "shard_as",
    "unwrap_sharded_tensor",
    "wrap_as_sharded_tensor",
    "wrap_if_sharded",
    "xla_patched_nn_linear_forward",
]


def mark_sharding(
    t: torch.Tensor, mesh: "Mesh | DeviceMesh", partition_spec: PartitionSpec
) -> XLAShardedTensor:
    """`t` lies on the mesh as `partition_spec` says, one entry per dimension: None (not sharded),
    an axis by name or index, or a tuple of axes. A tensor that holds data is moved once, and keeps
    its sharding when it is updated; the value of an operation is computed so."""
    return _mark(t, mesh, partition_spec, _XLAC._xla_mark_sharding)


def _mark(
    t: torch.Tensor, mesh: "Mesh | DeviceMesh", partition_spec: PartitionSpec, mark: Any
) -> XLAShardedTensor:
    given, mesh = mesh, as_mesh(mesh)
    _check_spec(t, mesh, partition_spec)
    mark(t, mesh.get_op_sharding(partition_spec))
    marked = wrap_as_sharded_tensor(t, mesh.mesh_shape, tuple(partition_spec))
    marked._given_mesh, marked._axes = given, mesh.translate(partition_spec)
    _mark_gradients_of(t)
    _mark_gradients_of(marked)
    return marked


def _check_spec(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> None:
    if t.device.type != "xla":
        raise ShardingError(f"only xla tensors are sharded, got one on {t.device}: move it first")
    if len(partition_spec) != t.dim():
        raise ShardingError(
            f"the spec {tuple(partition_spec)} has {len(partition_spec)} entries for a tensor of "
            f"shape {tuple(t.shape)} on {mesh!r}: give one per dimension"
        )


def _mark_gradients_of(t: torch.Tensor) -> None:
    """The gradient that autograd keeps with a parameter will lie like the parameter."""
    hooks = t._post_accumulate_grad_hooks  # type: ignore[attr-defined]
    wanted = t.requires_grad and t.is_leaf and _XLAC.mark_gradient not in (hooks or {}).values()
    if wanted:
        t.register_post_accumulate_grad_hook(_XLAC.mark_gradient)  # type: ignore[no-untyped-call]


def annotate_custom_sharding(
    t: torch.Tensor, mesh: "Mesh | DeviceMesh", partition_spec: PartitionSpec
) -> XLAShardedTensor:
    """As `mark_sharding`, but another mark takes the place of the one that `t` has: programs move
    it from one to the other."""
    return _mark(t, mesh, partition_spec, _XLAC._xla_annotate_custom_sharding)


def _mark_manual_sharding(t: torch.Tensor) -> XLAShardedTensor:
    """The part that this device holds of a tensor, computed by hand: as it is."""
    if _XLAC._get_xla_op_sharding(t) is not None:
        raise ShardingError(
            "_mark_manual_sharding: the tensor is marked, and no part of another one: "
            "enable_manual_sharding gives its parts"
        )
    return wrap_as_sharded_tensor(t)


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Forgets how `t` was marked; its value is replicated from now on."""
    _XLAC._xla_clear_sharding(t)
    plain: torch.Tensor = unwrap_sharded_tensor(t)
    return plain


class MarkShardingFunction(torch.autograd.Function):
    """Marks a copy of a tensor, and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
    ) -> torch.Tensor:
        parts = (mesh.device_ids.tolist(), mesh.mesh_shape, mesh.axis_names)
        ctx.arguments = str(parts), str(tuple(partition_spec))
        return MarkShardingFunction._marked(t, *ctx.arguments)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return MarkShardingFunction._marked(gradients[0], *ctx.arguments), None, None

    # An operator, so that graphs of torch.compile and of AOTAutograd hold it.
    @staticmethod
    def _marked(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
        plain = unwrap_sharded_tensor(t)
        result: torch.Tensor = torch.ops.xla.aot_mark_sharding(plain, mesh, partition_spec)
        return result


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    """A copy of `t` that is sharded so, and so is its gradient."""
    arguments = (t, as_mesh(mesh), tuple(partition_spec))
    result: torch.Tensor = MarkShardingFunction.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


def enable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """Enters a region that XLA does not partition: a tensor of the shape of one device's piece."""
    mesh = required_mesh(mesh)
    _check_spec(t, mesh, partition_spec)
    piece = _XLAC.full_to_shard(t, mesh.get_op_sharding(partition_spec))
    return wrap_as_sharded_tensor(piece, mesh.mesh_shape, tuple(partition_spec))


def disable_manual_sharding(
    t: torch.Tensor,
    partition_spec: PartitionSpec,
    full_shape: Sequence[int],
    mesh: Mesh | None = None,
) -> XLAShardedTensor:
    """Leaves the region: the pieces as one tensor of `full_shape`, sharded as said."""
    mesh = required_mesh(mesh)
    whole = _XLAC.shard_to_full(t, mesh.get_op_sharding(partition_spec), list(full_shape))
    return wrap_as_sharded_tensor(whole, mesh.mesh_shape, tuple(partition_spec))


def get_logical_mesh(mesh: Mesh | None = None) -> Any:
    """The device numbers as an array of the mesh's shape."""
    return required_mesh(mesh).get_logical_mesh()


def wrap_as_sharded_tensor(
    t: torch.Tensor,
    mesh_shape: tuple[int, ...] | None = None,
    partition_spec: PartitionSpec | None = None,
) -> XLAShardedTensor:
    if not isinstance(t, XLAShardedTensor):
        return XLAShardedTensor(t, mesh_shape, partition_spec)
    if mesh_shape is not None:
        t.mesh_shape, t.partition_spec = mesh_shape, partition_spec
        t._given_mesh = t._axes = None
    return t


def wrap_if_sharded(x: Any) -> Any:
    """A tensor that is spread over devices as XLAShardedTensor; anything else as it is."""
    if not isinstance(x, torch.Tensor) or x.device.type != "xla":
        return x
    sharding = _XLAC._get_xla_op_sharding(x)
    return x if sharding is None or sharding.is_replicated else wrap_as_sharded_tensor(x)


def unwrap_sharded_tensor(t: Any) -> Any:
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


def shard_as(a: Any, b: Any) -> tuple[Any, Any]:
    """Copies of nested tensors of one structure, of which corresponding ones lie the same way: as
    the first of the two that is marked or known to be sharded."""
    leaves_a, structure = _pytree.tree_flatten(a)
    leaves_b, other = _pytree.tree_flatten(b)
    if structure != other:
        raise ShardingError(f"shard_as: the structures differ: {structure} and {other}")
    pairs = [_alike(x, y) for x, y in zip(leaves_a, leaves_b, strict=True)]
    first, second = [x for x, _ in pairs], [y for _, y in pairs]
    return _pytree.tree_unflatten(first, structure), _pytree.tree_unflatten(second, structure)


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        if x is not y:
            raise ShardingError(f"shard_as: tensors correspond to tensors, got {x!r} and {y!r}")
        return x, y
    known = _XLAC._get_xla_op_sharding(x) or _XLAC._get_xla_op_sharding(y)
    x, y = x.clone(), y.clone()
    if known is not None:
        _XLAC._xla_mark_sharding(x, known)
        _XLAC._xla_mark_sharding(y, known)
    return x, y


class EinsumLinear(torch.nn.Linear):
    """nn.Linear that keeps the batch's dimensions apart in its gradients, so that XLA can keep
    their shardings."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return xla_patched_nn_linear_forward(self, input)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module) -> torch.nn.Module:
    """Makes each nn.Linear in `module` an EinsumLinear, with the parameters it has."""
    for child in module.modules():
        if type(child) is torch.nn.Linear:
            child.__class__ = EinsumLinear
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> None:
    """XLA does not mix the backward pass of `m` with what comes after: gradients leave it behind a
    barrier, together."""

    def separate(module: Any, given: Any, returned: Any) -> Any:
        tensors = [tensor for tensor in given if tensor is not None]
        if not tensors:
            return None
        values = iter(barrier(tensors))
        return tuple(None if tensor is None else next(values) for tensor in given)

    m.register_full_backward_hook(separate)


@dataclass
class ShardingSpec:
    """How a tensor of the right rank is to be sharded, for instance what a loader yields."""

    mesh: Mesh
    partition_spec: PartitionSpec
    # Each process holds its own part of the batch (the first dimension), not all of it.
    minibatch: bool = False

    def __post_init__(self) -> None:
        self.mesh = as_mesh(self.mesh)
        self.mesh.translate(self.partition_spec)
        if self.minibatch and self.partition_spec[0] is None:
            raise ShardingError("minibatch: the first dimension of the spec must be sharded")

    def can_apply(self, t: torch.Tensor) -> bool:
        return t.dim() == len(self.partition_spec)

    def xla_spec(self, t: torch.Tensor) -> Any:
        return self.mesh.get_op_sharding(self.partition_spec) if self.can_apply(t) else None

    def apply(self, t: torch.Tensor) -> None:
        if self.minibatch and runtime.process_count() > 1:
            raise ShardingError(
                "minibatch=True is not supported with several processes: load the whole batch in "
                "each of them and leave minibatch=False; only the process's part is sent"
            )
        devices = runtime.addressable_runtime_device_count()
        if self.minibatch and t.size(0) % devices != 0:
            raise RuntimeError(
                "When minibatch is configured, the per-host batch size must be divisible by local "
                f"runtime device count. Per host input data shape = {tuple(t.shape)}, and there "
                f"are {devices} devices"
            )
        mark_sharding(t, self.mesh, self.partition_spec)


# Names that PyTorch/XLA's own users reach for.


def _get_sharding_type(partition_spec: PartitionSpec, num_devices: int) -> ShardingType:
    if num_devices == 1:
        return ShardingType.MAXIMAL
    if all(dim is None for dim in partition_spec):
        return ShardingType.REPLICATED
    partial = any(dim is None for dim in partition_spec)
    return ShardingType.PARTIAL if partial else ShardingType.TILED


def _translate_named_partition_spec(mesh: Mesh, partition_spec: PartitionSpec) -> tuple[Any, ...]:
    def translate(dim: Any) -> Any:
        if isinstance(dim, (tuple, list)):
            return tuple(translate(part) for part in dim)
        return None if dim is None else mesh.translate([dim])[0][0]

    return tuple(translate(dim) for dim in partition_spec)


def _get_tile_assignment(mesh: Mesh, partition_spec: PartitionSpec) -> Any:
    """The devices as an array with a dimension per dimension of the tensor; copies of a tile are a
    last dimension."""
    sharding = mesh.get_op_sharding(partition_spec)
    if sharding.is_replicated:
        return mesh.get_logical_mesh()
    copies = [sharding.copies] if sharding.copies > 1 else []
    import numpy as np

    return np.array(sharding.devices).reshape(sharding.tiles + copies)
