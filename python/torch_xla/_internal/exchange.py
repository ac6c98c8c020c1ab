"""Collectives on CPU tensors between the members of the world. Blocking; errors name the peer."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla._internal import world

Members = tuple[int, ...]

# gloo adds up neither of these; a wider type holds all their values.
_WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.bool: torch.uint8}


def _wait(work: Any, what: str) -> None:
    try:
        work.wait()
    except RuntimeError as error:
        raise RuntimeError(
            f"{what} of process {world.rank()} of {world.size()} failed: another process ended, or "
            f"did not come within {world.timeout().total_seconds():g} s "
            f"(TORCH_XLA_COLLECTIVE_TIMEOUT): {error}"
        ) from error


def _call(what: str, members: Members, function: str, *args: Any) -> None:
    group = world.gloo(members)
    try:
        work = getattr(group, function)(*args)
    except RuntimeError as error:
        raise RuntimeError(f"{what} of process {world.rank()} failed: {error}") from error
    _wait(work, what)


def all_reduce(reduce_type: str, tensors: Sequence[torch.Tensor], members: Members) -> None:
    """Reduces the tensors in place; those of one dtype travel together."""
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor)
    for dtype, group in by_dtype.items():
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        reduced = _reduced(reduce_type, flat.to(_WIDER.get(dtype, dtype)), members).to(dtype)
        parts = torch.split(reduced, [tensor.numel() for tensor in group])
        for tensor, part in zip(group, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


def _reduced(reduce_type: str, flat: torch.Tensor, members: Members) -> torch.Tensor:
    import torch.distributed as dist

    operations = {
        "sum": dist.ReduceOp.SUM,
        "mul": dist.ReduceOp.PRODUCT,
        "min": dist.ReduceOp.MIN,
        "max": dist.ReduceOp.MAX,
        "and": dist.ReduceOp.BAND,
        "or": dist.ReduceOp.BOR,
    }
    if flat.is_complex():
        if reduce_type != "sum":
            raise ValueError(f"complex numbers can only be summed up, not reduced by {reduce_type}")
        return torch.view_as_complex(_reduced("sum", torch.view_as_real(flat), members))
    options = dist.AllreduceOptions()
    options.reduceOp = operations[reduce_type]  # type: ignore[assignment]
    _call("all_reduce", members, "allreduce", [flat], options)
    return flat


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def all_gather(tensor: torch.Tensor, members: Members) -> list[torch.Tensor]:
    """The members' tensors, all of one size."""
    sent = _bytes(tensor)
    received = [torch.empty_like(sent) for _ in members]
    _call("all_gather", members, "allgather", [received], [sent])
    return [part.view(tensor.dtype).view(tensor.shape) for part in received]


def all_to_all(parts: Sequence[torch.Tensor], members: Members) -> list[torch.Tensor]:
    """Part i goes to member i; what the members sent, all of one size."""
    sent = torch.stack([_bytes(part) for part in parts])
    received = torch.empty_like(sent)
    _call("all_to_all", members, "alltoall_base", received, sent, [], [])
    return [
        row.view(part.dtype).view(part.shape) for row, part in zip(received, parts, strict=True)
    ]


def broadcast(tensors: Sequence[torch.Tensor], root: int, members: Members) -> None:
    """Overwrites the tensors with those of member number `root` of the group."""
    import torch.distributed as dist

    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    for tensor in tensors:
        sent = _bytes(tensor)
        _call("broadcast", members, "broadcast", [sent], options)
        tensor.copy_(sent.view(tensor.dtype).view(tensor.shape))


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


def send(tensor: torch.Tensor, channel: int) -> None:
    """To the process that receives on the channel."""
    peer = _meet("send", "receive", channel)
    _call("send", _all(), "send", [_bytes(tensor)], peer, channel)


def receive(like: torch.Tensor, channel: int) -> torch.Tensor:
    """From the process that sends on the channel: a tensor such as `like`."""
    received = torch.empty_like(_bytes(like))
    peer = _meet("receive", "send", channel)
    _call("recv", _all(), "recv", [received], peer, channel)
    return received.view(like.dtype).view(like.shape)


def permute(tensor: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor | None:
    """What the member that sends to this one holds; None if none does."""
    group = world.gloo(_all())
    sent = _bytes(tensor)
    received: torch.Tensor | None = None
    works = []
    for number, (source, target) in enumerate(pairs):
        if source == target == world.rank():
            received = sent.clone()
        elif source == world.rank():
            works.append(group.send([sent], target, number))
        elif target == world.rank():
            received = torch.empty_like(sent)
            works.append(group.recv([received], source, number))
    for work in works:
        _wait(work, "collective_permute")
    return None if received is None else received.view(tensor.dtype).view(tensor.shape)


def gather_bytes(payload: bytes, members: Members) -> list[bytes]:
    """The members' payloads, of any lengths."""
    length = torch.tensor([len(payload)])
    lengths = [int(part.item()) for part in all_gather(length, members)]
    padded = torch.frombuffer(bytearray(payload.ljust(max(1, *lengths), b"\0")), dtype=torch.uint8)
    parts = all_gather(padded, members)
    return [part.numpy().tobytes()[:n] for part, n in zip(parts, lengths, strict=True)]


def _all() -> Members:
    return tuple(range(world.size()))
