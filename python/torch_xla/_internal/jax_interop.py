"""What needs JAX says so in one sentence."""

import importlib
from typing import Any


def jax(purpose: str) -> Any:
    """The package jax."""
    try:
        return importlib.import_module("jax")
    except ImportError:
        raise RuntimeError(
            f"{purpose} needs JAX, which is not installed: `pip install jax`, of the version of "
            "your jaxlib"
        ) from None


def dtype_of(dtype: Any) -> Any:
    """JAX's dtype for PyTorch's."""
    names = {"half": "float16", "bool": "bool_"}
    name = str(dtype).removeprefix("torch.")
    return getattr(jax("a dtype of JAX").numpy, names.get(name, name))


def struct_of(tensor: Any) -> Any:
    """A jax.ShapeDtypeStruct of a tensor."""
    shapes = jax("a shape of JAX")
    return shapes.ShapeDtypeStruct(tuple(tensor.shape), dtype_of(tensor.dtype))
