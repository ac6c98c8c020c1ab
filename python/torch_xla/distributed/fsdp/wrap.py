"""Which submodules are wrapped on their own: PyTorch's policies, and the walk that asks them.

A policy is called as `policy(module, recurse, unwrapped_params)`: shall the children be looked at
(`recurse`), or shall `module` be wrapped, which has so many numbers in parameters not yet wrapped?
"""

import functools
from collections.abc import Callable, Collection
from typing import Any

import torch.distributed.fsdp.wrap as _torch
from torch import nn

__all__ = [
    "always_wrap_policy",
    "lambda_auto_wrap_policy",
    "recursive_wrap",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]


def _renamed(policy: Callable[..., bool]) -> Callable[..., bool]:
    """PyTorch's policy with PyTorch/XLA's name for its third argument."""

    @functools.wraps(policy)
    def call(*args: Any, **kwargs: Any) -> bool:
        if "unwrapped_params" in kwargs:
            kwargs["nonwrapped_numel"] = kwargs.pop("unwrapped_params")
        return policy(*args, **kwargs)

    return call


always_wrap_policy = _torch.always_wrap_policy
lambda_auto_wrap_policy = _renamed(_torch.lambda_auto_wrap_policy)
size_based_auto_wrap_policy = _renamed(_torch.size_based_auto_wrap_policy)
transformer_auto_wrap_policy = _renamed(_torch.transformer_auto_wrap_policy)


def recursive_wrap(
    module: nn.Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., nn.Module],
    ignored_modules: Collection[nn.Module] = (),
    ignored_params: Collection[nn.Parameter] = (),
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[nn.Module, int]:
    """`module` with the submodules that the policy chooses, and itself, replaced by
    `wrapper_cls(submodule, **kwargs)`; and how many numbers their parameters have."""
    skipped = {id(parameter) for parameter in ignored_params}
    total = sum(p.numel() for p in module.parameters() if id(p) not in skipped)
    if not auto_wrap_policy(module, True, total):
        return module, 0
    wrapped = 0
    for name, child in module.named_children():
        if child in ignored_modules:
            continue
        if isinstance(wrapper_cls, type) and isinstance(child, wrapper_cls):
            raise ValueError(f"the submodule {name} is wrapped already: leave it to the policy")
        replacement, count = recursive_wrap(
            child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs
        )
        setattr(module, name, replacement)
        wrapped += count
    if only_wrap_children or not auto_wrap_policy(module, False, total - wrapped):
        return module, wrapped
    overrides: dict[str, Any] = getattr(module, "_wrap_overrides", {})
    return wrapper_cls(module, **{**kwargs, **overrides}), total
