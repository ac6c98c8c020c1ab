"""Parts of training with sharded parameters: checkpointing of modules, reductions in buckets."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import set_checkpoint_early_stop

from torch_xla import runtime
from torch_xla.core._collectives import REDUCE_SUM, reduce_scatter
from torch_xla.core._linear import XLAPatchedLinear, apply_xla_patch_to_nn_linear
from torch_xla.utils.checkpoint import checkpoint

__all__ = [
    "BucketizedReduceScatter",
    "DummyReduceScatter",
    "XLAPatchedLinear",
    "apply_xla_patch_to_nn_linear",
    "checkpoint_module",
    "dummy_all_gather",
    "dummy_all_reduce",
]

_Callback = Callable[[torch.Tensor], Any]


def checkpoint_module(module: nn.Module) -> nn.Module:
    """The module, whose activations are computed again in the backward pass from now on."""
    forward = module.forward

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        # All of it is run again, also what no gradient needs: it may add step closures.
        with set_checkpoint_early_stop(False):
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    module.forward = checkpointed
    return module


def dummy_all_gather(
    value: torch.Tensor, dim: int = 0, groups: Sequence[Sequence[int]] | None = None
) -> torch.Tensor:
    """A tensor of the size that `xm.all_gather` gives, without an exchange: for measurements."""
    return torch.cat([value] * runtime.world_size(), dim)


def dummy_all_reduce(
    reduce_type: str, inputs: Any, scale: float = 1.0, groups: Sequence[Sequence[int]] | None = None
) -> Any:
    """What `xm.all_reduce` gives in a world of one: for measurements."""
    if isinstance(inputs, torch.Tensor):
        return inputs * scale
    return [tensor.mul_(scale) for tensor in inputs]


class DummyReduceScatter:
    """Hands this process's part of each input to its callback, not reduced: for measurements."""

    def __init__(self, shard_count: int) -> None:
        if shard_count != runtime.world_size():
            raise ValueError(f"shard_count must be {runtime.world_size()}, got {shard_count}")
        self.scale = 1.0

    def __call__(self, input: torch.Tensor, callback: _Callback) -> None:
        callback(input.chunk(runtime.world_size())[runtime.global_ordinal()])

    def flush(self) -> None:
        """Nothing waits."""


class BucketizedReduceScatter:
    """Reduces and scatters inputs along dimension 0, in buckets of more than `bucket_size_mb`;
    `flush` does what is left. Each callback gets the part of this process."""

    def __init__(
        self,
        bucket_size_mb: int,
        shard_count: int,
        groups: Sequence[Sequence[int]] | None,
        pin_layout: bool = True,
    ) -> None:
        self._capacity = bucket_size_mb * 1024 * 1024
        self._shard_count = shard_count
        self._groups = groups
        self._bucket: list[tuple[torch.Tensor, _Callback]] = []
        self._nbytes = 0
        self.scale = 1.0

    def __call__(self, input: torch.Tensor, callback: _Callback) -> None:
        self._bucket.append((input, callback))
        self._nbytes += input.nbytes
        if self._nbytes > self._capacity:
            self.flush()

    def flush(self) -> None:
        bucket, self._bucket, self._nbytes = self._bucket, [], 0
        if not bucket:
            return
        inputs = [tensor for tensor, _ in bucket]
        parts = reduce_scatter(REDUCE_SUM, inputs, self.scale, 0, self._shard_count, self._groups)
        for (_, callback), part in zip(bucket, parts, strict=True):
            callback(part)
