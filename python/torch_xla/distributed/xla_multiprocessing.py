"""Starts training functions: in this process, or in several that exchange data.

A process drives all its devices. On the CPU platform any number of processes can run, as many as
CPU_NUM_DEVICES says unless told otherwise; elsewhere each must be given a device of its own.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.multiprocessing

from torch_xla import runtime
from torch_xla._internal import plugins, world
from torch_xla.utils.utils import get_free_tcp_ports

_T = TypeVar("_T")

# Which devices a process sees, by platform.
_VISIBLE = {"CUDA": "CUDA_VISIBLE_DEVICES", "ROCM": "HIP_VISIBLE_DEVICES"}


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Runs `fn(0, *args)` in this process, or `fn(ordinal, *args)` in `nprocs` processes. None is
    one; on the CPU it is one for each of CPU_NUM_DEVICES, but for SPMD mode, where one drives all.

    The arguments are those of torch.multiprocessing.spawn, which is called for several processes:
    what one of them raises ends the others and is raised here. Under torchrun, whose processes are
    there already, runs `fn(local ordinal, *args)` in this one.
    """
    if world.size() > 1:
        return fn(world.local_rank(), *args)
    count = process_count() if nprocs is None else nprocs
    if count == 1:
        # Where torch.distributed's "env://" looks for the others.
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", str(get_free_tcp_ports()[0]))
        return fn(0, *args)
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"nprocs must be a number of processes or None, got {nprocs!r}")
    _check_platform()
    port = get_free_tcp_ports()[0]
    start: Any = torch.multiprocessing.start_processes  # type: ignore[attr-defined]
    return start(
        _run if nprocs else _run_on_one_device,
        (count, port, fn, args),
        nprocs=count,
        join=join,
        daemon=daemon,
        start_method=start_method,
    )


def process_count() -> int:
    """How many processes there are for the devices of this machine."""
    if plugins.device_type() != "CPU" or runtime.is_spmd():
        return 1
    return int(os.environ.get("CPU_NUM_DEVICES") or 1)


def _check_platform() -> None:
    kind = plugins.device_type()
    if kind not in ("CPU", *_VISIBLE, *plugins.registered):
        raise RuntimeError(
            f"xmp.spawn cannot divide the devices of {kind} among processes: use one process and "
            "SPMD (torch_xla.runtime.use_spmd), or register_plugin a DevicePlugin with "
            "configure_multiprocess"
        )


def _run(ordinal: int, count: int, port: int, fn: Callable[..., Any], args: Any) -> None:
    """The body of a process that was started."""
    kind = plugins.device_type()
    ranks = {"RANK": ordinal, "LOCAL_RANK": ordinal, "PJRT_LOCAL_PROCESS_RANK": ordinal}
    sizes = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "PJRT_LOCAL_PROCESS_COUNT": count}
    os.environ |= {name: str(value) for name, value in (ranks | sizes).items()}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), world.SPAWNED: "1"}
    if kind in plugins.registered:
        plugins.registered[kind].configure_multiprocess(ordinal, count)
    elif kind in _VISIBLE:
        os.environ.setdefault(_VISIBLE[kind], str(ordinal))
    fn(ordinal, *args)


def _run_on_one_device(ordinal: int, *rest: Any) -> None:
    os.environ["CPU_NUM_DEVICES"] = "1"
    _run(ordinal, *rest)


class MpModelWrapper:
    """Holds a model that several processes move to their devices, one after the other."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._lock = torch.multiprocessing.get_context().Lock()

    def to(self, device: "torch.device | str") -> torch.nn.Module:
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one process at a time."""

    def __init__(self) -> None:
        self._lock = torch.multiprocessing.get_context().Lock()

    def run(self, fn: Callable[[], _T]) -> _T:
        with self._lock:
            return fn()


def create_optimized_replica_groups() -> list[list[int]] | None:
    """An order of the members that suits the links between their devices; None for any. Members
    exchange through the hosts' memory, where no order is better than another."""
    return None
