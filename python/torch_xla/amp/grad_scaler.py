"""Loss scaling for float16."""

import torch


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` for the device.

    A step reads one number from the device, to decide whether to skip it, unless the optimizer is
    fused (`torch_xla.amp.syncfree`) or the step is traced (`torch_xla.compile(step,
    assume_pure=True)`): then this is decided on the device.
    """

    def __init__(
        self,
        device: str = "xla",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
