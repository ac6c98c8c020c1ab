"""What a function may use without being given it: modules, optimizers, tensors, switches.

Places are looked up by the extension at every call: another tensor there means that the function
must be traced again, another `training` flag that it uses another trace.
"""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

Place = tuple[Any, Any]  # a dict and a key, or a cell and None

_LISTS = (list, tuple)
_NAMED = (nn.Module, Optimizer, LRScheduler, ReduceLROnPlateau, GradScaler)
# Containers with more entries hold data.
_MANY = 64


def tensors(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Place]:
    """Places of tensors that `fn` may read."""
    return [place for place in _places(fn, args, kwargs) if place[1] != "training"]


def flags(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Place]:
    """Places of the `training` flags of modules that `fn` may call."""
    return [place for place in _places(fn, args, kwargs) if place[1] == "training"]


def objects(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The modules, optimizers, schedulers and scalers that `fn` may use."""
    return [value for value in _reachable(fn, args, kwargs) if isinstance(value, _NAMED)]


def _places(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Place]:
    places: dict[tuple[int, Any], Place] = {}
    for value in _reachable(fn, args, kwargs):
        for container, key in _places_in(value):
            places.setdefault((id(container), key), (container, key))
    return list(places.values())


def _places_in(value: Any) -> Iterator[Place]:
    if isinstance(value, nn.Module):
        yield from _module_places(value)
    elif isinstance(value, Optimizer):
        yield from _optimizer_places(value)
    elif isinstance(value, types.FunctionType):
        yield from _function_places(value)
    elif not isinstance(value, types.MethodType):
        yield from _tensor_entries(vars(value))


def _reachable(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Any]:
    """Functions, modules, optimizers and other objects with attributes, each once."""
    seen: set[int] = set()
    todo = [fn, *args, *kwargs.values()]
    while todo:
        value = todo.pop(0)
        if id(value) in seen or isinstance(value, (torch.Tensor, type, types.ModuleType)):
            continue
        seen.add(id(value))
        if isinstance(value, _LISTS) and len(value) <= _MANY:
            todo += value
        elif type(value) is dict and len(value) <= _MANY:
            todo += value.values()
        elif isinstance(value, types.FunctionType):
            yield value
            todo += (v for v in _used_by(value) if _is_worth_a_look(v, value.__globals__))
        elif isinstance(value, types.MethodType):
            todo += (value.__self__, value.__func__)
        elif isinstance(value, functools.partial):
            todo += (value.func, *value.args, *value.keywords.values())
        elif hasattr(value, "__dict__"):
            yield value
            if not isinstance(value, _NAMED):
                todo += (v for v in vars(value).values() if _is_worth_a_look(v))


def _is_worth_a_look(value: Any, names: dict[str, Any] | None = None) -> bool:
    """Not whatever a program's names stand for: that would be all of it. Of functions, those of
    the same file."""
    if isinstance(value, types.FunctionType):
        return value.__globals__ is names
    if isinstance(value, (*_NAMED, types.MethodType, functools.partial)):
        return True
    return isinstance(value, (*_LISTS, dict)) and any(
        isinstance(v, _NAMED)
        for v in list(value.values() if isinstance(value, dict) else value)[:_MANY]
    )


def _module_places(module: nn.Module) -> Iterator[Place]:
    for submodule in module.modules():
        for table in (submodule._parameters, submodule._buffers):
            for name in table:
                yield table, name
        yield from _tensor_entries(submodule.__dict__)
        yield submodule.__dict__, "training"


def _optimizer_places(optimizer: Optimizer) -> Iterator[Place]:
    yield vars(optimizer), "state"
    yield vars(optimizer), "param_groups"
    for state in optimizer.state.values():
        if isinstance(state, dict):
            yield from _tensor_entries(state)
    for group in optimizer.param_groups:
        yield group, "params"


def _tensor_entries(table: dict[str, Any]) -> Iterator[Place]:
    for name, value in table.items():
        if isinstance(value, torch.Tensor):
            yield table, name


def _function_places(function: types.FunctionType) -> Iterator[Place]:
    for cell in function.__closure__ or ():
        if isinstance(_content(cell), torch.Tensor):
            yield cell, None
    for name in _names(function.__code__):
        if isinstance(function.__globals__.get(name), torch.Tensor):
            yield function.__globals__, name


def _used_by(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        yield _content(cell)
    for name in _names(function.__code__):
        yield function.__globals__.get(name)
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
