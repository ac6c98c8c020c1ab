"""What is common to the models of every library that dev/models runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

BATCH, IMAGE = 2, 64


@dataclass
class Case:
    model: nn.Module
    inputs: Callable[[torch.Generator], dict[str, Any]]  # each call another batch, same shapes


Inputs = Callable[[torch.Generator], dict[str, Any]]
