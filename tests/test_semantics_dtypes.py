"""Dtypes and shapes at the edges: promotion, wrapped numbers, 0-d and empty tensors."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from compare import assert_same, ramp
from torch import Tensor

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_promotion_between_tensors(left: torch.dtype) -> None:
    def program(device: str) -> list[Tensor]:
        values = ramp(2, 2, dtype=left, device=device)
        results = []
        for right in DTYPES:
            other = (ramp(2, 2, device=device) + 1).to(right)
            results += [values + other, values * other[0, 0], values == other]
        return results

    assert_same(program)


@pytest.mark.parametrize("number", [True, 3, 2.5, 1 + 2j], ids=str)
def test_promotion_with_python_numbers(number: complex) -> None:
    def program(device: str) -> list[Tensor]:
        results = []
        for dtype in DTYPES:
            values = ramp(2, 2, dtype=dtype, device=device)
            results += [values + number, number * values]
            results.append(torch.where(values == values, values, number))
        return results

    assert_same(program)


def test_division_and_rounding() -> None:
    def program(device: str) -> list[Tensor]:
        results = []
        for dtype, divisor in product((torch.int64, torch.float32), (3, -3, 2.5)):
            values = ramp(9, dtype=dtype, device=device) - 4
            results += [values / divisor, values // divisor, values % divisor]
            results += [
                torch.div(values, divisor, rounding_mode=mode) for mode in ("trunc", "floor")
            ]
            results.append(torch.fmod(values, divisor))
        return results

    assert_same(program)


def test_integer_overflow_and_shifts() -> None:
    def program(device: str) -> list[Tensor]:
        small = torch.tensor([100, 127, -128], dtype=torch.int8, device=device)
        unsigned = torch.tensor([0, 200, 255], dtype=torch.uint8, device=device)
        wide = torch.tensor([2**62, -(2**63), 5], device=device)
        return [small + 100, small.neg(), unsigned + 100, ~unsigned, wide * 2, wide >> 3, wide << 1]

    assert_same(program)


def test_special_values() -> None:
    def program(device: str) -> list[Tensor]:
        values = torch.tensor(
            [0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan")], device=device
        )
        ordered = values.sort()
        return [
            values.max(),
            values.argmax(),
            values.nan_to_num(),
            values.sign(),
            torch.maximum(values, values.flip(0)),
            torch.fmin(values, values.flip(0)),
            values.isnan(),
            values.isinf(),
            torch.copysign(torch.ones_like(values), values),
            values.clamp(-1, 1),
            (values > 0).float() * values,
            torch.eye(2, device=device) / 0,
            ordered.values,
        ]

    assert_same(program)


def test_zero_dimensional_tensors() -> None:
    def program(device: str) -> list[Tensor | float]:
        scalar = torch.tensor(3.0, device=device)
        scalar += 1
        vector = ramp(3, device=device)
        vector[1] = scalar
        return [
            scalar,
            scalar * vector,
            scalar.view(1, 1),
            vector.sum(),
            scalar.softmax(0),
            scalar.max(),
            scalar.item(),
            torch.stack([scalar, scalar]),
        ]

    assert_same(program)


def test_empty_tensors() -> None:
    def program(device: str) -> list[Tensor]:
        nothing = torch.empty(0, 3, device=device)
        results = [
            nothing + 1,
            nothing.sum(),
            nothing.sum(0),
            nothing.prod(1),
            nothing @ torch.ones(3, 2, device=device),
            torch.ones(2, 0, device=device) @ nothing,
            torch.cat([nothing, torch.ones(1, 3, device=device)]),
            nothing.t().contiguous(),
            nothing.mean(0),
            nothing[:, 1:],
            torch.nn.functional.linear(nothing, torch.ones(4, 3, device=device)),
        ]
        nothing.zero_()
        return results

    assert_same(program)


def test_reductions_of_every_dtype() -> None:
    def program(device: str) -> list[Tensor]:
        results = []
        for dtype in (torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32):
            values = ramp(3, 4, dtype=dtype, device=device)
            results += [values.sum(), values.sum(1), values.cumsum(0), values.any(0)]
            results += [values.amax(1), values.argmin(1), values.max(0).indices]
        truth = ramp(3, 4, device=device) > 5
        return [*results, truth.sum(), truth.all(1), truth.any(0), truth.cumsum(1), truth.amax(0)]

    assert_same(program)


def test_complex_arithmetic() -> None:
    def program(device: str) -> list[Tensor]:
        values = torch.complex(ramp(2, 3, device=device), ramp(2, 3, device=device) - 2)
        return [
            values * values.conj(),
            values.abs(),
            values.angle(),
            values @ values.mH,
            values.exp() / 100,
            values.sum(0),
            values.real + values.imag,
            values / 2,
            (values + 3 + 3j) / 0,
        ]

    assert_same(program, rtol=1e-5, atol=1e-5)


FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "times True": lambda x: x * True,
    "times one": lambda x: x * 1.0,
    "times complex one": lambda x: x * (1 + 0j),
    "times ones": lambda x: x * torch.ones_like(x),
    "times two": lambda x: 2 * x,
    "times i": lambda x: x * 1j,
    "by one": lambda x: x / 1,
    "by two": lambda x: x / 2,
    "in place": lambda x: x.clone().mul_(1),
}


@pytest.mark.parametrize("name", FACTORS)
def test_a_complex_factor_of_one_multiplies_infinities(name: str, each_tier: str) -> None:
    """Its imaginary part is zero, which makes no number of them."""
    special = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]

    def program(device: str) -> list[Tensor]:
        x = torch.tensor([complex(*both) for both in product(special, special)], device=device)
        made = FACTORS[name](x)
        run = torch.compile(FACTORS[name], backend="openxla") if device == "xla" else FACTORS[name]
        return [part for y in (made, run(x)) for part in (y.real.clone(), y.imag.clone())]

    assert_same(program)


def test_dtype_arguments() -> None:
    def program(device: str) -> list[Tensor]:
        values = ramp(2, 3, dtype=torch.int32, device=device)
        return [
            values.sum(dtype=torch.float32),
            values.float().softmax(1, dtype=torch.float64),
            values.bfloat16().cumsum(1, dtype=torch.float32),
            values.type(torch.float16),
            values.double().half(),
        ]

    assert_same(program)


FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
INTEGERS = [
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool),
]


@pytest.mark.parametrize("integer", INTEGERS, ids=str)
@pytest.mark.parametrize("floating", FLOATS, ids=str)
def test_what_no_integer_is_becomes_what_the_cpu_makes_of_it(
    floating: torch.dtype, integer: torch.dtype
) -> None:
    beyond = [2.0**31, 2.0**63, 1.8e19, 3e9, 1e10, 1e20, 65536.5, 300.7, 255.9, 1.5, 1e-3]
    values = [math.nan, math.inf, *beyond, -math.inf, *(-value for value in beyond)]
    if (floating, integer) == (torch.float16, torch.uint32):
        pytest.skip("PyTorch converts these otherwise than from any other floating type")
    numbers = torch.tensor(values * 3, dtype=torch.float64).to(floating)
    assert_same(lambda device: numbers.to(device).to(integer).to(torch.float64))


@pytest.mark.host_only("other devices have bfloat16")
@pytest.mark.parametrize(
    "move",
    [
        lambda x, y, i: torch.cat([x, y], 1),
        lambda x, y, i: F.pad(x, (2, 3, -1, 1), value=1.5),
        lambda x, y, i: x[i],
        lambda x, y, i: x.index_select(1, i),
        lambda x, y, i: x.roll(3, 1),
    ],
    ids=["cat", "pad", "index", "index_select", "roll"],
)
def test_moving_bfloat16_moves_bits(move: Callable[..., Tensor]) -> None:
    """XLA-CPU would make float32 of it and back."""
    bits = torch.randint(-(2**15), 2**15, (2, 8, 16), dtype=torch.int16)  # infinities and NaNs, too
    x, y = bits.view(torch.bfloat16)
    i = torch.tensor([5, 0, 7, 7])
    moved = move(x.to("xla"), y.to("xla"), i.to("xla"))
    assert "f32" not in torch_xla._XLAC.tensors_optimized_hlo_text([moved]).replace("bf16", "")
    wanted = move(x, y, i).view(torch.int16)
    torch.testing.assert_close(moved.cpu().view(torch.int16), wanted, rtol=0, atol=0)


def test_float32_is_rounded_to_bfloat16_as_on_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (1 << 18,), generator=generator).to(torch.int32)
    halves = bits & -65536  # ties, infinities, zeros, NaN of every payload
    special = [0x7F800000, -0x800000, 0x7FFFFFFF, -1, 0x7F800001, 0x7F7FFFFF, 1, -0x80000000]
    values = torch.cat([bits, halves, halves | 0x8000, torch.tensor(special, dtype=torch.int32)])
    expected = values.view(torch.float32).bfloat16()
    got = values.to("xla").view(torch.float32).bfloat16().cpu()
    assert torch.equal(got.isnan(), expected.isnan())
    finite = ~expected.isnan()
    assert torch.equal(got.view(torch.int16)[finite], expected.view(torch.int16)[finite])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("integer", INTEGERS, ids=str)
def test_many_integers_become_16_bits_as_on_the_cpu(
    integer: torch.dtype, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**63), 2**63 - 1, (1 << 15,), generator=generator)
    values = (bits >> (torch.arange(1 << 15) % 64)).to(integer)
    expected, got = values.to(dtype), values.to("xla").to(dtype).cpu()
    assert torch.equal(got, expected)


def test_sums_and_products_of_bfloat16_are_rounded_as_on_the_cpu() -> None:
    every = torch.arange(1 << 16).to(torch.int16).view(torch.bfloat16)
    size = every.abs()  # no result is subnormal, of which XLA makes zero
    every = every[~((size < 2.0**-60) | (size > 2.0**60) & size.isfinite())]
    other = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(0))]
    cases: list[Callable[[Tensor, Tensor], Tensor]] = [torch.add, torch.mul, torch.div]
    for compute in cases:
        expected, got = compute(every, other), compute(every.to("xla"), other.to("xla")).cpu()
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(every.to("xla").log().cpu().isnan(), every.log().isnan())


ROUNDS_SCALARS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "alpha": lambda x, y: torch.add(x, y, alpha=0.3),
    "alpha_of_difference": lambda x, y: torch.sub(x, y, alpha=-1.7),
    "power": torch.pow,
    "angle": lambda x, y: torch.atan2(x, torch.as_tensor(y, device=x.device)),
}


@pytest.mark.parametrize("kind", ["number", "float32", "float64"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ROUNDS_SCALARS)
def test_scalars_are_rounded_to_16_bits_as_on_the_cpu(
    name: str, dtype: torch.dtype, kind: str
) -> None:
    """Before they are added, also where they are inputs of a program."""
    values = (torch.rand(256, generator=torch.Generator().manual_seed(0)) * 4 + 0.5).to(dtype)
    compute = ROUNDS_SCALARS[name]
    exactly = {"rtol": 0, "atol": 0, "equal_nan": True}
    # No power is subnormal, of which XLA makes zero.
    whole = torch.arange(256) * 37 - 4000 if name != "power" else torch.arange(256) % 9
    got = compute(values.to("xla"), whole.to("xla")).cpu()
    torch.testing.assert_close(got, compute(values, whole), **exactly)
    for number in (0.7123456, 0.3987654, 1.2345678, -2.7182818):
        scalar = number if kind == "number" else torch.tensor(number, dtype=getattr(torch, kind))
        moved = scalar.to("xla") if isinstance(scalar, Tensor) else scalar
        expected, got = compute(values, scalar), compute(values.to("xla"), moved)
        torch.testing.assert_close(got.cpu(), expected, **exactly)
        if kind != "number":
            expected, got = compute(scalar, values), compute(moved, values.to("xla"))
            torch.testing.assert_close(got.cpu(), expected, **exactly)


def gradient_of_relu(x: Tensor, gradient: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(leaf.relu(), leaf, gradient)[0]


CHOOSES: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, y: -x,
    lambda x, y: x.abs(),
    lambda x, y: x.relu(),
    torch.maximum,
    torch.minimum,
    lambda x, y: x.clamp(-1, 2.5),
    lambda x, y: torch.where(x < y, x, y),
    lambda x, y: x.masked_fill(y.isnan(), 1.5),
    lambda x, y: torch.where(y > 0, x, 0.0),
    lambda x, y: torch.where(y[:1] > 0, 0.0, x),
    lambda x, y: torch.nan_to_num(x),
    gradient_of_relu,
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("choose", CHOOSES)
def test_what_chooses_16_bits_keeps_them(
    choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    every = torch.arange(1 << 16).to(torch.int16).view(dtype)
    every = every[~(every.abs() < torch.finfo(dtype).tiny)]  # XLA takes subnormal ones for zero
    other = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(0))]
    expected = choose(every, other)
    got = choose(every.to("xla"), other.to("xla")).cpu()
    assert torch.equal(got.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(got[numbers], expected[numbers])


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_numbers_that_only_unsigned_integers_hold(number: int) -> None:
    def program(device: str) -> list[torch.Tensor]:
        values = torch.tensor([1, 2, 2**63 + 5], dtype=torch.uint64, device=device)
        floats = torch.ones(2, device=device)
        return [
            *(values * number, values == number),
            *(values ^ number, values & number, values | number),
            *(values.clone().fill_(number), torch.where(values == 1, values, number)),
            torch.full((2,), number, dtype=torch.uint64, device=device),
            *(floats * number, floats.clone().fill_(number), values.float() + number),
        ]

    assert_same(program)
