"""Interfaces that may change."""

from torch_xla._internal.submodules import on_first_use
from torch_xla.experimental._stablehlo_op import stablehlo_op
from torch_xla.experimental.eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = ["eager_mode", "eager_mode_context", "is_eager_mode", "stablehlo_op"]

__getattr__ = on_first_use(__name__)
