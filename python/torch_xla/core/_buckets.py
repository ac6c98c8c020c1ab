"""Collectives over many tensors, some at a time. `xla_model` publishes them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla.core._collectives import REDUCE_SUM, Groups, all_gather, all_reduce, reduce_scatter

_MEGABYTE = 1024 * 1024


def _check_tensors(name: str, value: Any) -> None:
    if not isinstance(value, list) or any(not isinstance(v, torch.Tensor) for v in value):
        raise TypeError(f"{name} must be a list of tensors, got {type(value).__name__}")


class CoalescingBuckets:
    """Calls `func(inputs, outputs)` for buckets of `input_list` of about `bucket_cap_mb` each; a
    bucket of one tensor is passed as that tensor. Calling this object returns all results."""

    def __init__(
        self,
        func: Callable[[Any, Any], Any],
        input_list: list[torch.Tensor],
        output_list: list[torch.Tensor] | None = None,
        bucket_cap_mb: int = 160,
    ) -> None:
        _check_tensors("input_list", input_list)
        if output_list is not None:
            _check_tensors("output_list", output_list)
            if len(output_list) != len(input_list):
                raise ValueError(
                    f"output_list holds {len(output_list)} tensors for {len(input_list)} inputs"
                )
        self._func = func
        self._inputs = input_list
        self._outputs = output_list
        self._capacity = bucket_cap_mb * _MEGABYTE
        self._bucket: list[int] = []
        self._nbytes = 0
        self._results: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor, idx: int) -> None:
        """Puts input number `idx` in the open bucket."""
        self._bucket.append(idx)
        self._nbytes += tensor.nbytes

    def flush(self) -> None:
        """Calls the function for the open bucket."""
        bucket, self._bucket, self._nbytes = self._bucket, [], 0
        if not bucket:
            return
        inputs = [self._inputs[i] for i in bucket]
        outputs = None if self._outputs is None else [self._outputs[i] for i in bucket]
        if len(bucket) == 1:
            self._results.append(self._func(inputs[0], outputs[0] if outputs else None))
        else:
            self._results.extend(self._func(inputs, outputs))

    def __call__(self) -> list[torch.Tensor]:
        for i, tensor in enumerate(self._inputs):
            if self._bucket and self._nbytes + tensor.nbytes > self._capacity:
                self.flush()
            self.add(tensor, i)
        self.flush()
        results, self._results = self._results, []
        return results


def all_gather_bucketized(
    input_list: list[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """`all_gather` of each tensor."""

    def gather(inputs: Any, outputs: Any) -> Any:
        return all_gather(inputs, dim, groups, outputs)

    return CoalescingBuckets(gather, input_list, output, bucket_cap_mb)()


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """`reduce_scatter` of each tensor."""

    def scatter(inputs: Any, outputs: Any) -> Any:
        return reduce_scatter(reduce_type, inputs, scale, scatter_dim, shard_count, groups, outputs)

    return CoalescingBuckets(scatter, input_list, output, bucket_cap_mb)()


def all_reduce_bucketized_gradients(
    gradients: Sequence[torch.Tensor],
    scale: float,
    groups: Groups = None,
    pin_layout: bool = True,
    bucket_cap_mb: int = 0,
) -> None:
    """Sums up the gradients over the group in place, times `scale`."""

    def reduce(inputs: Any, _: Any) -> Any:
        if isinstance(inputs, torch.Tensor):
            return all_reduce(REDUCE_SUM, [inputs], scale, groups)[0]
        return all_reduce(REDUCE_SUM, inputs, scale, groups)

    CoalescingBuckets(reduce, list(gradients), None, bucket_cap_mb)()
