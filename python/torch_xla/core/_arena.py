"""Converting all tensors of nested data at once, and tensors that share memory."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla.utils.utils import for_each_instance, for_each_instance_rewrite


class ToXlaTensorArena:
    """`transform(data)`: nested data with the tensors that `select_fn` accepts replaced by those
    that `convert_fn` makes of the list of them, in one call."""

    def __init__(
        self,
        convert_fn: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]],
        select_fn: Callable[[Any], bool],
    ) -> None:
        self._convert = convert_fn
        self._select = select_fn

    def transform(self, inputs: Any) -> Any:
        found: list[torch.Tensor] = []
        for_each_instance(inputs, self._select, found.append)
        if not found:
            return inputs
        pairs = zip(found, self._convert(found), strict=True)
        converted = {id(tensor): result for tensor, result in pairs}
        return for_each_instance_rewrite(inputs, self._select, lambda t: converted[id(t)])


def check_view_sharing(obj: Any) -> None:
    """Raises RuntimeError if two tensors of nested data share a storage."""
    known: dict[tuple[str, int], torch.Tensor] = {}

    def check(tensor: torch.Tensor) -> None:
        key = (str(tensor.device), tensor.untyped_storage().data_ptr())
        other = known.setdefault(key, tensor)
        if other is not tensor:
            raise RuntimeError(
                f"a tensor of {tensor.dtype}{list(tensor.shape)} shares its storage with one of "
                f"{other.dtype}{list(other.shape)}: clone() one of them"
            )

    for_each_instance(obj, lambda value: type(value) is torch.Tensor, check)
