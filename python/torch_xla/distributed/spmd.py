"""Sharding over several devices: not in this version, in which there is no global mesh."""

from torch_xla._internal import unavailable

__getattr__ = unavailable.getter(
    __name__,
    {
        "HybridMesh",
        "Mesh",
        "ShardingSpec",
        "ShardingType",
        "XLAShardedTensor",
        "clear_sharding",
        "mark_sharding",
        "set_global_mesh",
        "xla_distribute_module",
        "xla_distribute_tensor",
    },
    "tensors are not sharded over devices. Run the program on one device.",
)


def get_global_mesh() -> None:
    """No mesh is ever set."""
    return None
