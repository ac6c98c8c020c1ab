"""Operators that 2.9 calls through `torch_xla._XLAC`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla._internal.stablehlo_text import joined, tensor_type, type_of
from torch_xla.amp.syncfree import _functional

Dims = Sequence[int]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def _dot_general(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    dim_vectors: Sequence[Any],
    preferred_element_type: torch.dtype | None = None,
) -> torch.Tensor:
    """A product over any dimensions: `dim_vectors` is ((contracted of lhs, of rhs), (batch of lhs,
    of rhs)), the second pair may be empty. The results are of `preferred_element_type`."""
    for tensor, place in ((lhs, "first"), (rhs, "second")):
        _require(
            tensor.device.type == "xla",
            f"_xla_dot_general: the {place} argument is on {tensor.device}: .to('xla')",
        )
    contracted, batch = dim_vectors[0], dim_vectors[1] or ((), ())
    pairs = [
        [
            [dim % tensor.dim() for dim in dims]
            for tensor, dims in zip((lhs, rhs), side, strict=True)
        ]
        for side in (batch, contracted)
    ]
    (lhs_batch, rhs_batch), (lhs_contracted, rhs_contracted) = pairs
    sizes = [lhs.shape[dim] for dim in lhs_batch]
    for tensor, used in ((lhs, lhs_batch + lhs_contracted), (rhs, rhs_batch + rhs_contracted)):
        sizes += [tensor.shape[dim] for dim in range(tensor.dim()) if dim not in used]
    dtype = preferred_element_type or torch.promote_types(lhs.dtype, rhs.dtype)
    result = tensor_type(sizes, dtype)
    batch = f"batching_dims = [{joined(lhs_batch)}] x [{joined(rhs_batch)}], " if lhs_batch else ""
    contracted = f"contracting_dims = [{joined(lhs_contracted)}] x [{joined(rhs_contracted)}]"
    operands = f"{type_of(lhs)}, {type_of(rhs)}"
    text = f"""module {{
  func.func public @main(%0: {type_of(lhs)}, %1: {type_of(rhs)}) -> {result} {{
    %2 = stablehlo.dot_general %0, %1, {batch}{contracted} : ({operands}) -> {result}
    return %2 : {result}
  }}
}}
"""
    product: torch.Tensor = torch.ops.torch_xla.stablehlo([lhs, rhs], text)[0]
    return product


def _user_computation(
    opname: str, inputs: Sequence[torch.Tensor], computation: Any
) -> list[torch.Tensor]:
    """What `xla_builder`'s computation gives for these tensors."""
    from torch_xla.core.xla_builder import xla_computation_as_func

    _require(bool(inputs), f"_xla_user_computation: {opname} needs at least one tensor")
    return xla_computation_as_func(computation, opname)(inputs)


def _custom_call(
    inputs: Sequence[torch.Tensor],
    target: str,
    output_shapes: Sequence[Dims],
    output_dtypes: Sequence[torch.dtype],
    has_side_effect: bool = False,
    backend_config: str = "",
    api_version: int = 0,
    frontend_attributes: dict[str, str] | None = None,
) -> list[torch.Tensor]:
    from torch_xla.experimental.stablehlo_custom_call import stablehlo_custom_call

    _check_call(f"the custom call {target!r}", inputs, output_shapes, output_dtypes)
    results = stablehlo_custom_call(
        inputs,
        target,
        output_shapes,
        output_dtypes,
        has_side_effect,
        backend_config,
        api_version,
        frontend_attributes,
    )
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _tpu_custom_call(
    inputs: Sequence[torch.Tensor],
    payload: str,
    output_shapes: Sequence[Dims],
    output_dtypes: Sequence[torch.dtype],
) -> list[torch.Tensor]:
    """A kernel for TPUs, compiled by JAX."""
    _check_call("the kernel for TPUs", inputs, output_shapes, output_dtypes)
    return _custom_call(inputs, "tpu_custom_call", output_shapes, output_dtypes, False, payload, 1)


def _check_call(
    what: str,
    inputs: Sequence[torch.Tensor],
    shapes: Sequence[Dims],
    dtypes: Sequence[torch.dtype],
) -> None:
    _require(bool(inputs), f"{what} needs at least one tensor")
    _require(
        len(shapes) == len(dtypes),
        f"{what}: {len(shapes)} shapes of results were given, and {len(dtypes)} dtypes",
    )


def _sgd_step(
    found_inf: torch.Tensor,
    step: torch.Tensor,
    param: torch.Tensor,
    momentum_buffer: torch.Tensor,
    gradient: torch.Tensor,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    _functional.sgd_step(
        found_inf,
        [step],
        [param],
        [gradient],
        [momentum_buffer],
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
    )


def _adam_step(
    found_inf: torch.Tensor,
    step: torch.Tensor,
    param: torch.Tensor,
    gradient: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    max_exp_avg_sq: torch.Tensor,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    use_adamw: bool,
) -> None:
    _functional.adam_step(
        found_inf,
        [step],
        [param],
        [gradient],
        [exp_avg],
        [exp_avg_sq],
        [max_exp_avg_sq],
        amsgrad=amsgrad,
        beta1=beta1,
        beta2=beta2,
        lr=lr,
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        use_adamw=use_adamw,
    )


def _by_scales(per_channel: str) -> Callable[..., torch.Tensor]:
    """An operator of `experimental.quantized` with its scales as numbers: one for the tensor, or
    one for each index of dimension `axis`."""

    def call(
        tensor: torch.Tensor,
        scales: Sequence[float],
        zero_points: Sequence[int],
        quant_min: int,
        quant_max: int,
        dtype: str,
        axis: int = -1,
    ) -> torch.Tensor:
        from torch_xla.experimental import quantized

        scale, zero = (
            torch.tensor(numbers, device=tensor.device) for numbers in (scales, zero_points)
        )
        limits = (quant_min, quant_max, getattr(torch, dtype.removeprefix("torch.")))
        result: torch.Tensor = getattr(quantized, per_channel)(tensor, scale, zero, axis, *limits)
        return result

    return call


def _cast_int4(weight: torch.Tensor, values: Sequence[int]) -> torch.Tensor:
    """Numbers of 4 bits, each in a byte: tensors have no smaller ones."""
    return torch.tensor(values, dtype=torch.int8, device=weight.device).view(weight.shape)


NAMES: dict[str, Callable[..., Any]] = {
    "_xla_adam_optimizer_step_": _adam_step,
    "_xla_cast_int4": _cast_int4,
    "_xla_custom_call": _custom_call,
    "_xla_dequantize_tensor": _by_scales("xla_dequantize_per_channel"),
    "_xla_dot_general": _dot_general,
    "_xla_quantize_tensor": _by_scales("xla_quantize_per_channel"),
    "_xla_sgd_optimizer_step_": _sgd_step,
    "_xla_tpu_custom_call": _tpu_custom_call,
    "_xla_user_computation": _user_computation,
}
