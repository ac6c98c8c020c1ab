"""Graphs, tensors and settings of the lazy core as 2.9 reaches them through `torch_xla._XLAC`."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from torch_xla import _XLAC
from torch_xla._internal.devices import device_index
from torch_xla._internal.transfer import is_xla_tensor
from torch_xla.utils import dlpack

# What 2.9 keeps as flags and nothing here depends on: programs that save and restore them go on.
_settings: dict[str, Any] = {
    "current_graph_name": "",
    "xla_all_numbers_special_scalars": False,
    "xla_enable_device_data_cache": True,
    "xla_handle_special_scalars": False,
}
_running_allowed = True
_locations = False


def _setting(name: str) -> dict[str, Callable[..., Any]]:
    def put(value: Any) -> None:
        _settings[name] = value

    return {f"_get_{name}": lambda: _settings[name], f"_set_{name}": put}


def _set_running_allowed(allowed: bool) -> None:
    global _running_allowed
    _XLAC.set_running_allowed(allowed)
    _running_allowed = allowed


def _is_running_allowed() -> bool:
    return _running_allowed


def _set_ir_debug(enable: bool) -> None:
    """Operations are recorded with the lines of the program that called them, from now on."""
    global _locations
    if enable:
        _XLAC.record_locations()
    _locations = enable


def _ir_debug() -> bool:
    return _locations


def _forget_pending(device: str = "") -> None:
    """2.9 leaves the tensors that wait without values. Here they keep them, computed when read."""


_LINE = re.compile(r"%(\d+) = (.*?) (\w+::\w+)\((.*?)\)")


def _graphviz(tensors: Sequence[torch.Tensor]) -> str:
    """The pending graph as a directed graph for Graphviz: operands point at what reads them."""
    nodes, edges = [], []
    for line in _XLAC.tensors_ir_text(list(tensors)).splitlines():
        if found := _LINE.search(line):
            number, shape, operator, operands = found.groups()
            root = re.search(r"ROOT=(\d+)", line)
            label = rf"{operator}\n{shape}" + (rf"\nROOT={root[1]}" if root else "")
            nodes.append(f'  node{number} [label="{label}"]')
            edges += [f"  node{read} -> node{number}" for read in re.findall(r"%(\d+)", operands)]
    return "\n".join(["digraph G {", *nodes, *edges, "}", ""])


def _hlo_proto(tensors: Sequence[torch.Tensor]) -> bytes:
    from torch_xla._internal.stablehlo_bytecode import hlo_module

    module = hlo_module(_XLAC.tensors_stablehlo_text(list(tensors)))
    if module is None:
        raise RuntimeError(
            "_get_xla_tensors_hlo_proto needs jaxlib, which converts StableHLO to HLO: pip install "
            "jaxlib; _get_stablehlo gives the graph as StableHLO without it"
        )
    proto: bytes = module.as_serialized_hlo_module_proto()
    return proto


def _run_stablehlo(program: "bytes | str", inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    from torch_xla.core.xla_builder import computation_from_module_proto, xla_computation_as_func

    return xla_computation_as_func(computation_from_module_proto("main", program))(inputs)


def _to_cpu(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    _XLAC.sync_tensors([tensor for tensor in tensors if is_xla_tensor(tensor)])
    return [tensor.detach().cpu().requires_grad_(tensor.requires_grad) for tensor in tensors]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _value_id(tensor: torch.Tensor) -> str:
    return str(_storage(tensor))


def _placeholder(shape: Any) -> torch.Tensor:
    from torch_xla.core._hlo_shape import TORCH_TYPES, Shape
    from torch_xla.core.xla_builder import create_placeholder_tensor

    given = shape if isinstance(shape, Shape) else Shape(shape)
    return create_placeholder_tensor(given.sizes, TORCH_TYPES[given.dtype])


def _barrier(tensors: Sequence[torch.Tensor]) -> None:
    from torch_xla.core._barrier import optimization_barrier_

    optimization_barrier_(tensors)


def _mark(tensor: torch.Tensor, info: str) -> torch.Tensor:
    """A mark of a composite, of which `info` is the description as JSON."""
    import json

    from torch_xla.experimental.xla_marker import mark_tensor

    about = json.loads(info)
    names = ("name", "pos", "id", "is_input", "attr")
    return mark_tensor(tensor, *(about.get(name) for name in names))


def _on_ready(tensor: torch.Tensor, callback: Callable[[], Any]) -> None:
    from torch_xla.experimental.callback import on_ready_callback

    on_ready_callback(tensor, lambda _: callback())


def _generator_state(device: str = "") -> torch.Tensor:
    return _XLAC.rng_state_tensor(device_index(device or None))


def _no_dynamic_sizes(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        "programs have static shapes: compute with a mask, or export with torch.export's dynamic "
        "shapes (torch_xla.stablehlo), where sizes may vary"
    )


NAMES: dict[str, Any] = {
    "_clear_pending_irs": _forget_pending,
    "_from_dlpack": dlpack.from_dlpack,
    "_get_allow_execution": _is_running_allowed,
    "_get_base_seed_as_tensor": _generator_state,
    "_get_ir_debug": _ir_debug,
    "_get_xla_tensors_dot": _graphviz,
    "_get_xla_tensors_hlo_proto": _hlo_proto,
    "_on_ready_callback": _on_ready,
    "_run_stablehlo": _run_stablehlo,
    "_set_allow_execution": _set_running_allowed,
    "_set_ir_debug": _set_ir_debug,
    "_to_dlpack": dlpack.to_dlpack,
    "_unique_id_for_ir_and_data": _value_id,
    "_xla_create_placeholder_tensor": _placeholder,
    "_xla_dynamic_expand": _no_dynamic_sizes,
    "_xla_dynamic_view": _no_dynamic_sizes,
    "_xla_get_cpu_tensors": _to_cpu,
    "_xla_get_tensor_view_alias_id": _storage,
    "_xla_mark_dynamic": _no_dynamic_sizes,
    "_xla_mark_tensor": _mark,
    "_xla_optimization_barrier_": _barrier,
    **{key: value for name in _settings for key, value in _setting(name).items()},
}
