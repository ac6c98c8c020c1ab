"""Operators of PyTorch's own database as cases of operators.py: functions of elements of one and
of two tensors, and reductions, of a million numbers that they are defined for."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from operator_cases import Case
from torch.testing._internal.common_methods_invocations import (
    binary_ufuncs,
    reduction_ops,
    unary_ufuncs,
)
from torch.testing._internal.opinfo.core import OpInfo, UnaryUfuncInfo

SHAPE = (1024, 1024)
# What nobody computes of a million numbers, and CPU PyTorch takes seconds for.
RARE = ("_refs.", "masked.", "special.", "polygamma", "mvlgamma", "jiterator", "hash_tensor")


def numbers(domain: tuple[float | None, float | None], dtype: torch.dtype) -> torch.Tensor:
    low = -3.0 if domain[0] is None else domain[0] + 0.01
    high = max(low, 0.0) + 3.0 if domain[1] is None else domain[1] - 0.01
    return torch.empty(SHAPE).uniform_(low, high).to(dtype)


def called(
    info: OpInfo, domains: tuple[tuple[float | None, float | None], ...], **arguments: Any
) -> Case:
    def make(device: str, dtype: torch.dtype) -> tuple[Callable[..., Any], list[torch.Tensor]]:
        operands = [numbers(domain, dtype).to(device) for domain in domains]
        of_sample = {}
        if isinstance(info, UnaryUfuncInfo):
            of_sample, _ = info.sample_kwargs("cpu", dtype, operands[0])
        given = {
            name: value.to(device) if isinstance(value, torch.Tensor) else value
            for name, value in (arguments | of_sample).items()
        }
        return lambda *operands: info.op(*operands, **given), operands

    return make


def _of(info: OpInfo) -> Iterator[tuple[str, Case]]:
    whole = (None, None)
    if info in reduction_ops:
        for dim in (-1, 0):
            yield f" along {dim}", called(info, (whole,), dim=dim)
    elif info in binary_ufuncs:
        yield " of two", called(info, (info.lhs_make_tensor_kwargs.get("domain", whole), whole))
    else:
        yield "", called(info, (info.domain,))


def opinfo_cases() -> tuple[dict[str, Case], set[str]]:
    """The cases, and the names of those that have gradients."""
    cases: dict[str, Case] = {}
    differentiable: set[str] = set()
    for info in (*unary_ufuncs, *binary_ufuncs, *reduction_ops):
        if info.name.startswith(RARE) or torch.float32 not in info.dtypes:
            continue
        variant = f" {info.variant_test_name}" if info.variant_test_name else ""
        for suffix, case in _of(info):
            name = f"opinfo {info.name}{variant}{suffix}".replace("nn.functional.", "")
            cases[name] = case
            if info.supports_autograd:
                differentiable.add(name)
    return cases, differentiable
