"""Devices and processes as 2.9 asks `torch_xla._XLAC` for them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC, runtime
from torch_xla._internal import world
from torch_xla._internal.devices import device_index

_replicated: list[str] = []


def _named(count: int) -> list[str]:
    return [f"{runtime.device_type()}:{index}" for index in range(count)]


def _runtime_devices() -> list[str]:
    return _named(_XLAC.device_count())


def _all_runtime_devices() -> list[str]:
    return _named(_XLAC.global_device_count())


def _set_replication_devices(devices: Sequence[str]) -> None:
    """Which devices exchange data is decided by the processes' world; the list is only kept."""
    _replicated[:] = devices


def _replication_devices() -> list[str]:
    return list(_replicated)


def _replication_devices_count() -> int:
    return len(_replicated) or (world.size() if world.size() > 1 else 0)


def _hardware(tensor: torch.Tensor) -> str:
    if tensor.device.type != "xla":
        raise RuntimeError(f"_xla_get_device_hw_type: the tensor is on {tensor.device}: .to('xla')")
    return runtime.device_type()


def _kind(device: str = "") -> str:
    return _XLAC.device_description(device_index(device or None))


def _automatic() -> bool:
    return False  # plugins have no automatic partitioner


NAMES: dict[str, Callable[..., Any]] = {
    "_prepare_to_exit": _XLAC.wait_device_ops,
    "_xla_computation_cache_is_initialized": _XLAC.client_started,
    "_xla_device_kind": _kind,
    "_xla_force_spmd_device": _XLAC.enable_spmd,
    "_xla_get_all_device_attributes": runtime.global_runtime_device_attributes,
    "_xla_get_all_runtime_devices": _all_runtime_devices,
    "_xla_get_auto_sharding": _automatic,
    "_xla_get_device_attributes": runtime.runtime_device_attributes,
    "_xla_get_device_hw_type": _hardware,
    "_xla_get_device_ordinal": device_index,
    "_xla_get_num_cached_compilation_graph": _XLAC.live_program_count,
    "_xla_get_num_processes": _XLAC.process_count,
    "_xla_get_platform_version": _XLAC.plugin_version,
    "_xla_get_process_index": _XLAC.process_index,
    "_xla_get_replication_devices": _replication_devices,
    "_xla_get_replication_devices_count": _replication_devices_count,
    "_xla_get_runtime_devices": _runtime_devices,
    "_xla_get_spmd_config_is_locked": _XLAC.client_started,
    "_xla_num_global_devices": _XLAC.global_device_count,
    "_xla_num_runtime_devices": _XLAC.device_count,
    "_xla_set_replication_devices": _set_replication_devices,
}
