"""`scan`: a loop over the first dimension of tensors that is one operation of the program.

See docs/control_flow.md.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree

from torch_xla._internal import control_flow

__all__ = ["scan", "tree_flatten_none", "value_and_grad_partitioned"]

Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")

# PyTorch's own. Either way a minimum cut decides what is kept, which is what the second one does.
_PARTITIONS = (None, "default_partition", "min_cut_rematerialization_partition")


def scan(
    fn: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X,
    partition_fn: Callable[..., Any] | None = None,
    is_fn_pure: bool = False,
) -> tuple[Carry, Y]:
    """Calls `carry, y = fn(carry, x)` for each slice of `xs`; returns the last carry and all `y`.

    Args:
        fn: takes and returns trees of tensors. It may read closed-over tensors, draw random
            numbers and change closed-over tensors in place. One that changes its arguments changes
            copies of them.
        init: the first carry; shapes, dtypes and structure stay the same.
        xs: a tree of tensors of the same first dimension, over which the loop goes.
        partition_fn: PyTorch's `default_partition` or `min_cut_rematerialization_partition`. What
            the gradient keeps is always chosen by a minimum cut.
        is_fn_pure: `fn` does the same operations at every call, so that it is traced once.
    """
    if not callable(fn):
        raise ValueError(f"scan needs a function, received {fn!r}")
    _check_partition(partition_fn)
    _check_lengths(xs)
    fn = getattr(fn, _COPYING, fn)
    try:
        return control_flow.scan(fn, init, xs, pure=is_fn_pure)
    except RuntimeError as error:
        if _IN_PLACE not in str(error):
            raise
    return control_flow.scan(_on_copies(fn), init, xs, pure=is_fn_pure)


# What the trace says of a function that changes its arguments, and where its other form is kept.
_IN_PLACE = "in place: return a new tensor instead"
_COPYING = "_torch_xla_on_copies"


def _on_copies(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*arguments: Any) -> Any:
        return fn(*_pytree.tree_map_only(Tensor, Tensor.clone, arguments))

    with contextlib.suppress(AttributeError):  # a method, for instance
        setattr(fn, _COPYING, call)
    return call


def value_and_grad_partitioned(
    fn: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X,
    partition_fn: Callable[..., Any] | None = None,
    is_fn_pure: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """One step of a scan and its gradient, for loops of one's own.

    Returns:
        `forward(carry, x) -> (carry, (y, kept))`; `alias_input(stacked kept, xs) -> stacked kept`,
        with what is the same as `xs`; `backward(gradient of carry, (gradient of y, kept)) ->
        (gradient of carry, gradient of x)`. The step keeps its arguments, and the gradient computes
        it again.
    """
    _check_partition(partition_fn)
    carry_leaves, carry_spec = _pytree.tree_flatten(init)
    _, x_spec = _pytree.tree_flatten(xs)
    count = len(carry_leaves)

    def forward(carry: Carry, x: X) -> tuple[Carry, tuple[Y, tuple[Tensor, ...]]]:
        kept = tuple(leaf.clone() for leaf in _pytree.tree_leaves(carry))
        carry, y = fn(carry, x)
        return carry, (y, kept)

    def alias_input(kept: Sequence[Tensor], xs: X) -> tuple[Tensor, ...]:
        return (*kept, *_pytree.tree_leaves(xs))

    def backward(carry: Any, x: Any) -> tuple[Any, Any]:
        gradient_of_y, kept = x
        with torch.enable_grad():
            inputs = [
                value.detach().requires_grad_(value.is_floating_point() or value.is_complex())
                for value in kept
            ]
            results = fn(
                _pytree.tree_unflatten(inputs[:count], carry_spec),
                _pytree.tree_unflatten(inputs[count:], x_spec),
            )
        gradients = _gradients(inputs, results, (carry, gradient_of_y))
        return (
            _pytree.tree_unflatten(gradients[:count], carry_spec),
            _pytree.tree_unflatten(gradients[count:], x_spec),
        )

    return forward, alias_input, backward


def tree_flatten_none(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The leaves of a tree that are not None, and what puts others in their places."""
    leaves, spec = _pytree.tree_flatten(tree)
    present = [leaf is not None for leaf in leaves]

    def unflatten(values: Sequence[Any]) -> Any:
        rest = iter(values)
        return _pytree.tree_unflatten([next(rest) if here else None for here in present], spec)

    return [leaf for leaf in leaves if leaf is not None], unflatten


def _gradients(inputs: list[Tensor], results: Any, incoming: Any) -> list[Tensor]:
    pairs = [
        (result, gradient)
        for result, gradient in zip(
            _pytree.tree_leaves(results), _pytree.tree_leaves(incoming), strict=True
        )
        if isinstance(result, Tensor) and result.requires_grad and gradient is not None
    ]
    wanted = [value for value in inputs if value.requires_grad]
    found = iter(
        torch.autograd.grad(
            [result for result, _ in pairs],
            wanted,
            [gradient for _, gradient in pairs],
            allow_unused=True,
            materialize_grads=True,
        )
    )
    return [next(found) if value.requires_grad else torch.zeros_like(value) for value in inputs]


def _check_partition(partition_fn: Callable[..., Any] | None) -> None:
    name = None if partition_fn is None else getattr(partition_fn, "__name__", "")
    if name not in _PARTITIONS:
        raise ValueError(
            f"partition_fn: a minimum cut decides what a gradient keeps, so that {partition_fn!r} "
            "would never be asked; use torch.utils.checkpoint inside the function to keep less"
        )


def _check_lengths(xs: Any) -> None:
    lengths = {len(leaf) for leaf in _pytree.tree_leaves(xs) if leaf is not None}
    if len(lengths) != 1:
        raise ValueError(
            "scan goes over tensors that have the same first dimension, received "
            + (f"lengths {sorted(lengths)}" if lengths else "no tensor")
        )


# ---- names of 2.9's own machinery ----------------------------------------------------------------

_SCAN_COMPUTATION_CACHE = control_flow.known  # the traces of pure functions


def split(seq: Sequence[Any], *part_lengths: int) -> tuple[Sequence[Any], ...]:
    """A sequence in parts of these lengths, and what remains."""
    starts = [0, *itertools.accumulate(part_lengths)]
    ends = [*starts[1:], len(seq)]
    return tuple(seq[start:end] for start, end in zip(starts, ends, strict=True))


def dynamic_slice(xs: Tensor, idx: Tensor) -> Tensor:
    """`xs[idx]`, where `idx` is a number on the device."""
    return xs.index_select(0, idx.reshape(1)).squeeze(0)


def dynamic_update_slice(ys: Tensor, y: Tensor, idx: Tensor) -> Tensor:
    """`ys` with `y` in place of `ys[idx]`, where `idx` is a number on the device."""
    return ys.index_copy(0, idx.reshape(1), y.unsqueeze(0))


class Scan:
    """2.9's autograd function behind `scan`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(_NOT_BY_HAND.format("Scan"))

    apply = __init__


class Builder:
    """2.9's builder of the computations behind `scan`."""

    def __init__(self, name: str) -> None:
        raise NotImplementedError(_NOT_BY_HAND.format("Builder"))


_NOT_BY_HAND = (
    "{} belongs to how torch_xla 2.9 builds its loops: call scan(), or build computations with "
    "torch_xla.core.xla_builder"
)
