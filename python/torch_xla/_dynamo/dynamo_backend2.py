"""2.9's second backend of `torch.compile`: here the two are one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def dynamo_backend(fx_module: fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
    """The backend `openxla`."""
    backend: Callable[..., Any] = torch._dynamo.lookup_backend("openxla")
    compiled: Callable[..., Any] = backend(fx_module, args)
    return compiled
