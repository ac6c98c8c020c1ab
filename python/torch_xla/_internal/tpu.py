"""What Lightning asks about accelerators."""

import os

from torch_xla import _XLAC
from torch_xla._internal import libraries, plugins


def num_available_devices() -> int:
    """Devices to choose automatically: those of the CPU count only if they are asked for."""
    if plugins.device_type() == "CPU" and not libraries.wanted():
        return 0
    return _XLAC.device_count_hint()


def num_local_processes() -> int:
    return 1


def get_tpu_env() -> dict[str, str]:
    """The device's description: a TPU's is in the environment of its machine."""
    names = ("ACCELERATOR_TYPE", "TYPE", "TPU_PROCESS_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS")
    found = {name: os.environ[name] for name in names if name in os.environ}
    platform = plugins.device_type()
    if platform != "TPU":  # who asks takes any device for a TPU, and looks for one of this name
        return {"TYPE": platform, **found}
    if not found:
        raise RuntimeError("this machine does not describe a TPU in its environment")
    return found
