"""Activation checkpointing: PyTorch's, with a barrier that keeps XLA from undoing it.

What is computed again in the backward pass is the same as in the forward pass, and a compiler that
sees both would keep the first.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.utils.checkpoint as _torch

from torch_xla._internal.transfer import is_xla_tensor
from torch_xla.core._barrier import Barrier

get_device_states = _torch.get_device_states
set_device_states = _torch.set_device_states

__all__ = [
    "CheckpointFunction",
    "CheckpointStatus",
    "checkpoint",
    "chkpt_status",
    "get_device_states",
    "set_device_states",
]


class CheckpointStatus(threading.local):
    """Whether the calling thread computes something again for a backward pass."""

    def __init__(self) -> None:
        self.in_chkpt_bwd = False
        self.gradients: Sequence[Any] = ()


chkpt_status = CheckpointStatus()


@contextlib.contextmanager
def _recomputing(gradients: Sequence[Any] = ()) -> Iterator[None]:
    before = chkpt_status.in_chkpt_bwd, chkpt_status.gradients
    chkpt_status.in_chkpt_bwd, chkpt_status.gradients = True, gradients
    try:
        yield
    finally:
        chkpt_status.in_chkpt_bwd, chkpt_status.gradients = before


class CheckpointFunction(_torch.CheckpointFunction):
    """`CheckpointFunction.apply(run_function, preserve_rng_state, *args)`."""

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        with _recomputing(args):
            return _torch.CheckpointFunction.backward(ctx, *args)  # type: ignore[no-untyped-call]


def _behind_barrier(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not chkpt_status.in_chkpt_bwd:
            return function(*args, **kwargs)
        places = [i for i, arg in enumerate(args) if is_xla_tensor(arg)]
        # With the gradients, so that nothing is computed before it is needed.
        gradients = [gradient for gradient in chkpt_status.gradients if is_xla_tensor(gradient)]
        values = list(args)
        if places:
            separated: Any = Barrier.apply(*(args[i] for i in places), *gradients)  # type: ignore
            for place, value in zip(places, separated, strict=False):
                values[place] = value
        return function(*values, **kwargs)

    return run


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args)`, whose activations are not kept but computed again for the backward pass.

    As torch.utils.checkpoint.checkpoint; keyword arguments of `function` need
    `use_reentrant=False`.
    """
    if use_reentrant:
        if kwargs:
            raise ValueError(
                f"checkpoint: unexpected keyword arguments {', '.join(kwargs)}; pass "
                "use_reentrant=False to give keyword arguments to the function"
            )
        apply: Any = CheckpointFunction.apply
        return apply(_behind_barrier(function), preserve_rng_state, *args)
    return _torch.checkpoint(
        _behind_barrier(function),
        *args,
        use_reentrant=False,
        preserve_rng_state=preserve_rng_state,
        context_fn=lambda: (contextlib.nullcontext(), _recomputing()),
        **kwargs,
    )
