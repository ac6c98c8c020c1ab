"""PyTorch's script modules: their parameters are tensors of C++ objects, also when they are moved
or loaded. PyTorch's own way exchanges the data of a tensor, which it allows between devices of one
kind only."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torch_xla._internal.devices import type_name


def crosses(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether `fn`, which converts tensors, brings the module to or from the device."""
    parameter = next(module.parameters(), None)
    if parameter is None:
        return False
    probe = fn(torch.empty(0, dtype=parameter.dtype, device=parameter.device))
    return probe.device != parameter.device and type_name in (
        probe.device.type,
        parameter.device.type,
    )


def convert(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Gives each parameter its successor; what was one parameter in two places is one again."""
    successors: dict[torch.Tensor, torch.nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            if parameter not in successors:
                successors[parameter] = _successor(parameter, fn)
            part._parameters[name] = successors[parameter]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = fn(buffer)


def _successor(
    parameter: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]
) -> torch.nn.Parameter:
    with torch.no_grad():
        successor = torch.nn.Parameter(fn(parameter), parameter.requires_grad)
        if parameter.grad is not None:
            successor.grad = fn(parameter.grad)
    return successor


def load_on_device() -> None:
    """`torch.jit.load` reads onto the devices that PyTorch lists: others get the module from the
    CPU. One that was saved on the device comes back there."""
    original: Any = torch.jit.load

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        target = None if map_location is None else torch.device(map_location)
        if target is not None and target.type == type_name:
            return original(f, "cpu", *arguments, **options).to(target)
        start = f.tell() if target is None and hasattr(f, "seek") else None
        try:
            return original(f, map_location, *arguments, **options)
        except RuntimeError as error:
            if target is not None or "however got XLA" not in str(error):
                raise
        if start is not None:
            f.seek(start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return original(f, "cpu", *arguments, **options).to(type_name)

    torch.jit.load = load
    torch.jit._serialization.load = load
