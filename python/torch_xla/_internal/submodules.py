"""Modules of a package that are imported when a program first names them.

`import torch_xla` alone makes `torch_xla.core.xla_model` and its like usable, as 2.9 does, and
imports none of them before.
"""

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any


def on_first_use(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of such a package."""

    def __getattr__(name: str) -> Any:
        module = f"{package}.{name}"
        if name.startswith("_") or find_spec(module) is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return importlib.import_module(module)

    return __getattr__
