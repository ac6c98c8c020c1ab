"""`nn.Linear` whose gradients keep the dimensions of the batch, so that shardings of these survive,
and read the weight itself, so that it can be given up and gathered again in between."""

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import nn


class XLAPatchedLinear(torch.autograd.Function):
    """`XLAPatchedLinear.apply(input, weight, bias)` is `F.linear`."""

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        device = input.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            input, weight = input.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        ctx.save_for_backward(input, weight)
        product = torch.einsum("...n,mn->...m", input, weight)
        return product if bias is None else product + bias

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        gradient = gradients[0]
        input, weight = ctx.saved_tensors
        of_input = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_input = torch.einsum("...m,mn->...n", gradient, weight)
        if ctx.needs_input_grad[1]:
            of_weight = torch.einsum("...m,...n->mn", gradient, input)
        if len(ctx.needs_input_grad) > 2 and ctx.needs_input_grad[2]:
            of_bias = torch.einsum("...m->m", gradient)
        return (of_input, of_weight, of_bias)[: len(ctx.needs_input_grad)]


def xla_patched_nn_linear_forward(m: nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """`nn.Linear.forward` by XLAPatchedLinear."""
    result: torch.Tensor = XLAPatchedLinear.apply(input, m.weight, m.bias)  # type: ignore
    return result


def apply_xla_patch_to_nn_linear(
    module: nn.Module, patched_function: Callable[..., Any] = xla_patched_nn_linear_forward
) -> nn.Module:
    """Every nn.Linear in `module` (itself included) computes by `patched_function(linear, input)`
    from now on. A forward that is not nn.Linear's own is left alone."""
    for linear in module.modules():
        own = getattr(linear.forward, "__func__", None)
        if isinstance(linear, nn.Linear) and own is nn.Linear.forward:
            linear.forward = MethodType(patched_function, linear)  # type: ignore[method-assign]
    return module
