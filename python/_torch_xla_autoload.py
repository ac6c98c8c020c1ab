"""`import torch` finds the device: PyTorch calls `load` at its end (entry point `torch.backends`).

A module of its own: when the device cannot be loaded, `import torch` must work all the same.
"""

import sys
import warnings


def load() -> None:
    if "torch_xla" in sys.modules:
        return  # it was imported first, and is importing PyTorch
    try:
        import torch_xla  # noqa: F401
    except ImportError as error:
        warnings.warn(f"the device 'xla' is not available: {error}", stacklevel=2)
