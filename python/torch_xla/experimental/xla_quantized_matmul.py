"""Products with weights of 8 or 4 bits, by ordinary operations. `torch.ops.xla.quantized_matmul` is
the same operator."""

from typing import Any

import torch
import torch.nn.functional as F

from torch_xla.experimental import _library
from torch_xla.experimental import quantized as _operators  # noqa: F401  (PyTorch's)

__all__ = ["XlaQuantizedLinear", "quantized_matmul", "quantized_matmul_xla"]


def _check(condition: bool, what: str, *tensors: torch.Tensor | None) -> None:
    if not condition:
        shapes = ", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors if t is not None)
        raise ValueError(f"quantized_matmul: {what}, got {shapes}")


def _check_weight(
    inputs: int, block_size: int, w: torch.Tensor, scaler: torch.Tensor, zero: torch.Tensor | None
) -> None:
    _check(w.dtype == torch.int8, "the weight must be of torch.int8", w)
    if block_size == -1:
        fits = w.dim() == 2 and w.size(1) == inputs and scaler.shape == (w.size(0),)
        _check(fits, "the weight must be (out, in) and the scaler (out,)", w, scaler)
    else:
        blocks = (inputs // block_size, block_size)
        fits = inputs % block_size == 0 and w.dim() == 3 and tuple(w.shape[:2]) == blocks
        _check(fits, f"the weight must be {(*blocks, 'out')}", w)
        wanted = (w.size(0), w.size(2))
        _check(scaler.shape == wanted, f"the scaler must be {wanted}", scaler)
    _check(zero is None or zero.shape == scaler.shape, "the zero point must be as the scaler", zero)


def _quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as numbers of 8 bits and their scales."""
    scale = x.abs().amax(dim=-1, keepdim=True) / 127
    return torch.round(x / scale).to(torch.int8), scale


def quantized_matmul(
    x: torch.Tensor,
    w: torch.Tensor,
    scaler: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    block_size: int | None = -1,
    int4_weight: bool | None = False,
    quantize_activation: bool | None = False,
) -> torch.Tensor:
    """`x @ weight.T` for the weight `(w - zero_point / scaler) * scaler`.

    With `block_size` -1 each output has a scale: `w` (out, in), `scaler` and `zero_point` (out,);
    else each block of inputs has: `w` (in / block, block, out), the others (in / block, out). The
    zero point is already multiplied by the scale. `int4_weight`: the numbers fit in 4 bits, which
    has no effect. `quantize_activation` rounds each row of `x` to 8 bits first.
    """
    block = -1 if block_size is None else block_size
    _check_weight(x.size(-1), block, w, scaler, zero_point)
    if block != -1:
        _check(not quantize_activation, "activations of blocks cannot be quantized", x)
        blocks = x.reshape(*x.shape[:-1], -1, block)
        products = torch.einsum("scn,...sc->...sn", w.to(x.dtype), blocks)
        out = torch.einsum("sn,...sn->...n", scaler, products)
        if zero_point is not None:
            out = out - blocks.sum(-1) @ zero_point
        return out
    if quantize_activation:
        rows, scale = _quantized(x)
        out = F.linear(rows.to(torch.int32), w.to(torch.int32)).to(x.dtype) * scaler
        if zero_point is not None:
            out = out - rows.to(x.dtype).sum(-1, keepdim=True) * zero_point
        return out * scale
    out = F.linear(x, w.to(x.dtype)) * scaler
    return out if zero_point is None else out - x.sum(-1, keepdim=True) * zero_point


quantized_matmul_xla = quantized_matmul
_library.define(
    "quantized_matmul(Tensor x, Tensor w, Tensor scale, Tensor? zero_point=None, "
    "int? block_size=-1, bool? int4_weight=False, bool? quantize_activation=False) -> Tensor",
    quantized_matmul,
)


class XlaQuantizedLinear(torch.nn.Module):
    """`nn.Linear` without a bias, with a quantized weight (see `quantized_matmul`)."""

    zero_point: torch.Tensor | None

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        is_symmetric: bool = False,
        block_size: int = -1,
        int4_weight: bool = False,
        quantize_activation: bool = False,
    ) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.is_symmetric = is_symmetric
        self.block_size = block_size
        self.int4_weight = int4_weight
        self.quantize_activation = quantize_activation
        blocks = (input_dim // block_size, block_size) if block_size != -1 else ()
        sizes = (*blocks, output_dim) if blocks else (output_dim, input_dim)
        scales = (blocks[0], output_dim) if blocks else (output_dim,)
        self.register_buffer("weight", torch.zeros(sizes, dtype=torch.int8))
        self.register_buffer("weight_scaler", torch.zeros(scales))
        self.register_buffer("zero_point", None if is_symmetric else torch.zeros(scales))

    def load_quantized_weight(
        self,
        weight: torch.Tensor,
        weight_scaler: torch.Tensor,
        zero_point: torch.Tensor | None = None,
    ) -> None:
        """Replaces the weight, its scales and its zero points."""
        _check_weight(self.input_dim, self.block_size, weight, weight_scaler, zero_point)
        self.weight, self.weight_scaler, self.zero_point = weight, weight_scaler, zero_point

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        options: dict[str, Any] = {
            "block_size": self.block_size,
            "int4_weight": self.int4_weight,
            "quantize_activation": self.quantize_activation,
        }
        return quantized_matmul(x, self.weight, self.weight_scaler, self.zero_point, **options)  # type: ignore
