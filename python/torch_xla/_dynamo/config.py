"""Settings of the bridge to `torch.compile`."""

# Raise when a graph is given a value that is still pending, instead of running it first.
skip_input_data_check = False
