"""What operators of PyTorch's OpInfo database promise beyond the values of plain samples.

python tests/opinfo_contract.py --ops 'add|mul' --contracts out error --limit 3
"""

import argparse
import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from opinfo_check import (
    FORMATTED_OPS,
    Arguments,
    Mismatch,
    Outcome,
    check_metadata,
    describe,
    describe_difference,
    differentiable,
    incoming_gradient,
    is_random,
    returns_uninitialised,
    spread,
    to_host,
)
from torch import Tensor
from torch.testing._internal.common_methods_invocations import python_ref_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, SampleInput
from torch.utils import _pytree as pytree
from torch_xla.experimental.assume_pure import assume_pure

REFERENCES = {op.formatted_name: op for op in python_ref_db}
SAMPLES_CONSIDERED = 100


@dataclass
class Case:
    """One call, on whichever device is named. Its result is compared, or the type of its error."""

    label: str
    call: Callable[[str], Any]
    must_be_refused: bool = False  # by an accelerator: CPU tensors are the CPU's own


def samples_of(
    op: OpInfo, dtype: torch.dtype, limit: int | None, gradient: bool = False
) -> list[SampleInput]:
    if dtype not in op.supported_dtypes("cpu"):
        return []
    torch.manual_seed(0)
    generator = op.sample_inputs("cpu", dtype, requires_grad=gradient)
    considered = None if limit is None else SAMPLES_CONSIDERED
    return spread(list(itertools.islice(generator, considered)), limit)


def called(op: Any, sample: SampleInput, device: str) -> Any:
    torch.manual_seed(0)
    value, args, kwargs = Arguments(sample, device).fresh()
    with torch.device(device):
        return op(value, *args, **kwargs)


def errors(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """What the database says must be refused."""
    if op.error_inputs_func is None:
        return
    for given in spread(list(op.error_inputs("cpu")), None if limit is None else 3 * limit):
        sample = given.sample_input
        yield Case(describe(sample), lambda device, s=sample: called(op, s, device))


def outs(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """Results written where the caller says."""
    if not op.supports_out:
        return
    dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
    for sample in samples_of(op, dtype, limit):
        try:
            expected = called(op, sample, "cpu")
        except Exception:
            continue
        if not all(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(expected)):
            continue
        for kind, make in OUTS.items():

            def call(
                device: str, s: SampleInput = sample, make: Any = make, e: Any = expected
            ) -> Any:
                if make is elsewhere and device == "cpu":
                    return None
                out = pytree.tree_map_only(Tensor, lambda t: make(t, device), e)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    result = called(lambda *a, **k: op(*a, **k, out=out), s, device)
                resized = any("was resized" in str(warning.message) for warning in caught)
                same = [
                    a is b or a.data_ptr() == b.data_ptr()
                    for a, b in zip(
                        pytree.tree_leaves(result), pytree.tree_leaves(out), strict=True
                    )
                ]
                strides = [t.stride() for t in pytree.tree_leaves(out)]
                return list(pytree.tree_leaves(out)), resized, same, strides

            yield Case(f"out {kind}, {describe(sample)}", call, make is elsewhere)


def exact(like: Tensor, device: str) -> Tensor:
    return torch.full_like(like, 1, device=device)


def gaps(like: Tensor, device: str) -> Tensor:
    return torch.ones(*like.shape, 2, dtype=like.dtype, device=device)[..., 1]


def transposed(like: Tensor, device: str) -> Tensor:
    return torch.ones(like.shape[::-1], dtype=like.dtype, device=device).permute(
        *range(like.dim() - 1, -1, -1)
    )


def none(like: Tensor, device: str) -> Tensor:
    return torch.empty(0, dtype=like.dtype, device=device)


def larger(like: Tensor, device: str) -> Tensor:
    return torch.ones(*like.shape, 2, dtype=like.dtype, device=device)


def integers(like: Tensor, device: str) -> Tensor:
    return torch.ones(like.shape, dtype=torch.long, device=device)


def wide(like: Tensor, device: str) -> Tensor:
    return torch.ones(like.shape, dtype=torch.complex128, device=device)


def elsewhere(like: Tensor, device: str) -> Tensor:
    return torch.ones(like.shape, dtype=like.dtype)


OUTS = {
    make.__name__: make
    for make in (exact, gaps, transposed, none, larger, integers, wide, elsewhere)
}


def layouts(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """Inputs with gaps, negated and conjugated views."""
    for dtype, view in (
        (torch.float32, None),
        (torch.int64, None),
        (torch.float32, torch._neg_view),
        (torch.complex64, torch.conj),
    ):
        for sample in samples_of(op, dtype, limit, gradient=dtype.is_floating_point):

            def call(device: str, s: SampleInput = sample, view: Any = view) -> Any:
                torch.manual_seed(0)
                value, args, kwargs = Arguments(s, device).fresh()
                moved = SampleInput(value, args=args, kwargs=kwargs)
                if view is None:
                    moved = moved.noncontiguous()
                else:
                    moved = moved.transform(
                        lambda t: (
                            view(t)
                            if isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex())
                            else t
                        )
                    )
                with torch.device(device):
                    result = op(moved.input, *moved.args, **moved.kwargs)
                outputs = differentiable(pytree.tree_leaves(result))
                inputs = differentiable(pytree.tree_leaves((moved.input, moved.args, moved.kwargs)))
                if not outputs or not inputs or not op.supports_autograd:
                    return result
                incoming = [incoming_gradient(output) for output in outputs]
                return result, torch.autograd.grad(outputs, inputs, incoming, allow_unused=True)

            name = view.__name__ if view else "gaps"
            yield Case(f"{name}, {dtype}, {describe(sample)}", call)


ALSO_WITH_SCALARS = ("where", "clamp", "lerp", "addcmul", "addcdiv", "masked_fill", "fill")


def scalars(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """A CPU tensor of no dimensions beside the device's."""
    if not isinstance(op, BinaryUfuncInfo) and op.name not in ALSO_WITH_SCALARS:
        return
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        for sample in samples_of(op, dtype, limit):
            tensors = [sample.input, *sample.args]
            places = [i for i, t in enumerate(tensors) if isinstance(t, Tensor) and t.numel()]
            if len(places) < 2:
                continue
            for place in places[0 if isinstance(op, BinaryUfuncInfo) else 1 :]:

                def call(device: str, s: SampleInput = sample, place: int = place) -> Any:
                    value, args, kwargs = Arguments(s, device).fresh()
                    operands = [value, *args]
                    operands[place] = operands[place].flatten()[0].cpu()
                    return op(*operands, **kwargs)

                yield Case(f"operand {place} on the CPU, {dtype}, {describe(sample)}", call)


def second(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """Gradients of gradients."""
    if not op.supports_gradgrad:
        return
    for sample in samples_of(op, torch.float64, limit, gradient=True):

        def call(device: str, s: SampleInput = sample) -> Any:
            torch.manual_seed(0)
            value, args, kwargs = Arguments(s, device).fresh()
            with torch.device(device):
                result = s.output_process_fn_grad(op(value, *args, **kwargs))
            inputs = differentiable(pytree.tree_leaves((value, args, kwargs)))
            outputs = differentiable(pytree.tree_leaves(result))
            incoming = [incoming_gradient(output).requires_grad_() for output in outputs]
            first = torch.autograd.grad(
                outputs, inputs, incoming, allow_unused=True, create_graph=True
            )
            ends = differentiable(list(first))
            if not ends:
                return first
            again = [incoming_gradient(end) for end in ends]
            return first, torch.autograd.grad(ends, [*inputs, *incoming], again, allow_unused=True)

        yield Case(describe(sample), call)


def pure(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """Gradients of a pure function, of its second call: nothing of the first is left."""
    if not op.supports_autograd:
        return
    for sample in samples_of(op, torch.float32, limit, gradient=True):

        def call(device: str, s: SampleInput = sample) -> Any:
            leaves, tree = pytree.tree_flatten(Arguments(s, device).fresh())

            def function(*tensors: Tensor) -> Any:
                rest = iter(tensors)
                moved = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
                value, args, kwargs = pytree.tree_unflatten(moved, tree)
                with torch.device(device):
                    return s.output_process_fn_grad(op(value, *args, **kwargs))

            run = function if device == "cpu" else assume_pure(function)
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            for _ in range(2):
                torch.manual_seed(0)
                outputs = differentiable(pytree.tree_leaves(run(*tensors)))
                incoming = [incoming_gradient(output) for output in outputs]
                inputs = differentiable(tensors)
                gradients = torch.autograd.grad(outputs, inputs, incoming, allow_unused=True)
            return gradients

        yield Case(describe(sample), call)


def more(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """The samples by which PyTorch compares with NumPy: extremal values, many shapes and dtypes."""
    for dtype in (torch.float32, torch.int64, torch.bool, torch.uint8, torch.float16):
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        generator = op.reference_inputs("cpu", dtype, requires_grad=False)
        considered = None if limit is None else SAMPLES_CONSIDERED
        for sample in spread(list(itertools.islice(generator, considered)), limit):
            yield Case(
                f"{dtype}, {describe(sample)}", lambda device, s=sample: called(op, s, device)
            )


def plain(op: OpInfo, limit: int | None) -> Iterator[Case]:
    """Samples of Python's forms of the operators, `torch._refs`."""
    for dtype in (torch.float32, torch.int64):
        for sample in samples_of(op, dtype, limit):
            yield Case(
                f"{dtype}, {describe(sample)}", lambda device, s=sample: called(op, s, device)
            )


CONTRACTS: dict[str, Callable[[OpInfo, int | None], Iterator[Case]]] = {
    "error": errors,
    "out": outs,
    "layout": layouts,
    "scalar": scalars,
    "second": second,
    "pure": pure,
    "more": more,
    "refs": plain,
}


def attempt(call: Callable[[str], Any], device: str) -> Any:
    try:
        result = call(device)
        return to_host(result), result
    except Exception as error:
        return error, None


def check_case(case: Case, op: OpInfo, device: str) -> bool:
    """Raise Mismatch where the device does another thing than the CPU."""
    expected, plain = attempt(case.call, "cpu")
    actual, result = attempt(case.call, device)
    if case.must_be_refused:
        if not isinstance(actual, Exception):
            raise Mismatch("a CPU tensor was accepted as out=")
        return True
    if isinstance(expected, Exception):
        if not isinstance(actual, Exception):
            raise Mismatch(f"no error instead of {type(expected).__name__}: {str(expected)[:200]}")
        if type(actual) is not type(expected):
            raise Mismatch(
                f"{type(actual).__name__} ({str(actual)[:200]}) instead of "
                f"{type(expected).__name__} ({str(expected)[:200]})"
            )
        return True
    if isinstance(actual, Exception):
        raise actual
    check_metadata(result, plain, device)
    if returns_uninitialised(op) or is_random(op):
        return True
    if difference := describe_difference(actual, expected):
        again = attempt(case.call, "cpu")[0]
        if describe_difference(again, expected) is None:
            raise Mismatch(difference)
    return True


def check_contract(op: OpInfo, contract: str, device: str, limit: int | None) -> Outcome:
    outcome = Outcome("pass")
    failures: list[str] = []
    for case in CONTRACTS[contract](op, limit):
        try:
            outcome.samples += check_case(case, op, device)
        except Mismatch as mismatch:
            outcome.status = "wrong"
            failures.append(f"{mismatch} for {case.label}")
        except Exception as error:
            outcome.status = "raises"
            failures.append(f"{type(error).__name__}: {str(error)[:400]} for {case.label}")
    outcome.detail = "\n      ".join(failures[:2])
    if not outcome.samples and not failures:
        outcome.status = "skip"
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="")
    parser.add_argument("--contracts", nargs="+", default=list(CONTRACTS), choices=CONTRACTS)
    parser.add_argument("--limit", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    import torch_xla  # noqa: F401

    for contract in options.contracts:
        ops = REFERENCES if contract == "refs" else FORMATTED_OPS
        names = [name for name in ops if re.search(options.ops, name)][:: options.every]
        for name in names:
            try:
                outcome = check_contract(ops[name], contract, "xla:0", options.limit)
            except Exception as error:
                outcome = Outcome("database", str(error)[:200])
            if outcome.status not in ("pass", "skip"):
                print(f"{outcome.status:6s} {name} [{contract}] {outcome.detail}", flush=True)
        print(f"done {contract}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
