"""Turns what users write for a device into an index."""

import torch

from torch_xla import _XLAC

type_name = "xla"


def device_index(device: "torch.device | str | int | None") -> int:
    """Index of `device`; the current device's for None and for plain "xla"."""
    if device is None:
        return _XLAC.current_device()
    if isinstance(device, int):
        return device
    parsed = torch.device(device)
    if parsed.type != type_name:
        raise ValueError(f"expected an xla device, got '{device}': write 'xla' or 'xla:0'")
    return _XLAC.current_device() if parsed.index is None else parsed.index


class DeviceIndexError(RuntimeError, IndexError):
    """There is no such device. An IndexError too, which PyTorch/XLA raises."""


def existing_device(device: "torch.device | str | int | None") -> torch.device:
    """`xla:device`, checked; the current device for None, without starting the client."""
    if device is None:
        return torch.device(type_name, _XLAC.current_device())
    index = device_index(device)
    count = _XLAC.device_count_hint()
    if not 0 <= index < count:
        if _XLAC.spmd_enabled():
            raise RuntimeError(
                f"there is no device xla:{index} in SPMD mode: xla:0 stands for all devices"
            )
        raise DeviceIndexError(
            f"there is no device xla:{index}: this process has {count} "
            f"(xla:0 to xla:{count - 1}). On the CPU platform CPU_NUM_DEVICES sets the number."
        )
    return torch.device(type_name, index)
