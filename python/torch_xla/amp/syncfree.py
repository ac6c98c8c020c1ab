"""Optimizers that GradScaler steps without reading the device: PyTorch's, fused."""

from typing import Any

import torch


class SGD(torch.optim.SGD):
    def __init__(self, params: Any, lr: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(params, lr=lr, **{"fused": True, **kwargs})


class Adam(torch.optim.Adam):
    def __init__(self, params: Any, lr: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(params, lr=lr, **{"fused": True, **kwargs})


class AdamW(torch.optim.AdamW):
    def __init__(self, params: Any, lr: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(params, lr=lr, **{"fused": True, **kwargs})
