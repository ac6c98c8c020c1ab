"""Functions that are traced once and then called for almost nothing.

See docs/assume_pure.md.
"""

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast, overload

import torch
from torch import nn

from torch_xla import _XLAC
from torch_xla._internal import closures, replay, stages, step_closures
from torch_xla._internal.devices import existing_device
from torch_xla.experimental._jax_autograd import (
    j2t_autograd,
    make_fake_inputs,
    prepare_computation_inputs,
)

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "CacheInfo",
    "PureCallable",
    "PureModule",
    "assume_pure",
    "assume_pure_torch",
    "j2t_autograd",
    "make_fake_inputs",
    "prepare_computation_inputs",
]


class _AllTraces:
    """The traces of all functions, as one cache."""

    def __init__(self) -> None:
        self.functions: weakref.WeakSet[PureCallable[..., Any]] = weakref.WeakSet()

    def __len__(self) -> int:
        return sum(function.cache_info().currsize for function in self.functions)

    def clear(self) -> None:
        for function in list(self.functions):
            function.cache_clear()


_XLA_COMPUTATION_CACHE = _AllTraces()


class CacheInfo(NamedTuple):
    """What a pure function has done so far, in the manner of `functools.lru_cache`."""

    hits: int
    misses: int
    traces: int
    currsize: int
    maxsize: int


class PureCallable(Generic[P, R]):
    """A function and its traces. Made by `assume_pure`."""

    def __init__(
        self,
        function: Callable[P, R],
        name: str,
        maxsize: int = 128,
        check: bool = False,
        reads: Callable[..., Any] | None = None,
        region: "_XLAC.CompiledFunction | None" = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._made_with = (function, name, maxsize, check, reads, region)
        source = function if reads is None else reads
        self._core = _XLAC.PureFunction(
            function,
            name,
            maxsize,
            check,
            replay.Traces(source).run,
            functools.partial(closures.tensors, source),
            functools.partial(closures.flags, source),
        )
        self._call = self._core.call if region is None else self._in_region
        self._region = region
        _XLA_COMPUTATION_CACHE.functions.add(self)

    def in_region(self, region: "_XLAC.CompiledFunction") -> "PureCallable[P, R]":
        """The same function, each call a region of `torch_xla.compile`."""
        return PureCallable(*self._made_with[:5], region)

    def _in_region(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._region is not None
        result = self._core.launch(self._region, *args, **kwargs)
        step_closures.run()
        return result

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return self._function(*args, **kwargs)
        return cast(R, self._call(args, kwargs))

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> stages.Lowered:
        """What a call with these arguments computes, in the manner of `jax.jit(f).lower(...)`."""
        return stages.Lowered(self, self._core, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies (copy.deepcopy, pickle) start without traces.
        return PureCallable, self._made_with

    def __repr__(self) -> str:
        return f"<assume_pure {getattr(self, '__name__', self._function)!r}>"

    def cache_info(self) -> CacheInfo:
        """How many calls found their trace, how many did not, and how many traces are kept."""
        info = self._core.info()
        return CacheInfo(info.hits, info.misses, info.traces, info.size, info.max_size)

    def cache_clear(self) -> None:
        """Forgets all traces."""
        self._core.clear()


@overload
def assume_pure(
    fn: Callable[P, R],
    *,
    add_rng_seed_argument: bool = False,
    check: bool = False,
    maxsize: int = 128,
) -> PureCallable[P, R]: ...


@overload
def assume_pure(
    fn: None = None,
    *,
    add_rng_seed_argument: bool = False,
    check: bool = False,
    maxsize: int = 128,
) -> Callable[[Callable[P, R]], PureCallable[P, R]]: ...


def assume_pure(
    fn: Callable[..., Any] | None = None,
    *,
    add_rng_seed_argument: bool = False,
    check: bool = False,
    maxsize: int = 128,
) -> Any:
    """Traces `fn` once per kind of call; later calls add one operation to the graph.

    A kind of call is the structure of the arguments, the shapes and dtypes of tensors, the values
    of everything else, and PyTorch's switches (grad mode, autocast, ...). Random numbers, changes
    of tensors in place and gradients behave as in the plain function.

    Args:
        fn: the function, method or module. Without it, `assume_pure` is a decorator with options.
        add_rng_seed_argument: the result takes a keyword `rng_seed` (an int or a tensor) that
            alone decides its random numbers; the device's own stay untouched.
        check: traces every call again and raises when the traces differ.
        maxsize: how many traces are kept.
    """
    if fn is None:
        return functools.partial(
            assume_pure,
            add_rng_seed_argument=add_rng_seed_argument,
            check=check,
            maxsize=maxsize,
        )
    if not callable(fn):
        raise TypeError(f"assume_pure needs a callable, received {type(fn).__name__}")
    if add_rng_seed_argument:
        return _with_seed(fn, check, maxsize)
    return PureCallable(fn, _name_of(fn), maxsize, check)


def assume_pure_torch(func: Callable[P, R], use_cache: bool = False) -> PureCallable[P, R]:
    """`assume_pure(func)`. Traces are always kept, one for each kind of call."""
    return assume_pure(func)


def _name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def _with_seed(fn: Callable[..., Any], check: bool, maxsize: int) -> Callable[..., Any]:
    def seeded(state: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _XLAC.use_rng_state(state)
        return fn(*args, **kwargs)

    pure: PureCallable[..., Any] = PureCallable(seeded, _name_of(fn), maxsize, check, fn)

    @functools.wraps(fn)
    def call(*args: Any, rng_seed: "int | torch.Tensor | None" = None, **kwargs: Any) -> Any:
        if rng_seed is None:
            raise TypeError(
                f"{_name_of(fn)}() needs the keyword argument rng_seed "
                "(it was made by assume_pure with add_rng_seed_argument=True)"
            )
        return pure(_rng_state(rng_seed), args, kwargs)

    def lower(*args: Any, rng_seed: "int | torch.Tensor | None" = None, **kwargs: Any) -> Any:
        return pure.lower(_rng_state(rng_seed or 0), args, kwargs)

    call.lower = lower  # type: ignore[attr-defined]
    call.cache_info = pure.cache_info  # type: ignore[attr-defined]
    call.cache_clear = pure.cache_clear  # type: ignore[attr-defined]
    return call


def _rng_state(seed: "int | torch.Tensor") -> torch.Tensor:
    if isinstance(seed, torch.Tensor):
        if seed.numel() != 1 or seed.is_floating_point():
            raise TypeError(f"rng_seed must be one integer, received {seed.dtype} {seed.shape}")
        key = seed.detach().to(existing_device(None)).reshape(1).to(torch.uint64)
        return torch.cat((key, torch.zeros_like(key)))
    words = torch.tensor([seed & 0xFFFF_FFFF_FFFF_FFFF, 0], dtype=torch.uint64)
    return words.to(existing_device(None))


class PureModule(nn.Module):
    """A module whose `forward` is pure: `PureModule(module)(x)` traces it once per kind of call.

    Parameters and buffers are passed for you, and read anew at each call. Attributes, `state_dict`
    and `load_state_dict` are the module's own.
    """

    def __init__(self, module: nn.Module, *, check: bool = False, maxsize: int = 128) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"PureModule wraps a module, received {type(module).__name__}")
        self._modules["module"] = module
        self.__dict__["_pure"] = PureCallable(module, type(module).__qualname__, maxsize, check)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._pure(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """See `PureCallable.lower`."""
        return self._pure.lower(*args, **kwargs)

    def cache_info(self) -> CacheInfo:
        """See `PureCallable.cache_info`."""
        info: CacheInfo = self._pure.cache_info()
        return info

    def cache_clear(self) -> None:
        """Forgets all traces."""
        self._pure.cache_clear()

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__["_modules"].get("module")
        if name == "module":
            return module
        try:
            return getattr(module, name)
        except AttributeError:
            raise AttributeError(
                f"'{type(self).__name__}' of '{type(module).__name__}' has no attribute '{name}'"
            ) from None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._modules["module"].state_dict(*args, **kwargs)  # type: ignore[union-attr]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._modules["module"].load_state_dict(*args, **kwargs)  # type: ignore[union-attr]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return self._modules["module"].named_parameters(*args, **kwargs)  # type: ignore[union-attr]

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        return self._modules["module"].named_buffers(*args, **kwargs)  # type: ignore[union-attr]
