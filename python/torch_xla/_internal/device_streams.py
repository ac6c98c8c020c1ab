"""Streams and events, under the names of `torch.cuda`: part of the module `torch.xla`.

A device has one stream: programs run in the order in which they were launched. So streams order
nothing that is not in order already, and all of them are the default one.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torch_xla._internal.devices import device_index

_DeviceLike = torch.device | str | int | None


def _device(device: _DeviceLike) -> torch.device:
    return torch.device("xla", device_index(device))


class Stream(torch.Stream):
    """The stream of a device."""

    def __new__(cls, device: _DeviceLike = None, priority: int = 0, **ids: Any) -> "Stream":
        where = ids or {"device": _device(device)}
        return super().__new__(cls, priority=priority, **where)  # type: ignore[no-any-return, call-arg]


def Event(
    enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
) -> torch.Event:
    """A point in the device's work. Recording one made with `enable_timing` runs what is pending
    and waits for it, so that `elapsed_time` is that of the work between two such events."""
    if interprocess:
        raise NotImplementedError("events of an xla device stay in their process")
    return torch.Event("xla", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: _DeviceLike = None) -> torch.Stream:
    return Stream(device)


def default_stream(device: _DeviceLike = None) -> torch.Stream:
    return Stream(device)


def set_stream(stream: torch.Stream | None) -> None:
    """Its device becomes the current one."""
    if stream is not None:
        torch.xla.set_device(stream.device)  # type: ignore[attr-defined]


@contextlib.contextmanager
def stream(stream: torch.Stream | None) -> Iterator[torch.Stream | None]:
    """Inside, the stream's device is the current one."""
    with torch.xla.device(stream.device if stream is not None else None):  # type: ignore[attr-defined]
        yield stream
