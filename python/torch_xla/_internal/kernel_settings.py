"""Settings that PyTorch's kernels look at when they run: what was recorded before one changes runs
before it does, with the former one, as it would on a device that runs operators at once."""

import contextlib
import functools
from typing import Any

import torch

from torch_xla import _XLAC


def install() -> None:
    for name in (
        "set_default_dtype",
        "set_default_tensor_type",
        "set_deterministic_debug_mode",
        "use_deterministic_algorithms",
    ):
        _run_before(name)


def _run_before(name: str) -> None:
    original = getattr(torch, name)

    @functools.wraps(original)
    def change(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            with contextlib.suppress(Exception):  # who reads what failed is told
                _XLAC.run_recorded()
        return original(*args, **kwargs)

    setattr(torch, name, change)
