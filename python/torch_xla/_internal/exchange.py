"""Collectives on CPU tensors between the members of a group (torch_xla/_internal/world.py).

Blocking; each takes a list of tensors and returns new ones. Errors name the process.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla._internal import world

_Tensors = Sequence[torch.Tensor]

# gloo adds up neither of these; a wider type holds all their values.
_WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.bool: torch.uint8}
_REDUCTIONS = {
    "sum": "SUM",
    "mul": "PRODUCT",
    "min": "MIN",
    "max": "MAX",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}


def _wait(work: Any, what: str) -> None:
    try:
        work.wait()
    except RuntimeError as error:
        raise RuntimeError(
            f"{what} of process {world.rank()} of {world.size()} failed: another process ended, or "
            f"did not come within {world.timeout().total_seconds():g} s "
            f"(TORCH_XLA_COLLECTIVE_TIMEOUT): {error}"
        ) from error


def _call(what: str, group: str, function: str, *args: Any) -> None:
    try:
        work = getattr(world.gloo(group), function)(*args)
    except RuntimeError as error:
        raise RuntimeError(
            f"{what} of process {world.rank()} of {world.size()} failed: {error}"
        ) from error
    _wait(work, what)


def all_reduce(tensors: _Tensors, reduce_type: str, group: str) -> list[torch.Tensor]:
    """The reduced tensors; those of one dtype travel together."""
    by_dtype: dict[torch.dtype, list[int]] = {}
    for i, tensor in enumerate(tensors):
        by_dtype.setdefault(tensor.dtype, []).append(i)
    results = list(tensors)
    for dtype, places in by_dtype.items():
        alike = [tensors[i] for i in places]
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        reduced = _reduced(reduce_type, flat.to(_WIDER.get(dtype, dtype)), group).to(dtype)
        parts = torch.split(reduced, [tensor.numel() for tensor in alike])
        for i, part in zip(places, parts, strict=True):
            results[i] = part.view(tensors[i].shape)
    return results if len(tensors) == 1 else [result.clone() for result in results]


def _reduced(reduce_type: str, flat: torch.Tensor, group: str) -> torch.Tensor:
    import torch.distributed as dist

    if flat.is_complex():
        if reduce_type != "sum":
            raise ValueError(f"complex numbers can only be summed up, not reduced by {reduce_type}")
        return torch.view_as_complex(_reduced("sum", torch.view_as_real(flat), group))
    options = dist.AllreduceOptions()
    options.reduceOp = getattr(dist.ReduceOp, _REDUCTIONS[reduce_type])
    _call("all_reduce", group, "allreduce", [flat], options)
    return flat


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def all_gather(tensors: _Tensors, count: int, group: str) -> list[torch.Tensor]:
    """Of each tensor: those of the `count` members, stacked."""
    results = []
    for tensor in tensors:
        sent = _bytes(tensor)
        received = sent.new_empty(count, sent.numel())
        _call("all_gather", group, "allgather", [list(received)], [sent])
        results.append(received.view(-1).view(tensor.dtype).view(count, *tensor.shape))
    return results


def all_to_all(tensors: _Tensors, group: str) -> list[torch.Tensor]:
    """Of each tensor, part i of its first dimension goes to member i: what the members sent."""
    results = []
    for tensor in tensors:
        sent = _bytes(tensor)
        received = torch.empty_like(sent)
        _call("all_to_all", group, "alltoall_base", received, sent, [], [])
        results.append(received.view(tensor.dtype).view(tensor.shape))
    return results


def broadcast(tensors: _Tensors, root: int, group: str) -> list[torch.Tensor]:
    """The tensors of member number `root` of the group."""
    import torch.distributed as dist

    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    results = []
    for tensor in tensors:
        sent = _bytes(tensor).clone()
        _call("broadcast", group, "broadcast", [sent], options)
        results.append(sent.view(tensor.dtype).view(tensor.shape))
    return results


_uses: Counter[tuple[str, int]] = Counter()


def _meet(role: str, other: str, channel: int) -> int:
    """The ordinal of the process that uses the channel in the other role, for the same time."""
    number = _uses[role, channel]
    _uses[role, channel] += 1
    store = world.store()
    store.set(f"torch_xla/channel/{channel}/{number}/{role}", str(world.rank()))
    key = f"torch_xla/channel/{channel}/{number}/{other}"
    try:
        store.wait([key], world.timeout())
    except RuntimeError as error:
        raise RuntimeError(f"nobody came to {other} on channel {channel}: {error}") from error
    return int(store.get(key))


def send(tensors: _Tensors, channel: int, group: str) -> list[torch.Tensor]:
    """To the process that receives on the channel."""
    peer = _meet("send", "receive", channel)
    for tensor in tensors:
        _call("send", group, "send", [_bytes(tensor)], peer, channel)
    return []


def receive(tensors: _Tensors, channel: int, group: str) -> list[torch.Tensor]:
    """From the process that sends on the channel: tensors such as these."""
    peer = _meet("receive", "send", channel)
    results = []
    for like in tensors:
        received = torch.empty_like(_bytes(like))
        _call("recv", group, "recv", [received], peer, channel)
        results.append(received.view(like.dtype).view(like.shape))
    return results


def permute(tensors: _Tensors, pairs: Sequence[int], group: str) -> list[torch.Tensor]:
    """What the member that sends to this one holds; zeros if none does. `pairs`: source and target,
    one after the other."""
    (tensor,) = tensors
    sent = _bytes(tensor)
    received = torch.zeros_like(sent)
    works = []
    for number, (source, target) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        if source == target == world.rank():
            received.copy_(sent)
        elif source == world.rank():
            works.append(world.gloo(group).send([sent], target, number))
        elif target == world.rank():
            works.append(world.gloo(group).recv([received], source, number))
    for work in works:
        _wait(work, "collective_permute")
    return [received.view(tensor.dtype).view(tensor.shape)]


def gather_bytes(payload: bytes, count: int, group: str) -> list[bytes]:
    """The members' payloads, of any lengths."""
    lengths = all_gather([torch.tensor([len(payload)])], count, group)[0].view(-1).tolist()
    padded = torch.frombuffer(bytearray(payload.ljust(max(1, *lengths), b"\0")), dtype=torch.uint8)
    parts = all_gather([padded], count, group)[0]
    return [part.numpy().tobytes()[:n] for part, n in zip(parts, lengths, strict=True)]
