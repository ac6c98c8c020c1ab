"""Says clearly that a name of PyTorch/XLA is not in this version."""

from collections.abc import Callable, Collection
from typing import Any


def getter(module: str, names: Collection[str], instead: str) -> Callable[[str], Any]:
    """A module's `__getattr__` for names it knows but does not have."""

    def get(name: str) -> Any:
        if name in names:
            raise AttributeError(f"{module}.{name} is not in this version of torch_xla: {instead}")
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return get
