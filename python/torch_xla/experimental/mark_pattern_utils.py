"""Parts of a model as one operation of StableHLO, for consumers that implement it."""

import uuid
from typing import Any

import torch

from torch_xla.experimental.xla_marker import mark_tensor

__all__ = ["StableHLOCompositeBuilder"]


class StableHLOCompositeBuilder:
    """Marks what a composite computes.

    builder = StableHLOCompositeBuilder("my.gelu", {"approximate": "none"})
    x = builder.mark_inputs(x)
    y = builder.mark_outputs(gelu(x))
    """

    def __init__(self, name: str, attr: dict[str, Any] | None = None) -> None:
        self.name = name
        self.attr = attr
        self.id = uuid.uuid4().hex
        self._inputs = 0
        self._outputs = 0

    def mark_inputs(self, *tensors: torch.Tensor) -> Any:
        """The tensors (one by itself, or a tuple), to be used in the part from here on."""
        marked = [self._mark(t, self._inputs + i, True) for i, t in enumerate(tensors)]
        self._inputs += len(tensors)
        return marked[0] if len(marked) == 1 else tuple(marked)

    def mark_outputs(self, *tensors: torch.Tensor) -> Any:
        """The part's results, to be used by what follows."""
        marked = [self._mark(t, self._outputs + i, False) for i, t in enumerate(tensors)]
        self._outputs += len(tensors)
        return marked[0] if len(marked) == 1 else tuple(marked)

    def _mark(self, tensor: torch.Tensor, position: int, is_input: bool) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"marks are put on tensors, got {tensor!r}")
        attributes = None if is_input else self.attr
        return mark_tensor(tensor, self.name, position, self.id, is_input, attributes)
