"""Parameters sharded over several processes: not in this version."""

from torch_xla._internal import unavailable

__getattr__ = unavailable.getter(
    __name__,
    {"XlaFullyShardedDataParallel", "checkpoint_module", "consolidate_sharded_model_checkpoints"},
    "parameters are not sharded over processes. Use the module itself on one device.",
)
