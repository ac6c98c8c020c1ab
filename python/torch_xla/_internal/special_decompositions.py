"""Special functions in terms of others, for programs that can call no kernel of PyTorch's: power
series, asymptotic expansions, integrals and recurrences, in double precision. All coefficients are
computed here, from their definitions (numbers in comments: the NIST Digital Library of
Mathematical Functions)."""

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from torch_xla import _XLAC
from torch_xla._internal import control_flow
from torch_xla._internal.composed import refuse_if, replaces

aten: Any = torch.ops.aten
_torch: Any = torch
_EULER = 0.57721566490153286061
_PI = math.pi
_NAN, _INF = math.nan, math.inf


def in_double(
    *operators: Any, or_single: bool = False
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Replaces operators of real tensors by a function of doubles of one shape; `or_single`: which
    may be floats where the device has no doubles, because it adds nothing that nearly cancels."""

    def add(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def compute(*tensors: Tensor) -> Tensor:
            dtype = torch.result_type(tensors[0], tensors[-1])
            refuse_if(dtype.is_complex or not (or_single or _XLAC.has_doubles()))
            dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
            doubles = [tensor.to(torch.float64) for tensor in tensors]
            if len(doubles) > 1:
                doubles = list(_torch.broadcast_tensors(*doubles))
            return function(*doubles).to(dtype)

        replaces(*operators)(compute)
        return function

    return add


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Their sum times 1, x, x^2 and so on. Those that the device takes for zero are left out: XLA
    multiplies the powers of x before them first, to infinity, which times zero is no number."""
    dtype = torch.float64 if _XLAC.has_doubles() else torch.float32
    count = len(coefficients)
    while abs(coefficients[count - 1]) < torch.finfo(dtype).tiny and count > 1:
        count -= 1
    total = torch.full_like(x, coefficients[count - 1])
    for coefficient in reversed(coefficients[: count - 1]):
        total = total * x + coefficient
    return total


# ---- Bessel functions ----------------------------------------------------------------------------

# The series are for arguments up to here, what is asymptotic for larger ones: exact to 1e-11 in
# between.
_FAR = 16.0
_TERMS = 45


def _series(order: float) -> list[float]:
    """Of (2/x)^order I(x) in x^2 / 4 (10.25.2); of J in -x^2 / 4 (10.2.2)."""
    return [1 / (math.factorial(k) * math.gamma(order + k + 1)) for k in range(_TERMS)]


def _logarithmic_series(order: int) -> list[float]:
    """What Y and K add to a logarithm times J and I (10.8.1, 10.31.1)."""
    harmonic = [-_EULER]
    for k in range(1, _TERMS + order + 1):
        harmonic.append(harmonic[-1] + 1 / k)
    return [
        (harmonic[k] + harmonic[k + order]) / (math.factorial(k) * math.factorial(k + order))
        for k in range(_TERMS)
    ]


def _expansion(order: float, terms: int = 30) -> list[float]:
    """The coefficients of all asymptotic expansions (10.17.1)."""
    found = [1.0]
    for k in range(1, terms):
        found.append(found[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return found


def _waves(x: Tensor, order: float) -> tuple[Tensor, Tensor]:
    """J and Y of large arguments (10.17.3, 10.17.4)."""
    a = _expansion(order)
    inverse = 1 / x
    even = _polynomial(-inverse * inverse, a[0::2])
    odd = _polynomial(-inverse * inverse, a[1::2]) * inverse
    phase = x - (order / 2 + 0.25) * _PI
    sine, cosine, size = phase.sin(), phase.cos(), (2 / _PI * inverse).sqrt()
    return size * (even * cosine - odd * sine), size * (even * sine + odd * cosine)


def _bessel_j(x: Tensor, order: int) -> Tensor:
    size = x.abs()
    near = _polynomial(-x * x / 4, _series(order)) * (size / 2) ** order
    value = torch.where(size < _FAR, near, _waves(size, order)[0])
    return torch.where(x < 0, -value, value) if order == 1 else value


def _bessel_y(x: Tensor, order: int) -> Tensor:
    half = x / 2
    rest = _polynomial(-half * half, _logarithmic_series(order)) * half**order
    j = _polynomial(-half * half, _series(order)) * half**order
    near = (2 * half.log() * j - rest - (1 / half if order == 1 else 0)) / _PI
    value = torch.where(x < _FAR, near, _waves(x, order)[1])
    return torch.where(x == 0, -_INF, torch.where(x < 0, _NAN, value))


def _bessel_i(x: Tensor, order: int, scaled: bool) -> Tensor:
    """10.25.2, 10.40.1; scaled: times exp(-|x|)."""
    size = x.abs()
    near = _polynomial(x * x / 4, _series(order)) * (size / 2) ** order
    far = _polynomial(-1 / size, _expansion(order)) / (2 * _PI * size).sqrt()
    if scaled:
        value = torch.where(size < _FAR, near * (-size).exp(), far)
    else:
        grown = (size / 2).exp()  # its square is too large before the result is
        value = torch.where(size < _FAR, near, far * grown * grown)
    return torch.where(x < 0, -value, value) if order == 1 else value


def _integral_k(x: Tensor, order: float) -> Tensor:
    """exp(x) K(x) of x > 2: the integral of exp(-x (cosh t - 1)) cosh(order t) by the trapezoidal
    rule (10.32.9), as far as it is not zero."""
    points = 32
    depth = 40 / x
    end = torch.log1p(depth + (depth * (depth + 2)).sqrt()).unsqueeze(-1)
    t = end * (torch.arange(points, device=x.device, dtype=x.dtype) / points)
    values = (-2 * x.unsqueeze(-1) * (t / 2).sinh() ** 2).exp() * (order * t).cosh()
    return (values.sum(-1) - 0.5) * end.squeeze(-1) / points


def _bessel_k(x: Tensor, order: int, scaled: bool) -> Tensor:
    half = x / 2
    rest = _polynomial(half * half, _logarithmic_series(order)) * half**order / 2
    i = _polynomial(half * half, _series(order)) * half**order
    sign = 1 if order == 0 else -1
    near = sign * (rest - half.log() * i) + (1 / x if order == 1 else 0)
    far = _integral_k(x.clamp(min=1), order)
    if scaled:
        value = torch.where(x <= 2, near * x.exp(), far)
    else:
        value = torch.where(x <= 2, near, far * (-x).exp())
    return torch.where(x == 0, _INF, torch.where(x < 0, _NAN, value))


def _add_bessel_functions() -> None:
    def add(operator: Any, function: Any, order: int, *options: bool) -> None:
        or_single = function not in (_bessel_j, _bessel_y)
        in_double(operator, or_single=or_single)(lambda x: function(x, order, *options))

    for order in (0, 1):
        for kind, function in (("j", _bessel_j), ("y", _bessel_y)):
            add(getattr(aten, f"special_bessel_{kind}{order}").default, function, order)
        for name, scaled in (("modified_bessel", False), ("scaled_modified_bessel", True)):
            operator = getattr(aten, f"special_{name}_k{order}").default
            add(operator, _bessel_k, order, scaled)
        add(getattr(aten, f"special_modified_bessel_i{order}").default, _bessel_i, order, False)
        add(getattr(aten, f"special_i{order}e").default, _bessel_i, order, True)
    add(aten.i0.default, _bessel_i, 0, False)
    add(aten.special_i1.default, _bessel_i, 1, False)


_add_bessel_functions()


@in_double(aten.special_spherical_bessel_j0.default, or_single=True)
def _spherical_bessel_j0(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1, torch.where(x.isinf(), 0, x.sin() / x))


@in_double(aten.special_airy_ai.default)
def _airy_ai(x: Tensor) -> Tensor:
    """By Bessel functions of a third (9.6.2, 9.6.6), near zero by their series."""
    third, size = 1 / 3, x.abs()
    zeta = 2 / 3 * size * size.sqrt()
    cube = x * x * x / 9
    near = 3 ** (-2 / 3) * _polynomial(cube, _series(-third))
    near = near - 3 ** (-4 / 3) * x * _polynomial(cube, _series(third))
    decaying = (size / 3).sqrt() / _PI * _integral_k(zeta.clamp(min=1), third) * (-zeta).exp()
    waves = _waves(zeta, third)[0] + _waves(zeta, -third)[0]
    far = torch.where(x > 0, decaying, size.sqrt() / 3 * waves)
    return torch.where((x > 0) & (zeta < 2) | (x <= 0) & (zeta < _FAR), near, far)


# ---- error functions -----------------------------------------------------------------------------


@in_double(aten.special_erfcx.default)
def _erfcx(x: Tensor) -> Tensor:
    inverse = 1 / (2 * x * x)
    odd = [1.0]  # 1, -1, 1 * 3, -1 * 3 * 5 and so on (7.12.1)
    for k in range(1, 20):
        odd.append(-odd[-1] * (2 * k - 1))
    far = _polynomial(inverse, odd) / (x * math.sqrt(_PI))
    return torch.where(x < 10, (x * x).exp() * torch.erfc(x), far)


@in_double(aten.special_ndtri.default)
def _ndtri(p: Tensor) -> Tensor:
    """Newton's method on the logarithm of the smaller half."""
    small = torch.minimum(p, 1 - p)
    x = -(-2 * small.log()).sqrt()
    for _ in range(8):
        scaled = _erfcx(-x / math.sqrt(2)) / 2
        error = scaled.log() - x * x / 2 - small.log()
        step = error * scaled * math.sqrt(2 * _PI)
        x = torch.where(x.isinf(), x, x - step)
    x = torch.where(p > 0.5, -x, x)
    x = torch.where(p == 0, -_INF, torch.where(p == 1, _INF, x))
    return torch.where((p < 0) | (p > 1), _NAN, x)


# ---- zeta and gamma functions --------------------------------------------------------------------


def _bernoulli(count: int) -> list[float]:
    """B(2) / 2!, B(4) / 4! and so on."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        known = sum(math.comb(n + 1, k) * number for k, number in enumerate(numbers))
        numbers.append(-Fraction(known, n + 1))
    return [float(numbers[2 * k] / math.factorial(2 * k)) for k in range(1, count + 1)]


@in_double(aten.special_zeta.default)
def _zeta(s: Tensor, q: Tensor) -> Tensor:
    """Terms until q is large, and Euler's and Maclaurin's formula for the others (25.11.5)."""

    def more(_: Tensor, q: Tensor, __: Tensor) -> Tensor:
        return (q <= 9).any()

    def add(total: Tensor, q: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        near = q <= 9
        return torch.where(near, total + q**-s, total), torch.where(near, q + 1, q)

    first = q
    possible = (s > 1) & ((q > 0) | (s == s.floor()) & (q != q.floor()))
    s, q = torch.where(possible, s, 2), torch.where(possible, q, 10)
    total, q = control_flow.while_loop(more, add, (torch.zeros_like(q), q), (s,))
    power = q**-s
    total = total + power * (q / (s - 1) + 0.5)
    factor = s * power / q
    for k, number in enumerate(_bernoulli(12)):
        total = total + number * factor
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2) / (q * q)
    pole = (first <= 0) & (first == first.floor())
    # possible is false for s <= 1, poles, and powers of negative numbers
    return torch.where(possible, total, torch.where(pole, _INF, _NAN))


@replaces(aten.polygamma.default)
def _polygamma(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return torch.digamma(x)
    order = torch.full((), n + 1, dtype=torch.float64, device=x.device)
    value: Tensor = _zeta(*_torch.broadcast_tensors(order, x.to(torch.float64)))
    value = value * math.factorial(n) * (-1) ** (n + 1)
    return value.to(x.dtype if x.is_floating_point() else torch.get_default_dtype())


def _incomplete_gamma(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """P and Q: a series (8.7.1), and for larger x a continued fraction (8.9.2)."""
    usual = (a > 0) & (x > 0) & a.isfinite() & x.isfinite()
    near = usual & (x < a + 1)
    far = usual & ~near

    def grows(k: Tensor, term: Tensor, total: Tensor, *_: Tensor) -> Tensor:
        return ((term > total * 1e-17).any()) & (k < 5000)

    def grow(k: Tensor, term: Tensor, total: Tensor, a: Tensor, x: Tensor) -> Any:
        term = term * x / (a + k)
        return k + 1, term, total + term

    one = torch.ones((), dtype=a.dtype, device=a.device)
    a1, x1 = torch.where(near, a, 1), torch.where(near, x, 0.5)
    total = control_flow.while_loop(grows, grow, (one, 1 / a1, 1 / a1), (a1, x1))[2]
    series = total * (a1 * x1.log() - x1 - torch.lgamma(a1)).exp()

    def changes(k: Tensor, c: Tensor, d: Tensor, value: Tensor, *_: Tensor) -> Tensor:
        return (((c * d - 1).abs() > 1e-15).any() & (k < 5000)) | (k < 2)

    def change(k: Tensor, c: Tensor, d: Tensor, value: Tensor, a: Tensor, x: Tensor) -> Any:
        factor, b = -k * (k - a), x + 1 - a + 2 * k
        d, c = 1 / (factor * d + b), b + factor / c
        return k + 1, c, d, value * (c * d)

    a2, x2 = torch.where(far, a, 1), torch.where(far, x, 3)
    first = 1 / (x2 + 1 - a2)
    start = (one, torch.full_like(a2, 1e300), first, first)
    fraction = control_flow.while_loop(changes, change, start, (a2, x2))[3]
    fraction = fraction * (a2 * x2.log() - x2 - torch.lgamma(a2)).exp()

    p = torch.where(near, series, 1 - fraction)
    q = torch.where(near, 1 - series, fraction)
    none = (a < 0) | (x < 0) | a.isnan() | x.isnan() | (a == 0) & (x == 0) | a.isinf() & x.isinf()
    zero = ~usual & ((x == 0) | a.isinf())
    p = torch.where(usual, p, torch.where(zero, 0, 1))
    q = torch.where(usual, q, torch.where(zero, 1, 0))
    return torch.where(none, _NAN, p), torch.where(none, _NAN, q)


@in_double(aten.igamma.default)
def _igamma(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete_gamma(a, x)[0]


@in_double(aten.igammac.default)
def _igammac(a: Tensor, x: Tensor) -> Tensor:
    return _incomplete_gamma(a, x)[1]
