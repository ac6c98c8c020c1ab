"""Devices, steps, random state, memory and saving, under the names of PyTorch/XLA."""

import contextlib
import functools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO, TypedDict

import torch

import torch_xla
from torch_xla import _XLAC, runtime
from torch_xla._internal import rng as device_rng
from torch_xla._internal import step_closures, transfer
from torch_xla._internal.devices import device_index
from torch_xla.core._arena import ToXlaTensorArena, check_view_sharing
from torch_xla.core._barrier import optimization_barrier_
from torch_xla.core._buckets import (
    CoalescingBuckets,
    all_gather_bucketized,
    all_reduce_bucketized_gradients,
    reduce_scatter_bucketized,
)
from torch_xla.core._collectives import (
    REDUCE_AND,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_MUL,
    REDUCE_OR,
    REDUCE_SUM,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast_master_param,
    collective_broadcast,
    collective_permute,
    do_on_ordinals,
    mesh_reduce,
    recv,
    reduce_scatter,
    rendezvous,
    send,
    xla_rendezvous,
)
from torch_xla.utils.utils import for_each_instance

__all__ = [
    "REDUCE_AND",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "REDUCE_MUL",
    "REDUCE_OR",
    "REDUCE_SUM",
    "CoalescingBuckets",
    "DeviceContext",
    "MemoryInfo",
    "RateTracker",
    "ToXlaTensorArena",
    "add_step_closure",
    "all_gather",
    "all_gather_bucketized",
    "all_reduce",
    "all_reduce_bucketized_gradients",
    "all_to_all",
    "broadcast_master_param",
    "check_view_sharing",
    "collective_broadcast",
    "collective_permute",
    "do_on_ordinals",
    "fork_rng",
    "get_local_ordinal",
    "get_memory_info",
    "get_ordinal",
    "get_rng_state",
    "get_stablehlo",
    "get_stablehlo_bytecode",
    "get_xla_supported_devices",
    "is_master_ordinal",
    "is_xla_tensor",
    "mark_step",
    "master_print",
    "mesh_reduce",
    "optimization_barrier_",
    "optimizer_step",
    "parse_xla_device",
    "recv",
    "reduce_gradients",
    "reduce_scatter",
    "reduce_scatter_bucketized",
    "rendezvous",
    "run_step_closures",
    "save",
    "send",
    "send_cpu_data_to_device",
    "set_replication",
    "set_rng_state",
    "unlazy",
    "wait_device_ops",
    "xla_device",
    "xla_device_hw",
    "xla_device_kind",
    "xla_real_devices",
    "xla_rendezvous",
    "xla_replication_devices",
    "xrt_world_size",
]

_DeviceLike = torch.device | str | int | None


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    return transfer.is_xla_tensor(tensor)


# Devices


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The device `xla:n`, which becomes the current one; or the current one."""
    if devkind is not None:
        _warn_devkind()
    return runtime.xla_device(n)


def get_xla_supported_devices(
    devkind: str | None = None, max_devices: int | None = None
) -> list[str]:
    """The devices of this process: `["xla:0"]`."""
    if devkind is not None:
        _warn_devkind()
    return [f"xla:{index}" for index in range(_XLAC.device_count_hint())][:max_devices]


def _warn_devkind() -> None:
    warnings.warn("`devkind` has no effect: choose with PJRT_DEVICE", stacklevel=3)


def parse_xla_device(device: str) -> tuple[str, int]:
    """`("xla", 1)` for "xla:1", `("TPU", 3)` for "TPU:3"."""
    kind, separator, index = str(device).rpartition(":")
    if not separator or not index.isdigit():
        raise ValueError(f"expected a device with an index such as 'xla:0', got '{device}'")
    return kind, int(index)


def xla_real_devices(devices: Sequence[torch.device | str] | None = None) -> list[str]:
    """The hardware behind devices: `["CPU:0"]`."""
    if devices is None:
        return torch_xla.real_devices()
    return [f"{runtime.device_type()}:{device_index(device)}" for device in devices]


def xla_device_hw(device: torch.device | str) -> str:
    """The hardware behind a device: "CPU", "CUDA", "TPU", ..."""
    parsed = torch.device(device)
    return runtime.device_type() if parsed.type == "xla" else parsed.type.upper()


def xla_device_kind(device: _DeviceLike = None) -> str:
    """What the plugin says of a device."""
    return _XLAC.device_description(device_index(device))


class DeviceContext:
    """A device, by its name."""

    def __init__(self, device: "str | torch.device") -> None:
        self.device = device


def set_replication(device: Any, devices: Any) -> None:
    """No effect: processes that exchange data know each other (torch_xla/_internal/world.py)."""


def xla_replication_devices(local_devices: Sequence[torch.device | str] | None = None) -> list[str]:
    """The hardware behind the devices of all processes: `["CPU:0", "CPU:1"]`."""
    local = xla_real_devices(local_devices)
    if len(local) != _XLAC.device_count_hint():
        raise RuntimeError(
            f"replication is over all devices of a process: it has {_XLAC.device_count_hint()}, "
            f"and {len(local)} were given"
        )
    kind = runtime.device_type()
    return [f"{kind}:{index}" for index in range(len(local) * runtime.world_size())]


# Processes


def xrt_world_size(defval: int = 1) -> int:
    return runtime.world_size()


def get_ordinal(defval: int = 0) -> int:
    return runtime.global_ordinal()


def get_local_ordinal() -> int:
    return runtime.local_ordinal()


def is_master_ordinal(local: bool = True) -> bool:
    return (runtime.local_ordinal() if local else runtime.global_ordinal()) == 0


def master_print(
    *args: Any, fd: TextIO | None = None, local: bool = False, flush: bool = False
) -> None:
    """Prints, in the master only."""
    if is_master_ordinal(local=local):
        print(*args, file=fd or sys.stdout, flush=flush)


# Steps


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Compiles and runs all that is pending, then the step's closures. See torch_xla.sync."""
    torch_xla.sync(wait, reset_scope)


def wait_device_ops(devices: Sequence[torch.device | str] = ()) -> None:
    """Waits until the devices, all by default, have done what was launched."""
    if not devices:
        _XLAC.wait_device_ops()
    for device in devices:
        _XLAC.wait_device_ops(device_index(device))


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Runs what the tensors need, and waits for it."""
    _XLAC.sync_tensors(list(tensors))
    _XLAC.wait_device_ops()


def add_step_closure(
    closure: Callable[..., Any], args: Sequence[Any] = (), run_async: bool = False
) -> None:
    """Calls `closure(*args)` when this step has been launched.

    Reading a tensor in a closure cannot cut the step's graph in two. With `run_async` the closure
    runs in another thread, while the next step is traced.
    """
    step_closures.add(functools.partial(closure, *args), run_async)


def run_step_closures() -> None:
    step_closures.run()


def _fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]


def reduce_gradients(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> None:
    """Averages the gradients over all members."""
    count = runtime.world_size()
    if count == 1:
        return
    gradients = _fetch_gradients(optimizer)
    bucket = int(os.environ.get("ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB", "0"))
    if bucket > 0:
        all_reduce_bucketized_gradients(gradients[::-1], 1.0 / count, groups, pin_layout, bucket)
    else:
        all_reduce(REDUCE_SUM, gradients, 1.0 / count, groups, pin_layout)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: Mapping[str, Any] | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    pin_layout: bool = True,
) -> Any:
    """Reduces the gradients, steps the optimizer and returns its result.

    `barrier` ends the step here; a loop over an MpDeviceLoader ends it at the next batch.
    """
    reduce_gradients(optimizer, groups, pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


# Random numbers and memory


def set_rng_state(seed: int, device: _DeviceLike = None) -> None:
    """Sets the random state of one device, the current one by default."""
    _XLAC.set_rng_state(device_index(device), device_rng.as_int64(seed))


def get_rng_state(device: _DeviceLike = None) -> int:
    """The random state of one device, a signed 64-bit integer."""
    return _XLAC.get_rng_state(device_index(device))


@contextlib.contextmanager
def fork_rng(device: _DeviceLike = None, enabled: bool = True) -> Iterator[None]:
    """Leaves the random state of a device as it was before the block."""
    state = get_rng_state(device) if enabled else 0
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state, device)


class MemoryInfo(TypedDict):
    """What `get_memory_info` returns."""

    bytes_used: int
    bytes_limit: int
    peak_bytes_used: int
    kb_free: int
    kb_total: int


def get_memory_info(device: _DeviceLike = None) -> MemoryInfo:
    """Bytes in use, their peak and limit, and the same in kB as `kb_free` and `kb_total`."""
    stats = _XLAC.memory_stats(device_index(device))
    used, limit = stats["bytes_used"], stats["bytes_limit"]
    return {
        "bytes_used": used,
        "bytes_limit": limit,
        "peak_bytes_used": stats["peak_bytes"],
        "kb_free": max(limit - used, 0) // 1024,
        "kb_total": limit // 1024,
    }


# Data between host and device


def send_cpu_data_to_device(
    datas: Any, device: "torch.device | str", input_sharding: Any = None
) -> Any:
    """Nested data with its CPU tensors on the device. A single tensor comes back as a list.
    `input_sharding`: a ShardingSpec for the tensors of its rank."""
    moved = transfer.to_device([datas] if isinstance(datas, torch.Tensor) else datas, device)
    if input_sharding is not None:
        for_each_instance(moved, is_xla_tensor, _mark_if_it_fits(input_sharding))
    return moved


def _mark_if_it_fits(sharding: Any) -> Callable[[torch.Tensor], None]:
    return lambda tensor: sharding.apply(tensor) if sharding.can_apply(tensor) else None


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    """Nested data with its xla tensors on the CPU, after one run for all of them."""
    return transfer.to_cpu(data) if convert else data


def save(
    data: Any,
    file_or_path: Any,
    master_only: bool = True,
    global_master: bool = False,
) -> None:
    """`torch.save` with all tensors brought to the host in one go."""
    write = not master_only or is_master_ordinal(local=not global_master)
    if write:
        torch.save(_maybe_convert_to_cpu(data), file_or_path)
    rendezvous("torch_xla.core.xla_model.save")


def get_stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """The StableHLO text of the pending graph that computes the tensors, or all that is pending on
    the current device."""
    if tensors is None:
        return _XLAC.pending_stablehlo_text(_XLAC.current_device())
    return _XLAC.tensors_stablehlo_text(list(tensors))


def get_stablehlo_bytecode(tensors: Sequence[torch.Tensor] | None = None) -> bytes:
    """The same as portable bytecode, which needs the converter in the package `jaxlib`."""
    from torch_xla._internal import stablehlo_bytecode

    return stablehlo_bytecode.to_bytecode(get_stablehlo(tensors))


class RateTracker:
    """Samples per second, smoothed by `smooth_factor`, and over the whole run."""

    def __init__(self, smooth_factor: float = 0.4) -> None:
        self._smooth_factor = smooth_factor
        self._start = self._last = time.monotonic()
        self._total = self._since_last = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        self._total += count
        self._since_last += count

    def rate(self) -> float:
        now = time.monotonic()
        current = self._since_last / max(now - self._last, 1e-9)
        self._last, self._since_last = now, 0.0
        if self._rate is None:
            self._rate = current
        else:
            self._rate += (current - self._rate) * (1 - self._smooth_factor)
        return self._rate

    def global_rate(self) -> float:
        return self._total / max(time.monotonic() - self._start, 1e-9)
