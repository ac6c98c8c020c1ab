"""Walks nested data, and makes sample data for benchmarks."""

import copy
import os
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

# Never looked into: they are shared, not part of the data.
_OPAQUE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, str, bytes)


def for_each_instance(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> None:
    """Calls `fn` on each object of nested data that `select_fn` accepts, once per object."""

    def visit(found: Any) -> Any:
        fn(found)
        return found

    for_each_instance_rewrite(value, select_fn, visit)


def for_each_instance_rewrite(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> Any:
    """Nested data with each object that `select_fn` accepts replaced by `fn(object)`.

    Looks into containers and attributes. What holds nothing replaced is returned as it is; the
    rest is copied. An object met twice is replaced once.
    """
    return _Rewriter(select_fn, fn).rewrite(value)


class _Rewriter:
    def __init__(self, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> None:
        self._select_fn = select_fn
        self._fn = fn
        # Originals are kept beside the results: an id is only unique while its object lives.
        self._done: dict[int, tuple[Any, Any]] = {}

    def rewrite(self, value: Any) -> Any:
        if isinstance(value, _OPAQUE):
            return value
        known = self._done.get(id(value))
        if known is not None:
            return known[1]
        self._done[id(value)] = (value, value)  # ends the walk of a cycle
        result = self._replaced(value)
        self._done[id(value)] = (value, result)
        return result

    def _replaced(self, value: Any) -> Any:
        if self._select_fn(value):
            return self._fn(value)
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list | tuple | set | frozenset):
            return self._sequence(value)
        if getattr(value, "__dict__", None):
            return self._object(value)
        return value

    def _mapping(self, value: dict[Any, Any]) -> Any:
        items = {key: self.rewrite(item) for key, item in value.items()}
        if all(items[key] is item for key, item in value.items()):
            return value
        result = copy.copy(value)
        for key, item in items.items():
            result[key] = item
        return result

    def _sequence(self, value: Any) -> Any:
        items = [self.rewrite(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)

    def _object(self, value: Any) -> Any:
        attributes = {key: self.rewrite(item) for key, item in vars(value).items()}
        if all(attributes[key] is item for key, item in vars(value).items()):
            return value
        result = copy.copy(value)
        vars(result).update(attributes)
        return result


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def getenv_as(name: str, type: Callable[[str], Any], defval: Any = None) -> Any:
    """The environment variable `name` as `type`; booleans are written 0 and 1."""
    text = os.environ.get(name)
    if text is None:
        return defval
    return bool(int(text)) if type is bool else type(text)


class SampleGenerator:
    """A loader that yields the same `data` `sample_count` times."""

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data = data
        self._sample_count = sample_count

    def __iter__(self) -> Iterator[Any]:
        return (self._data for _ in range(self._sample_count))

    def __len__(self) -> int:
        return self._sample_count
