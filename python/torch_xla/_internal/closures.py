"""Which tensors and switches a function reads without being given them.

Places are looked up by the extension at every call: another tensor there means that the function
must be traced again, another `training` flag that it uses another trace.
"""

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

Place = tuple[Any, Any]  # a dict and a key, or a cell and None


def tensors(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Place]:
    """Places of tensors that `fn` may read."""
    return [place for place in _places(fn, args, kwargs) if place[1] != "training"]


def flags(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Place]:
    """Places of the `training` flags of modules that `fn` may call."""
    return [place for place in _places(fn, args, kwargs) if place[1] == "training"]


def _places(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Place]:
    places: dict[tuple[int, Any], Place] = {}
    seen: set[int] = set()
    for value in (fn, *args, *kwargs.values()):
        for container, key in _places_of(value, seen):
            places.setdefault((id(container), key), (container, key))
    return list(places.values())


def _places_of(value: Any, seen: set[int]) -> Iterator[Place]:
    if id(value) in seen or isinstance(value, (torch.Tensor, type)):
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        yield from _module_places(value)
    elif isinstance(value, types.MethodType):
        yield from _places_of(value.__self__, seen)
        yield from _places_of(value.__func__, seen)
    elif isinstance(value, types.FunctionType):
        yield from _function_places(value, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, types.ModuleType):
        yield from _tensor_entries(vars(value))


def _module_places(module: nn.Module) -> Iterator[Place]:
    for submodule in module.modules():
        for table in (submodule._parameters, submodule._buffers):
            for name in table:
                yield table, name
        yield from _tensor_entries(submodule.__dict__)
        yield submodule.__dict__, "training"


def _tensor_entries(table: dict[str, Any]) -> Iterator[Place]:
    for name, value in table.items():
        if isinstance(value, torch.Tensor):
            yield table, name


def _function_places(function: types.FunctionType, seen: set[int]) -> Iterator[Place]:
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
        if isinstance(value, torch.Tensor):
            yield cell, None
        elif isinstance(value, (nn.Module, types.MethodType)):
            yield from _places_of(value, seen)
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, torch.Tensor):
            yield function.__globals__, name
        elif isinstance(value, nn.Module):
            yield from _places_of(value, seen)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
