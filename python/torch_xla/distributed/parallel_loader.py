"""Loaders that upload batches in the background and end the step at each batch."""

import atexit
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch

import torch_xla
from torch_xla import _XLAC, runtime
from torch_xla._internal import transfer
from torch_xla.utils.utils import for_each_instance

_Device = torch.device | str


class _Failure:
    """What the loading thread raised, on its way to the reader."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Channel:
    """A bounded queue that can be closed from both ends. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._items: deque[Any] = deque()
        self._capacity = capacity
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item: Any) -> bool:
        """Waits for room. False if the channel is closed, which drops the item."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._capacity)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def get(self) -> Any:
        """Waits for an item; raises StopIteration when the channel is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._items))
            if not self._items:
                raise StopIteration
            self._changed.notify_all()
            return self._items.popleft()

    def close(self, drop: bool = False) -> None:
        with self._changed:
            self._closed = True
            if drop:
                self._items.clear()
            self._changed.notify_all()


class PerDeviceQueue:
    """What has been sent to one device and not been taken yet."""

    def __init__(
        self, device: _Device, loader_prefetch_size: int, device_prefetch_size: int
    ) -> None:
        self.device = torch.device(device)
        self.queue = _Channel(device_prefetch_size)


class ParallelLoader:
    """Reads `cpu_loader` in a thread and deals its batches to the devices in turn."""

    def __init__(
        self,
        cpu_loader: Any,
        devices: Sequence[_Device],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
    ) -> None:
        if device_prefetch_size < 1 or batches_per_execution < 1:
            raise ValueError(
                "device_prefetch_size and batches_per_execution must be at least 1, got "
                f"{device_prefetch_size} and {batches_per_execution}"
            )
        self._cpu_loader = cpu_loader
        self._batches_per_execution = batches_per_execution
        queues = [PerDeviceQueue(d, loader_prefetch_size, device_prefetch_size) for d in devices]
        self._channels = {queue.device: queue.queue for queue in queues}
        sender = _Sender(input_sharding)
        # Made by the caller, which draws the loader's seed in the order of the user's program.
        batches = iter(cpu_loader)
        self._thread = threading.Thread(
            target=_load,
            args=(batches, self._channels, sender),
            name="torch_xla-loader",
            daemon=True,
        )
        _running[self._thread] = self._channels
        self._thread.start()

    @property
    def batches_per_execution(self) -> int:
        return self._batches_per_execution

    def per_device_loader(self, device: _Device) -> "PerDeviceLoader":
        return PerDeviceLoader(self, torch.device(device))

    def per_device_samples(self) -> int:
        return len(self._cpu_loader) // len(self._channels)

    def next_item(self, device: _Device) -> Any:
        """The next batch of the device; raises StopIteration after the last."""
        item = self._channels[torch.device(device)].get()
        if isinstance(item, _Failure):
            self.close()
            raise item.error
        return item

    def close(self) -> None:
        """Stops reading and drops what was read ahead."""
        for channel in self._channels.values():
            channel.close(drop=True)


# The channels of each thread that reads.
_running: dict[threading.Thread, dict[torch.device, _Channel]] = {}


@atexit.register
def _stop_reading() -> None:
    """A thread that still worked on the device while the interpreter ends would abort the process,
    or never let it end."""
    for channels in list(_running.values()):
        for channel in channels.values():
            channel.close(drop=True)
    for thread in list(_running):
        thread.join(timeout=10)  # longer only where the user's own loader takes longer


class InputShardingError(KeyError, ValueError):
    """The keys of `input_sharding` and of a batch differ. A KeyError, as PyTorch/XLA raises."""

    __str__ = ValueError.__str__


class _Sender:
    """Moves batches to the device, in SPMD mode sharded as told: by one ShardingSpec for all
    tensors of its rank, or by a dict of them for batches that are dicts."""

    def __init__(self, input_sharding: Any) -> None:
        if input_sharding is not None and not runtime.is_spmd():
            raise ValueError("input_sharding needs SPMD mode: call torch_xla.runtime.use_spmd()")
        self._sharding = input_sharding

    def __call__(self, batch: Any, device: torch.device) -> Any:
        moved = transfer.to_device(batch, device)
        if not runtime.is_spmd():
            return moved
        if isinstance(self._sharding, dict):
            self._mark_by_name(moved)
        elif self._sharding is not None:
            for_each_instance(moved, transfer.is_xla_tensor, lambda t: _mark(t, self._sharding))
        # Sent now, in the loading thread, not by the first program that reads it.
        for_each_instance(moved, transfer.is_xla_tensor, _XLAC.send)
        return moved

    def _mark_by_name(self, batch: Any) -> None:
        if not isinstance(batch, dict) or set(self._sharding) != set(batch):
            names = sorted(batch) if isinstance(batch, dict) else type(batch).__name__
            raise InputShardingError(
                f"input_sharding names {sorted(self._sharding)}, the batch has {names}: they must "
                "agree (None for what is not sharded)"
            )
        for name, spec in self._sharding.items():
            if spec is not None:
                spec.apply(batch[name])


def _mark(tensor: torch.Tensor, spec: Any) -> None:
    if spec.can_apply(tensor):
        spec.apply(tensor)


def _load(batches: Iterator[Any], channels: dict[torch.device, _Channel], sender: _Sender) -> None:
    """The body of the loading thread. It holds no loader, so that a loader can be collected."""
    ends = list(channels.items())
    position = 0
    try:
        for batch in batches:
            device, channel = ends[position % len(ends)]
            if not channel.put(sender(batch, device)):
                return
            position += 1
    except BaseException as error:
        ends[position % len(ends)][1].put(_Failure(error))
    finally:
        for channel in channels.values():
            channel.close()
        _running.pop(threading.current_thread(), None)


class PerDeviceLoader:
    """The batches of one device. Ends the step before each."""

    def __init__(self, loader: ParallelLoader, device: torch.device) -> None:
        self._loader = loader
        self._device = device
        self._count = 0

    def __iter__(self) -> "PerDeviceLoader":
        return self

    def __next__(self) -> Any:
        return self.next()

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def next(self) -> Any:
        if self._count % self._loader.batches_per_execution == 0:
            torch_xla.sync()
        self._count += 1
        try:
            return self._loader.next_item(self._device)
        except StopIteration:
            torch_xla.sync()
            raise

    def close(self) -> None:
        self._loader.close()

    def __del__(self) -> None:
        self.close()


class MpDeviceLoader:
    """Yields the batches of `loader` on `device` (None: this process's) and ends the step at each.

    `input_sharding`: how batches are sharded in SPMD mode, a ShardingSpec for all tensors of its
    rank, or a dict of them by key. Attributes it lacks are those of `loader`.
    """

    def __init__(self, loader: Any, device: _Device | None, **kwargs: Any) -> None:
        self._loader = loader
        self._device = torch_xla.device() if device is None else torch.device(device)
        self._parallel_loader_kwargs = kwargs

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # not yet set: being copied or unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        # Accelerate asks its loader "was this the last batch?" while the batch is used, so the
        # loader must not be read ahead.
        if hasattr(self._loader, "end_of_dataloader"):
            return self._read_in_step()
        parallel = ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs)
        return parallel.per_device_loader(self._device)

    def _read_in_step(self) -> Generator[Any, None, None]:
        sender = _Sender(self._parallel_loader_kwargs.get("input_sharding"))
        for batch in self._loader:
            torch_xla.sync()
            yield sender(batch, self._device)
        torch_xla.sync()
