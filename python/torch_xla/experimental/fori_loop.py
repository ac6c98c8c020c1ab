"""`fori_loop` and `while_loop`: loops that end where numbers or tensors say."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_xla._internal import control_flow
from torch_xla._internal.devices import existing_device

__all__ = ["fori_loop", "while_loop"]


def fori_loop(
    lower: int | Tensor, upper: int | Tensor, body_fun: Callable[..., Any], *input_value: Tensor
) -> list[Tensor]:
    """`value = body_fun(*value)` for each number from `lower` to below `upper`.

    Returns the number of iterations still to do, which is 0, and then the values. With numbers as
    bounds the loop can be differentiated wherever it stands; with tensors its length is read first.
    """
    left = upper - lower

    def step(*value: Tensor) -> tuple[Any, ...]:
        result = body_fun(*value)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    if isinstance(left, Tensor):
        return list(
            control_flow.while_loop(
                lambda left, *value: (left > 0).all(),
                lambda left, *value: (left - 1, *step(*value)),
                (left, *input_value),
            )
        )
    values: Sequence[Tensor] = input_value
    if left > 0:
        values, _ = control_flow.scan(
            lambda carry, _: (step(*carry), None), input_value, None, length=left
        )
    device = input_value[0].device if input_value else existing_device(None)
    return [torch.zeros((), dtype=torch.int64, device=device), *values]


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Tensor],
    additional_inputs: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """`carried = body_fn(*carried, *additional)` as long as `cond_fn(*carried, *additional)`."""
    return list(control_flow.while_loop(cond_fn, body_fn, carried_inputs, additional_inputs or ()))


def _xla_while_loop_wrapper(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Tensor],
    additional_inputs: Sequence[Tensor] | None = None,
    fake_tensor: bool = False,
) -> list[Tensor]:
    return while_loop(cond_fn, body_fn, carried_inputs, additional_inputs)
