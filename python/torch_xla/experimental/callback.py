"""Being told when a tensor's value has been computed."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._internal.transfer import is_xla_tensor


def on_ready_callback(tensor: torch.Tensor, callback: Callable[[torch.Tensor], Any]) -> None:
    """Runs what the tensor needs; then a thread calls `callback(tensor)` once it is computed."""

    def call() -> None:
        _XLAC.wait_for(tensor)
        callback(tensor)

    _start(tensor, call)


def on_ready_event(tensor: torch.Tensor) -> threading.Event:
    """Runs what the tensor needs; the event is set once it is computed."""
    event = threading.Event()

    def call() -> None:
        try:
            _XLAC.wait_for(tensor)
        finally:  # whoever waits reads the tensor then, and gets the error
            event.set()

    _start(tensor, call)
    return event


def _start(tensor: torch.Tensor, call: Callable[[], None]) -> None:
    if not is_xla_tensor(tensor):
        raise ValueError(f"expected an xla tensor, got one on {tensor.device}")
    _XLAC.sync_tensors([tensor])
    threading.Thread(target=call, name="torch_xla-ready", daemon=True).start()
