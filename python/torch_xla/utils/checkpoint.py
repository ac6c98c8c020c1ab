"""Activation checkpointing. PyTorch's own works on the device; this is its name in PyTorch/XLA."""

from torch.utils.checkpoint import checkpoint

__all__ = ["checkpoint"]
