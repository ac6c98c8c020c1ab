"""`torch.distributed`'s operators for tensors of the device in a group that has no backend for it,
which is gloo: they run with copies on the host, as gloo does for CUDA.

What writes tensors waits for them here; what only sends returns at once.
"""

from typing import Any

import torch
from torch.utils._pytree import tree_map

from torch_xla._internal.devices import type_name

_library: list[Any] = []
_c10d: Any = getattr(torch._C, "_distributed_c10d", None)


def install() -> None:
    if not torch.distributed.is_available() or _library:
        return
    library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("c10d::"):
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU"):
            operator = getattr(torch.ops.c10d, name.removeprefix("c10d::")).default
            library.impl(name, _on_host(operator), "XLA")
    _library.append(library)


def _on_host(operator: Any) -> Any:
    schema = operator._schema
    writes = schema.name.endswith("_")
    written = [writes and not argument.name.startswith("input") for argument in schema.arguments]

    def run(*given: Any) -> Any:
        # Only those who call it load what makes collectives part of programs.
        from torch_xla._internal import collective_ops

        collective_ops.settle()
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []

        def copy(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.device.type != type_name:
                return value
            copies.append((value, value.detach().to("cpu", copy=True)))
            return copies[-1][1]

        arguments, results = [], []
        for value, is_written in zip(given, written, strict=False):  # without those by default
            before = len(copies)
            arguments.append(tree_map(copy, value))
            results += copies[before:] if is_written else []
        returned = operator(*arguments)
        if not results:
            return returned
        work = returned[-1] if isinstance(returned, tuple) else returned
        _c10d.Work.unbox(work).wait()  # once: gloo's received work would wait for the next message
        with torch.no_grad():
            for tensor, value in results:
                tensor.copy_(value)
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result([tensor for tensor, _ in results])
        done = _c10d._create_work_from_future(future).boxed()
        return (given[0], done) if isinstance(returned, tuple) else done

    return run
