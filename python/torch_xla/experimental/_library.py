"""Operators of the namespace `torch.ops.xla`, composed of PyTorch's, for every device."""

from collections.abc import Callable
from typing import Any

import torch

_library: Any = torch.library.Library("xla", "FRAGMENT")  # type: ignore[no-untyped-call]


def define(schema: str, function: Callable[..., Any]) -> None:
    """`torch.ops.xla.NAME` with this schema is `function`; its parts have the gradients."""
    _library.define(schema)
    _library.impl(schema.partition("(")[0], function, "CompositeImplicitAutograd")
