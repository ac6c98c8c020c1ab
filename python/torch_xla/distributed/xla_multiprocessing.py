"""Starts training functions. One process drives all local devices."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Runs `fn(0, *args)` in this process."""
    if nprocs not in (None, 1):
        raise ValueError(
            f"nprocs must be 1 or None, got {nprocs}: one process drives all local devices"
        )
    fn(0, *args)


class MpModelWrapper:
    """Holds a model that several processes move to their devices."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._lock = threading.Lock()

    def to(self, device: "torch.device | str") -> torch.nn.Module:
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one process at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, fn: Callable[[], _T]) -> _T:
        with self._lock:
            return fn()
