"""Names of `torch_xla._XLAC` that programs written for PyTorch/XLA 2.9 call.

Those that libraries use are there from the start (`libraries`); what tests and tools use is
imported when somebody asks for it (`tools`).
"""

import importlib
from typing import Any

from torch_xla import _XLAC
from torch_xla._compat import libraries


def install() -> None:
    for name, function in libraries.NAMES.items():
        setattr(_XLAC, name, function)
    _XLAC.__getattr__ = _find  # type: ignore[method-assign]


def _find(name: str) -> Any:
    if name.startswith("_") or name in ("lowering", "profiler"):
        names = importlib.import_module("torch_xla._compat.tools").NAMES
        if name in names:
            return names[name]
    raise AttributeError(f"module 'torch_xla._XLAC' has no attribute {name!r}")
