"""What a random program leaves, and whether two runs of it left the same (differential.py)."""

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import random_helpers
import torch
from torch import Tensor

FUNCTIONS = ("compile", "pure", "openxla")
TOLERANCES = {
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
    torch.float64: 1e-6,
    torch.complex128: 1e-6,
}
SIXTEEN_BITS = (torch.bfloat16, torch.float16)
Scope = dict[str, Any]


@dataclass
class Outcome:
    """What a run left: its variables and gradients, and the lines that raised."""

    variables: Scope
    raised: dict[int, str]

    def read(self) -> None:
        for value in self.variables.values():
            if isinstance(value, Tensor):
                value.cpu()


def distance(one: Any, other: Any) -> float:
    if isinstance(one, float | complex) and isinstance(other, float | complex):
        far = abs(one - other)
        return far if math.isfinite(far) else 0.0
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return 0.0
    if one.numel() == 0 or not (one.is_floating_point() or one.is_complex()):
        return 0.0
    if not torch.equal(one.isnan(), other.isnan()):
        return math.inf  # a rounding decides whether it is a number
    return float((one.detach() - other.detach()).abs().double().nan_to_num(0, 0, 0).max())


def first_difference(
    actual: list[Outcome],
    expected: list[Outcome],
    mode: str,
    moved: list[dict[str, float]] | None = None,
) -> str | None:
    for call, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        found = differs(got, wanted, mode, moved[call] if moved else {})
        if found is not None:
            return f"{found} (call {call})" if call else found
    return None


# What the device alone refuses: `c[None] = c` fills from a tensor of the CPU without dimensions,
# and copies one of any device.
# PyTorch's addbmm_ gives its argument another shape there.
REFUSALS = (
    "refer to a single memory location",
    "refers to a single memory location",
    "aten::addbmm_: output with shape",
)
# Strides of empty tensors differ between PyTorch's CPU and meta kernels.
REFUSALS_OF_EITHER = (
    "self.stride(-1) must be 1 to view",
    "without overflow",
    "\"neg_cpu\" not implemented for 'Bool'",  # who refuses a bool marked as negative
)
# A fill makes bytes require gradients, which a copy does not: this is how later calls end.
REFUSAL_OF_THE_CPU = "Autograd not support dtype"
# Programs do not look at values (TORCH_XLA_CHECK_INDICES; tests/test_semantics_checked_values.py),
# and functions not at indices either.
REFUSAL_OF_VALUES = "ZeroDivisionError"
REFUSAL_OF_INDICES = "is out of bounds for dimension"
# The CPU's cumprod_ needs for its gradient what it has written, and minds that it was changed.
REFUSAL_OF_GRADIENTS = "is output 0 of Cumprod, is at version"
# Nothing is read in functions, which do not change what an argument is.
REFUSALS_OF_FUNCTIONS = (
    *REFUSALS,
    "changes the shape or storage of",
    "Encountered a set_ on a graph input",
    "writes a value that requires gradients into",
    "registers a hook on an argument",
    "calls requires_grad_() on a view of what is outside",
    "calls requires_grad_(False) of tensor argument",
)


def refused_by_one(got: Outcome, wanted: Outcome) -> int | None:
    """The first line that does not raise the same on both sides."""
    for line in sorted({*got.raised, *wanted.raised}):
        kinds = [outcome.raised.get(line, "").partition(":")[0] for outcome in (got, wanted)]
        if kinds[0] != kinds[1]:
            return line
    return None


def first_excused(actual: list[Outcome], expected: list[Outcome], mode: str) -> int | None:
    for got, wanted in zip(actual, expected, strict=True):
        line = refused_by_one(got, wanted)
        if line is not None:
            return line if is_excused(got, wanted, line, mode) else None
    return None


def is_excused(got: Outcome, wanted: Outcome, line: int, mode: str) -> bool:
    ours, theirs = got.raised.get(line, ""), wanted.raised.get(line, "")
    refusals = REFUSALS_OF_FUNCTIONS if mode in FUNCTIONS else REFUSALS
    if not theirs and any(text in ours for text in refusals):
        return True
    if any(text in ours + theirs for text in REFUSALS_OF_EITHER):
        return True
    if not ours and (
        REFUSAL_OF_VALUES in theirs
        or REFUSAL_OF_GRADIENTS in theirs
        or (mode in FUNCTIONS and REFUSAL_OF_INDICES in theirs)
    ):
        return True
    marked = any(map(is_marked_integer, wanted.variables.values()))
    return marked and not ours and REFUSAL_OF_THE_CPU in theirs


def differs(got: Outcome, wanted: Outcome, mode: str, moved: dict[str, float]) -> str | None:
    strict = mode != "openxla"
    line = refused_by_one(got, wanted)
    if line is not None:
        words = [outcome.raised.get(line, "nothing")[:600] for outcome in (got, wanted)]
        return f"line {line} raises {words[0]}, and on the CPU {words[1]}"
    if wanted.raised and not wanted.variables:
        return None
    if "gradients" in wanted.variables:
        # A few gradients here need fewer values, and do not mind that one was changed since.
        got, wanted = without_gradients(got), without_gradients(wanted)
    graph = not any(map(is_marked_integer, wanted.variables.values()))
    if not graph:
        got, wanted = without_gradients(got), without_gradients(wanted)
        seen = {name: got.variables[name] for name in wanted.variables if name in got.variables}
        got = replace(got, variables=seen)  # views of such integers cannot be looked at
    if got.variables.keys() != wanted.variables.keys():
        return f"has {sorted(got.variables)}, and on the CPU {sorted(wanted.variables)}"
    for name, value in wanted.variables.items():
        if not graph and isinstance(value, str):
            continue  # the error that a call ended with
        computed = name.endswith(".grad") and not name.endswith(".kept.grad")
        found = value_differs(
            got.variables[name], value, strict and not computed, moved.get(name, 0.0), graph
        )
        if found:
            return f"{name}: {found}"
    if strict and sharing(got.variables) != sharing(wanted.variables):
        return f"shares memory {sharing(got.variables)}, and on the CPU {sharing(wanted.variables)}"
    return None


def is_marked_integer(value: Any) -> bool:
    """`c[...] = a` makes integers require gradients if `a` is of the CPU and has no dimensions: it
    is filled, where a tensor of any device is copied. What follows differs, too."""
    if not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex():
        return False
    return value.requires_grad


def without_gradients(outcome: Outcome) -> Outcome:
    kept = {
        name: value
        for name, value in outcome.variables.items()
        if name != "gradients" and not name.endswith(".grad")
    }
    return replace(outcome, variables=kept)


def sharing(variables: Scope) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for name, value in variables.items():
        if isinstance(value, Tensor) and not name.endswith(".grad"):
            groups.setdefault(value.untyped_storage()._cdata, []).append(name)
    return sorted(group for group in groups.values() if len(group) > 1)


def value_differs(got: Any, wanted: Any, strict: bool, moved: float, graph: bool) -> str | None:
    if not isinstance(wanted, Tensor):
        return None if number_agrees(got, wanted, moved) else f"{got!r} instead of {wanted!r}"
    if not isinstance(got, Tensor):
        return f"{got!r} instead of a tensor"
    if math.isinf(moved) and (got.shape, got.dtype) == (wanted.shape, wanted.dtype):
        return None
    for name, fact in FACTS.items():
        if name in ("strides", "contiguity") and wanted.dtype in SIXTEEN_BITS:
            continue  # meta kernels differ for them
        if name == "strides" and 0 in fact(wanted):
            continue  # gradients of sums are expanded on the CPU
        if name in ("requires_grad", "leaf") and not (
            graph and (wanted.is_floating_point() or wanted.is_complex())
        ):
            continue  # an integer that was written with what requires gradients
        if (strict or name in ("dtype", "sizes")) and fact(got) != fact(wanted):
            return f"{name} {fact(got)} instead of {fact(wanted)}"
    try:
        tolerance = TOLERANCES.get(wanted.dtype, 1e-3)
        exact = not (wanted.is_floating_point() or wanted.is_complex())
        scale = 0.0
        if wanted.numel() and not exact:
            scale = float(wanted.detach().abs().double().nan_to_num(0, 0, 0).max())
        torch.testing.assert_close(
            *(as_numbers(value.detach().cpu()) for value in (got, wanted)),
            rtol=0 if exact else tolerance,
            atol=0 if exact else max(4 * moved, tolerance * min(max(scale, 0.1), 1e6)),
            equal_nan=True,
        )
    except AssertionError as error:
        return f"{' '.join(str(error).split())}: {got.cpu()!r} instead of {wanted!r}"
    except RuntimeError as error:
        return f"cannot be read: {error}"
    return None


def as_numbers(value: Tensor) -> Tensor:
    """Real and imaginary parts for themselves: one may be infinite, the other rounded."""
    value = value.resolve_conj().resolve_neg()
    return torch.view_as_real(value) if value.is_complex() else value


def number_agrees(got: Any, wanted: Any, moved: float = 0.0) -> bool:
    """What was read of a tensor: what it was computed in is not known, and may be bfloat16."""
    if got == wanted or type(got) is not type(wanted):
        return bool(got == wanted)
    if isinstance(wanted, complex) and not cmath.isfinite(wanted):
        return number_agrees(got.real, wanted.real, moved) and number_agrees(
            got.imag, wanted.imag, moved
        )
    if isinstance(wanted, float) and not math.isfinite(wanted):
        return math.isnan(wanted) and math.isnan(got)
    if not isinstance(wanted, float | complex):
        return False
    return abs(got - wanted) <= max(4 * moved, 1e-3) + 8e-3 * abs(wanted)


FACTS: dict[str, Callable[[Tensor], Any]] = {
    "dtype": lambda t: t.dtype,
    "sizes": lambda t: tuple(t.shape),
    "strides": random_helpers.strides,
    "offset": lambda t: t.storage_offset() if t.numel() else 0,
    "contiguity": lambda t: t.is_contiguous(),
    "requires_grad": lambda t: t.requires_grad,
    "leaf": lambda t: t.is_leaf,
    "conjugation": lambda t: (t.is_conj(), t.is_neg()),
}
