"""Moves nested data between host and device."""

from collections import defaultdict
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla.utils.utils import for_each_instance, for_each_instance_rewrite


def is_xla_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "xla"


def is_cpu_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def to_device(data: Any, device: "torch.device | str") -> Any:
    """`data` with its CPU tensors on `device`."""
    return for_each_instance_rewrite(data, is_cpu_tensor, lambda tensor: tensor.to(device))


def to_cpu(data: Any) -> Any:
    """`data` with its xla tensors on the CPU. Tensors that share a storage still do."""
    tensors: list[torch.Tensor] = []
    for_each_instance(data, is_xla_tensor, tensors.append)
    if not tensors:
        return data
    _XLAC.sync_tensors(tensors)
    copies = _cpu_copies(tensors)
    return for_each_instance_rewrite(data, is_xla_tensor, lambda tensor: copies[id(tensor)])


def _cpu_copies(tensors: list[torch.Tensor]) -> dict[int, torch.Tensor]:
    sharing: dict[tuple[int, torch.dtype], list[torch.Tensor]] = defaultdict(list)
    for tensor in tensors:
        sharing[tensor.untyped_storage().data_ptr(), tensor.dtype].append(tensor)
    copies = {}
    for group in sharing.values():
        if len(group) == 1:
            copies[id(group[0])] = group[0].detach().cpu()
        else:
            base = _whole_storage(group[0]).cpu()
            for tensor in group:
                copies[id(tensor)] = base.as_strided(
                    tensor.size(), tensor.stride(), tensor.storage_offset()
                )
    for tensor in tensors:
        copies[id(tensor)].requires_grad_(tensor.requires_grad)
    return copies


def _whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    elements = storage.nbytes() // tensor.element_size()
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    whole.set_(storage, 0, (elements,))  # type: ignore[call-overload]
    return whole
