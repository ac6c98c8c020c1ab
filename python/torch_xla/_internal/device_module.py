"""The module `torch.xla`: what PyTorch asks of a device type (fork_rng, checkpoint, autocast), and
what users of `torch.cuda` expect of one."""

import importlib
import os
from dataclasses import dataclass
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._internal import plugins, rng
from torch_xla._internal.device_memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from torch_xla._internal.device_streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from torch_xla._internal.devices import device_index, existing_device

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

_STATE_BYTES = 16

_DeviceLike = torch.device | str | int | None

# Set in a forked child of a process whose client had started: a client does not survive a fork.
_in_bad_fork = False


def _after_fork() -> None:
    global _in_bad_fork
    _in_bad_fork = _XLAC.client_started()


os.register_at_fork(after_in_child=_after_fork)


def _is_in_bad_fork() -> bool:
    return _in_bad_fork


def __getattr__(name: str) -> Any:
    if name == "_initialized":
        return _XLAC.client_started()
    if name == "default_generators":
        return tuple(_XLAC.default_generator(i) for i in range(device_count()))
    if name == "amp":
        return importlib.import_module("torch_xla.amp")
    raise AttributeError(f"module 'torch.xla' has no attribute '{name}'")


def is_available() -> bool:
    return _XLAC.device_count_hint() > 0


def is_initialized() -> bool:
    return _XLAC.client_started()


def init() -> None:
    """Starts the client, which the first use of a device does otherwise."""
    _XLAC.platform_name()


def device_count() -> int:
    return _XLAC.device_count_hint()


def current_device() -> int:
    return _XLAC.current_device()


def set_device(device: _DeviceLike) -> None:
    index = existing_device(device_index(device)).index
    _XLAC.set_current_device(index)


class device:
    """Context manager: `device` is the current device inside."""

    def __init__(self, device: _DeviceLike) -> None:
        self._index = existing_device(device_index(device)).index
        self._previous: list[int] = []

    def __enter__(self) -> "device":
        self._previous.append(_XLAC.current_device())
        _XLAC.set_current_device(self._index)
        return self

    def __exit__(self, *exception: object) -> None:
        _XLAC.set_current_device(self._previous.pop())


@dataclass(frozen=True)
class DeviceProperties:
    """What is known of a device."""

    name: str
    platform: str  # "CPU", "CUDA", "TPU", ...
    plugin: str  # its version and that of its interface
    total_memory: int  # bytes


def get_device_properties(device: _DeviceLike = None) -> DeviceProperties:
    index = existing_device(device_index(device)).index
    return DeviceProperties(
        _XLAC.device_description(index),
        plugins.device_type(),
        _XLAC.plugin_version(),
        mem_get_info(index)[1],
    )


def get_device_name(device: _DeviceLike = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: _DeviceLike = None) -> tuple[int, int]:
    """(0, 0): CUDA's numbers, which choose CUDA's kernels, say nothing of this device."""
    return 0, 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def synchronize(device: _DeviceLike = None) -> None:
    """Runs what is pending on the device and waits until it is done."""
    index = device_index(device)
    _XLAC.sync(index, wait=True)
    _XLAC.wait_device_ops(index)


def get_rng_state(device: _DeviceLike = None) -> torch.Tensor:
    """The bytes of the state. They stay on the device: checkpointing saves them in every step."""
    return _XLAC.rng_state_tensor(device_index(device)).view(torch.uint8)


def set_rng_state(new_state: torch.Tensor, device: _DeviceLike = None) -> None:
    if new_state.dtype != torch.uint8 or new_state.numel() != _STATE_BYTES:
        raise ValueError(
            f"expected the {_STATE_BYTES} bytes of torch.xla.get_rng_state(), got "
            f"{new_state.numel()} elements of {new_state.dtype}"
        )
    index = device_index(device)
    state = new_state.to(torch.device("xla", index)).view(torch.uint64)
    _XLAC.restore_rng_state_tensor(index, state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    rng.seed_device(_XLAC.current_device(), seed)


def manual_seed_all(seed: int) -> None:
    rng.seed_device(rng.ALL_DEVICES, seed)


def seed() -> None:
    manual_seed(rng.fresh_seed())


def seed_all() -> None:
    manual_seed_all(rng.fresh_seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _XLAC.default_generator(_XLAC.current_device()).initial_seed()


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]
