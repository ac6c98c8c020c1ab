"""Run the same code on the CPU and on the device, and compare what it returns."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

# Of --mode foreign: programs call no kernels of the host, and float64 is computed in float32.
FOREIGN = os.environ.get("PJRT_DEVICE") == "FOREIGN"


def assert_same(program: Callable[[str], Any], **tolerances: float) -> None:
    """`program(device)` returns tensors and plain values in any nesting."""
    expected, actual = program("cpu"), program("xla")
    expected_leaves, expected_tree = pytree.tree_flatten(expected)
    actual_leaves, actual_tree = pytree.tree_flatten(actual)
    assert actual_tree == expected_tree
    for got, wanted in zip(actual_leaves, expected_leaves, strict=True):
        if isinstance(wanted, Tensor):
            assert got.device.type == "xla"
            assert got.stride() == wanted.stride()
            torch.testing.assert_close(got.cpu(), wanted.detach(), equal_nan=True, **tolerances)
        else:
            assert got == wanted


def ramp(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    """0, 1, 2, … in the given shape: every element tells where it came from."""
    count = torch.Size(shape).numel()
    return torch.arange(count).reshape(shape).to(dtype).to(device)
