"""Types and literals in StableHLO's text."""

import ctypes
import re
from collections.abc import Sequence

import torch

_ELEMENTS = {
    torch.bool: "i1",
    torch.uint8: "ui8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
}
_DTYPES = {element: dtype for dtype, element in _ELEMENTS.items()}


def element_type(dtype: torch.dtype) -> str:
    """`f32`."""
    if dtype not in _ELEMENTS:
        raise TypeError(f"{dtype} has no counterpart in StableHLO on the xla device")
    return _ELEMENTS[dtype]


def dtype_of(element: str) -> torch.dtype:
    """torch.float32 for `f32`."""
    if element not in _DTYPES:
        raise TypeError(f"the StableHLO type {element} has no counterpart in PyTorch")
    return _DTYPES[element]


def tensor_type(sizes: Sequence[int], dtype: torch.dtype) -> str:
    """`tensor<2x3xf32>`."""
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{element_type(dtype)}>"


def type_of(tensor: torch.Tensor) -> str:
    return tensor_type(tensor.shape, tensor.dtype)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\0A")
    return f'"{escaped}"'


def float32(value: float) -> str:
    """A number as StableHLO's printer writes it where it is a float32."""
    short = f"{value:.6e}"
    same = ctypes.c_float(float(short)).value == ctypes.c_float(value).value
    return short if same else f"{value:.8e}"


def symbol(name: str) -> str:
    """`@name`, in quotes where it needs them."""
    return f"@{name}" if re.fullmatch(r"[A-Za-z_][\w$.]*", name, re.ASCII) else f"@{quoted(name)}"


def function_type(arguments: Sequence[str], results: Sequence[str]) -> str:
    """`(tensor<f32>) -> tensor<f32>`."""
    returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"({', '.join(arguments)}) -> {returned}"


def joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def array(numbers: Sequence[int]) -> str:
    """`array<i64: 1, 2>`."""
    return f"array<i64: {joined(numbers)}>" if numbers else "array<i64>"
