"""2.9's precautions around `import jax`. None are needed here: JAX's client is another one."""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from torch_xla import _XLAC

P = ParamSpec("P")
R = TypeVar("R")


def jax_import_guard() -> None:
    """Starts this process's client, before JAX takes an accelerator that only one may have."""
    _XLAC.device_count()


@contextlib.contextmanager
def jax_env_context() -> Iterator[None]:
    """Changes nothing."""
    yield


def requires_jax(func: Callable[P, R]) -> Callable[P, R]:
    """A function that starts this process's client before it runs."""

    @functools.wraps(func)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        jax_import_guard()
        return func(*args, **kwargs)

    return run


def maybe_get_torchax() -> Any:
    """The package torchax, or None."""
    jax_import_guard()
    try:
        return importlib.import_module("torchax")
    except ImportError:
        return None
