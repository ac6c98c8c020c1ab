"""The programming interface of PyTorch/XLA: `xla_model` and `functions`."""
