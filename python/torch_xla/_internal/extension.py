"""Loads the compiled core, and explains what is wrong when it does not load."""

import importlib
import importlib.metadata
import importlib.util

import torch

from torch_xla.version import TORCH_SERIES


def load() -> None:
    try:
        importlib.import_module("torch_xla._XLAC")
    except ImportError as error:
        raise ImportError(f"torch_xla cannot load its compiled core: {_cause()}") from error


def _cause() -> str:
    installed = torch.__version__
    if not installed.startswith(TORCH_SERIES + "."):
        return (
            f"it is built for PyTorch {TORCH_SERIES}, and PyTorch {installed} is installed. "
            f"Run `pip install 'torch=={TORCH_SERIES}.*'`."
        )
    if _google_torch_xla_installed():
        return (
            "Google's `torch_xla` and `torch-pjrt` are both installed and write to the same "
            "folder. Run `pip uninstall -y torch_xla torch-pjrt`, then `pip install torch-pjrt`."
        )
    if importlib.util.find_spec("torch_xla._XLAC") is None:
        return "the extension module is missing. Reinstall with `pip install torch-pjrt`."
    return "see the error above. Reinstall with `pip install --force-reinstall torch-pjrt`."


def _google_torch_xla_installed() -> bool:
    try:
        files = importlib.metadata.files("torch_xla")
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(file.name.startswith("_XLAC.") for file in files or ())
