"""PyTorch's operators `quantized_decomposed::*` (torch.ao.quantization's export) on the device.

Importing this module registers them: rounding and clamping, by ordinary operations.
"""

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines the operators)

__all__ = [
    "xla_dequantize_per_channel",
    "xla_dequantize_per_tensor",
    "xla_quantize_per_channel",
    "xla_quantize_per_tensor",
]


def _along(value: torch.Tensor, axis: int, like: torch.Tensor) -> torch.Tensor:
    """One number for each index of a dimension, to be combined with `like`."""
    axis = axis % like.dim()
    if value.dim() != 1 or value.numel() not in (1, like.size(axis)):
        raise ValueError(
            f"scales and zero points along dimension {axis} of a tensor of shape "
            f"{tuple(like.shape)} must be {like.size(axis)} numbers, got {tuple(value.shape)}"
        )
    return value.to(like.device).view([-1 if dim == axis else 1 for dim in range(like.dim())])


def _quantize(
    input: torch.Tensor, scale: Any, zero_point: Any, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    rounded: torch.Tensor = torch.round(input / scale) + zero_point
    return rounded.clamp(low, high).to(dtype)


def xla_quantize_per_tensor(
    input: torch.Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Numbers as integers: `round(input / scale) + zero_point`, clamped."""
    return _quantize(input, scale, zero_point, quant_min, quant_max, dtype)


def xla_quantize_per_channel(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The same with a scale and a zero point for each index of dimension `axis`."""
    scales, zeros = _along(scale, axis, input), _along(zero_point, axis, input)
    return _quantize(input, scales, zeros, quant_min, quant_max, dtype)


def xla_dequantize_per_tensor(
    input: torch.Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Integers as numbers again: `(input - zero_point) * scale`."""
    return (input.to(out_dtype or torch.float32) - zero_point) * scale


def xla_dequantize_per_channel(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The same with a scale and a zero point for each index of dimension `axis`."""
    numbers = input.to(out_dtype or torch.float32)
    zeros = 0 if zero_point is None else _along(zero_point, axis, input)
    return (numbers - zeros) * _along(scale, axis, input)


_library: Any = torch.library.Library("quantized_decomposed", "IMPL")  # type: ignore[no-untyped-call]
for _name, _function in (
    ("quantize_per_tensor", xla_quantize_per_tensor),
    ("quantize_per_channel", xla_quantize_per_channel),
    ("dequantize_per_tensor", xla_dequantize_per_tensor),
    ("dequantize_per_channel", xla_dequantize_per_channel),
):
    _library.impl(_name, _function, "XLA")
