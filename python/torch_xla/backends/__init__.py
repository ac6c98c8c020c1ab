"""How the device computes: the precision of products of 32-bit numbers."""

from typing import Final, Literal, TypeAlias, cast, get_args

from torch_xla import _XLAC

__all__ = ["get_mat_mul_precision", "set_mat_mul_precision"]

_Precision: TypeAlias = Literal["default", "high", "highest"]
_CHOICES: Final = get_args(_Precision)


def set_mat_mul_precision(precision: _Precision) -> None:
    """How exactly matrix products and convolutions are computed from now on, where the platform
    has a choice: on a TPU "default" rounds 32-bit numbers to bfloat16 first, "high" takes three
    passes, "highest" six. On the CPU all of them are computed in full. Programs made before are
    kept apart."""
    if precision not in _CHOICES:
        raise ValueError(f"precision must be one of {', '.join(_CHOICES)}, got {precision!r}")
    _XLAC.set_precision(precision.upper())


def get_mat_mul_precision() -> _Precision:
    """What `set_mat_mul_precision` was told; "default" at first."""
    return cast(_Precision, _XLAC.precision().lower())
