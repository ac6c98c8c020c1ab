"""Names of `torch_xla._XLAC` that libraries written for PyTorch/XLA call."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC, runtime
from torch_xla._internal import rng
from torch_xla._internal.devices import device_index


def _tensor_id(tensor: torch.Tensor) -> int:
    """Libraries use it to find tied weights: it is that of the storage."""
    return tensor.untyped_storage().data_ptr()


def _default_device() -> str:
    return f"xla:{_XLAC.current_device()}"


def _devices() -> list[str]:
    return [f"xla:{index}" for index in range(_XLAC.device_count_hint())]


def _real_devices(devices: Sequence[str] = ()) -> list[str]:
    indices = [device_index(device) for device in devices] or range(_XLAC.device_count_hint())
    return [f"{runtime.device_type()}:{index}" for index in indices]


def _set_default_device(device: str) -> str:
    previous = _default_device()
    _XLAC.set_current_device(device_index(device))
    return previous


def _sync_multi(
    tensors: Sequence[torch.Tensor],
    devices: Sequence[str] = (),
    wait: bool = True,
    sync_xla_data: bool = True,
) -> None:
    _XLAC.sync_tensors(list(tensors))
    if wait:
        _XLAC.wait_device_ops()


def _step_marker(
    device: str = "", devices: Sequence[str] = (), wait: bool = False, reset_scope: bool = True
) -> None:
    _XLAC.sync(device_index(device or None), wait)


def _wait_device_ops(devices: Sequence[str] = ()) -> None:
    if not devices:
        _XLAC.wait_device_ops()
    for device in devices:
        _XLAC.wait_device_ops(device_index(device))


def _set_rng_seed(seed: int, device: str = "") -> None:
    _XLAC.set_rng_state(device_index(device or None), rng.as_int64(seed))


def _get_rng_seed(device: str = "") -> int:
    return _XLAC.get_rng_state(device_index(device or None))


def _tensors_from_aten(
    tensors: Sequence[torch.Tensor], devices: Sequence[str], shardings: Any = None
) -> list[torch.Tensor]:
    moved = [tensor.to(device) for tensor, device in zip(tensors, devices, strict=True)]
    for tensor, sharding in zip(moved, shardings or [None] * len(moved), strict=True):
        if sharding is not None:
            spec = sharding.xla_spec(tensor) if hasattr(sharding, "xla_spec") else sharding
            _XLAC._xla_mark_sharding(tensor, spec)
    return moved


def _sharding_type(tensor: torch.Tensor) -> int | None:
    from torch_xla.distributed.spmd.xla_sharded_tensor import sharding_type

    kind = sharding_type(tensor)
    return None if kind is None else int(kind)


def _sharding_specs(tensors: Sequence[torch.Tensor]) -> list[str]:
    return [_XLAC._get_xla_sharding_spec(tensor) for tensor in tensors]


def _hlo_text(tensors: Sequence[torch.Tensor]) -> str:
    """The program before optimisation where jaxlib is installed, else after it."""
    from torch_xla._internal.stablehlo_bytecode import hlo_module

    module = hlo_module(_XLAC.tensors_stablehlo_text(list(tensors)))
    if module is None:
        return _XLAC.tensors_optimized_hlo_text(list(tensors))
    text: str = module.to_string()
    return text


def _memory_info(device: str) -> dict[str, int]:
    return _XLAC.memory_stats(device_index(device))


NAMES: dict[str, Callable[..., Any]] = {
    "_xla_get_tensor_id": _tensor_id,
    "_xla_get_default_device": _default_device,
    "_xla_set_default_device": _set_default_device,
    "_xla_get_default_device_ordinal": _XLAC.current_device,
    "_xla_get_devices": _devices,
    "_xla_real_devices": _real_devices,
    "_xla_num_devices": _XLAC.device_count,
    "_xla_sync_multi": _sync_multi,
    "_xla_step_marker": _step_marker,
    "_xla_wait_device_ops": _wait_device_ops,
    "_set_use_eager_mode": _XLAC.set_eager_mode,
    "_get_use_eager_mode": _XLAC.is_eager_mode,
    "_unsafe_buffer_pointer": _XLAC.host_address,
    "_xla_set_rng_seed": _set_rng_seed,
    "_xla_get_rng_seed": _get_rng_seed,
    "_xla_tensors_from_aten": _tensors_from_aten,
    "_xla_memory_info": _memory_info,
    "_xla_counter_names": _XLAC.counter_names,
    "_xla_counter_value": _XLAC.counter_value,
    "_xla_metric_names": _XLAC.metric_names,
    "_xla_metric_data": _XLAC.metric_data,
    "_xla_metrics_report": _XLAC.metrics_report,
    "_short_xla_metrics_report": _XLAC.short_metrics_report,
    "_clear_xla_counters": _XLAC.clear_counters,
    "_clear_xla_metrics": _XLAC.clear_metrics,
    "_get_xla_tensors_text": _XLAC.tensors_ir_text,
    "_get_xla_tensors_hlo": _hlo_text,
    "_get_xla_sharding_specs": _sharding_specs,
    "_get_xla_sharding_type": _sharding_type,
    "_get_stablehlo": _XLAC.tensors_stablehlo_text,
}
