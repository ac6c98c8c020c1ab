"""Collectives as operators. On the device they are recorded as any other operator, and the program
that they are part of calls `exchange` on its own memory.

All members must come to their exchanges in the same order, while a program orders its operations
as it likes. So each exchange takes the number of those before it, a tensor on the device, and gives
the next number: none begins before the one before it has ended, in one program and from program to
program.
"""

import atexit
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._internal import exchange, transfer

_library: Any = torch.library.Library("torch_xla", "FRAGMENT")  # type: ignore[no-untyped-call]

_recorded: torch.Tensor | None = None  # how many exchanges, on the device
_made = 0


_failure = "something else failed in the program that made it"


def _in_turn(
    number: torch.Tensor, exchanged: Callable[..., list[torch.Tensor]], *given: Any
) -> list[torch.Tensor]:
    """Exchange number `number`, once: programs that fail are run again, in part."""
    global _made, _failure
    if number.item() != _made:
        raise RuntimeError(f"an exchange between processes cannot be repeated by one: {_failure}")
    _made += 1
    try:
        return [*exchanged(*given), number + 1]
    except RuntimeError as error:
        _failure = str(error)
        raise


def _like(tensors: Sequence[torch.Tensor], *_: Any) -> list[torch.Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in tensors]


def _stacked(tensors: Sequence[torch.Tensor], count: int, group: str) -> list[torch.Tensor]:
    return [tensor.new_empty(count, *tensor.shape) for tensor in tensors]


def _define(
    exchanged: Callable[..., list[torch.Tensor]],
    rest: str,
    like: Callable[..., list[torch.Tensor]] = _like,
) -> Callable[..., list[torch.Tensor]]:
    """`exchanged(tensors, ...)` for tensors of any device."""
    name = f"exchange_{exchanged.__name__}"
    _library.define(f"{name}(Tensor[] tensors, Tensor number, {rest}) -> Tensor[]")

    def kernel(
        tensors: list[torch.Tensor], number: torch.Tensor, *given: Any
    ) -> list[torch.Tensor]:
        return _in_turn(number, exchanged, tensors, *given)

    def shapes(
        tensors: list[torch.Tensor], number: torch.Tensor, *given: Any
    ) -> list[torch.Tensor]:
        return [*like(tensors, *given), torch.empty_like(number)]

    _library.impl(name, kernel, "CPU")
    _library.impl(name, shapes, "Meta")
    operator = getattr(torch.ops.torch_xla, name)

    def call(tensors: Sequence[torch.Tensor], *given: Any) -> list[torch.Tensor]:
        device = next((t.device for t in tensors if transfer.is_xla_tensor(t)), None)
        if device is None or _is_due(tensors):
            settle()
            results = exchanged([tensor.detach().cpu() for tensor in tensors], *given)
            return _each_where(tensors, results)
        number = _number(device)
        with torch.no_grad():
            moved = [tensor.detach().to(device) for tensor in tensors]
            *results, following = operator(moved, number.to(device), *given)
            number.copy_(following)
            return _each_where(tensors, results)

    return call


def _each_where(
    tensors: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Each result on the device of the tensor it is for."""
    return [
        result.to(tensor.device)
        for result, tensor in zip(results, tensors[: len(results)], strict=True)
    ]


def _number(device: torch.device) -> torch.Tensor:
    global _recorded
    if _recorded is None:
        # It outlives the trace that this thread may be in.
        with ThreadPoolExecutor(1) as another:
            _recorded = another.submit(lambda: torch.tensor(_made).to(device)).result()
        atexit.register(_finish)
    return _recorded


def _is_due(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether to exchange values at once that a compiled step with full_graph=True may read: they
    are there. DistributedDataParallel agrees on its buckets so in the second step's forward."""
    known = [tensor for tensor in tensors if transfer.is_xla_tensor(tensor)]
    known += [] if _recorded is None else [_recorded]
    return _XLAC.running_is_forbidden() and all(
        _XLAC.value_state(tensor) == "there" for tensor in known
    )


def settle() -> None:
    """Makes the exchanges that are pending: whoever exchanges without an operator is next."""
    if _recorded is not None:
        _recorded.item()


def _finish() -> None:
    with contextlib.suppress(RuntimeError):  # nobody is left to read what would raise
        settle()


def _nothing(*_: Any) -> list[torch.Tensor]:
    return []


all_reduce = _define(exchange.all_reduce, "str reduce_type, str group")
all_gather = _define(exchange.all_gather, "int count, str group", _stacked)
all_to_all = _define(exchange.all_to_all, "str group")
broadcast = _define(exchange.broadcast, "int root, str group")
permute = _define(exchange.permute, "int[] pairs, str group")
send = _define(exchange.send, "int channel, str group", _nothing)
receive = _define(exchange.receive, "int channel, str group")
