"""Checkpoints of all processes as one.

`python -m torch_xla.distributed.fsdp.consolidate_sharded_ckpts` does it for files.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from glob import glob
from typing import Any

import torch

from torch_xla.distributed.fsdp.xla_flatten_params_wrapper import views_of

_SHARD = "_fsdp_shard"
_WRAPPERS = ("_fsdp_wrapped_module.", "_fpw_module.")


def consolidate_sharded_state_dicts(
    state_dict_list: Sequence[dict[str, Any]], shard_metadata: dict[str, Any]
) -> "OrderedDict[str, torch.Tensor]":
    """The state dict of the module itself.

    `state_dict_list`: `model.state_dict()` of each process, in the order of their ordinals;
    `shard_metadata`: `model.get_shard_metadata()` of any.
    """
    if len(state_dict_list) != shard_metadata["world_size"]:
        raise ValueError(
            f"the model was sharded over {shard_metadata['world_size']} processes, and "
            f"{len(state_dict_list)} state dicts were given"
        )
    dtypes = shard_metadata.get("buffer_info", {})
    full: OrderedDict[str, torch.Tensor] = OrderedDict()
    for name, value in state_dict_list[0].items():
        parts = name.split(".")
        place = next((i for i, part in enumerate(parts) if part.startswith(_SHARD)), None)
        if place is None:
            full[name] = value.to(dtypes[name]["_orig_dtype"]) if name in dtypes else value
            continue
        prefix, own = ".".join(parts[:place]), ".".join(parts[place:])
        info = shard_metadata["shard_info"][prefix][own]
        shards = torch.cat([state[name] for state in state_dict_list])
        size = info["_orig_size"]
        flat = shards.dim() == 1
        whole = shards[: math.prod(size)].view(size) if flat else shards[: size[0]]
        _add(full, ".".join(filter(None, (prefix, info["_orig_name"]))), whole, shard_metadata)
    return OrderedDict((_plain(name), value) for name, value in full.items())


def _add(full: dict[str, Any], name: str, value: Any, shard_metadata: dict[str, Any]) -> None:
    """A parameter, or those that a flat one holds."""
    metadata = shard_metadata["flatten_info"].get(name.replace("_fpw_module.", ""))
    if metadata is None:
        full[name] = value
        return
    prefix = name.rpartition(".")[0]
    for own, view in zip(metadata[0], views_of(value, metadata), strict=True):
        full[f"{prefix}.{own}" if prefix else own] = view


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def consolidate_sharded_model_checkpoints(
    ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", save_model: bool = True
) -> tuple["OrderedDict[str, torch.Tensor]", str | None]:
    """The same for files: those named `ckpt_prefix` + `ckpt_suffix` hold a dict with "model", the
    state dict of a process, and "shard_metadata". With `save_model` a file {"model": ...} is
    written to `save_path` (default: ckpt_prefix + "_consolidated.pth"). Returns the state dict and
    the path. Load only files that you trust."""
    paths = sorted(glob(ckpt_prefix + ckpt_suffix))
    if not paths:
        raise FileNotFoundError(f"there are no files {ckpt_prefix}{ckpt_suffix}")
    loaded = [torch.load(path, map_location="cpu", weights_only=False) for path in paths]
    loaded.sort(key=lambda checkpoint: checkpoint["shard_metadata"]["rank"])
    ranks = [checkpoint["shard_metadata"]["rank"] for checkpoint in loaded]
    expected = list(range(loaded[0]["shard_metadata"]["world_size"]))
    if ranks != expected:
        raise ValueError(
            f"{ckpt_prefix}{ckpt_suffix} must match one file of each of the processes {expected}, "
            f"it matches those of {ranks}"
        )
    states = [checkpoint["model"] for checkpoint in loaded]
    full = consolidate_sharded_state_dicts(states, loaded[0]["shard_metadata"])
    if not save_model:
        return full, None
    path = save_path or ckpt_prefix + "_consolidated.pth"
    torch.save({"model": full}, path)
    return full, path
