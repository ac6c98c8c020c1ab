"""`torch.distributed` for xla tensors: the backend "xla", registered by importing torch_xla. What
all members do alike is recorded (torch_xla/_internal/collective_ops.py), the rest done at once.

`dist.init_process_group("xla", init_method="xla://")` in processes started by torchrun,
torch_xla.launch or xmp.spawn; other ways of torch.distributed to meet ("env://", a store) work,
too. What is exchanged goes through the hosts' memory, over gloo (torch_xla/_internal/world.py).
"""

import os
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_distributed

from torch_xla import _XLAC, runtime
from torch_xla._internal import collective_ops, world
from torch_xla._internal.transfer import is_xla_tensor

__all__ = ["ProcessGroupXla", "new_xla_process_group"]

_Tensors = Sequence[torch.Tensor]
_REDUCTIONS = {
    "SUM": "sum", "AVG": "sum", "PRODUCT": "mul", "MIN": "min", "MAX": "max",
    "BAND": "and", "BOR": "or", "BXOR": "xor",
}  # fmt: skip
# Its stubs lack some of what it has, and differ between versions.
dist: Any = torch_distributed


def _done(result: Any) -> Any:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    c10d: Any = torch._C._distributed_c10d
    return c10d._create_work_from_future(future)


def _nested(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    return [_nested(part, change) for part in value]


class ProcessGroupXla(dist.ProcessGroup):  # type: ignore[misc]
    """gloo's collectives for tensors on the device: results can be used when they return. The
    processes meet in the first of them: making a group waits for nobody."""

    def __init__(self, prefix_store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._group = world.Gloo(dist.PrefixStore("gloo", prefix_store), rank, size, timeout)
        self._name = ""
        self._key = world.name_group(self._group)

    @property
    def _gloo(self) -> Any:
        return self._group.connected()

    def getBackendName(self) -> str:
        return "xla"

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name

    def _run(self, function: str, written: Any, arguments: Sequence[Any], *rest: Any) -> Any:
        """Calls gloo with copies on the CPU. `written`: nested tensors that get the results, some
        of `arguments`."""
        tensors: list[torch.Tensor] = []
        _nested(arguments, tensors.append)
        on_device = [tensor for tensor in tensors if is_xla_tensor(tensor)]
        if on_device:
            _XLAC.sync_tensors(on_device)
        copies = {id(tensor): _host_copy(tensor) for tensor in tensors}
        host = _nested(arguments, lambda tensor: copies[id(tensor)])
        collective_ops.settle()
        try:
            getattr(self._gloo, function)(*host, *rest).wait()
        except RuntimeError as error:
            raise RuntimeError(
                f"{function} of process {self.rank()} of {self.size()} failed; another process "
                f"ended, or did not come in time: {error}"
            ) from error
        results: list[torch.Tensor] = []
        _nested(written, results.append)
        with torch.no_grad():
            for tensor in results:
                tensor.copy_(copies[id(tensor)])
        return _done(results)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        operation = _operation(opts)
        name = next((name for name in _REDUCTIONS if operation == getattr(dist.ReduceOp, name)), "")
        if not name:
            raise ValueError(f"all_reduce reduces by {', '.join(_REDUCTIONS)}, got {operation}")
        if self.size() == 1:  # runs nothing, inside a compiled step, too
            return _done(given)
        values = collective_ops.all_reduce(given, _REDUCTIONS[name], self._key)
        if name == "AVG":
            values = [value / self.size() for value in values]
        return _written(given, values)

    def allreduce_coalesced(self, tensors: _Tensors, opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def _gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        return collective_ops.all_gather([tensor], self.size(), self._key)[0]

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        for outputs, tensor in zip(output_tensors, input_tensors, strict=True):
            _written(outputs, self._gathered(tensor).unbind())
        return _done(output_tensors)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        return _written([output], [self._gathered(input).view(output.shape)])

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Any:
        for outputs, tensor in zip(output_lists, input_list, strict=True):
            self.allgather([outputs], [tensor])
        return _done(output_lists)

    def allgather_into_tensor_coalesced(
        self, outputs: _Tensors, inputs: _Tensors, opts: Any = None
    ) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._allgather_base(output, tensor)
        return _done(list(outputs))

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if self.size() == 1:
            return _done(given)
        root = 0 if opts is None else opts.rootRank
        return _written(given, collective_ops.broadcast(given, root, self._key))

    def reduce(self, tensors: _Tensors, opts: Any = None) -> Any:
        if self.size() == 1:
            return _done(list(tensors))
        written = tensors if opts is None or opts.rootRank == self.rank() else []
        return self._run("reduce", written, [tensors], *_options(opts))

    def reduce_scatter(self, outputs: Any, input_lists: Any, opts: Any = None) -> Any:
        for output, inputs in zip(outputs, input_lists, strict=True):
            self._reduce_scatter_base(output, torch.stack(list(inputs)), opts)
        return _done(outputs)

    def reduce_scatter_coalesced(self, outputs: Any, input_lists: Any, opts: Any = None) -> Any:
        return self.reduce_scatter(outputs, input_lists, opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: _Tensors, inputs: _Tensors, opts: Any = None
    ) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, tensor, opts)
        return _done(list(outputs))

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        reduced = input.clone()
        options = dist.AllreduceOptions()
        options.reduceOp = _operation(opts)
        self.allreduce([reduced], options)
        with torch.no_grad():
            output.copy_(reduced.reshape(self.size(), *output.shape)[self.rank()])
        return _done([output])

    def alltoall(self, outputs: _Tensors, inputs: _Tensors, opts: Any = None) -> Any:
        collective_ops.settle()
        work = []
        for peer in range(self.size()):
            if peer != self.rank():
                work.append(self._gloo.send([_host_copy(inputs[peer])], peer, 0))
        for peer, output in enumerate(outputs):
            if peer == self.rank():
                output.copy_(inputs[peer])
            else:
                self.recv([output], peer, 0)
        for sent in work:
            sent.wait()
        return _done(list(outputs))

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Any:
        splits = (list(output_split_sizes or ()), list(input_split_sizes or ()))
        if splits == ([], []):
            rows = input.reshape(self.size(), -1)
            (received,) = collective_ops.all_to_all([rows], self._key)
            return _written([output], [received.view(output.shape)])
        return self._run("alltoall_base", output, [output, input], *splits)

    # PyTorch's names since 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def gather(self, output_lists: Any, inputs: _Tensors, opts: Any = None) -> Any:
        return self._run("gather", output_lists, [output_lists, inputs], *_options(opts))

    def scatter(self, outputs: _Tensors, input_lists: Any, opts: Any = None) -> Any:
        return self._run("scatter", outputs, [outputs, input_lists], *_options(opts))

    def send(self, tensors: _Tensors, dst_rank: int, tag: int = 0) -> Any:
        return self._run("send", [], [tensors], dst_rank, tag)

    def recv(self, tensors: _Tensors, src_rank: int, tag: int = 0) -> Any:
        return self._run("recv", tensors, [tensors], src_rank, tag)

    def recv_anysource(self, tensors: _Tensors, tag: int = 0) -> Any:
        return self._run("recv_anysource", tensors, [tensors], tag)

    def barrier(self, opts: Any = None) -> Any:
        collective_ops.settle()
        self._gloo.barrier().wait()
        return _done([])


def _written(tensors: _Tensors, values: _Tensors) -> Any:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
    return _done(list(tensors))


def _host_copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _operation(opts: Any) -> Any:
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


def _options(opts: Any) -> tuple[Any, ...]:
    return () if opts is None else (opts,)


def create(prefix_store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroupXla:
    if runtime.is_spmd():
        raise RuntimeError(
            "the backend 'xla' exchanges data between processes, and in SPMD mode they are one "
            "program: use the backend 'gloo' for what the hosts exchange"
        )
    if dist.group.WORLD is None:  # the default group: these are the world
        world.join(rank, size, prefix_store, timeout)
    return ProcessGroupXla(prefix_store, rank, size, timeout)


def new_xla_process_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    **kwargs: Any,
) -> Any:
    """`torch.distributed.new_group`."""
    given = None if ranks is None else list(ranks)
    return dist.new_group(given, timeout, backend, pg_options, **kwargs)


def meet(url: str, timeout: timedelta = timedelta(seconds=1800), **_: Any) -> Generator[Any]:
    """init_method="xla://": the processes of torchrun, torch_xla.launch or xmp.spawn."""
    os.environ.setdefault("MASTER_ADDR", "localhost")
    if world.size() == 1:
        yield dist.HashStore(), 0, 1
    else:
        yield world.store(), world.rank(), world.size()
