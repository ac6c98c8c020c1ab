"""Collectives as 2.9 calls them through `torch_xla._XLAC`, with tokens that order them. Here the
operators of a process keep their order by themselves: a token is handed on, and means nothing."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from torch_xla.core import _collectives as own
from torch_xla.core._collectives import Groups

Tensors = Sequence[torch.Tensor]

_tokens: dict[str, Any] = {}


def _all_reduce_token(device: str) -> Any:
    return _tokens.get(device)


def _set_all_reduce_token(device: str, token: Any) -> None:
    _tokens[device] = token


def _all_reduce(
    reduce_type: str, input: torch.Tensor, scale: float, groups: Groups, pin_layout: bool = True
) -> torch.Tensor:
    return own.all_reduce(reduce_type, input, scale, groups or None)


def _all_reduce_inplace(
    reduce_type: str, tensors: Tensors, scale: float, groups: Groups, pin_layout: bool = True
) -> None:
    own.all_reduce(reduce_type, list(tensors), scale, groups or None)


def _all_gather(
    input: torch.Tensor,
    dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> torch.Tensor:
    gathered: torch.Tensor = own.all_gather(input, dim, groups or None)
    return gathered


def _all_gather_out(
    output: torch.Tensor,
    input: torch.Tensor,
    token: Any,
    dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
) -> Any:
    own.all_gather(input, dim, groups or None, output)
    return token


def _all_gather_coalesced(
    tensors: Tensors,
    token: Any,
    dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
) -> list[Any]:
    return [*own.all_gather(list(tensors), dim, groups or None), token]


def _all_gather_coalesced_out(
    outputs: Tensors,
    inputs: Tensors,
    token: Any,
    dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
) -> Any:
    own.all_gather(list(inputs), dim, groups or None, list(outputs))
    return token


def _reduce_scatter(
    reduce_type: str,
    input: torch.Tensor,
    token: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> tuple[torch.Tensor, Any]:
    where = (scale, scatter_dim, shard_count, groups or None)
    return own.reduce_scatter(reduce_type, input, *where), token


def _reduce_scatter_out(
    reduce_type: str,
    output: torch.Tensor,
    input: torch.Tensor,
    token: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
) -> Any:
    where = (scale, scatter_dim, shard_count, groups or None)
    own.reduce_scatter(reduce_type, input, *where, output)
    return token


def _reduce_scatter_coalesced(
    reduce_type: str,
    inputs: Tensors,
    token: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
) -> list[Any]:
    where = (scale, scatter_dim, shard_count, groups or None)
    return [*own.reduce_scatter(reduce_type, list(inputs), *where), token]


def _reduce_scatter_coalesced_out(
    reduce_type: str,
    outputs: Tensors,
    inputs: Tensors,
    token: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups,
    pin_layout: bool = True,
) -> Any:
    where = (scale, scatter_dim, shard_count, groups or None)
    own.reduce_scatter(reduce_type, list(inputs), *where, list(outputs))
    return token


def _all_to_all(
    input: torch.Tensor,
    token: Any,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups,
    pin_layout: bool = True,
) -> tuple[torch.Tensor, Any]:
    where = (split_dimension, concat_dimension, split_count, groups or None)
    return own.all_to_all(input, *where), token


def _collective_permute(
    input: torch.Tensor, token: Any, pairs: Sequence[Sequence[int]]
) -> tuple[torch.Tensor, Any]:
    return own.collective_permute(input, pairs), token


def _send(input: torch.Tensor, token: Any, channel_id: int) -> tuple[torch.Tensor, Any]:
    return own.send(input, channel_id), token


def _recv(output: torch.Tensor, token: Any, channel_id: int) -> tuple[torch.Tensor, Any]:
    return own.recv(output, channel_id), token


def _between_devices(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        "collectives between the devices of an SPMD program are written by the partitioner: mark "
        "how the result lies (torch_xla.distributed.spmd.mark_sharding)"
    )


NAMES: dict[str, Callable[..., Any]] = {
    "_get_all_reduce_token": _all_reduce_token,
    "_set_all_reduce_token": _set_all_reduce_token,
    "_xla_all_gather": _all_gather,
    "_xla_all_gather_coalesced": _all_gather_coalesced,
    "_xla_all_gather_coalesced_out": _all_gather_coalesced_out,
    "_xla_all_gather_out": _all_gather_out,
    "_xla_all_reduce": _all_reduce,
    "_xla_all_reduce_inplace": _all_reduce_inplace,
    "_xla_all_to_all": _all_to_all,
    "_xla_collective_permute": _collective_permute,
    "_xla_recv": _recv,
    "_xla_reduce_scatter": _reduce_scatter,
    "_xla_reduce_scatter_coalesced": _reduce_scatter_coalesced,
    "_xla_reduce_scatter_coalesced_out": _reduce_scatter_coalesced_out,
    "_xla_reduce_scatter_out": _reduce_scatter_out,
    "_xla_send": _send,
    "_xla_spmd_all_reduce": _between_devices,
    "_xla_spmd_reduce_scatter": _between_devices,
}
