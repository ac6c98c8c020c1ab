"""`torch_xla.compile`: regions, compiled functions and compiled modules."""

import copy
import copyreg
import functools
import inspect
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._internal import stages, step_closures

_Options = Mapping[str, "bool | int | float | str"]

_TIERS = ("counted", "async", "off", "never")

# Kinds of functions whose calls return before their work is done.
_EARLY = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


class Compiled:
    """What stays the same between uses: a context manager and a decorator of functions, methods
    and modules."""

    def __init__(
        self,
        name: str | None,
        full_graph: bool,
        max_different_graphs: int | None,
        custom_compile_options: _Options | None,
        tiers: str | None = None,
        assume_pure: bool = False,
    ) -> None:
        _check_type("name", name, str)
        _check_type("max_different_graphs", max_different_graphs, int)
        _check_type("custom_compile_options", custom_compile_options, Mapping)
        _check_type("tiers", tiers, str)
        if tiers not in (None, *_TIERS):
            raise ValueError(
                f"torch_xla.compile(tiers=...) takes one of {', '.join(_TIERS)}, received {tiers!r}"
            )
        self._name = name
        self._full_graph = full_graph
        self._max_different_graphs = max_different_graphs
        self._xla_options = option_texts(custom_compile_options or {})
        self._tiers = tiers or ""
        self._assume_pure = assume_pure
        self._function: _XLAC.CompiledFunction | None = None
        self._entered: list[_XLAC.CompileRegion] = []

    def function(self, name: str) -> "_XLAC.CompiledFunction":
        return _XLAC.CompiledFunction(
            name=self._name or name,
            full_graph=self._full_graph,
            max_different_graphs=self._max_different_graphs,
            xla_options=self._xla_options,
            tiers=self._tiers,
        )

    def __call__(self, target: Callable[..., Any]) -> Any:
        if self._assume_pure:
            return _compiled_pure(target, self.function(_name_of(target)))
        if isinstance(target, torch.nn.Module):
            return _compiled_module(target, self.function(type(target).__name__))
        if isinstance(target, (staticmethod, classmethod)):
            return type(target)(self(target.__func__))
        if not callable(target):
            raise TypeError(
                f"torch_xla.compile() takes a function or a module, received {type(target)}"
            )
        return _compiled_callable(target, self.function(_name_of(target)))

    def __enter__(self) -> "Compiled":
        if self._assume_pure:
            raise TypeError(
                "torch_xla.compile(assume_pure=True) decorates a function: a block of "
                "code cannot be traced once"
            )
        if self._function is None:
            self._function = self.function("")
        self._entered.append(_XLAC.CompileRegion(self._function))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _end(self._entered.pop(), error)


def _end(region: "_XLAC.CompileRegion", error: BaseException | None) -> None:
    """Runs what the region recorded. What it raises itself matters more than what follows."""
    try:
        region.end()
    except Exception:
        if error is None:
            raise
    if error is None:
        step_closures.run()


def _run(function: "_XLAC.CompiledFunction", call: Callable[[], Any]) -> Any:
    region = _XLAC.CompileRegion(function)
    try:
        result = call()
    except BaseException as error:
        _end(region, error)
        raise
    _end(region, None)
    return result


def _compiled_callable(
    target: Callable[..., Any], function: "_XLAC.CompiledFunction"
) -> Callable[..., Any]:
    if any(returns_early(f) for f in (target, type(target).__call__) for returns_early in _EARLY):
        raise TypeError(
            f"torch_xla.compile() cannot compile {_name_of(target)}: a generator or coroutine "
            "returns before its work is done; compile the function that does one step"
        )

    def compiled(*args: Any, **kwargs: Any) -> Any:
        return _run(function, lambda: target(*args, **kwargs))

    functools.update_wrapper(compiled, target)
    compiled.lower = functools.partial(_lower, target, compiled)  # type: ignore[attr-defined]
    return compiled


def _lower(target: Callable[..., Any], compiled: Any, *args: Any, **kwargs: Any) -> stages.Lowered:
    """What a call computes, traced as `assume_pure` does, and not run."""
    from torch_xla.experimental.assume_pure import PureCallable

    pure = PureCallable(target, _name_of(target), maxsize=1)
    return stages.Lowered(compiled, pure._core, args, kwargs)


def _compiled_pure(target: Any, function: "_XLAC.CompiledFunction") -> Any:
    from torch_xla.experimental.assume_pure import PureCallable, PureModule

    if isinstance(target, torch.nn.Module):
        return _compiled_module(PureModule(target), function)
    if not callable(target):
        raise TypeError(
            f"torch_xla.compile() takes a function or a module, received {type(target)}"
        )
    pure = target if isinstance(target, PureCallable) else PureCallable(target, _name_of(target))
    return pure.in_region(function)


def _compiled_module(
    module: torch.nn.Module, function: "_XLAC.CompiledFunction"
) -> torch.nn.Module:
    """The same module (they share all attributes) with another way to be called."""
    kind = type(module)

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return _run(function, lambda: kind.__call__(self, *args, **kwargs))

    def deepcopy(self: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
        return _compiled_module(copy.deepcopy(module, memo), function)

    def reduce(self: torch.nn.Module, protocol: Any) -> Any:
        # Pickled, it is the plain module.
        return copyreg._reconstructor, (kind, object, None), self.__getstate__()  # type: ignore

    def lower(self: torch.nn.Module, *args: Any, **kwargs: Any) -> stages.Lowered:
        return _lower(module, self, *args, **kwargs)

    methods = {"__call__": call, "__deepcopy__": deepcopy, "__reduce_ex__": reduce}
    if not hasattr(module, "lower"):
        methods["lower"] = lower
    compiled_kind = type(kind.__name__, (kind,), {"__doc__": kind.__doc__, **methods})
    compiled: torch.nn.Module = object.__new__(compiled_kind)
    compiled.__dict__ = module.__dict__
    return compiled


def _check_type(option: str, value: object, wanted: type) -> None:
    if value is not None and not isinstance(value, wanted):
        raise TypeError(
            f"torch_xla.compile({option}=...) takes None or a value of type {wanted.__name__}, "
            f"received {value!r}"
        )


def _name_of(target: Callable[..., Any]) -> str:
    while isinstance(target, functools.partial):
        target = target.func
    return getattr(target, "__name__", type(target).__name__)


def option_texts(options: _Options) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}
