"""Plans that save each tile of a sharded tensor once, and load what each device holds: the mesh may
be another at loading, because a checkpoint names parts of whole tensors."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from torch_xla import _XLAC
from torch_xla._internal.transfer import is_xla_tensor
from torch_xla.distributed.spmd.xla_sharded_tensor import XLAShard, local_shards

_Offset = tuple[int, ...]


def _is_sharded(value: Any) -> bool:
    if not is_xla_tensor(value):
        return False
    sharding = _XLAC._get_xla_op_sharding(value)
    return sharding is not None and not sharding.is_replicated


def _offset(shard: XLAShard) -> _Offset:
    return tuple(index.start for index in shard.indices)


def _chunk(offset: _Offset, data: torch.Tensor) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(offset), data.shape)


def _pieces(tensor: torch.Tensor) -> dict[_Offset, torch.Tensor]:
    """What this process holds of a sharded tensor, each tile once."""
    return {_offset(shard): shard.unpadded_data for shard in local_shards(tensor)}


class SPMDSavePlanner(DefaultSavePlanner):
    """Sharded xla tensors are written in pieces; all else as PyTorch does."""

    def create_local_plan(self) -> SavePlan:
        everything = self.state_dict
        sharded = {name: value for name, value in everything.items() if _is_sharded(value)}
        # The rest is planned by PyTorch, with the tensors on the CPU.
        self.state_dict = {
            name: value.cpu() if is_xla_tensor(value) else value
            for name, value in everything.items()
            if name not in sharded
        }
        plan = super().create_local_plan()
        self._tiles: dict[tuple[str, _Offset], torch.Tensor] = {}
        items = list(plan.items)
        for name, tensor in sharded.items():
            for shard in local_shards(tensor):
                if shard.replica_id == 0 and shard.unpadded_data.numel() > 0:
                    self._tiles[name, _offset(shard)] = shard.unpadded_data
                    items.append(_write_item(name, tensor, shard))
        self.plan = SavePlan(items, plan.storage_data, plan.planner_data)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        if index.offset is not None and (index.fqn, tuple(index.offset)) in self._tiles:
            return self._tiles[index.fqn, tuple(index.offset)]
        return super().lookup_object(index)


def _write_item(name: str, tensor: torch.Tensor, shard: XLAShard) -> WriteItem:
    data, offset = shard.unpadded_data, _offset(shard)
    return WriteItem(
        index=MetadataIndex(name, torch.Size(offset)),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=_chunk(offset, data),
            properties=TensorProperties.create_from_tensor(data),
            size=tensor.shape,
        ),
    )


@dataclass
class _Target:
    """A tensor of the device being read: pieces on the host, by offset."""

    tensor: torch.Tensor
    pieces: dict[_Offset, torch.Tensor]
    missing: int = 0  # reads to come


class SPMDLoadPlanner(DefaultLoadPlanner):
    """Each device is sent what it holds of a sharded xla tensor, and keeps its sharding."""

    def create_local_plan(self) -> LoadPlan:
        plan = super().create_local_plan()
        assert self.metadata is not None
        self._targets: dict[str, _Target] = {}
        items: list[ReadItem] = []
        for name, value in self.state_dict.items():
            stored = self.metadata.state_dict_metadata.get(name)
            if not is_xla_tensor(value) or not isinstance(stored, TensorStorageMetadata):
                continue
            target = _Target(value, self._staging(value))
            reads = create_read_items_for_chunk_list(
                name, stored, [_chunk(*piece) for piece in target.pieces.items()]
            )
            target.missing = len(reads)
            self._targets[name] = target
            items += reads
        others = [item for item in plan.items if item.dest_index.fqn not in self._targets]
        return LoadPlan(others + items, plan.storage_data, plan.planner_data)

    @staticmethod
    def _staging(tensor: torch.Tensor) -> dict[_Offset, torch.Tensor]:
        if not _is_sharded(tensor):
            return {(0,) * tensor.dim(): torch.empty(tensor.shape, dtype=tensor.dtype)}
        return {
            offset: torch.empty_like(piece)
            for offset, piece in _pieces(tensor).items()
            if piece.numel() > 0
        }

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        target = self._targets.get(read_item.dest_index.fqn)
        if target is None:
            tensor: torch.Tensor = super().resolve_tensor(read_item)
            return tensor
        piece = target.pieces[tuple(read_item.dest_index.offset or ())]
        for dim, (start, size) in enumerate(
            zip(read_item.dest_offsets, read_item.lengths, strict=True)
        ):
            piece = piece.narrow(dim, start, size)
        return piece

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        target = self._targets.get(read_item.dest_index.fqn)
        if target is None:
            return
        target.missing -= 1
        if target.missing == 0:
            _send(target)


def _send(target: _Target) -> None:
    with torch.no_grad():
        if not _is_sharded(target.tensor):
            target.tensor.copy_(next(iter(target.pieces.values())))
            return
    shards = local_shards(target.tensor)
    for shard in shards:
        if shard.unpadded_data.numel() > 0:
            shard.unpadded_data = target.pieces[_offset(shard)]
    _XLAC.load_local_shards(target.tensor, [shard.data for shard in shards])
