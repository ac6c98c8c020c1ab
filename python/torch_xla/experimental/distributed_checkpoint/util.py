"""Optimizers before their first step."""

import torch

from torch_xla.torch_xla import sync


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Makes the state that an optimizer makes in its first step, so that a checkpoint can be
    loaded into it. Changes no parameter: the gradients and the learning rate are zero."""
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    former = [(parameter, parameter.grad) for parameter in parameters]
    rates = [group["lr"] for group in groups]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter, requires_grad=False)
    for group in groups:
        group["lr"] = torch.zeros_like(group["lr"]) if torch.is_tensor(group["lr"]) else 0.0
    try:
        optimizer.step()
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        for parameter, gradient in former:
            parameter.grad = gradient
    sync()
    return optimizer
