"""One step of the optimizers on lists of tensors; where `found_inf` is not 0, nothing changes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class FoundInf:
    """`step(found_inf=...)` for PyTorch's fused optimizers, which look for it in themselves."""

    def step(self, closure: Any = None, found_inf: Tensor | None = None) -> Any:
        """A step that changes nothing if the number `found_inf` is not 0."""
        parent: Any = super()
        if found_inf is None:
            return parent.step(closure)
        if found_inf.dim() != 0:
            raise ValueError(
                f"found_inf must be a number, got a tensor of shape {tuple(found_inf.shape)}"
            )
        holder: Any = self
        holder.found_inf, holder.grad_scale = found_inf, None
        try:
            return parent.step(closure)
        finally:
            del holder.found_inf, holder.grad_scale


def _count(state_steps: Sequence[Tensor], found_inf: Tensor) -> None:
    for step in state_steps:
        step.add_(1 - found_inf.to(step.dtype))


@torch.no_grad()
def adam_step(
    found_inf: Tensor,
    state_steps: list[Tensor],
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    *,
    amsgrad: bool,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    use_adamw: bool,
) -> None:
    """One step of Adam, or of AdamW with `use_adamw`."""
    _count(state_steps, found_inf)
    update = torch._fused_adamw_ if use_adamw else torch._fused_adam_
    update(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs if amsgrad else [],
        state_steps,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=amsgrad,
        maximize=maximize,
        found_inf=found_inf,
    )


@torch.no_grad()
def sgd_step(
    found_inf: Tensor,
    state_steps: list[Tensor],
    params: list[Tensor],
    d_p_list: list[Tensor],
    momentum_buffer_list: list[Tensor | None],
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """One step of SGD. A momentum that is None is made here, of zeros."""
    for i, (buffer, gradient) in enumerate(zip(momentum_buffer_list, d_p_list, strict=True)):
        if buffer is None:
            momentum_buffer_list[i] = torch.zeros_like(gradient)
    skip = found_inf != 0
    for step, param, gradient, buffer in zip(
        state_steps, params, d_p_list, momentum_buffer_list, strict=True
    ):
        assert buffer is not None
        direction = -gradient if maximize else gradient
        direction = direction + weight_decay * param if weight_decay != 0 else direction
        # The first momentum is the gradient itself, not damped.
        damping = torch.where(step == 0, 1.0, 1.0 - dampening)
        averaged = buffer * momentum + direction * damping
        if momentum != 0:
            buffer.copy_(torch.where(skip, buffer, averaged))
            direction = direction + momentum * averaged if nesterov else averaged
        param.copy_(torch.where(skip, param, param - lr * direction))
    _count(state_steps, found_inf)
