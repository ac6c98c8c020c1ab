"""`scan_layers`: layers of one structure, one after the other, compiled once."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torch_xla._internal import control_flow
from torch_xla.experimental.scan import _check_partition

__all__ = ["scan_layers"]

Tensors = dict[str, Tensor]


def scan_layers(
    layers: Iterable[nn.Module],
    input_data: Any,
    partition_fn: Callable[..., Any] | None = None,
    is_layer_pure: bool = False,
) -> Any:
    """What `torch.nn.Sequential(*layers)(input_data)` computes, with the first layer's program.

    Args:
        layers: modules of the same structure that do the same with other parameters.
        input_data: what the first layer gets, a tuple as several arguments; each layer returns the
            like of it.
        partition_fn: see `torch_xla.experimental.scan.scan`.
        is_layer_pure: the layers do the same operations at every call, so that one is traced once.
    """
    _check_partition(partition_fn)
    layers = list(layers)
    if not layers:
        return input_data
    parameters = _stacked([dict(layer.named_parameters()) for layer in layers])
    buffers = _stacked([dict(layer.named_buffers()) for layer in layers])
    flags = tuple(module.training for module in layers[0].modules())
    output, after = control_flow.scan(
        _step_of(layers[0], is_layer_pure),
        input_data,
        (parameters, buffers),
        (flags,),
        length=len(layers),
        pure=is_layer_pure,
    )
    with torch.no_grad():
        for name, values in after.items():
            torch._foreach_copy_([layer.get_buffer(name) for layer in layers], values.unbind())
    return output


# The step of a layer that is pure, as long as the layer lives.
_ONE_LAYER_CACHE: "weakref.WeakKeyDictionary[nn.Module, Callable[..., Any]]" = (
    weakref.WeakKeyDictionary()
)


def _step_of(layer: nn.Module, keep: bool) -> Callable[..., Any]:
    alive = weakref.ref(layer)

    def step(carry: Any, values: tuple[Tensors, Tensors], flags: Any) -> tuple[Any, Tensors]:
        parameters, buffers = values
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
        module = alive()
        assert module is not None  # whoever calls the step holds it
        given = carry if isinstance(carry, tuple) else (carry,)
        output = torch.func.functional_call(module, (parameters, copies), given, strict=True)
        return output, copies

    return _ONE_LAYER_CACHE.setdefault(layer, step) if keep else step


def _stacked(of_layers: list[Tensors]) -> Tensors:
    first = of_layers[0]
    for i, values in enumerate(of_layers):
        for name in first.keys() ^ values.keys():
            raise ValueError(
                f"mismatched keys: layer {i} and the first one differ, only one of them has "
                f"{name!r}"
            )
        for name, value in values.items():
            if value.shape != first[name].shape or value.dtype != first[name].dtype:
                raise ValueError(
                    f"Shape mismatch: {name!r} of layer {i} is {value.dtype} "
                    f"{tuple(value.shape)}, of the first layer {first[name].dtype} "
                    f"{tuple(first[name].shape)}: layers must be alike"
                )
    return {name: torch.stack([values[name] for values in of_layers]) for name in first}
