"""Loads the compiled core, and explains what is wrong when it does not load."""

import importlib
import importlib.metadata
import importlib.util

import torch

from torch_xla.version import TORCH_VERSION


def load() -> None:
    _check_pytorch()
    try:
        importlib.import_module("torch_xla._XLAC")
    except ImportError as error:
        raise ImportError(f"torch_xla cannot load its compiled core: {_cause()}") from error


def _check_pytorch() -> None:
    """Before loading: with another PyTorch it could load, and then crash."""
    if not hasattr(torch, "__version__"):
        raise ImportError(f"{torch.__file__} is not PyTorch and hides it: give it another name")
    installed = str(torch.__version__)
    if installed.partition("+")[0] != TORCH_VERSION:
        raise ImportError(
            f"torch_xla is built for PyTorch {TORCH_VERSION}, and PyTorch {installed} is "
            f"installed: run `pip install torch=={TORCH_VERSION}`, or install the torch-pjrt for "
            "that PyTorch"
        )


def _cause() -> str:
    if _google_torch_xla_installed():
        return (
            "Google's `torch_xla` and `torch-pjrt` are both installed and write to the same "
            "folder. Run `pip uninstall -y torch_xla torch-pjrt`, then install torch-pjrt again."
        )
    if importlib.util.find_spec("torch_xla._XLAC") is None:
        return "the extension module is missing. Install torch-pjrt again."
    return "see the error above. Install torch-pjrt again, with `pip install --force-reinstall`."


def _google_torch_xla_installed() -> bool:
    try:
        files = importlib.metadata.files("torch_xla")
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(file.name.startswith("_XLAC.") for file in files or ())
