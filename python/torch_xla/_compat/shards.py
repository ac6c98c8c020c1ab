"""Global tensors made of their shards, and shards as tensors, through `torch_xla._XLAC`."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla.distributed.spmd.xla_sharded_tensor import local_shards
from torch_xla.distributed.spmd.xla_sharding import _mark_manual_sharding


def _from_cpu_shards(
    shards: Sequence[torch.Tensor], sharding: Any, global_shape: Sequence[int] | None = None
) -> torch.Tensor:
    """The tensor of `global_shape` (as large as the shards together, if not given) whose parts on
    the devices are these, device by device."""
    count = _XLAC.device_count()
    if len(shards) != count:
        raise RuntimeError(f"one shard for each of {count} devices is needed, got {len(shards)}")
    sizes = list(shards[0].shape)
    tiles = [1] * len(sizes) if sharding.is_replicated else list(sharding.tiles)
    whole = [size * parts for size, parts in zip(sizes, tiles, strict=True)]
    shape = whole if global_shape is None else list(global_shape)
    fits = len(shape) == len(whole) and all(
        -(-wanted // parts) == size
        for wanted, parts, size in zip(shape, tiles, sizes, strict=False)
    )
    if not fits or any(list(shard.shape) != sizes for shard in shards):
        raise RuntimeError(
            f"shards of {[list(shard.shape) for shard in shards]} are no parts of a tensor of "
            f"{shape} that is cut into {tiles}"
        )
    full = torch.empty(whole, dtype=shards[0].dtype)
    places = itertools.product(*map(range, tiles))
    owners = [0] if sharding.is_replicated else sharding.devices[:: sharding.copies]
    for place, device in zip(places, owners, strict=True):
        box = [slice(p * size, (p + 1) * size) for p, size in zip(place, sizes, strict=True)]
        full[tuple(box)] = shards[device]
    tensor = full[tuple(slice(size) for size in shape)].contiguous().to("xla")
    _XLAC._xla_mark_sharding(tensor, sharding)
    return tensor


def _full_to_shard(tensor: torch.Tensor) -> torch.Tensor:
    """This device's part of a tensor that is marked, for computations by hand."""
    sharding = _XLAC._get_xla_op_sharding(tensor)
    if sharding is None:
        raise RuntimeError("_spmd_full_to_shard_shape: mark the tensor's sharding first")
    return _XLAC.full_to_shard(tensor, sharding)


def _shard_to_full(
    tensor: torch.Tensor, sharding: Any, output_shape: Sequence[int], output_dtype: torch.dtype
) -> torch.Tensor:
    """The tensor whose parts the devices hold, with this sharding."""
    own = _XLAC._get_xla_op_sharding(tensor)  # None: computed from parts
    if own is not None and not own.is_manual:
        raise RuntimeError("_spmd_shard_to_full_shape: the tensor is no part of another one")
    return _XLAC.shard_to_full(tensor, sharding, list(output_shape)).to(output_dtype)


def _local_shards(tensors: Sequence[torch.Tensor]) -> list[list[tuple[torch.Tensor, str]]]:
    return [[(part.data, part.shard_device) for part in local_shards(t)] for t in tensors]


def _replicas_and_indices(tensors: Sequence[torch.Tensor]) -> list[list[tuple[int, Any]]]:
    return [[(part.replica_id, part.indices) for part in local_shards(t)] for t in tensors]


def _load_local_shards(
    tensor: torch.Tensor, shards: Sequence[torch.Tensor], devices: Sequence[str]
) -> None:
    """Replaces what each of these devices holds of a tensor."""
    order = sorted(range(len(devices)), key=lambda number: int(devices[number].rsplit(":", 1)[1]))
    _XLAC.load_local_shards(tensor, [shards[number] for number in order])


def _mark_manual(tensor: torch.Tensor, sharding: Any) -> None:
    if not sharding.is_manual:
        raise RuntimeError(f"_mark_manual_sharding: {sharding} is no manual sharding")
    _mark_manual_sharding(tensor)


NAMES: dict[str, Callable[..., Any]] = {
    "_get_local_shard_replica_and_indices": _replicas_and_indices,
    "_get_local_shards": _local_shards,
    "_global_tensor_from_cpu_shards": _from_cpu_shards,
    "_load_local_shards": _load_local_shards,
    "_mark_manual_sharding": _mark_manual,
    "_spmd_full_to_shard_shape": _full_to_shard,
    "_spmd_shard_to_full_shape": _shard_to_full,
}
