"""Helpers of training scripts and tests, under the names of PyTorch/XLA."""
