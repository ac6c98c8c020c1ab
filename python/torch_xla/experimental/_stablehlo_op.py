"""Operators of one's own, written in StableHLO."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

_FUNCTION = re.compile(r"func\.func\s+(?:public\s+|private\s+)?@([\w.$-]+)")
_Tensors = Sequence[torch.Tensor]
_Gradient = Callable[[_Tensors, _Tensors, _Tensors], Sequence[torch.Tensor | None]]
_numbers = itertools.count()


def _as_module(text: str) -> tuple[str, str]:
    """The text as a module whose first function, or the one called so, is @main; and its name."""
    names = _FUNCTION.findall(text)
    if not names:
        raise ValueError(
            "stablehlo_op takes the text of a function, `func.func @name(%x: tensor<2x3xf32>) -> "
            f"tensor<2x3xf32> {{ ... }}`, or a module of several, got {text[:60]!r}"
        )
    if "main" not in names:
        text = re.sub(rf"@{re.escape(names[0])}(?![\w.$-])", "@main", text)
    return text if re.match(r"\s*module\b", text) else f"module {{\n{text}\n}}\n", names[0]


def stablehlo_op(text: str, gradient: _Gradient | None = None) -> Callable[..., Any]:
    """The StableHLO function `text` as an operator: called with tensors of its arguments' types, it
    returns a tensor, or a tuple if the function has several results. On the device it is part of
    the program around it, in every mode; with tensors on the CPU it is a program by itself.

    `text`: one function (`func.func @name(%x: tensor<4xf32>) -> tensor<4xf32> { ... }`), or a
    module, whose function is @main or the first. `gradient(inputs, outputs, gradients)`: for each
    input its gradient or None, given those of the outputs; of any operators, such as another
    `stablehlo_op`.
    """
    module, name = _as_module(text)

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return list(torch.ops.torch_xla.stablehlo(list(inputs), module))

    define: Any = torch.library.custom_op
    readable = re.sub(r"\W", "_", name)
    operator = define(
        f"torch_xla::{readable}_{next(_numbers)}",
        run,
        mutates_args=(),
        schema="(Tensor[] inputs) -> Tensor[]",
    )
    operator.register_fake(run)
    if gradient is not None:
        _register_gradient(operator, gradient)
    overload = operator._opoverload

    def call(*inputs: torch.Tensor) -> Any:
        results = overload(list(inputs))
        return results[0] if len(results) == 1 else tuple(results)

    call.__name__ = call.__qualname__ = name
    return call


def _register_gradient(operator: Any, gradient: _Gradient) -> None:
    def keep(ctx: Any, inputs: Any, output: _Tensors) -> None:
        ctx.count = len(inputs[0])
        ctx.save_for_backward(*inputs[0], *output)

    def backward(ctx: Any, gradients: Sequence[torch.Tensor | None]) -> Any:
        inputs, outputs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        given = [
            torch.zeros_like(output) if each is None else each
            for output, each in zip(outputs, gradients, strict=True)
        ]
        return list(gradient(inputs, outputs, given))

    operator.register_autograd(backward, setup_context=keep)
