"""Nested state dicts as flat ones: PyTorch's own functions, under PyTorch/XLA's names."""

from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans as dedup_tensors
from torch.distributed.checkpoint._nested_dict import FLATTEN_MAPPING, flatten_state_dict
from torch.distributed.checkpoint._traverse import (
    CONTAINER_TYPE,
    OBJ_PATH,
    PATH_ITEM,
    STATE_DICT_ITEM,
    set_element,
)

__all__ = [
    "CONTAINER_TYPE",
    "FLATTEN_MAPPING",
    "OBJ_PATH",
    "PATH_ITEM",
    "STATE_DICT_ITEM",
    "dedup_tensors",
    "flatten_state_dict",
    "narrow_tensor_by_index",
    "set_element",
]
