"""Conjugates and negated parts are views: what is written through them is seen by the original."""

import copy
from collections.abc import Callable

import pytest
import torch
from compare import assert_same, ramp
from torch import Tensor
from torch_xla.experimental.assume_pure import assume_pure

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "conj": torch.conj,
    "row of conj": lambda t: t.conj()[0],
    "conj of part": lambda t: t.t().conj()[1:],
    "twice": lambda t: t.conj().conj(),
    "mH": lambda t: t.mH,
    "adjoint": lambda t: t.adjoint(),
    "negative": torch._neg_view,
    "negative of conj": lambda t: torch._neg_view(t.conj()),
    "imaginary part of conj": lambda t: t.conj().imag,
}


def _number(window: Tensor) -> complex | float:
    return 2 + 1j if window.is_complex() else 2.0


def _like(window: Tensor) -> Tensor:
    return (ramp(*window.shape, device=str(window.device)) + 1).to(window.dtype) * _number(window)


def _set_first(window: Tensor) -> None:
    window[0] = _number(window)


def _add_product(window: Tensor) -> None:
    left = torch.ones_like(window[:, :1]) * _number(window)
    window.addmm_(left, torch.ones_like(window[:1]))


WRITES: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda w: w.add_(1),
    "mul_": lambda w: w.mul_(_number(w)),
    "item": _set_first,
    "copy_": lambda w: w.copy_(_like(w)),
    "copy_ of conj": lambda w: w.copy_(_like(w).conj()),
    "copy_ from the CPU": lambda w: w.copy_(_like(w).cpu()),
    "fill_": lambda w: w.fill_(_number(w)),
    "masked_fill_": lambda w: w.masked_fill_(w.abs() > 3, 1),
    "out": lambda w: torch.mul(_like(w), _number(w), out=w),
    "conj_physical_": lambda w: w.conj_physical_(),
    "addmm_": lambda w: _add_product(torch.atleast_2d(w)),
}


def _numbers(device: str) -> Tensor:
    real = ramp(2, 3)
    return torch.complex(real, real * 2 + 1).to(device)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_writing_through_a_conjugate(view: str, write: str) -> None:
    def program(device: str) -> tuple[Tensor, Tensor, bool, bool]:
        base = _numbers(device)
        window = VIEWS[view](base)
        WRITES[write](window)
        return base, window, window.is_conj(), window.is_neg()

    assert_same(program)


@pytest.mark.parametrize("view", VIEWS)
def test_a_conjugate_is_read_as_one(view: str) -> None:
    def program(device: str) -> tuple[object, ...]:
        base = _numbers(device)
        window = VIEWS[view](base)
        base.mul_(3j)
        matrix = torch.atleast_2d(window)
        on_the_cpu = torch.zeros(window.shape, dtype=window.dtype).copy_(window)
        return window + 1, window.clone(), window.tolist(), on_the_cpu.tolist(), matrix @ matrix.mT

    assert_same(program)


@pytest.mark.parametrize("write", ["add_", "copy_", "out", "item"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_pure_function_writes_through_a_conjugate(view: str, write: str) -> None:
    def program(device: str) -> list[Tensor]:
        def function(base: Tensor) -> Tensor:
            WRITES[write](VIEWS[view](base))
            return base * 2

        call = assume_pure(function) if device == "xla" else function
        results = []
        for _ in range(2):
            base = _numbers(device)
            results += [call(base), base]
        return results

    assert_same(program)


@pytest.mark.parametrize("view", VIEWS)
def test_a_pure_function_returns_a_conjugate(view: str) -> None:
    def program(device: str) -> list[object]:
        def function(base: Tensor) -> tuple[Tensor, Tensor]:
            return VIEWS[view](base), VIEWS[view](base + 1)

        call = assume_pure(function) if device == "xla" else function
        results: list[object] = []
        for _ in range(2):
            base = _numbers(device)
            of_argument, of_new = call(base)
            of_argument.add_(1)
            bits = [(t.is_conj(), t.is_neg()) for t in (of_argument, of_new)]
            results += [base, of_argument, of_new, bits]
        return results

    assert_same(program)


def test_gradients_of_a_pure_function_of_conjugates() -> None:
    def program(device: str) -> tuple[Tensor, ...]:
        def function(base: Tensor) -> Tensor:
            return (base.conj() * base * 1j).real.sum() + base.mH.imag.sum()

        call = assume_pure(function) if device == "xla" else function
        base = _numbers(device).requires_grad_()
        return torch.autograd.grad(call(base), base)

    assert_same(program)


def test_a_copy_of_a_conjugate_is_not_shared() -> None:
    def program(device: str) -> tuple[Tensor, Tensor, bool]:
        base = _numbers(device)
        copied = copy.deepcopy(base.conj())
        copied.add_(1)
        return base, copied, copied.is_conj()

    assert_same(program)
