"""Walks nested data, makes sample data for benchmarks, and small helpers of training scripts."""

import contextlib
import copy
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class DataWrapper:
    """Base of data that says by itself which of its tensors are moved to a device."""

    def get_tensors(self) -> list[Any]:
        """The tensors to be moved."""
        raise NotImplementedError(f"{type(self).__name__} must define get_tensors()")

    def from_tensors(self, tensors: Sequence[Any]) -> Any:
        """The data with `tensors` in the places of those of get_tensors()."""
        raise NotImplementedError(f"{type(self).__name__} must define from_tensors(tensors)")


class _Rewriter:
    def __init__(self, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> None:
        self._select_fn = select_fn
        self._fn = fn
        # Originals are kept beside the results: an id is only unique while its object lives.
        self._done: dict[int, tuple[Any, Any]] = {}

    def rewrite(self, value: Any) -> Any:
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
        if isinstance(value, DataWrapper):
            return value.from_tensors([self.rewrite(item) for item in value.get_tensors()])
        if isinstance(value, _OPAQUE):
            return value
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list | tuple | set | frozenset):
            return self._sequence(value)
        if getattr(value, "__dict__", None):
            return self._object(value)
        return value

    def _mapping(self, value: dict[Any, Any]) -> Any:
        items = [(self.rewrite(key), self.rewrite(item)) for key, item in value.items()]
        pairs = zip(items, value.items(), strict=True)
        if all(new[0] is old[0] and new[1] is old[1] for new, old in pairs):
            return value
        result = copy.copy(value)
        result.clear()
        result.update(items)
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


def as_list(t: Any) -> list[Any]:
    return list(t) if isinstance(t, list | tuple) else [t]


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


class FnDataGenerator:
    """A loader of `count` batches (x, func(x)), where x is `gen_tensor(batch_size, *dims)`."""

    def __init__(
        self,
        func: Callable[[Any], Any],
        batch_size: int,
        gen_tensor: Callable[..., Any],
        dims: Sequence[int] | None = None,
        count: int = 1,
    ) -> None:
        self._func = func
        self._gen_tensor = gen_tensor
        self._sizes = (batch_size, *(dims or (1,)))
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for _ in range(self._count):
            data = self._gen_tensor(*self._sizes)
            yield data, self._func(data)


class Cleaner:
    """Calls `func` when it is collected."""

    def __init__(self, func: Callable[[], Any]) -> None:
        self.func = func

    def __del__(self) -> None:
        self.func()


class LazyProperty:
    """`value` is what `gen_fn()` returns, called once, when it is first read."""

    def __init__(self, gen_fn: Callable[[], Any]) -> None:
        self._gen_fn: Callable[[], Any] | None = gen_fn
        self._value: Any = None

    @property
    def value(self) -> Any:
        if self._gen_fn is not None:
            self._value, self._gen_fn = self._gen_fn(), None
        return self._value


class TmpFolder:
    """A temporary folder `name`, deleted with this object."""

    def __init__(self) -> None:
        name = self.name = tempfile.mkdtemp()
        self.cleaner = Cleaner(lambda: shutil.rmtree(name, ignore_errors=True))


def shape(inputs: Any) -> list[int]:
    """The sizes of nested lists, all of the same sizes."""
    if not isinstance(inputs, list | tuple):
        return []
    inner = [shape(item) for item in inputs]
    if any(sizes != inner[0] for sizes in inner):
        raise ValueError(f"shape: the lists at one depth differ in their sizes: {inner}")
    return [len(inputs), *(inner[0] if inner else [])]


def flatten_nested_tuple(inputs: Any) -> tuple[Any, ...]:
    """The leaves of nested lists and tuples."""
    if not isinstance(inputs, list | tuple):
        return (inputs,)
    return tuple(leaf for item in inputs for leaf in flatten_nested_tuple(item))


def list_copy_append(ilist: Sequence[Any], item: Any) -> list[Any]:
    return [*ilist, item]


def null_print(*args: Any, **kwargs: Any) -> None:
    """Prints nothing, where a function that prints is wanted."""


def eprint(*args: Any, **kwargs: Any) -> None:
    """Prints to stderr."""
    print(*args, file=sys.stderr, **kwargs)


def get_print_fn(debug: "bool | int | None" = None) -> Callable[..., None]:
    """`eprint` with `debug` (default: the environment variable DEBUG), else `null_print`."""
    wanted = check_env_flag("DEBUG") if debug is None else debug
    return eprint if wanted else null_print


def timed(fn: Callable[[], Any], msg: str = "", printfn: Callable[..., Any] | None = eprint) -> Any:
    """The result of `fn()`; prints how long it took."""
    with TimedScope(msg, printfn):
        return fn()


class TimedScope:
    """A context manager that prints how long its block took, unless `set_error` was called."""

    def __init__(self, msg: str = "", printfn: Callable[..., Any] | None = eprint) -> None:
        self._msg = msg
        self._print = printfn or get_print_fn()
        self._error: Any = None
        self._start = 0.0

    def __enter__(self) -> "TimedScope":
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._error is None and exception[0] is None:
            self._print(f"{self._msg}{1000 * (time.perf_counter() - self._start):.3f}ms")

    def set_error(self, error: Any) -> None:
        self._error = error


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """`n` different ports that are free now."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(n)]
        for free in sockets:
            free.bind(("", 0))
        return [free.getsockname()[1] for free in sockets]


def parallel_work(num_workers: int, fn: Callable[..., Any], *args: Any) -> list[Any]:
    """`list(map(fn, *args))` in so many threads; raises what a call raises."""
    with ThreadPoolExecutor(max_workers=num_workers) as executor:
        return list(executor.map(fn, *args))


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether the environment variable is "true" or a number above 0."""
    text = os.environ.get(name, default)
    return text == "true" or (text.isdigit() and int(text) > 0)
