"""Element-wise operators and reductions at special values: the CPU's results, dtype by dtype."""

import math
import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
TOLERANCES = {
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float32: (2e-5, 1e-6),
    torch.float64: (1e-9, 1e-12),
    torch.complex64: (2e-5, 2e-6),
}
WITHOUT_DOUBLES = os.environ.get("PJRT_DEVICE") == "FOREIGN"  # float64 is float32 there
if WITHOUT_DOUBLES:
    TOLERANCES[torch.float64] = TOLERANCES[torch.float32]
# fmt: off
NUMBERS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, -2.0, 3.0, -3.0, 0.25, 4.0, 8.0, 64.0,
    1e-3, -1e-3, 1e-5, 10.0, 100.0, -100.0, 88.0, -104.0, 7.25, -7.25, 3e4, 0.999, -0.999,
    math.inf, -math.inf, math.nan,
]
UNARY = [
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh",
    "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "isfinite",
    "isinf", "isnan", "isneginf", "isposinf", "lgamma", "log", "log10", "log1p", "log2",
    "logical_not", "logit", "nan_to_num", "neg", "reciprocal", "round", "rsqrt", "sgn", "sigmoid",
    "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
    "special.entr",
]
BINARY = [
    "add", "atan2", "copysign", "div", "eq", "floor_divide", "fmax", "fmin", "fmod", "ge", "gt",
    "heaviside", "hypot", "le", "logaddexp", "logaddexp2", "lt", "maximum", "minimum", "mul", "ne",
    "pow", "remainder", "special.xlog1py", "sub", "xlogy",
]
# fmt: on
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]
DIVISIONS = ["floor_divide", "remainder", "fmod"]
NO_SIGN_OF_ZERO = ["fmax", "fmin", "logaddexp2", "maximum", "minimum"]

Program = Callable[..., Tensor]


def function(name: str) -> Program:
    return getattr(torch.special if name.startswith("special.") else torch, name.split(".")[-1])


def differs(got: Tensor, wanted: Tensor, signed_zeros: bool = False) -> str:
    """What is wrong with a result; empty if nothing is."""
    got = got.cpu()
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype} {tuple(got.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
    relative, absolute = TOLERANCES.get(wanted.dtype, (0.0, 0.0))
    same = torch.isclose(got, wanted, relative, absolute, equal_nan=True)
    if signed_zeros and wanted.is_floating_point():
        same &= (wanted != 0) | (torch.signbit(got) == torch.signbit(wanted))
    return (
        "" if same.all() else f"{got[~same][:4].tolist()} instead of {wanted[~same][:4].tolist()}"
    )


def compare(cases: Iterator[tuple[str, Program, tuple[Tensor, ...]]], **options: bool) -> None:
    """All cases in one program: the device's results are read after the last was recorded."""
    pending = []
    for name, program, operands in cases:
        try:
            wanted = program(*operands)
        except (RuntimeError, TypeError, IndexError):
            continue  # the CPU refuses this dtype, shape or dim
        pending.append((name, program(*(operand.to("xla") for operand in operands)), wanted))
    assert pending
    wrong = {}
    for name, got, wanted in pending:
        exact = options.get("signed_zeros", False) and name not in NO_SIGN_OF_ZERO
        if fault := differs(got, wanted, exact):
            wrong[name] = fault
    assert not wrong


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_floats(dtype: torch.dtype) -> None:
    if dtype == torch.float64 and WITHOUT_DOUBLES:
        pytest.skip("the largest are infinite in float32")
    numbers = torch.tensor(NUMBERS, dtype=dtype)
    left, right = (side.flatten() for side in torch.meshgrid(numbers, numbers, indexing="ij"))

    def cases() -> Iterator[tuple[str, Program, tuple[Tensor, ...]]]:
        for name in UNARY:
            yield name, function(name), (numbers,)
        for name in BINARY:
            yield name, function(name), (left, right)
        for mode in ("trunc", "floor"):
            yield mode, partial(torch.div, rounding_mode=mode), (left, right)
        for exponent in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, math.inf, math.nan):
            yield f"x**{exponent}", lambda x, e=exponent: x**e, (numbers,)
            yield f"{exponent}**x", lambda x, e=exponent: e**x, (numbers,)
        for decimals in (-1, 1, 2):
            yield f"round {decimals}", partial(torch.round, decimals=decimals), (numbers,)
        for divisor in (0.1, -0.1, 3):
            yield f"x % {divisor}", lambda x, d=divisor: x % d, (numbers,)

    compare(cases(), signed_zeros=True)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype: torch.dtype) -> None:
    numbers = torch.tensor([0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100, 127, -128]).to(dtype)
    left, right = (side.flatten() for side in torch.meshgrid(numbers, numbers, indexing="ij"))
    nonzero, small = right != 0, (right >= 0) & (right < 8)

    def cases() -> Iterator[tuple[str, Program, tuple[Tensor, ...]]]:
        for name in UNARY:
            yield name, function(name), (numbers,)
        for name in BINARY + BITWISE + SHIFTS:
            chosen = nonzero if name in DIVISIONS else small if name in ["pow", *SHIFTS] else None
            sides = (left, right) if chosen is None else (left[chosen], right[chosen])
            yield name, function(name), sides
        for mode in ("trunc", "floor"):
            program = partial(torch.div, rounding_mode=mode)
            yield mode, program, (left[nonzero], right[nonzero])

    compare(cases())


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_bits_of_truncated_integers(dtype: torch.dtype) -> None:
    left, right = torch.arange(-9, 9), torch.arange(18) * 7

    def cases() -> Iterator[tuple[str, Program, tuple[Tensor, ...]]]:
        for name in BITWISE:
            f = function(name)
            yield name, lambda x, y, f=f: f(x.to(dtype), y.to(dtype)), (left, right)
            yield f"{name} not", lambda x, y, f=f: f(~x.to(dtype), ~y.to(dtype)), (left, right)
            yield f"{name} short", lambda x, y, f=f: f(x.to(dtype), y.short()), (left, right)

    compare(cases())


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_casts(source: torch.dtype) -> None:
    numbers = torch.tensor([0.0, -0.0, 0.4, -0.4, 1.9, -1.9, 100.0, -100.0, 300.0]).to(source)
    targets = [torch.bool, *INTEGERS, *FLOATS, torch.complex64]
    compare((str(t), lambda x, t=t: x.to(t), (numbers,)) for t in targets)


def reductions() -> Iterator[tuple[str, Program]]:
    names = ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "any", "all", "var", "std"]
    names += ["logsumexp", "nansum"]
    for name, dim, keep in [(n, d, k) for n in names for d in (0, -1, (0, 2)) for k in (0, 1)]:
        yield f"{name} {dim} {keep}", partial(getattr(torch, name), dim=dim, keepdim=bool(keep))
    for name in [*names, "max", "min", "count_nonzero"]:
        yield name, getattr(torch, name)
    for name, part in [(n, p) for n in ("max", "min", "aminmax") for p in (0, 1)]:
        program = getattr(torch, name)
        yield f"{name} {part}", lambda x, f=program, p=part: f(x, dim=1)[p]
    for name in ("cumsum", "cumprod", "softmax", "log_softmax"):
        yield name, partial(getattr(torch, name), dim=1)
    for order in (0, 1, 2, 3, 0.5, -1, math.inf, -math.inf):
        yield f"norm {order}", partial(torch.linalg.vector_norm, ord=order, dim=1)
    for correction in (0, 2, 9):
        yield f"var - {correction}", partial(torch.var, dim=1, correction=correction)
    yield "any ()", partial(torch.any, dim=())
    yield "sum ()", partial(torch.sum, dim=())
    yield "sum f64", partial(torch.sum, dim=1, dtype=torch.float64)


def with_special_values() -> Tensor:
    numbers = torch.randn(4, 6, 7)
    numbers[0, 0, 0] = numbers[0, 3, 4] = math.nan
    numbers[1, 2, 3] = math.inf
    numbers[3] = -math.inf
    return numbers


def numbers_to_reduce() -> list[Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [
            *(torch.randn(3, 4, 5, dtype=dtype) for dtype in (*FLOATS, torch.complex64)),
            *(torch.randint(0, 5, (3, 4, 5)).to(dtype) for dtype in (*INTEGERS, torch.bool)),
            with_special_values(),
            torch.randn(3, 0, 5),
            torch.tensor(2.5),
        ]


@pytest.mark.parametrize(
    "numbers",
    numbers_to_reduce(),
    ids=lambda numbers: f"{numbers.dtype}-{tuple(numbers.shape)}",
)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions(numbers: Tensor) -> None:
    compare((name, program, (numbers,)) for name, program in reductions())


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int64], ids=str)
def test_products(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(5, 4).mul(3).to(dtype) for _ in range(2))
    batch = torch.randn(2, 4, 5).mul(3).to(dtype)

    def cases() -> Iterator[tuple[str, Program, tuple[Tensor, ...]]]:
        yield "transposed left", lambda x, y: x.t() @ y, (left, right)
        yield "transposed right", lambda x, y: x @ y.t(), (left, right)
        yield "both", lambda x, y: x.t() @ y.mT.contiguous().t(), (left, right)
        yield "batches", lambda x, y: torch.bmm(x, y.mT), (batch, batch)
        yield "batches, transposed left", lambda x, y: torch.bmm(x.mT, y), (batch, batch)
        yield "vector", lambda x, y: torch.mv(x.t(), y[:, 0]), (left, right)
        yield "one column", lambda x, y: x.t() @ y[:, :1], (left, right)
        yield "expanded left", lambda x, y: x[:1].expand(5, 4) @ y.t(), (left, right)
        yield "vdot", lambda x, y: torch.vdot(x[0], y[0]), (left, right)
        yield "addmm", lambda x, y: torch.addmm(x[0, 0], x.t(), y, beta=2, alpha=3), (left, right)
        yield "beta 0", lambda x, y: torch.addmm(x[:4] / 0, x.t(), y, beta=0), (left, right)

    compare(cases())


def test_a_factor_that_becomes_zero_still_hides_the_addend() -> None:
    addend = torch.full((2, 2), float("nan"), device="xla")
    left, right = torch.eye(2, device="xla"), torch.ones(2, 2, device="xla")
    for beta in (1.0, 0.5, 0.0):
        result = torch.addmm(addend, left, right, beta=beta)
        assert result.isnan().all().item() == (beta != 0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32], ids=str)
def test_histograms(dtype: torch.dtype) -> None:
    numbers = torch.tensor([0, 3, 3, 1, 7, 2, 3, 7]).to(dtype)
    expected = torch.histc(numbers.double(), bins=8, min=0, max=7).to(dtype)
    counted = torch.histc(numbers.to("xla"), bins=8, min=0, max=7)
    assert counted.dtype == dtype
    torch.testing.assert_close(counted.cpu(), expected)
