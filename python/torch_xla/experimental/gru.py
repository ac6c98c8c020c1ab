"""`GRU`: PyTorch's, as a loop over time that is compiled once whatever its length."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_xla._internal import control_flow

__all__ = ["GRU"]


class GRU(nn.GRU):
    """`torch.nn.GRU` with one loop per layer and direction. Takes no packed sequences."""

    def forward(  # type: ignore[override]
        self, input: Any, hx: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(input, Tensor):
            raise TypeError(
                f"torch_xla's GRU takes a padded tensor, received {type(input).__name__}: use "
                "torch.nn.GRU for packed sequences, whose shapes depend on their lengths"
            )
        if input.dim() not in (2, 3):
            raise ValueError(f"GRU: expected input to be 2-d or 3-d, got {input.dim()}-d")
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
            hx = None if hx is None else hx.unsqueeze(1)
        xs = input.transpose(0, 1) if self.batch_first else input
        directions = 2 if self.bidirectional else 1
        if hx is None:
            hx = xs.new_zeros(self.num_layers * directions, xs.shape[1], self.hidden_size)
        self.check_forward_args(input, hx, None)
        last = []
        for layer in range(self.num_layers):
            parts = []
            for direction in range(directions):
                h, ys = self._run(layer, direction, xs, hx[layer * directions + direction])
                last.append(h)
                parts.append(ys)
            xs = torch.cat(parts, -1) if directions == 2 else parts[0]
            if layer + 1 < self.num_layers:
                xs = F.dropout(xs, self.dropout, self.training)
        output, hidden = xs.transpose(0, 1) if self.batch_first else xs, torch.stack(last)
        if not batched:
            return output.squeeze(0 if self.batch_first else 1), hidden.squeeze(1)
        return output, hidden

    def _run(self, layer: int, direction: int, xs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        suffix = f"l{layer}" + ("_reverse" if direction else "")
        weights = [getattr(self, f"weight_{kind}_{suffix}") for kind in ("ih", "hh")]
        biases = [
            getattr(self, f"bias_{kind}_{suffix}") if self.bias else None for kind in ("ih", "hh")
        ]
        gates = F.linear(xs, weights[0], biases[0])  # of all steps at once
        return control_flow.scan(
            _step, h, gates, (weights[1], biases[1]), reverse=bool(direction), pure=True
        )


def _step(h: Tensor, gates: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    from_input = gates.chunk(3, -1)
    from_hidden = F.linear(h, weight, bias).chunk(3, -1)
    reset = torch.sigmoid(from_input[0] + from_hidden[0])
    update = torch.sigmoid(from_input[1] + from_hidden[1])
    new = torch.tanh(from_input[2] + reset * from_hidden[2])
    h = (1 - update) * new + update * h
    return h, h
