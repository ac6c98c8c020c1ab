"""`import torch` finds the device: PyTorch calls `load` at its end (entry point `torch.backends`).

A module of its own: when the device cannot be loaded, `import torch` must work all the same.
"""

import importlib.util
import sys
import warnings
from pathlib import Path


def load() -> None:
    if "torch_xla" in sys.modules:
        return  # it was imported first, and is importing PyTorch
    found = importlib.util.find_spec("torch_xla")
    if found is not None and found.origin and not _is_beside(found.origin):
        warnings.warn(
            f"the device 'xla' is not available: {found.origin} hides the package torch_xla. Give "
            "it another name",
            stacklevel=2,
        )
        return
    try:
        import torch_xla  # noqa: F401
    except ImportError as error:
        warnings.warn(f"the device 'xla' is not available: {error}", stacklevel=2)


def _is_beside(module: str) -> bool:
    return Path(module).resolve().parent.parent == Path(__file__).resolve().parent
