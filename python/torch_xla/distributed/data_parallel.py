"""One model on several devices of a process, a thread for each."""

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import torch_xla
from torch_xla.distributed.parallel_loader import ParallelLoader

_Device = torch.device | str


class Context:
    """Where a thread keeps what lasts longer than one pass: attributes of this object."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def getattr_or(self, name: str, defval: Any) -> Any:
        """The attribute; if it is not there, it is set to `defval`, or to what `defval()` is."""
        if getattr(self, name, None) is None:
            setattr(self, name, defval() if callable(defval) else defval)
        return getattr(self, name)


class ThreadResult:
    """What a thread returned or raised."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None


class DataParallel:
    """A copy of `network` (a module, or a function that makes one) on each device.

    `device_ids`: the devices, by default all; an empty list leaves the module where it is.
    """

    def __init__(
        self,
        network: nn.Module | Callable[[], nn.Module],
        device_ids: Sequence[_Device] | None = None,
        **kwargs: Any,
    ) -> None:
        module = network if isinstance(network, nn.Module) else network()
        devices = torch_xla.devices() if device_ids is None else [*map(torch.device, device_ids)]
        self._loader_options = kwargs
        self._on_device = bool(devices)
        if devices:
            self._models = [copy.deepcopy(module).to(device) for device in devices]
        else:
            self._models = [module]
            devices = [next((p.device for p in module.parameters()), torch.device("cpu"))]
        self._devices = devices
        self._contexts = [Context(device) for device in devices]

    @property
    def devices(self) -> list[str]:
        return [str(device) for device in self._devices]

    @property
    def models(self) -> list[nn.Module]:
        return self._models

    def __call__(
        self, loop_fn: Callable[..., Any], loader: Any, batchdim: int = 0, **kwargs: Any
    ) -> list[Any]:
        """Calls `loop_fn(model, device_loader, device, context)` for each device, in a thread of
        its own; the batches of `loader` are dealt to them in turn. Returns what they return, and
        raises what the first one that failed raised."""
        if not self._on_device:
            model, device, context = self._models[0], self._devices[0], self._contexts[0]
            return [loop_fn(model, loader, device, context, **kwargs)]
        parallel = ParallelLoader(loader, self._devices, batchdim, **self._loader_options)
        results = [ThreadResult() for _ in self._devices]
        threads = []
        for model, device, context, result in zip(
            self._models, self._devices, self._contexts, results, strict=True
        ):
            batches = parallel.per_device_loader(device)
            call = (loop_fn, (model, batches, device, context), kwargs, result, parallel)
            threads.append(threading.Thread(target=_run, args=call, name=f"torch_xla-{device}"))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        parallel.close()
        for result in results:
            if result.error is not None:
                raise result.error
        return [result.result for result in results]


def _run(
    loop_fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: ThreadResult,
    loader: ParallelLoader,
) -> None:
    try:
        result.result = loop_fn(*args, **kwargs)
    except BaseException as error:
        result.error = error
        loader.close()  # the others come to their end
