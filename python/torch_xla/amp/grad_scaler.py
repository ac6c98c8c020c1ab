"""Loss scaling for float16."""

from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` for the device.

    A step reads one number from the device, to decide whether to skip it, unless the optimizer is
    fused (`torch_xla.amp.syncfree`) or the step is traced (`torch_xla.compile(step,
    assume_pure=True)`): then this is decided on the device. With `use_zero_grad` nothing is read
    either: where gradients overflow, the optimizer steps with zeros in their place.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        use_zero_grad: bool = False,
    ) -> None:
        super().__init__("xla", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.use_zero_grad = use_zero_grad

    def _maybe_opt_step(
        self,
        optimizer: torch.optim.Optimizer,
        optimizer_state: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not self.use_zero_grad:
            return super()._maybe_opt_step(optimizer, optimizer_state, *args, **kwargs)
        overflow = torch.stack(list(optimizer_state["found_inf_per_device"].values())).any()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.masked_fill_(overflow, 0)
        return optimizer.step(*args, **kwargs)
