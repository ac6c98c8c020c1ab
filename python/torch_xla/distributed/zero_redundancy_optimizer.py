"""An optimizer each process of which keeps the state of a part of the parameters (ZeRO-1)."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from torch_xla import runtime
from torch_xla.core._buckets import all_gather_bucketized, reduce_scatter_bucketized
from torch_xla.core._collectives import REDUCE_SUM, all_gather, all_reduce
from torch_xla.core._collectives import reduce_scatter as _reduce_scatter

_Scheme = Sequence[dict[str, Any]]


class ZeroRedundancyOptimizer(Optimizer):
    """`optimizer_class(..., **defaults)` on this process's part of each parameter.

    Gradients are averaged over the group of `sharding_groups` and clipped to `max_norm` with
    `grad_clipping`; their norm is summed up over `grad_norm_groups`, too. Parts are kept in
    `optimizer_dtype` (default float32), and saved with `save_master_weights`. `lazy_init`: call
    `init_zero()` later. `use_grad_acc_hook`: gradients are accumulated in `optimizer_dtype`.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        optimizer_dtype: torch.dtype | None = None,
        grad_clipping: bool = True,
        max_norm: float | None = None,
        pin_layout: bool = True,
        sharding_groups: Sequence[Sequence[int]] | None = None,
        grad_norm_groups: Sequence[Sequence[int]] | None = None,
        lazy_init: bool = False,
        bucket_cap_mb_all_gather: int = 0,
        bucket_cap_mb_reduce_scatter: int = 0,
        use_grad_acc_hook: bool = False,
        save_master_weights: bool = False,
        higher_cc_precision: bool = False,
        **defaults: Any,
    ) -> None:
        super().__init__(params, defaults)
        self.global_world_size = runtime.world_size()
        self.global_rank = runtime.global_ordinal()
        self._sharding_groups = sharding_groups or [list(range(self.global_world_size))]
        self._grad_norm_groups = grad_norm_groups
        self.optimizer_class = optimizer_class
        self.defaults = defaults
        self.optimizer_dtype = optimizer_dtype or torch.float32
        self.grad_clipping = grad_clipping
        self.max_norm = 1.0 if max_norm is None else max_norm
        self.bucket_cap_mb_all_gather = bucket_cap_mb_all_gather
        self.bucket_cap_mb_reduce_scatter = bucket_cap_mb_reduce_scatter
        self.use_grad_acc_hook = use_grad_acc_hook
        self.save_master_weights = save_master_weights
        self.higher_cc_precision = higher_cc_precision
        self._grad_norm: torch.Tensor | None = None
        self._hooks: list[Any] = []
        self.inited = False
        if not lazy_init:
            self.init_zero()

    def init_zero(self) -> None:
        """Makes the parts and their optimizer of what the parameters are now."""
        self.remove_hooks()
        group = next((g for g in self._sharding_groups if self.global_rank in g), None)
        if group is None:
            raise ValueError(
                f"ordinal {self.global_rank} is in none of the groups {self._sharding_groups}"
            )
        self.local_world_size, self.local_rank = len(group), list(group).index(self.global_rank)
        groups = [
            {**options, "params": [self._part_of(p) for p in options["params"]]}
            for options in self.param_groups
        ]
        self.base_optimizer = self.optimizer_class(groups, **self.defaults)
        self.inited = True

    def _part_of(self, parameter: torch.Tensor) -> torch.Tensor:
        part: Any = self._padded(parameter.detach()).chunk(self.local_world_size)[self.local_rank]
        part = part.to(self.optimizer_dtype).clone().requires_grad_(parameter.requires_grad)
        if self.use_grad_acc_hook and parameter.requires_grad:
            part.main_grad = torch.zeros_like(parameter, dtype=self.optimizer_dtype)
            parameter.main_grad = part.main_grad  # type: ignore[attr-defined]
            hook = parameter.register_post_accumulate_grad_hook(_accumulate)  # type: ignore
            self._hooks.append(hook)
        return part  # type: ignore[no-any-return]

    def _padded(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
        missing = -tensor.size(0) % self.local_world_size
        if missing == 0:
            return tensor
        return torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])])

    def remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """The norm of the gradients at the last step."""
        return self._grad_norm

    @property
    def sharding_groups(self) -> Sequence[Sequence[int]]:
        return self._sharding_groups

    @sharding_groups.setter
    def sharding_groups(self, groups: Sequence[Sequence[int]]) -> None:
        if self.inited:
            raise RuntimeError("sharding_groups cannot change any more: set it before init_zero()")
        self._sharding_groups = groups

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        """Each parameter and its part."""
        for whole, parts in zip(self.param_groups, self.base_optimizer.param_groups, strict=True):
            yield from zip(whole["params"], parts["params"], strict=True)

    def _gradient(self, parameter: Any, part: Any) -> torch.Tensor | None:
        gradient: torch.Tensor | None = (
            part.main_grad
            if (self.use_grad_acc_hook and hasattr(part, "main_grad"))
            else parameter.grad
        )
        return gradient

    def _scheme(self, scheme: _Scheme | None) -> _Scheme:
        own = {
            "scale_factor": 1.0,
            "sharding_group": self._sharding_groups,
            "group_size": self.local_world_size,
        }
        return scheme or [own]

    def _reduce_gradients(self, scheme: _Scheme) -> None:
        pairs = [(p, q) for p, q in self._pairs() if self._gradient(p, q) is not None]
        gradients = []
        for parameter, part in pairs:
            padded = self._padded(self._gradient(parameter, part))  # type: ignore[arg-type]
            gradients.append(
                padded.to(self.optimizer_dtype) if self.higher_cc_precision else padded
            )
        for step in scheme:
            size, groups = step["group_size"], step["sharding_group"]
            options = (REDUCE_SUM, gradients, step["scale_factor"] / size, 0, size, groups)
            if self.bucket_cap_mb_reduce_scatter > 0:
                limit = self.bucket_cap_mb_reduce_scatter
                gradients = reduce_scatter_bucketized(*options, bucket_cap_mb=limit)
            else:
                gradients = _reduce_scatter(*options)
        for (_, part), gradient in zip(pairs, gradients, strict=True):
            part.grad = gradient.to(self.optimizer_dtype)

    def _clip(self) -> None:
        norms = [part.grad.norm() for _, part in self._pairs() if part.grad is not None]
        if not norms:
            return
        squared = (torch.stack(norms) ** 2).sum()
        total = all_reduce(REDUCE_SUM, squared, 1.0, self._sharding_groups)
        if self._grad_norm_groups is not None:
            total = all_reduce(REDUCE_SUM, total, 1.0, self._grad_norm_groups)
        self._grad_norm = total.sqrt()
        scale = (self.max_norm / (self._grad_norm + 1e-6)).clamp(max=1.0)
        for _, part in self._pairs():
            if part.grad is not None:
                part.grad.mul_(scale)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Averages the gradients, updates the parts, and gathers the parameters. `sharding_scheme`:
        several reductions one after the other, as dicts with scale_factor, sharding_group and
        group_size. Other arguments go to the optimizer."""
        if not self.inited:
            raise RuntimeError("the parameters are not sharded yet: call init_zero() first")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scheme = self._scheme(kwargs.pop("sharding_scheme", None))
        _copy_options(self.param_groups, self.base_optimizer.param_groups)
        self._reduce_gradients(scheme)
        if self.grad_clipping:
            self._clip()
        self.base_optimizer.step(closure=None, **kwargs)
        self.allgather_weights_and_update_full_parameter(scheme)
        self.base_optimizer.zero_grad(set_to_none=True)
        _copy_options(self.base_optimizer.param_groups, self.param_groups)
        return loss

    @torch.no_grad()
    def allgather_weights_and_update_full_parameter(
        self, sharding_scheme: _Scheme | None = None
    ) -> None:
        """Overwrites the parameters with what the processes' parts are."""
        pairs = list(self._pairs())
        values = [part.detach().to(parameter.dtype) for parameter, part in pairs]
        for step in reversed(self._scheme(sharding_scheme)):
            if self.bucket_cap_mb_all_gather > 0:
                limit = self.bucket_cap_mb_all_gather
                values = all_gather_bucketized(
                    values, 0, step["sharding_group"], bucket_cap_mb=limit
                )
            else:
                values = all_gather(values, 0, step["sharding_group"])
        for (parameter, _), value in zip(pairs, values, strict=True):
            rows = parameter.size(0) if parameter.dim() > 0 else 1
            parameter.data.copy_(value[:rows].view(parameter.shape))

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for _, part in self._pairs() if self.inited else ():
            if hasattr(part, "main_grad"):
                part.main_grad.zero_()

    def get_shape_info(self) -> dict[int, torch.Size]:
        """The parameters' shapes by their number."""
        parameters = (p for options in self.param_groups for p in options["params"])
        return {number: parameter.shape for number, parameter in enumerate(parameters)}

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["base_state"] = self.base_optimizer.state_dict()["state"]
        state["shape_info"] = self.get_shape_info()
        if self.save_master_weights:
            parts = [part.detach() for _, part in self._pairs()]
            state["sharded_master_weights"] = dict(enumerate(parts))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The state that the same process of a world of the same size saved."""
        state = copy.copy(state_dict)
        base_state = state.pop("base_state")
        weights = state.pop("sharded_master_weights", None)
        state.pop("shape_info", None)
        super().load_state_dict(state)
        self.init_zero()
        groups = self.base_optimizer.state_dict()["param_groups"]
        self.base_optimizer.load_state_dict({"state": base_state, "param_groups": groups})
        if weights is not None:
            with torch.no_grad():
                for number, (_, part) in enumerate(self._pairs()):
                    part.copy_(weights[number])
            self.allgather_weights_and_update_full_parameter()


def _accumulate(parameter: Any) -> None:
    parameter.main_grad.add_(parameter.grad)
    parameter.grad = None


def _copy_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
    """Learning rates and their like; a scheduler changes those of one of the optimizers."""
    for given, taken in zip(source, target, strict=True):
        taken.update({name: value for name, value in given.items() if name != "params"})
