"""What runs where: device type, devices, processes and the program cache.

Ordinals number the processes that exchange data (torch_xla/_internal/world.py); a process that is
alone has ordinal 0. In SPMD mode (`use_spmd`) programs run on all devices as one.
"""

import os
import socket
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from torch_xla import _XLAC
from torch_xla._internal import plugins, world
from torch_xla._internal.devices import device_index, existing_device

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


def set_device_type(pjrt_device: str) -> None:
    """Chooses the device type ("CPU", "CUDA", "TPU"), before the client starts."""
    if _XLAC._xla_runtime_is_initialized() and pjrt_device.upper() != device_type():
        raise RuntimeError(
            f"cannot change the device type to {pjrt_device}: the client runs on {device_type()}. "
            "Call set_device_type before the first use of a device."
        )
    os.environ["PJRT_DEVICE"] = pjrt_device


def device_type() -> str:
    """The device type: "CPU", "CUDA", "TPU", ... Does not start the client."""
    return plugins.device_type()


def using_pjrt() -> bool:
    return True


def xla_device(n: int | None = None) -> torch.device:
    """The device `xla:n`, which becomes the current one; or the current one."""
    device = existing_device(n)
    if n is not None:
        _XLAC.set_current_device(device.index)
    return device


def world_size() -> int:
    """Processes that take part in collectives."""
    return world.size()


def global_ordinal() -> int:
    """The number of this process among them."""
    return world.rank()


def local_ordinal() -> int:
    """Its number among those of this host."""
    return world.local_rank()


def process_index() -> int:
    return _XLAC.process_index()


def process_count() -> int:
    return _XLAC.process_count()


def init_processes(store: "Store", process_index: int, process_count: int) -> None:
    """Makes the devices of several processes the devices of one program, before the first use of a
    device. The plugin's clients find each other through `store`, a torch.distributed one such as
    TCPStore. A plugin that does not connect processes raises RuntimeError when it starts."""
    prefix = "torch_xla/"

    def get(key: str, timeout_ms: int) -> bytes:
        store.wait([prefix + key], timedelta(milliseconds=timeout_ms))
        return store.get(prefix + key)

    def try_get(key: str) -> bytes | None:
        return store.get(prefix + key) if store.check([prefix + key]) else None

    def put(key: str, value: bytes) -> None:
        store.set(prefix + key, value)  # type: ignore[arg-type]

    _XLAC.init_processes(process_index, process_count, get, try_get, put)


def local_process_count() -> int:
    """Processes of this host."""
    return world.local_size()


def host_index() -> int:
    """The number of this host among those of the processes."""
    return world.rank() // world.local_size()


def addressable_device_count() -> int:
    """Devices that one process sees as its own replica's."""
    return 1


def local_device_count() -> int:
    return local_process_count() * addressable_device_count()


def global_device_count() -> int:
    return world_size()


def addressable_runtime_device_count() -> int:
    """Devices of this process."""
    return _XLAC.device_count()


def global_runtime_device_count() -> int:
    """Devices of all processes."""
    return _XLAC.global_device_count()


def global_runtime_device_attributes() -> list[dict[str, Any]]:
    """What the plugin says of each device."""
    return [runtime_device_attributes(f"xla:{index}") for index in range(_XLAC.device_count())]


def runtime_device_attributes(device: str) -> dict[str, Any]:
    """What the plugin says of one device."""
    index = device_index(device)
    description = _XLAC.device_description(index)
    return {"name": f"{device_type()}:{index}", "description": description}


def use_spmd(auto: bool = False) -> None:
    """From now on each program runs on all devices, partitioned as tensors are marked
    (torch_xla.distributed.spmd), and "xla:0" stands for all of them. Tensors that exist are
    replicated. As XLA_USE_SPMD=1, which it sets for child processes; there is no way back.

    `auto`: plugins have no automatic partitioner. Without marks all is replicated, with a warning.
    """
    if auto:
        warnings.warn(
            "use_spmd(auto=True): plugins do not offer XLA's automatic partitioner. Tensors are "
            "sharded as torch_xla.distributed.spmd.mark_sharding says, all others are replicated",
            stacklevel=2,
        )
    if _XLAC.current_device() != 0:
        raise RuntimeError(
            f"use_spmd: the current device is xla:{_XLAC.current_device()}; in SPMD mode there is "
            "only xla:0, which stands for all devices"
        )
    _XLAC.enable_spmd()
    os.environ["XLA_USE_SPMD"] = "1"


def is_spmd() -> bool:
    return bool(_XLAC.spmd_enabled())


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keeps compiled programs in the folder `path`; with `readonly`, only reads them.

    A program is machine code: the folder must belong to this user and be writable by nobody else.
    """
    _XLAC.initialize_cache(os.path.expanduser(path), readonly)


def get_num_cached_compilation_graph() -> int:
    """Compiled programs in memory. Graphs that are still interpreted have none yet."""
    return _XLAC.live_program_count()


def is_bf16_supported() -> bool:
    """Whether the device computes with torch.bfloat16."""
    try:
        one = torch.ones(1, dtype=torch.bfloat16, device=existing_device(None))
        return bool((one + one).item() == 2)
    except RuntimeError:
        return False


def get_master_ip() -> str:
    """The address of process 0: MASTER_ADDR, as torchrun sets it, or this host's."""
    address = os.environ.get("MASTER_ADDR", "localhost" if world.size() == 1 else "")
    if not address:
        raise RuntimeError(
            "get_master_ip: MASTER_ADDR is not set; start the processes with torchrun, or set it"
        )
    return socket.gethostbyname(address)
