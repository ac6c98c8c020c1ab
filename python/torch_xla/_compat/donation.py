"""Marks on tensors whose memory a program may reuse. Here they change nothing: memory that nobody
refers to any more is given to results by itself."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from torch_xla import _XLAC

_marked: Any = WeakTensorKeyDictionary()
_aliasing = False


def _set(tensor: torch.Tensor, should_donate: bool) -> bool:
    """Whether the tensor has a value on the device that can be marked."""
    if _XLAC.value_state(tensor) != "there":
        return False
    _XLAC.increment_counter("XlaSetBufferDonation", 1)
    _marked[tensor] = should_donate
    return True


def _get(tensor: torch.Tensor) -> bool:
    return bool(_marked.get(tensor, False)) and _XLAC.value_state(tensor) == "there"


def _set_config(should_alias: bool) -> None:
    global _aliasing
    _aliasing = should_alias


def _config() -> bool:
    return _aliasing


def _is_placeholder(tensor: torch.Tensor) -> bool:
    """Whether there is no value that could be read: it was donated."""
    return _XLAC.value_state(tensor) == "lost"


NAMES: dict[str, Callable[..., Any]] = {
    "_get_buffer_donation": _get,
    "_is_placecholder": _is_placeholder,
    "_set_buffer_donation": _set,
    "_xla_get_enable_alias_with_buffer_donor_config": _config,
    "_xla_set_enable_alias_with_buffer_donor_config": _set_config,
}
