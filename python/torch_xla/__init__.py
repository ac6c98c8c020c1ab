"""PyTorch on OpenXLA: the device `xla`.

Importing this package makes the device known to PyTorch. The PJRT client starts on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

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
    set_custom_compile_options,
    step,
    sync,
)
from torch_xla.version import __version__  # noqa: E402

if TYPE_CHECKING:
    from torch_xla.stablehlo import save_as_stablehlo, save_torch_model_as_stablehlo

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
    "save_as_stablehlo",
    "save_torch_model_as_stablehlo",
    "set_custom_compile_options",
    "step",
    "sync",
]

_LAZY_SUBMODULES = frozenset(
    {"amp", "backends", "core", "debug", "distributed", "experimental", "stablehlo", "utils"}
)

# Modules by the short names that 2.9's package has, too.
_SHORT_NAMES = {
    "xenv": "core.xla_env_vars",
    "xm": "core.xla_model",
    "xmp": "distributed.xla_multiprocessing",
    "xr": "runtime",
    "xu": "utils.utils",
}

_compat.install()
integration.install()


def __getattr__(name: str) -> Any:
    if name in _LAZY_SUBMODULES:
        return importlib.import_module(f"torch_xla.{name}")
    if name in _SHORT_NAMES:
        return importlib.import_module(f"torch_xla.{_SHORT_NAMES[name]}")
    if name in ("save_as_stablehlo", "save_torch_model_as_stablehlo"):
        return getattr(importlib.import_module("torch_xla.stablehlo"), name)
    raise AttributeError(f"module 'torch_xla' has no attribute '{name}'")
