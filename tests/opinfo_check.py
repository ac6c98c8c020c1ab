"""Compare one operator of PyTorch's OpInfo database between the CPU and another device."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from compare import FOREIGN
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

Tensors = Callable[[Tensor], Tensor]

CATEGORIES = {
    "float32": torch.float32,
    "gradient": torch.float32,
    "inplace": torch.float32,
    "int64": torch.int64,
    "bool": torch.bool,
    "bfloat16": torch.bfloat16,
    "complex64": torch.complex64,
}
FORMATTED_OPS = {op.formatted_name: op for op in op_db}

# (relative, absolute), wide enough for another order of summation and other libm functions.
TOLERANCES = {
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
    torch.float64: (1e-7, 1e-8),
    torch.complex128: (1e-7, 1e-8),
}
if FOREIGN:
    TOLERANCES[torch.float64] = TOLERANCES[torch.float32]
    TOLERANCES[torch.complex128] = TOLERANCES[torch.complex64]
MORE_PRECISE = {
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
SAMPLES_CONSIDERED = 200


@dataclass
class Outcome:
    """status: pass, skip (the CPU does not support it), raises, wrong."""

    status: str
    detail: str = ""
    samples: int = 0
    strides_differ: int = 0
    counters: dict[str, int] = field(default_factory=dict)


class Mismatch(Exception):
    pass


def supports(op: OpInfo, category: str) -> bool:
    dtype = CATEGORIES[category]
    if category == "gradient":
        return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    if category == "inplace" and op.get_inplace() is None:
        return False
    return dtype in op.supported_dtypes("cpu")


def spread(samples: list[SampleInput], limit: int | None) -> list[SampleInput]:
    """At most `limit` samples, evenly spread: neighbours in the database resemble each other."""
    if limit is None or len(samples) <= limit:
        return samples
    return [samples[index * len(samples) // limit] for index in range(limit)]


@dataclass
class Arguments:
    """A sample's arguments on one device, at one precision; each use gets fresh tensors."""

    sample: SampleInput
    device: str
    precision: dict[torch.dtype, torch.dtype] = field(default_factory=dict)

    def convert(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            copied = leaf.detach().clone().to(self.precision.get(leaf.dtype, leaf.dtype))
            return copied.to(self.device).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.dtype):
            return self.precision.get(leaf, leaf)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return torch.device(self.device)
        return leaf

    def fresh(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        with torch.no_grad():
            value, args, kwargs = pytree.tree_map(
                self.convert, (self.sample.input, self.sample.args, dict(self.sample.kwargs))
            )
        return value, args, kwargs


def differentiable(leaves: list[Any]) -> list[Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]


def run(op: OpInfo, arguments: Arguments, category: str, seed: int = 0) -> Any:
    """The op's result, or its gradients for a fixed incoming gradient."""
    torch.manual_seed(seed)
    value, args, kwargs = arguments.fresh()
    if category == "inplace":
        return op.get_inplace()(value, *args, **kwargs), value
    with torch.device(arguments.device):  # some samples of factory functions name none
        result = op(value, *args, **kwargs)
    if category != "gradient":
        return result
    inputs = differentiable(pytree.tree_leaves((value, args, kwargs)))
    result = arguments.sample.output_process_fn_grad(result)
    outputs = differentiable(pytree.tree_leaves(result))
    incoming = [incoming_gradient(output) for output in outputs]
    return torch.autograd.grad(outputs, inputs, incoming, allow_unused=True)


def incoming_gradient(output: Tensor) -> Tensor:
    steps = torch.arange(output.numel(), dtype=torch.float64).reshape(output.shape)
    return (0.5 + steps % 3).to(output.dtype).to(output.device)


def to_host(result: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t.detach().cpu(), result)


def check_metadata(actual: Any, expected: Any, device: str) -> int:
    """Raise unless shapes, dtypes and devices agree; return how many outputs' strides differ."""
    actual_leaves, actual_tree = pytree.tree_flatten(actual)
    expected_leaves, expected_tree = pytree.tree_flatten(expected)
    if len(actual_leaves) != len(expected_leaves):
        raise Mismatch(f"structure {actual_tree} instead of {expected_tree}")
    strides_differ = 0
    for got, wanted in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(wanted, Tensor):
            continue
        if not isinstance(got, Tensor):
            raise Mismatch(f"{type(got).__name__} instead of a tensor")
        if got.device.type != torch.device(device).type:
            raise Mismatch(f"result on {got.device}")
        if got.dtype != wanted.dtype or got.shape != wanted.shape:
            raise Mismatch(
                f"{got.dtype} {tuple(got.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
            )
        if wanted.layout == torch.strided and got.stride() != wanted.stride():
            strides_differ += 1
    return strides_differ


def dense(tensor: Tensor) -> Tensor:
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def values_agree(actual: Any, expected: Any) -> bool:
    return describe_difference(actual, expected) is None


def describe_difference(actual: Any, expected: Any) -> str | None:
    leaves = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
    for got, wanted in leaves:
        if isinstance(wanted, Tensor):
            relative, absolute = TOLERANCES.get(wanted.dtype, (0, 0))
            try:
                torch.testing.assert_close(
                    dense(got), dense(wanted), rtol=relative, atol=absolute, equal_nan=True
                )
            except AssertionError as error:
                return " ".join(str(error).split())
        elif isinstance(wanted, float):
            if not (got == wanted or abs(got - wanted) <= 1e-4 * abs(wanted) + 1e-5):
                return f"{got} instead of {wanted}"
        elif got != wanted:
            return f"{got!r} instead of {wanted!r}"
    return None


def as_precise_as(actual: Any, expected: Any, precise: Any) -> bool:
    """Whether `actual` is about as near to the more precise result as the CPU's own result is."""
    leaves = zip(*map(pytree.tree_leaves, (actual, expected, precise)), strict=True)
    for got, wanted, exact in leaves:
        if not isinstance(wanted, Tensor) or not (
            wanted.is_floating_point() or wanted.is_complex()
        ):
            if describe_difference(got, wanted):
                return False
            continue
        if exact.shape != wanted.shape or exact.dtype not in TOLERANCES:
            return False
        relative, absolute = TOLERANCES[wanted.dtype]
        exact = dense(exact).to(torch.promote_types(exact.dtype, torch.float64))
        wanted, got = dense(wanted).to(exact.dtype), dense(got).to(exact.dtype)
        same_special = (got == wanted) | (got.isnan() & wanted.isnan())
        near = (got - exact).abs() <= absolute + relative * exact.abs() + 4 * (wanted - exact).abs()
        if not bool((same_special | near).all()):
            return False
    return True


def returns_uninitialised(op: OpInfo) -> bool:
    return op.name.startswith(("empty", "new_empty", "resize_"))


def is_random(op: OpInfo) -> bool:
    """The database seeds these itself; the device's generator draws other numbers."""
    code = getattr(op.op, "__code__", None)
    return code is not None and "wrapper_set_seed" in code.co_names


def check_sample(op: OpInfo, sample: SampleInput, category: str, device: str) -> int | None:
    """Raise Mismatch or the device's error; None if the CPU refuses this sample too."""
    on_host = Arguments(sample, "cpu")
    try:
        expected = run(op, on_host, category)
    except Exception:
        return None
    result = run(op, Arguments(sample, device), category)
    strides_differ = check_metadata(result, expected, device)
    finish(device)
    actual, expected = to_host(result), to_host(expected)
    if returns_uninitialised(op) or is_random(op):
        return strides_differ
    difference = describe_difference(actual, expected)
    if difference and not excusable(op, on_host, category, actual, expected):
        raise Mismatch(difference)
    return strides_differ


def excusable(op: OpInfo, on_host: Arguments, category: str, actual: Any, expected: Any) -> bool:
    """Whether the CPU disagrees with itself: random numbers, or too little precision."""
    if not values_agree(to_host(run(op, on_host, category, seed=1)), expected):
        return True
    try:
        precise = run(op, Arguments(on_host.sample, "cpu", MORE_PRECISE), category)
    except Exception:
        return False
    return as_precise_as(actual, expected, to_host(precise))


def finish(device: str) -> None:
    if device.startswith("xla"):
        import torch_xla

        torch_xla.sync()


def counters(device: str) -> dict[str, int]:
    if not device.startswith("xla"):
        return {}
    from torch_xla.debug import metrics

    return {name: metrics.counter_value(name) or 0 for name in metrics.counter_names()}


def check_op(
    op: OpInfo,
    category: str,
    device: str,
    limit: int | None,
    progress: Callable[[int], None] = lambda index: None,
) -> Outcome:
    if not supports(op, category):
        return Outcome("skip")
    torch.manual_seed(0)
    try:
        generator = op.sample_inputs(
            "cpu", CATEGORIES[category], requires_grad=category == "gradient"
        )
        considered = None if limit is None else SAMPLES_CONSIDERED
        samples = spread(list(itertools.islice(generator, considered)), limit)
    except Exception as error:
        return Outcome("skip", f"the database cannot make samples: {error}")
    before = counters(device)
    outcome = Outcome("pass")
    for index, sample in enumerate(samples):
        progress(index)
        try:
            strides_differ = check_sample(op, sample, category, device)
        except Mismatch as mismatch:
            outcome.status, outcome.detail = "wrong", f"{mismatch} for {describe(sample)}"
            break
        except Exception as error:
            first_line = f"{type(error).__name__}: {error}"[:600]
            outcome.status, outcome.detail = "raises", f"{first_line} for {describe(sample)}"
            break
        if strides_differ is not None:
            outcome.samples += 1
            outcome.strides_differ += strides_differ
    if outcome.status == "pass" and outcome.samples == 0:
        outcome.status = "skip"
    after = counters(device)
    outcome.counters = {
        name: count - before.get(name, 0)
        for name, count in after.items()
        if name.startswith(("aten::", "xla::")) and count != before.get(name, 0)
    }
    return outcome


def describe(sample: SampleInput) -> str:
    return repr(sample.summary())[:400]
