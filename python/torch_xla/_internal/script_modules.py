"""PyTorch's script modules: their parameters are tensors of C++ objects, also when they are moved
or loaded. PyTorch's own way exchanges the data of a tensor, which it allows between devices of one
kind only."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

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


def convert(
    module: torch.nn.Module,
    fn: Callable[[torch.Tensor], torch.Tensor],
    everything: bool = False,
) -> None:
    """Gives each parameter its successor; what was one parameter in two places is one again, also
    in attributes. With `everything`, the other tensors in these are converted as buffers are."""
    successors: dict[_Memory, torch.nn.Parameter] = {}

    def of_other(tensor: torch.Tensor) -> torch.Tensor:
        return successors.get(_memory(tensor), fn(tensor) if everything else tensor)

    parts = list(module.modules())
    for part in parts:
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            memory = _memory(parameter)
            if memory not in successors:
                successors[memory] = _successor(parameter, fn)
            part._parameters[name] = successors[memory]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = fn(buffer)
    for part in parts:
        if isinstance(part, torch.jit.ScriptModule):
            _convert_attributes(part, of_other)


_Memory = tuple[Any, ...]


def _memory(tensor: torch.Tensor) -> _Memory:
    """The same for all tensors that a file's reader makes of one that was saved in many places."""
    place = tensor.untyped_storage()._cdata
    return place, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _convert_attributes(part: Any, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Those of C++ that are neither parameters nor buffers, as the list of a GRU's weights is."""
    for name, (kind, _) in part._concrete_type.get_attributes().items():
        if "Tensor" not in str(kind) or name in part._parameters or name in part._buffers:
            continue
        value = part._c.getattr(name)
        part._c.setattr(name, tree_map_only(torch.Tensor, fn, value))


def _successor(
    parameter: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]
) -> torch.nn.Parameter:
    with torch.no_grad():
        successor = torch.nn.Parameter(fn(parameter), parameter.requires_grad)
        if parameter.grad is not None:
            successor.grad = fn(parameter.grad)
    return successor


def _moved(module: torch.nn.Module, target: torch.device) -> torch.nn.Module:
    convert(module, lambda tensor: tensor.to(target), everything=True)
    return module


def load_on_device() -> None:
    """`torch.jit.load` reads onto the devices that PyTorch lists: others get the module from the
    CPU. One that was saved on the device comes back there."""
    original: Any = torch.jit.load

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        target = None if map_location is None else torch.device(map_location)
        if target is not None and target.type == type_name:
            return _moved(original(f, "cpu", *arguments, **options), target)
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
            return _moved(original(f, "cpu", *arguments, **options), torch.device(type_name))

    torch.jit.load = load
    torch.jit._serialization.load = load
