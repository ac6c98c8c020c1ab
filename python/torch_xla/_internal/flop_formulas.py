"""How many operations operators of our own have, for `torch.utils.flop_counter`: those of their
matrix products, as it counts PyTorch's."""

from collections.abc import Sequence
from typing import Any

import torch

Shape = Sequence[int]


def register(flop_counter: Any) -> None:
    operators = torch.ops.torch_xla
    for operator, formula in (
        (operators.recurrent_layer, _forward),
        (operators.recurrent_layer_backward, _backward),
    ):
        flop_counter.register_flop_formula(operator)(formula)


def _products(rows: int, weight: Shape) -> int:
    return 2 * rows * weight[0] * weight[1]


def _forward(data: Shape, hx: Shape, cx: Any, w_ih: Shape, w_hh: Shape, *_: Any, **__: Any) -> int:
    return _products(data[0], w_ih) + _products(data[0], w_hh)


def _backward(*arguments: Any, **_: Any) -> int:
    rows = arguments[3][0]
    of_inputs, of_states = _products(rows, arguments[6]), _products(rows, arguments[7])
    of_data, of_weights = (int(wanted) for wanted in arguments[-2:])
    return of_states + of_data * of_inputs + of_weights * (of_inputs + of_states)
