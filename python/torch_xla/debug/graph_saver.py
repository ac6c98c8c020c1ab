"""Writes the pending graphs of tensors to files."""

import os
import threading
from collections import Counter
from collections.abc import Sequence

import torch

from torch_xla import _XLAC

_FORMATS = {
    "text": _XLAC.tensors_ir_text,
    "hlo": _XLAC.tensors_optimized_hlo_text,
    "stablehlo": _XLAC.tensors_stablehlo_text,
}
_lock = threading.Lock()
_saved: Counter[tuple[int, str]] = Counter()


def save_tensors_graph(save_dir: str, name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Writes the graph that computes `tensors` to `save_dir`/name-THREAD-NUMBER.FORMAT. The format
    is SAVE_GRAPH_FMT: text (the default), hlo or stablehlo."""
    kind = os.environ.get("SAVE_GRAPH_FMT", "text")
    if kind not in _FORMATS:
        raise RuntimeError(f"SAVE_GRAPH_FMT is one of {', '.join(_FORMATS)}, got '{kind}'")
    text = _FORMATS[kind](list(tensors))
    thread = threading.get_ident()
    with _lock:
        number = _saved[thread, name]
        _saved[thread, name] += 1
    with open(os.path.join(save_dir, f"{name}-{thread}-{number}.{kind}"), "w") as file:
        file.write(text)
