"""Tells PyTorch's optimizers what they may do on the device."""

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch.optim
import torch.utils._foreach_utils
from torch import Tensor

from torch_xla import _XLAC
from torch_xla._internal.devices import type_name

# A list saves the host some of the time of each parameter, and costs it as much as a few of them.
_FEWEST = 8
_SMALL = 8192  # elements, on average: whose update takes several times what is saved
Choice = Callable[..., tuple[bool, bool]]
Update = Callable[..., None]


def install() -> None:
    """PyTorch lists the devices on which optimizers may be fused or count their steps, and on which
    lists of tensors are worked on as a whole."""
    utils, optimizer = torch.utils._foreach_utils, sys.modules["torch.optim.optimizer"]
    named = [module for name, module in sys.modules.items() if name.startswith("torch.optim.")]
    # An averaged model's lists are weighted by a number that the device counts, so it reads it.
    modules = [module for module in named if module.__name__ != "torch.optim.swa_utils"]
    for kind in ("foreach_kernels", "fused_kernels", "capturable"):
        devices: Callable[..., list[str]] = getattr(optimizer, f"_get_{kind}_supported_devices")
        _replace(devices, _with_this_device(devices), utils, *modules)
    choice: Choice = vars(optimizer)["_default_to_fused_or_foreach"]
    _replace(choice, _with_lists_of_small_ones(choice), *modules)
    adam = vars(sys.modules["torch.optim.adam"])
    lists = adam["_multi_tensor_adam"]
    _replace(lists, _with_betas_of_tensors(lists, adam["_single_tensor_adam"]), *modules)
    optimizer.register_optimizer_step_post_hook(_end_step)


def _end_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """For programs that read their loss now and then, and know of no `torch_xla.sync()`."""
    if not torch.compiler.is_compiling():
        _XLAC.optimizer_stepped(id(optimizer))


def _replace(original: Callable[..., Any], new: Callable[..., Any], *modules: ModuleType) -> None:
    for module in modules:
        if getattr(module, original.__name__, None) is original:
            setattr(module, original.__name__, new)


def _with_this_device(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    @functools.wraps(original)
    def supported_devices(*args: Any, **kwargs: Any) -> list[str]:
        devices = original(*args, **kwargs)
        return devices if type_name in devices else [*devices, type_name]

    return supported_devices


def _with_lists_of_small_ones(original: Choice) -> Choice:
    """How an optimizer works that was not told. In lists, many small parameters cost the host half
    as much; with large ones its time is nothing, and lists take more memory and cache."""

    @functools.wraps(original)
    def default_to_fused_or_foreach(
        params: list[Tensor], differentiable: bool, use_fused: bool = False
    ) -> tuple[bool, bool]:
        ours = [p for p in params if p is not None and _is_xla(p)]
        in_lists = not ours or _are_many_and_small(ours)
        if not use_fused and not in_lists:
            return False, False
        if not use_fused and len(ours) == len(params):
            # It asks each parameter for its device's name, a new string: one of each class will do.
            params = list({type(p): p for p in params}.values())
        fused, foreach = original(params, differentiable, use_fused)
        return fused, foreach and in_lists

    return default_to_fused_or_foreach


def _is_xla(tensor: Tensor) -> bool:
    """Without the device's name, a new string each time."""
    return tensor.is_xla  # type: ignore[attr-defined, no-any-return]


def _are_many_and_small(parameters: list[Tensor]) -> bool:
    many = len(parameters) >= _FEWEST
    return many and sum(p.numel() for p in parameters) <= _SMALL * len(parameters)


def _with_betas_of_tensors(lists: Update, one_by_one: Update) -> Update:
    """Adam's lists refuse betas that are tensors, which its loop takes."""

    @functools.wraps(lists)
    def multi_tensor_adam(params: list[Tensor], *args: Any, **kwargs: Any) -> None:
        refused = not kwargs["capturable"] and isinstance(kwargs["beta1"], Tensor)
        ours = params and _is_xla(params[0])
        (one_by_one if refused and ours else lists)(params, *args, **kwargs)

    return multi_tensor_adam
