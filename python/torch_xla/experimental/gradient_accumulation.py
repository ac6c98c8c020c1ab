"""Gradients of several batches, summed by a loop that is one operation of the program."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torch_xla._internal import control_flow

__all__ = ["gradient_accumulation"]


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: tuple[Tensor, ...],
    model: nn.Module,
    *carried_tensors: Tensor,
) -> Any:
    """Calls `train_step` on each slice of the tensors, and adds the gradients of their mean.

    Args:
        train_step: gets a slice of each of `iterable_tensors`, then the carried tensors; returns
            the loss or, with carried tensors, the loss and these for the next step. It does not
            call `backward`.
        iterable_tensors: tensors of the same first dimension, the number of steps.
        model: its parameters get the gradients of the losses' mean, added to those they have.
        carried_tensors: what a step passes on to the next one.

    Returns:
        The losses' mean or, with carried tensors, a tuple of it and the last ones.
    """
    _check(iterable_tensors)
    steps = iterable_tensors[0].shape[0]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def step(carry: Any, slices: tuple[Tensor, ...]) -> tuple[Any, None]:
        total, gradients, carried = carry
        with torch.enable_grad():
            result = train_step(*slices, *carried)
            loss, *carried = result if carried_tensors else (result,)
            loss = loss / steps
            new = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        sums = [gradient + more for gradient, more in zip(gradients, new, strict=True)]
        return (total + loss.detach(), sums, tuple(tensor.detach() for tensor in carried)), None

    with torch.no_grad():
        init = (
            torch.zeros((), device=iterable_tensors[0].device),
            [torch.zeros_like(parameter) for parameter in parameters],
            carried_tensors,
        )
        (loss, gradients, carried), _ = control_flow.scan(step, init, tuple(iterable_tensors))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return (loss, *carried) if carried_tensors else loss


def _check(iterable_tensors: tuple[Tensor, ...]) -> None:
    if not iterable_tensors:
        raise ValueError("gradient_accumulation needs tensors to go over, received none")
    for i, tensor in enumerate(iterable_tensors):
        if not isinstance(tensor, Tensor) or tensor.dim() == 0 or tensor.numel() == 0:
            raise ValueError(f"element {i} of iterable_tensors is not a tensor with elements")
        if tensor.shape[0] != iterable_tensors[0].shape[0]:
            raise ValueError(
                f"element {i} of iterable_tensors has first dimension {tensor.shape[0]}, the first "
                f"one {iterable_tensors[0].shape[0]}: both are the number of steps"
            )


class GradientAccumulationContext(NamedTuple):
    """How a loop that accumulates gradients is laid out, as 2.9 describes it."""

    num_gradient_steps: int
    num_iterable_tensors: int
    num_carried_tensors: int


class XlaBuildHelper:
    """2.9's builder of the computations behind `gradient_accumulation`."""

    def __init__(self, name: str) -> None:
        raise NotImplementedError(
            "XlaBuildHelper belongs to how torch_xla 2.9 builds its loops: call "
            "gradient_accumulation(), or build computations with torch_xla.core.xla_builder"
        )
