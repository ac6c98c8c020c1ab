"""Names of `torch_xla._XLAC` that tests and tools of 2.9 look into the core with."""

import types
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla import _XLAC, runtime, version
from torch_xla._compat import builder, calls, collectives, devices, donation, graphs, shards
from torch_xla._compat.lowering import LoweringContext
from torch_xla._internal.devices import device_index
from torch_xla.core._hlo_shape import XLA_TYPES
from torch_xla.debug import profiler


def _shape_type(tensor: torch.Tensor) -> str:
    return XLA_TYPES.get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")


def _shape_text(tensor: torch.Tensor) -> str:
    sizes = ",".join(map(str, tensor.shape))
    layout = ",".join(map(str, reversed(range(tensor.dim()))))
    return f"{_shape_type(tensor)}[{sizes}]" + (f"{{{layout}}}" if layout else "")


def _debug_info(tensor: torch.Tensor) -> str:
    """What a tensor is: pending, or there."""
    if tensor.device.type != "xla":
        return f"Not a XLATensor: a tensor of {tensor.device}\n"
    core: Any = _XLAC  # with the names of this module
    state = _XLAC.value_state(tensor)
    shape = _shape_text(tensor)
    pending = state == "pending"
    operation = _XLAC.tensors_ir_text([tensor]).splitlines()[-2].strip() if pending else "None"
    handle = {"there": f"{tensor.untyped_storage().data_ptr():#x}", "lost": "Deleted"}
    lines = [
        f"TensorID: {core._xla_get_tensor_id(tensor)}",
        f"Device: {runtime.device_type()}:{device_index(tensor.device)}",
        f"XLA Shape: {shape}",
        f"ShardingSpec: {_XLAC._get_xla_sharding_spec(tensor) or 'None'}",
        f"IR: {operation}",
    ]
    if pending:
        lines.append("XLAData: None")
    else:
        spec = f"Data Shape: {shape}\n    Data Handle: {handle.get(state, 'None')}"
        lines.append(f"XLAData:\n    Data Device: {lines[1][8:]}\n    {spec}")
    return "XLATensor {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _tensors_report(nodes_threshold: int, device: str = "") -> str:
    """The graph that is pending on a device."""
    index = device_index(device or None)
    if _XLAC.pending_node_count(index) < nodes_threshold:
        return ""
    return _XLAC.pending_stablehlo_text(index)


def _set_precision(precision: str) -> None:
    _XLAC.set_precision(precision.upper())


def _get_precision() -> str:
    return _XLAC.precision().lower()


def _fallback_ops() -> list[str]:
    return [name for name in _XLAC.counter_names() if name.startswith("aten::")]


def _git_revs() -> dict[str, str]:
    return {"torch": torch.version.git_version or "", "xla": version.__version__}


def _dimension_size(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.tensor(tensor.shape[dim], dtype=torch.int32, device=tensor.device)


def _handles(tensors: Sequence[torch.Tensor]) -> list[int]:
    """What tells the tensors' values on the device apart."""
    for tensor in tensors:
        if _XLAC.value_state(tensor) == "lost":
            raise RuntimeError("the tensor's value is deleted: its memory was given to a result")
    return [tensor.untyped_storage().data_ptr() for tensor in tensors]


def _replace(tensor: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.set_(source)  # type: ignore[call-overload]  # takes tensors, too


def _need_materialization(tensors: Sequence[torch.Tensor]) -> list[bool]:
    return [
        tensor.device.type == "xla" and _XLAC.value_state(tensor) == "pending" for tensor in tensors
    ]


def _all_devices() -> list[str]:
    return [f"{runtime.device_type()}:{index}" for index in range(_XLAC.device_count())]


NAMES: dict[str, Any] = {
    "_check_tensor_need_materialization": _need_materialization,
    "_get_executed_fallback_ops": _fallback_ops,
    "_get_git_revs": _git_revs,
    "_get_graph_hash": _XLAC.pending_hash,
    "_get_tensors_handle": _handles,
    "_get_xla_tensor_debug_info": _debug_info,
    "_get_xla_tensor_dimension_size": _dimension_size,
    "_get_xla_tensor_shape_type": _shape_type,
    "_init_computation_client": _XLAC.device_count,
    "_init_xla_lazy_backend": _XLAC.device_count_hint,
    "_replace_xla_tensor": _replace,
    "_xla_get_all_devices": _all_devices,
    "_xla_get_mat_mul_precision": _get_precision,
    "_xla_increment_counter": _XLAC.increment_counter,
    "_xla_runtime_is_initialized": _XLAC.client_started,
    "_xla_set_mat_mul_precision": _set_precision,
    "_xla_tensors_report": _tensors_report,
    "lowering": types.SimpleNamespace(LoweringContext=LoweringContext),
    "profiler": types.SimpleNamespace(
        TraceMe=profiler.Trace,
        scope_pusher=profiler.Trace,
        start_server=profiler.start_server,
        trace=profiler.trace,
    ),
    **builder.NAMES,
    **calls.NAMES,
    **collectives.NAMES,
    **devices.NAMES,
    **donation.NAMES,
    **graphs.NAMES,
    **shards.NAMES,
}
