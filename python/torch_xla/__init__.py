"""PyTorch on OpenXLA: the device `xla`.

Importing this package makes the device known to PyTorch. The PJRT client starts on first use.
"""

import importlib
from typing import Any

from torch_xla._internal import extension

extension.load()

from torch_xla import _compat, runtime  # noqa: E402
from torch_xla._internal import integration  # noqa: E402
from torch_xla.torch_xla import (  # noqa: E402
    compile,
    device,
    device_count,
    devices,
    launch,
    manual_seed,
    real_devices,
    step,
    sync,
)
from torch_xla.version import __version__  # noqa: E402

__all__ = [
    "__version__",
    "compile",
    "device",
    "device_count",
    "devices",
    "launch",
    "manual_seed",
    "real_devices",
    "runtime",
    "step",
    "sync",
]

_LAZY_SUBMODULES = frozenset({"amp", "core", "debug", "distributed", "experimental", "utils"})

_compat.install()
integration.install()


def __getattr__(name: str) -> Any:
    if name in _LAZY_SUBMODULES:
        return importlib.import_module(f"torch_xla.{name}")
    raise AttributeError(f"module 'torch_xla' has no attribute '{name}'")
