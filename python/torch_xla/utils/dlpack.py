"""DLPack for tensors of the device, through the host."""

from typing import Any

import torch
import torch.utils.dlpack


def to_dlpack(xla_tensor: torch.Tensor) -> Any:
    """A DLPack capsule of a CPU copy of the tensor."""
    if xla_tensor.device.type != "xla":
        raise ValueError(f"expected an xla tensor, got one on {xla_tensor.device}")
    return torch._C._to_dlpack(xla_tensor.detach().cpu())


def from_dlpack(ext_tensor: Any) -> torch.Tensor:
    """An xla tensor with the contents of a DLPack capsule or of an object with `__dlpack__`."""
    return torch.utils.dlpack.from_dlpack(ext_tensor).to("xla")
