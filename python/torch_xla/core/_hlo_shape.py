"""Types and shapes under the names of XLA's builder. `xla_builder` publishes them."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_xla.core._hlo_module import Shapes, TensorShape


class Type:
    """Element types."""

    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    F16 = "f16"
    U8 = "u8"
    S8 = "s8"
    U16 = "u16"
    S16 = "s16"
    U32 = "u32"
    S32 = "s32"
    U64 = "u64"
    S64 = "s64"
    C64 = "c64"
    C128 = "c128"
    PRED = "pred"


TORCH_TYPES = {
    Type.F32: torch.float32,
    Type.F64: torch.float64,
    Type.BF16: torch.bfloat16,
    Type.F16: torch.float16,
    Type.U8: torch.uint8,
    Type.S8: torch.int8,
    Type.U16: torch.uint16,
    Type.S16: torch.int16,
    Type.U32: torch.uint32,
    Type.S32: torch.int32,
    Type.U64: torch.uint64,
    Type.S64: torch.int64,
    Type.C64: torch.complex64,
    Type.C128: torch.complex128,
    Type.PRED: torch.bool,
}
XLA_TYPES = {dtype: name for name, dtype in TORCH_TYPES.items()}


class Shape:
    """The shape of a tensor, or of a tuple: a list of shapes."""

    def __init__(self, shape: Any) -> None:
        self._shape = shape

    @classmethod
    def create(
        cls, dtype: str, sizes: Sequence[int], dynamic_dimensions: Sequence[int] | None = None
    ) -> "Shape":
        if dynamic_dimensions is not None and any(dynamic_dimensions):
            raise NotImplementedError(
                "shapes are static: build a computation for each size, or compute with a mask"
            )
        return cls({"type": str(dtype), "sizes": tuple(sizes)})

    @classmethod
    def of(cls, shape: Shapes) -> "Shape":
        if isinstance(shape, TensorShape):
            return cls.create(XLA_TYPES[shape.dtype], shape.sizes)
        return cls([cls.of(part).shape for part in shape])

    def nested(self) -> Shapes:
        if self.is_tuple():
            return tuple(Shape(part).nested() for part in self._shape)
        return TensorShape(TORCH_TYPES[self.dtype], tuple(self.sizes))

    @property
    def shape(self) -> Any:
        return self._shape

    def is_tuple(self) -> bool:
        return isinstance(self._shape, (list, tuple))

    def tuple_size(self) -> int:
        return len(self._tuple())

    def tuple_shape(self, index: int) -> Any:
        return self._tuple()[index]

    def _tuple(self) -> Any:
        if not self.is_tuple():
            raise ValueError("this is the shape of a tensor, not of a tuple")
        return self._shape

    def _tensor(self) -> Any:
        if self.is_tuple():
            raise ValueError("this is the shape of a tuple: take a part of it (tuple_shape)")
        return self._shape

    def is_dynamic(self) -> bool:
        return "dynamic_dimensions" in self._tensor()

    def as_scalar(self) -> "Shape":
        return Shape.create(self.dtype, ())

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        sizes: tuple[int, ...] = self._tensor()["sizes"]
        return sizes

    @property
    def dynamic_dimensions(self) -> Any:
        return self._tensor().get("dynamic_dimensions")

    @property
    def dtype(self) -> str:
        dtype: str = self._tensor()["type"]
        return dtype
