"""Saves nested data with one file a tensor, so that neither side holds all tensors twice."""

import os
from pathlib import Path
from typing import Any

import torch

from torch_xla import runtime
from torch_xla._internal.transfer import is_xla_tensor
from torch_xla.utils.utils import for_each_instance_rewrite


class TensorReference:
    """Stands in the saved data for the tensor in the file with this number."""

    def __init__(self, tid: int) -> None:
        self.tid = tid


def save(data: Any, path: str, master_only: bool = True, global_master: bool = False) -> None:
    """Saves `data` in the file `path` and its tensors in the folder `path`.tensors."""
    if master_only and runtime.global_ordinal() != 0:
        return
    folder = _tensor_folder(path)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("tensor_*.pt"):
        stale.unlink()
    count = 0

    def write(tensor: torch.Tensor) -> TensorReference:
        nonlocal count
        reference = TensorReference(count)
        torch.save(tensor.detach().cpu(), _tensor_file(path, reference))
        count += 1
        return reference

    references = for_each_instance_rewrite(data, is_xla_tensor, write)
    torch.save(references, path)


def load(path: str) -> Any:
    """Loads what `save` wrote. Tensors come back on the CPU. Load only files you trust."""

    def read(reference: TensorReference) -> Any:
        return torch.load(_tensor_file(path, reference), weights_only=True)

    references = torch.load(path, weights_only=False)
    return for_each_instance_rewrite(
        references, lambda value: isinstance(value, TensorReference), read
    )


def _tensor_folder(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}.tensors")


def _tensor_file(path: str, reference: TensorReference) -> Path:
    return _tensor_folder(path) / f"tensor_{reference.tid}.pt"
