"""FSDP by sharding marks: parameters and activations are cut along the axis "fsdp" of a mesh."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_xla.distributed.spmd.mesh import Mesh, ShardingError, required_mesh
from torch_xla.distributed.spmd.xla_sharding import mark_sharding

_AXIS = "fsdp"


class SpmdFullyShardedDataParallel(nn.Module):
    """`module` on the xla device, each parameter sharded in its first dimension over the axis
    "fsdp" of `mesh` (default: the global mesh), and so is the output.

    `shard_output(output, mesh)` marks outputs that are no tensors. `auto_wrap_policy`: those of
    torch.distributed.fsdp.wrap; submodules it chooses are wrapped too, which shards their outputs,
    by `auto_wrapper_callable(submodule, mesh=...)` if given. `extra_data_axis`: one more axis of
    the mesh that the batch is cut along.
    """

    def __init__(
        self,
        module: nn.Module,
        mesh: Mesh | None = None,
        shard_output: Callable[[Any, Mesh], None] | None = None,
        *,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., nn.Module] | None = None,
        extra_data_axis: str | None = None,
    ) -> None:
        super().__init__()
        if isinstance(module, SpmdFullyShardedDataParallel):
            raise ShardingError("the module is already a SpmdFullyShardedDataParallel")
        self._mesh = required_mesh(mesh)
        self._extra_data_axis = extra_data_axis
        for axis in (_AXIS, extra_data_axis):
            if axis is not None and axis not in self._mesh.shape():
                raise ShardingError(
                    f"The provided {axis} axis is not in the mesh. ({self._mesh} has no axis "
                    f"{axis!r})"
                )
        self._shard_output = shard_output or self._shard_first_tensor
        module = module.to("xla")
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or SpmdFullyShardedDataParallel
            options: dict[str, Any] = {"mesh": self._mesh}
            if auto_wrapper_callable is None:
                options["extra_data_axis"] = extra_data_axis
            _wrap_children(module, auto_wrap_policy, lambda child: wrapper(child, **options))
        for parameter in _own_parameters(module):
            mark_sharding(parameter, self._mesh, self._parameter_spec(parameter))
        self._orig_module = module

    @property
    def module(self) -> nn.Module:
        return self._orig_module

    def __getattr__(self, name: str) -> Any:
        """Attributes it lacks are those of the module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_module"), name)

    def __getitem__(self, key: int) -> Any:
        return self._orig_module.__getitem__(key)  # type: ignore[operator]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self._orig_module(*args, **kwargs)
        self._shard_output(output, self._mesh)
        return output

    def _parameter_spec(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """By its largest dimension."""
        spec: list[Any] = [None] * tensor.dim()
        if spec:
            spec[max(range(tensor.dim()), key=tensor.size)] = _AXIS
        return tuple(spec)

    def _batch_spec(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        extra = self._extra_data_axis
        return (_AXIS if extra is None else (extra, _AXIS),) + (None,) * (tensor.dim() - 1)

    def _shard_first_tensor(self, output: Any, mesh: Mesh) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(first, torch.Tensor):
            raise ShardingError(
                f"the module returns a {type(output).__name__}, of which it is not known what to "
                "shard: pass shard_output(output, mesh), which calls mark_sharding on its tensors"
            )
        if first.dim() > 0:
            mark_sharding(first, mesh, self._batch_spec(first))


def _own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Those that no wrapper inside has marked already."""
    inner = {
        id(parameter)
        for child in module.modules()
        if isinstance(child, SpmdFullyShardedDataParallel)
        for parameter in child.parameters()
    }
    return [parameter for parameter in module.parameters() if id(parameter) not in inner]


def _wrap_children(
    module: nn.Module, policy: Callable[..., bool], wrap: Callable[[nn.Module], nn.Module]
) -> None:
    for name, child in module.named_children():
        if policy(child, True, _numel(child)):
            _wrap_children(child, policy, wrap)
        if policy(child, False, _numel(child)):
            setattr(module, name, wrap(child))


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in _own_parameters(module))
