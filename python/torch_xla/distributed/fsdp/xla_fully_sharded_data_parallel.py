"""Each process keeps a part of every parameter, gathers the whole for the time of a computation,
and reduces its gradient to the part."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

import torch_xla
from torch_xla._internal import world
from torch_xla.core._collectives import REDUCE_MAX, REDUCE_SUM, all_gather, all_reduce
from torch_xla.core._linear import apply_xla_patch_to_nn_linear
from torch_xla.distributed.fsdp._lent import in_backward, lend, put, take
from torch_xla.distributed.fsdp.utils import BucketizedReduceScatter
from torch_xla.distributed.fsdp.wrap import recursive_wrap
from torch_xla.distributed.fsdp.xla_flatten_params_wrapper import XlaFlattenParamsWrapper

FLOAT_DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# Whether storages may be changed under views: views are PyTorch's own here.
XLA_DISABLE_FUNCTIONALIZATION = True

_SEPARATOR = "_FSDP_SHARD_SEPARATOR_"


class TrainingState(Enum):
    """What a module is in the middle of."""

    IDLE = auto()
    FORWARD = auto()
    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


def apply_to_tensors(fn: Callable[[torch.Tensor], Any], container: Any) -> Any:
    """Nested data with `fn(tensor)` in the place of each tensor."""
    return _pytree.tree_map_only(torch.Tensor, fn, container)


def collect_tensors(container: Any) -> list[torch.Tensor]:
    """The tensors of nested data, each once."""
    leaves = _pytree.tree_leaves(container)
    return list({id(t): t for t in leaves if isinstance(t, torch.Tensor)}.values())


class _Gather(torch.autograd.Function):
    """A shard -> the whole parameter; its gradient -> the shard's."""

    @staticmethod
    def forward(ctx: Any, shard: torch.Tensor, owner: Any, index: int) -> torch.Tensor:
        ctx.owner, ctx.index = owner, index
        whole: torch.Tensor = owner._regather(index) if in_backward() else owner._gather(index)
        return whole.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return ctx.owner._reduce(ctx.index, gradients[0]), None, None


class XlaFullyShardedDataParallel(nn.Module):
    """`module` with its parameters sharded over the processes of the world, or of its group of
    `sharding_groups`. Modules inside that are wrapped already, or that `auto_wrap_policy` chooses,
    gather theirs by themselves.

    `reshard_after_forward`: the whole parameters are gathered again for the backward pass, instead
    of kept. `flatten_parameters`: as one per module. `compute_dtype`: of whole parameters and
    inputs; `fp32_reduce_scatter`: gradients are reduced in float32 all the same. `param_init_fn`:
    called for a module on the device "meta". `sync_on_finalization`: ends the step with the
    backward pass. Barriers, layouts and the coalescing of collectives have no effect, because a
    collective ends the program before it.
    """

    def __init__(
        self,
        module: nn.Module,
        reshard_after_forward: bool = True,
        flatten_parameters: bool = False,
        execute_sharding_on_init: bool = True,
        optimization_barrier_in_forward: bool = True,
        optimization_barrier_in_backward: bool = True,
        sync_on_finalization: bool = False,
        disable_reshard_on_root: bool = True,
        compute_dtype: torch.dtype | None = None,
        buffer_dtype: torch.dtype | None = None,
        fp32_reduce_scatter: bool = False,
        sharding_groups: Sequence[Sequence[int]] | None = None,
        sharding_rank: int | None = None,
        sharding_world_size: int | None = None,
        shard_param_on_dim_0: bool = False,
        pin_layout_in_collective_ops: bool = True,
        reduce_scatter_bucket_size_mb: int | None = 0,
        coalesce_all_gather_ops: bool = False,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., nn.Module] | None = None,
        param_init_fn: Callable[[nn.Module], None] | None = None,
        mark_step_on_finalization: bool = False,
        _shard_size_multiple: int = 128,
        _use_xla_patched_linear: bool = True,
    ) -> None:
        super().__init__()
        options = {k: v for k, v in locals().items() if k not in ("self", "module", "__class__")}
        if isinstance(module, XlaFullyShardedDataParallel):
            raise RuntimeError("the module is wrapped already: wrap its children before it")
        if auto_wrap_policy is not None:
            del options["auto_wrap_policy"], options["auto_wrapper_callable"]
            wrapper = auto_wrapper_callable or type(self)
            recursive_wrap(module, auto_wrap_policy, wrapper, only_wrap_children=True, **options)
        self._groups = sharding_groups
        members = world.group_of(sharding_groups)
        self.rank = members.index(world.rank()) if sharding_rank is None else sharding_rank
        self.world_size = sharding_world_size or len(members)
        self.reshard_after_forward = reshard_after_forward
        self.compute_dtype = compute_dtype
        self.buffer_dtype = buffer_dtype or compute_dtype
        self._reduce_in_float32 = fp32_reduce_scatter
        self._on_dim_0 = shard_param_on_dim_0
        self._multiple = _shard_size_multiple
        self._sync_at_end = sync_on_finalization or mark_step_on_finalization
        self._divide = (1.0, float(self.world_size))
        self._reduces = True  # not inside no_sync
        self._kept: dict[int, torch.Tensor] = {}  # gradients not yet reduced
        self._regathered: dict[int, torch.Tensor] = {}
        self.training_state = TrainingState.IDLE
        _materialize(module, param_init_fn)
        if _use_xla_patched_linear:
            apply_xla_patch_to_nn_linear(module)
        own = [p for p in _own_parameters(module) if p.dtype in FLOAT_DTYPES]
        flat: Any = [own] if flatten_parameters and own else []
        self._fsdp_wrapped_module = XlaFlattenParamsWrapper(module, flat)
        self._places: list[list[tuple[nn.Module, str]]] = []
        self.sharded_params: list[nn.Parameter] = []
        for name, places in _places_of(self, self._fsdp_wrapped_module):
            self._shard(name, places)
        self._cast_buffers()
        if execute_sharding_on_init:
            torch_xla.sync()

    # Parameters

    def _shard(self, name: str, places: list[tuple[nn.Module, str]]) -> None:
        whole: Any = places[0][0]._parameters[places[0][1]]
        shard: Any = nn.Parameter(self._part(whole.detach()).to("xla"), whole.requires_grad)
        shard._orig_size, shard._orig_name = whole.size(), name
        shard._name = f"_fsdp_shard.{name}".replace(".", _SEPARATOR)
        for module, own_name in places:
            del module._parameters[own_name]
            lend(module, own_name, partial(self._gathered, len(self._places)))
        self.register_parameter(shard._name, shard)
        self.sharded_params.append(shard)
        self._places.append(places)

    def _padded(self, whole: torch.Tensor) -> torch.Tensor:
        """A tensor whose first dimension can be divided among the members."""
        rows = whole if self._on_dim_0 and whole.dim() > 0 else whole.reshape(-1)
        multiple = self.world_size * (1 if rows.dim() > 1 else self._multiple)
        missing = -rows.size(0) % multiple
        if missing == 0:
            return rows
        return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])

    def _part(self, whole: torch.Tensor) -> torch.Tensor:
        return self._padded(whole).chunk(self.world_size)[self.rank].clone()

    def _gather(self, index: int) -> torch.Tensor:
        shard: Any = self.sharded_params[index]
        dtype = self.compute_dtype or shard.dtype
        gathered: torch.Tensor = all_gather(shard.detach().to(dtype), 0, self._groups)
        if gathered.dim() > 1:
            return gathered[: shard._orig_size[0]].contiguous()
        return gathered[: math.prod(shard._orig_size)].reshape(shard._orig_size).contiguous()

    def _reduce(self, index: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """The gradient of the shard; None while it is only kept."""
        self._regathered.pop(index, None)
        self.training_state = TrainingState.BACKWARD_POST
        kept = self._kept.pop(index, None)
        gradient = gradient if kept is None else gradient + kept
        if not self._reduces:
            self._kept[index] = gradient
            return None
        shard = self.sharded_params[index]
        gradient = gradient.float() if self._reduce_in_float32 else gradient
        before, after = self._divide
        padded = self._padded(gradient if before == 1.0 else gradient / before)
        parts: list[torch.Tensor] = []
        scatter = BucketizedReduceScatter(0, self.world_size, self._groups)
        scatter.scale = 1.0 / after
        scatter(padded, parts.append)
        scatter.flush()
        if self._sync_at_end:
            engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
            engine.queue_callback(torch_xla.sync)
        return parts[0].to(shard.dtype)

    def _cast_buffers(self) -> None:
        if self.buffer_dtype is None:
            return
        for module in self._fsdp_wrapped_module.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.is_floating_point():
                    dtype = getattr(buffer, "_orig_dtype", buffer.dtype)
                    cast: Any = buffer.to(self.buffer_dtype)
                    cast._orig_dtype = dtype
                    module._buffers[name] = cast

    # Computing

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.compute_dtype is not None:
            args, kwargs = apply_to_tensors(self._cast, (args, kwargs))
        self.training_state = TrainingState.FORWARD
        with contextlib.ExitStack() as stack:
            wholes = [self._gathered(i) for i in range(len(self.sharded_params))]
            for places, whole in zip(self._places, wholes, strict=True):
                for module, name in places:
                    put(module, name, whole)
                    stack.callback(take, module, name)
            if self.reshard_after_forward and torch.is_grad_enabled():
                stack.enter_context(self._saving_without(wholes))
            output = self._fsdp_wrapped_module(*args, **kwargs)
        self.training_state = TrainingState.IDLE
        return output

    def _gathered(self, index: int) -> torch.Tensor:
        whole: torch.Tensor = _Gather.apply(self.sharded_params[index], self, index)  # type: ignore
        return whole

    def _regather(self, index: int) -> torch.Tensor:
        """The whole parameter in a backward pass, which ends with `_reduce`."""
        if index not in self._regathered:
            self.training_state = TrainingState.BACKWARD_PRE
            self._regathered[index] = self._gather(index)
        return self._regathered[index]

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.compute_dtype) if tensor.is_floating_point() else tensor

    def _saving_without(self, wholes: list[torch.Tensor]) -> Any:
        """What autograd keeps of whole parameters is which part of which it was."""
        index_of = {w.untyped_storage().data_ptr(): i for i, w in enumerate(wholes)}

        def pack(tensor: torch.Tensor) -> Any:
            index = index_of.get(tensor.untyped_storage().data_ptr())
            if index is None:
                return tensor
            return index, tensor.size(), tensor.stride(), tensor.storage_offset()

        def unpack(saved: Any) -> torch.Tensor:
            if isinstance(saved, torch.Tensor):
                return saved
            index, size, stride, offset = saved
            return self._regather(index).as_strided(size, stride, offset)

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backward passes inside are kept whole; the first one after reduces them."""
        wrapped = [m for m in self.modules() if isinstance(m, XlaFullyShardedDataParallel)]
        before = [module._reduces for module in wrapped]
        for module in wrapped:
            module._reduces = False
        try:
            yield
        finally:
            for module, reduces in zip(wrapped, before, strict=True):
                module._reduces = reduces

    def set_gradient_divide_factors(self, pre: float, post: float, recursive: bool) -> None:
        """Gradients are divided by `pre` before they are summed up and by `post` after."""
        modules = self.modules() if recursive else [self]
        for module in modules:
            if isinstance(module, XlaFullyShardedDataParallel):
                module._divide = (float(pre), float(post))

    @torch.no_grad()
    def clip_grad_norm_(
        self,
        max_norm: float,
        norm_type: float = 2.0,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> torch.Tensor:
        """Clips the gradients by their norm over all shards, which is returned."""
        norms = [
            p.grad.float().norm(norm_type) for p in self.params_with_grad if p.grad is not None
        ]
        own = torch.stack(norms) if norms else torch.zeros(1, device="xla")
        groups = self._groups if groups is None else groups
        if norm_type == math.inf:
            total = all_reduce(REDUCE_MAX, own.max(), 1.0, groups)
        else:
            total = all_reduce(REDUCE_SUM, (own**norm_type).sum(), 1.0, groups) ** (1 / norm_type)
        scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for parameter in self.params_with_grad:
            if parameter.grad is not None:
                parameter.grad.mul_(scale)
        return total

    @property
    def params_with_grad(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.parameters() if parameter.grad is not None]

    @property
    def module(self) -> XlaFlattenParamsWrapper:
        return self._fsdp_wrapped_module

    def __getattr__(self, name: str) -> Any:
        """Attributes it lacks are those of the module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    def __getitem__(self, key: int) -> Any:
        return self._fsdp_wrapped_module[key]

    # Checkpoints

    def get_original_names_and_sharded_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The parameters' names in the plain module, and their shards."""
        result = []
        for prefix, module in self.named_modules():
            if isinstance(module, XlaFullyShardedDataParallel):
                for shard in module.sharded_params:
                    name = f"{prefix}.{shard._orig_name}" if prefix else shard._orig_name  # type: ignore
                    result.append((_plain(name), shard))
        return result

    def get_shard_metadata(self) -> dict[str, Any]:
        """What `consolidate_sharded_model_checkpoints` needs beside the state dict."""
        shards: dict[str, Any] = {}
        flat: dict[str, Any] = {}
        for name, module in self.named_modules(remove_duplicate=False):
            name = name.replace("_fpw_module.", "")
            if isinstance(module, XlaFullyShardedDataParallel):
                shards[name] = {
                    shard._name: {"_orig_size": shard._orig_size, "_orig_name": shard._orig_name}  # type: ignore
                    for shard in module.sharded_params
                }
            if isinstance(module, XlaFlattenParamsWrapper):
                for i, flat_name in enumerate(module.flat_param_names):
                    flat[f"{name}.{flat_name}" if name else flat_name] = module.metadata(i)
        buffers = {
            name.replace("_fpw_module.", ""): {"_orig_dtype": buffer._orig_dtype}  # type: ignore
            for name, buffer in self.named_buffers()
            if hasattr(buffer, "_orig_dtype")
        }
        return {
            "shard_info": shards,
            "flatten_info": flat,
            "buffer_info": buffers,
            "world_size": self.world_size,
            "rank": self.rank,
        }

    def extra_repr(self) -> str:
        return f"world_size={self.world_size}, rank={self.rank}"


def _plain(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "").replace("_fpw_module.", "")


def _own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Those that no wrapped module inside has sharded."""
    inner = {
        id(parameter)
        for child in module.modules()
        if isinstance(child, XlaFullyShardedDataParallel)
        for parameter in child.parameters()
    }
    return [p for p in module.parameters() if id(p) not in inner]


def _places_of(
    owner: nn.Module, wrapped: nn.Module
) -> Iterator[tuple[str, list[tuple[nn.Module, str]]]]:
    """Each own parameter: its name in `owner`, and the modules that hold it."""
    own = {id(parameter) for parameter in _own_parameters(wrapped)}
    places: dict[int, tuple[str, list[tuple[nn.Module, str]]]] = {}
    for prefix, module in owner.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in own:
                entry = places.setdefault(id(parameter), (f"{prefix}.{name}", []))
                entry[1].append((module, name))
    return iter(list(places.values()))


def _materialize(module: nn.Module, init: Callable[[nn.Module], None] | None) -> None:
    """Gives parameters to a module that was made on the device "meta"."""
    if not any(parameter.is_meta for parameter in module.parameters()):
        return
    if init is not None:
        init(module)
        return
    module.to_empty(device="cpu")
    for child in module.modules():
        reset: Any = getattr(child, "reset_parameters", None)
        if reset is not None:
            reset()
