"""`torch.optim.Adam`, fused: GradScaler steps it without reading the device."""

from typing import Any

import torch

from torch_xla.amp.syncfree._functional import FoundInf

__all__ = ["Adam"]


class Adam(FoundInf, torch.optim.Adam):
    def __init__(self, params: Any, lr: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(params, lr=lr, **{"fused": True, **kwargs})
