"""`stablehlo.custom_call`s: functions that the plugin, or another consumer, knows by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_xla._internal.stablehlo_text import function_type, quoted, symbol, tensor_type, type_of

__all__ = [
    "extract_custom_call_outputs_shape_dtype",
    "place_to_device",
    "place_to_host",
    "stablehlo_custom_call",
    "to_device_backward",
    "to_host_backward",
]


def stablehlo_custom_call(
    args: Sequence[torch.Tensor],
    call_target: str,
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[torch.dtype],
    has_side_effect: bool = False,
    backend_config: str = "",
    api_version: int = 0,
    frontend_attributes: Mapping[str, str] | None = None,
) -> Any:
    """The results of the function `call_target` of whoever runs the program: a tensor, or a list of
    several."""
    types = [tensor_type(s, d) for s, d in zip(output_shapes, output_dtypes, strict=True)]
    names = [f"%{i}" for i in range(len(args))]
    operands = [type_of(arg) for arg in args]
    attributes = [
        f"has_side_effect = {'true' if has_side_effect else 'false'}",
        f"backend_config = {quoted(backend_config)}",
        f"api_version = {api_version} : i32",
    ]
    if frontend_attributes:
        pairs = [f"{name} = {quoted(value)}" for name, value in frontend_attributes.items()]
        attributes.append(f"mhlo.frontend_attributes = {{{', '.join(pairs)}}}")
    results = [f"%r{i}" for i in range(len(types))]
    produced = f"%r:{len(types)}" if len(types) > 1 else "%r0"
    returned = [f"%r#{i}" for i in range(len(types))] if len(types) > 1 else results
    parameters = ", ".join(f"{n}: {t}" for n, t in zip(names, operands, strict=True))
    call = f"stablehlo.custom_call {symbol(call_target)}({', '.join(names)})"
    text = f"""module {{
  func.func public @main({parameters}) -> ({", ".join(types)}) {{
    {produced} = {call} {{{", ".join(attributes)}}} : {function_type(operands, types)}
    return {", ".join(returned)} : {", ".join(types)}
  }}
}}
"""
    outputs: Any = torch.ops.torch_xla.stablehlo(list(args), text)
    return outputs[0] if len(outputs) == 1 else outputs


def extract_custom_call_outputs_shape_dtype(
    n: torch.fx.Node,
) -> tuple[list[torch.Size], list[torch.dtype]]:
    """Shapes and dtypes of what a node of a graph gives."""
    value = n.meta["val"]
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [v.shape for v in values], [v.dtype for v in values]


def place_to_host(t: torch.Tensor) -> torch.Tensor:
    """The tensor in the host's memory, where XLA knows several kinds of memory and both programs
    and gradients move it back (`place_to_device`) before they compute with it. Where the device's
    memory is the host's, it is there."""
    return _placed(t, "pinned_host")


def place_to_device(t: torch.Tensor) -> torch.Tensor:
    """The tensor in the device's memory again."""
    return _placed(t, "device")


def _placed(a: torch.Tensor, kind: str) -> torch.Tensor:
    result: torch.Tensor = _Place.apply(a, kind)  # type: ignore[no-untyped-call]
    return result


def _move(a: torch.Tensor, kind: str) -> torch.Tensor:
    from torch_xla import _XLAC

    if _XLAC.host_memory():
        return a.clone()
    moved: torch.Tensor = stablehlo_custom_call(
        [a],
        "annotate_device_placement",
        [a.shape],
        [a.dtype],
        has_side_effect=True,
        frontend_attributes={"_xla_buffer_placement": kind},
    )
    return moved


def to_host_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    """The gradient of `place_to_host`."""
    return grad


def to_device_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    """The gradient of `place_to_device`."""
    return grad


class _Place(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, kind: str) -> torch.Tensor:
        ctx.kind = kind
        return _move(a, kind)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        backward = to_host_backward if ctx.kind == "pinned_host" else to_device_backward
        return backward(ctx, gradients[0]), None
