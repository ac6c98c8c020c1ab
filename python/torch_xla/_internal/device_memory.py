"""Memory of a device, under the names of `torch.cuda`: part of the module `torch.xla`.

What counts is the memory of values: of buffers, and on the CPU platform also of values that
operations left in the host's memory. Temporary memory of a running program is not in it. Nothing is
kept in reserve, so what is reserved is what is allocated.
"""

from collections import OrderedDict

import torch

from torch_xla import _XLAC
from torch_xla._internal.devices import device_index

_DeviceLike = torch.device | str | int | None


def memory_allocated(device: _DeviceLike = None) -> int:
    return _XLAC.memory_stats(device_index(device))["bytes_used"]


def max_memory_allocated(device: _DeviceLike = None) -> int:
    """The most since the start, or since `reset_peak_memory_stats`."""
    return _XLAC.memory_stats(device_index(device))["peak_bytes"]


def memory_reserved(device: _DeviceLike = None) -> int:
    return memory_allocated(device)


def max_memory_reserved(device: _DeviceLike = None) -> int:
    return max_memory_allocated(device)


def reset_peak_memory_stats(device: _DeviceLike = None) -> None:
    """On the CPU platform. Other plugins keep their own peak, since the start."""
    _XLAC.reset_peak_memory(device_index(device))


def reset_max_memory_allocated(device: _DeviceLike = None) -> None:
    reset_peak_memory_stats(device)


def memory_stats(device: _DeviceLike = None) -> "OrderedDict[str, int]":
    stats = _XLAC.memory_stats(device_index(device))
    result = OrderedDict[str, int]()
    for kind in ("active_bytes", "allocated_bytes", "requested_bytes", "reserved_bytes"):
        result[f"{kind}.all.current"] = stats["bytes_used"]
        result[f"{kind}.all.peak"] = stats["peak_bytes"]
    return result


def mem_get_info(device: _DeviceLike = None) -> tuple[int, int]:
    """Free and total memory in bytes. On the CPU platform the total is the machine's, and free is
    what the device's values leave of it."""
    stats = _XLAC.memory_stats(device_index(device))
    return max(stats["bytes_limit"] - stats["bytes_used"], 0), stats["bytes_limit"]


def empty_cache() -> None:
    """Gives memory that was freed, and kept for the next step, back to the system."""
    _XLAC.release_freed_memory()
