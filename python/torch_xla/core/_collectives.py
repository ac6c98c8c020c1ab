"""Collectives of a world with one member. `xla_model` publishes them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

import torch

from torch_xla._internal import transfer

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)

_Groups = Sequence[Sequence[int]] | None
_T = TypeVar("_T")


def _check_groups(groups: _Groups) -> None:
    for group in groups or ():
        if list(group) != [0]:
            raise ValueError(f"groups may only hold ordinal 0 in a world of one, got {groups}")


def _check_single_shard(name: str, count: int | None) -> None:
    if count not in (None, 1):
        raise ValueError(f"{name} must be 1 in a world of one, got {count}")


@overload
def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor,
    scale: float = 1.0,
    groups: _Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor: ...


@overload
def all_reduce(
    reduce_type: str,
    inputs: Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: _Groups = None,
    pin_layout: bool = True,
) -> None: ...


def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: _Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor | None:
    """Reduces over all members, then multiplies by `scale`. A list is changed in place."""
    if reduce_type not in _REDUCTIONS:
        raise ValueError(f"reduce_type must be one of {_REDUCTIONS}, got '{reduce_type}'")
    _check_groups(groups)
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if scale == 1.0 else inputs * scale
    if scale != 1.0:
        with torch.no_grad():
            for tensor in inputs:
                tensor.mul_(scale)
    return None


def all_gather(
    value: torch.Tensor,
    dim: int = 0,
    groups: _Groups = None,
    output: torch.Tensor | None = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """The members' values, concatenated along `dim`."""
    _check_groups(groups)
    if output is None:
        return value.clone()
    return output.copy_(value)


def reduce_scatter(
    reduce_type: str,
    input: torch.Tensor,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: _Groups = None,
    output: torch.Tensor | None = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """The reduced value's part of this member."""
    _check_single_shard("shard_count", shard_count)
    reduced = all_reduce(reduce_type, input, scale, groups, pin_layout)
    return reduced if output is None else output.copy_(reduced)


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: _Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Splits the value over all members and concatenates what they send."""
    _check_single_shard("split_count", split_count)
    _check_groups(groups)
    return value.clone()


def collective_permute(value: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor:
    """The value of the member that sends to this one; zeros if none does."""
    _check_groups([sorted(set(pair)) for pair in pairs])
    return value.clone() if len(pairs) else torch.zeros_like(value)


def collective_broadcast(
    tensors: Iterable[torch.Tensor],
    root_ordinal: int = 0,
    groups: _Groups = None,
    pin_layout: bool = True,
) -> None:
    """Overwrites the tensors with those of the root."""
    _check_groups(groups)
    if root_ordinal != 0:
        raise ValueError(f"root_ordinal must be 0 in a world of one, got {root_ordinal}")


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrites parameters and buffers with those of ordinal 0."""
    collective_broadcast([*model.parameters(), *model.buffers()])


def rendezvous(
    tag: str, payload: bytes = b"", replicas: Sequence[int] | None = None
) -> list[bytes]:
    """Waits until all members have come here; returns their payloads."""
    return [payload]


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], _T]) -> _T:
    """`reduce_fn` of the members' data, brought to the host."""
    return reduce_fn([transfer.to_cpu(data)])
