"""Orthogonal polynomials of degrees that are tensors, for programs that can call no kernel of
PyTorch's: Chebyshev's by their closed forms, the others by their recurrences."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_xla._internal import control_flow
from torch_xla._internal.special_decompositions import aten, in_double

_MOST_HERMITE = 128  # as PyTorch's kernel has it for float32


def _wave(x: Tensor, factor: Tensor | float, sine: bool) -> Tensor:
    """cos or sin of `factor` times the angle whose cosine is x >= 0, also where that is none."""
    angle, area = x.clamp(max=1).acos() * factor, x.clamp(min=1).acosh() * factor
    inside, outside = (angle.sin(), area.sinh()) if sine else (angle.cos(), area.cosh())
    return torch.where(x < 1, inside, outside)


def _first(n: Tensor, x: Tensor) -> Tensor:
    return _wave(x, n, False)


def _second(n: Tensor, x: Tensor) -> Tensor:
    return torch.where(x == 1, n + 1, _wave(x, n + 1, True) / _wave(x, 1, True))


def _third(n: Tensor, x: Tensor) -> Tensor:
    return _wave(x, n + 0.5, False) / _wave(x, 0.5, False)


def _fourth(n: Tensor, x: Tensor) -> Tensor:
    return torch.where(x == 1, 2 * n + 1, _wave(x, n + 0.5, True) / _wave(x, 0.5, True))


def _add_chebyshev() -> None:
    def add(name: str, right: Any, left: Any, shifted: bool) -> None:
        def compute(x: Tensor, n: Tensor) -> Tensor:
            n = n.trunc()
            x = 2 * x - 1 if shifted else x
            mirrored = left(n, x.abs()) * torch.where(n % 2 == 0, 1, -1)
            return torch.where(n < 0, 0, torch.where(x < 0, mirrored, right(n, x.abs())))

        in_double(getattr(aten, name).default, or_single=True)(compute)

    kinds = {"t": (_first, _first), "u": (_second, _second)}
    kinds |= {"v": (_third, _fourth), "w": (_fourth, _third)}
    for kind, (right, left) in kinds.items():
        add(f"special_chebyshev_polynomial_{kind}", right, left, False)
        add(f"special_shifted_chebyshev_polynomial_{kind}", right, left, True)


_add_chebyshev()


def _recurrence(
    x: Tensor, n: Tensor, first: Tensor, step: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """P(n), with P(k + 1) = step(k, x, P(k), P(k - 1)), P(0) = 1 and P(1) = first."""

    def more(k: Tensor, *_: Tensor) -> Tensor:
        return (n > k).any()

    def advance(k: Tensor, before: Tensor, now: Tensor) -> Any:
        going = n > k
        after = torch.where(going, step(k, x, now, before), now)
        return k + 1, torch.where(going, now, before), after

    one = torch.ones((), dtype=x.dtype, device=x.device)
    start = (one, torch.ones_like(x), torch.where(n < 1, 1, first))
    value: Tensor = control_flow.while_loop(more, advance, start)[2]
    return torch.where(n < 0, 0, value)


def _hermite(x: Tensor, n: Tensor, factor: int) -> Tensor:
    n = n.trunc()
    value = _recurrence(
        x,
        n.clamp(max=_MOST_HERMITE),
        factor * x,
        lambda k, x, now, before: factor * (x * now - k * before),
    )
    return torch.where(n > _MOST_HERMITE, torch.nan, value)


@in_double(aten.special_hermite_polynomial_h.default, or_single=True)
def _physicists(x: Tensor, n: Tensor) -> Tensor:
    return _hermite(x, n, 2)


@in_double(aten.special_hermite_polynomial_he.default, or_single=True)
def _probabilists(x: Tensor, n: Tensor) -> Tensor:
    return _hermite(x, n, 1)


@in_double(aten.special_laguerre_polynomial_l.default, or_single=True)
def _laguerre(x: Tensor, n: Tensor) -> Tensor:
    return _recurrence(
        x,
        n.trunc(),
        1 - x,
        lambda k, x, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
    )


@in_double(aten.special_legendre_polynomial_p.default, or_single=True)
def _legendre(x: Tensor, n: Tensor) -> Tensor:
    return _recurrence(
        x,
        n.trunc(),
        x,
        lambda k, x, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
    )
