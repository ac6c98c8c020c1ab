"""`torch.autocast` for the device."""

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """`torch.autocast("xla", ...)`; `device` may be a device or its name."""

    def __init__(
        self,
        device: "torch.device | str" = "xla",
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = None,
    ) -> None:
        super().__init__(
            torch.device(device).type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled
        )
