"""Collectives between the processes of the world (torch_xla/_internal/world.py). `xla_model`
publishes them.

On the device a collective is an operator of the graph (torch_xla/_internal/collective_ops.py). In a
world of one nothing is exchanged.
"""

import io
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

import torch

from torch_xla._internal import collective_ops, exchange, transfer, world

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)

Groups = Sequence[Sequence[int]] | None
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


def _check_count(name: str, count: int | None, members: Sequence[int]) -> None:
    if count not in (None, len(members)):
        raise ValueError(f"{name} must be {len(members)}, the size of the group, got {count}")


@overload
def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor,
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor: ...


@overload
def all_reduce(
    reduce_type: str,
    inputs: Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> Sequence[torch.Tensor]: ...


def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor | Sequence[torch.Tensor]:
    """Reduces over the group, then multiplies by `scale`. A list is changed in place."""
    if reduce_type not in _REDUCTIONS:
        raise ValueError(f"reduce_type must be one of {_REDUCTIONS}, got '{reduce_type}'")
    members = world.group_of(groups)
    if isinstance(inputs, torch.Tensor):
        return _reduce([inputs], reduce_type, scale, members)[0]
    if len(members) > 1 or scale != 1.0:
        with torch.no_grad():
            for tensor, value in zip(
                inputs, _reduce(inputs, reduce_type, scale, members), strict=True
            ):
                tensor.copy_(value)
    return inputs


def _reduce(
    tensors: Sequence[torch.Tensor], reduce_type: str, scale: float, members: tuple[int, ...]
) -> list[torch.Tensor]:
    if len(members) == 1:
        return [tensor.clone() if scale == 1.0 else tensor * scale for tensor in tensors]
    results = collective_ops.all_reduce(tensors, reduce_type, world.group_name(members))
    return results if scale == 1.0 else [value * scale for value in results]


def _into(output: torch.Tensor | None, value: torch.Tensor) -> torch.Tensor:
    return value if output is None else output.copy_(value)


def _each(
    one: Callable[..., torch.Tensor], values: Sequence[torch.Tensor], output: Any
) -> list[torch.Tensor]:
    outputs = [None] * len(values) if output is None else output
    if len(outputs) != len(values):
        raise ValueError(f"output holds {len(outputs)} tensors for {len(values)} inputs")
    return [one(value, out) for value, out in zip(values, outputs, strict=True)]


def all_gather(
    value: Any,
    dim: int = 0,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """The members' values, concatenated along `dim`; of a list, a list of them."""
    members = world.group_of(groups)

    def gather(tensor: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        if len(members) == 1:
            return tensor.clone() if out is None else out.copy_(tensor)
        name = world.group_name(members)
        (parts,) = collective_ops.all_gather([tensor], len(members), name)
        return _into(out, torch.cat(parts.unbind(), dim))

    if isinstance(value, torch.Tensor):
        return gather(value, output)
    return _each(gather, value, output)


def reduce_scatter(
    reduce_type: str,
    input: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """The reduced value's part of this member along `scatter_dim`; of a list, a list of them."""
    members = world.group_of(groups)
    _check_count("shard_count", shard_count, members)

    def scatter(tensor: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        if tensor.size(scatter_dim) % len(members) != 0:
            raise ValueError(
                f"dimension {scatter_dim} of a tensor of shape {tuple(tensor.shape)} cannot be "
                f"divided among {len(members)} members: pad it"
            )
        reduced = all_reduce(reduce_type, tensor, scale, groups)
        mine = reduced.chunk(len(members), scatter_dim)[members.index(world.rank())]
        return _into(out, mine.clone() if len(members) > 1 else mine)

    if isinstance(input, torch.Tensor):
        return scatter(input, output)
    return _each(scatter, input, output)


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Splits the value over the group and concatenates what its members send."""
    members = world.group_of(groups)
    _check_count("split_count", split_count, members)
    if len(members) == 1:
        return value.clone()
    parts = torch.stack(value.detach().chunk(split_count, split_dimension))
    (received,) = collective_ops.all_to_all([parts], world.group_name(members))
    return torch.cat(received.unbind(), concat_dimension)


def collective_permute(value: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor:
    """The value of the member that sends to this one; zeros if none does."""
    targets = [target for _, target in pairs]
    if len(set(targets)) != len(targets):
        raise ValueError(f"two members send to one in {list(pairs)}")
    if not {ordinal for pair in pairs for ordinal in pair} <= set(range(world.size())):
        raise ValueError(f"pairs hold ordinals below {world.size()}, got {list(pairs)}")
    if world.size() == 1:
        return value.clone() if pairs else torch.zeros_like(value)
    flat = [ordinal for pair in pairs for ordinal in pair]
    return collective_ops.permute([value], flat, _everybody())[0]


def collective_broadcast(
    tensors: Iterable[torch.Tensor],
    root_ordinal: int = 0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> None:
    """Overwrites the tensors with those of the root."""
    members = world.group_of(groups)
    if root_ordinal not in members:
        raise ValueError(f"root_ordinal must be in the group {members}, got {root_ordinal}")
    given = list(tensors)
    if len(members) == 1 or not given:
        return
    root = members.index(root_ordinal)
    values = collective_ops.broadcast(given, root, world.group_name(members))
    with torch.no_grad():
        for tensor, value in zip(given, values, strict=True):
            tensor.copy_(value)


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrites parameters and buffers with those of ordinal 0."""
    collective_broadcast([*model.parameters(), *model.buffers()])


def send(value: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Sends to the process that calls `recv` with this channel; returns `value`."""
    _check_peers("send")
    collective_ops.send([value], channel_id, _everybody())
    return value


def recv(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Overwrites `output` with what is sent on this channel, and returns it."""
    _check_peers("recv")
    (received,) = collective_ops.receive([output], channel_id, _everybody())
    with torch.no_grad():
        return output.copy_(received)


def _everybody() -> str:
    return world.group_name(tuple(range(world.size())))


def _check_peers(what: str) -> None:
    if world.size() == 1:
        raise RuntimeError(
            f"{what}: this process is alone; start several with torchrun, torch_xla.launch or "
            "xmp.spawn(nprocs=n)"
        )


def rendezvous(
    tag: str, payload: bytes = b"", replicas: Sequence[int] | None = None
) -> list[bytes]:
    """Waits until all members have come here; returns their payloads."""
    return xla_rendezvous(payload, replicas or None, tag)


def xla_rendezvous(
    payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None
) -> list[bytes]:
    """`rendezvous`, with its arguments in another order."""
    if not isinstance(payload, bytes):
        raise TypeError(f"payload must be bytes, got {type(payload).__name__}")
    members = world.group_of([list(ordinals)] if ordinals else None)
    if len(members) == 1:
        return [payload]
    _logger.info("joining rendezvous '%s'", tag)
    collective_ops.settle()
    return exchange.gather_bytes(payload, len(members), world.group_name(members))


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], _T]) -> _T:
    """`reduce_fn` of the members' data, brought to the host."""
    host = transfer.to_cpu(data)
    if world.size() == 1:
        return reduce_fn([host])
    written = io.BytesIO()
    torch.save(host, written)
    payloads = rendezvous(tag, written.getvalue())
    # From the other processes of this program: they may send objects of its own classes.
    return reduce_fn([torch.load(io.BytesIO(p), weights_only=False) for p in payloads])


def do_on_ordinals(
    target: Callable[..., _T], data: Any = (), ordinals: Sequence[int] | set[int] = (0,)
) -> _T | None:
    """`target(*data)`, with xla tensors of `data` brought to the host, in these processes; None in
    the others. All wait for all."""
    running = world.rank() in ordinals
    host = transfer.to_cpu(data)
    result = target(*host) if running else None
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")
    return result
