"""2.9's place of the bridge to `torch.compile`: see `torch_xla.core.dynamo_bridge`."""
