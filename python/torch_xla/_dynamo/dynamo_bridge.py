"""`torch_xla.core.dynamo_bridge`, and helpers that 2.9 keeps here."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from torch_xla import _XLAC
from torch_xla.core.dynamo_bridge import extract_compiled_graph

__all__ = [
    "GraphInputMatcher",
    "NoneRemover",
    "UnsupportedNodesCollector",
    "alias_with_buffer_donor_config",
    "extract_compiled_graph",
]


@contextlib.contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """Whether donations that the user asked for hold inside; gives what held before."""
    core: Any = _XLAC  # with the names of _compat
    saved: bool = core._xla_get_enable_alias_with_buffer_donor_config()
    core._xla_set_enable_alias_with_buffer_donor_config(should_alias)
    try:
        yield saved
    finally:
        core._xla_set_enable_alias_with_buffer_donor_config(saved)


class GraphInputMatcher:
    """Which arguments of a call a graph's inputs are; the other inputs keep their values."""

    def __init__(
        self,
        tensor_id_to_arg_idx: dict[int, int],
        graph_input_tensor_ids: Sequence[int],
        graph_input_xla_values: Sequence[torch.Tensor],
        xla_args_tensor_id: "set[int] | Sequence[int]",
    ) -> None:
        self.tensor_id_to_arg_idx = tensor_id_to_arg_idx
        self.graph_input_tensor_ids = graph_input_tensor_ids
        given = set(xla_args_tensor_id)
        pairs = zip(graph_input_tensor_ids, graph_input_xla_values, strict=True)
        self.graph_input_xla_values = [None if key in given else value for key, value in pairs]

    def __call__(self, args: Sequence[torch.Tensor]) -> list[Any]:
        pairs = zip(self.graph_input_tensor_ids, self.graph_input_xla_values, strict=True)
        return [
            args[self.tensor_id_to_arg_idx[key]] if value is None else value for key, value in pairs
        ]


class NoneRemover:
    """Takes None out of results, and puts it back."""

    def __init__(self) -> None:
        self.none_poslist: list[int] = []

    def remove_nones(self, value_list: Any) -> Any:
        """A list is changed itself, and returned; of a tuple, another one is returned."""
        self.none_poslist = [i for i, value in enumerate(value_list) if value is None]
        return _renewed(value_list, [value for value in value_list if value is not None])

    def add_nones(self, value_list: Any) -> Any:
        """The opposite of `remove_nones`."""
        values = list(value_list)
        for position in self.none_poslist:
            values.insert(position, None)
        return _renewed(value_list, values)


def _renewed(old: Any, values: list[Any]) -> Any:
    if isinstance(old, tuple):
        return tuple(values)
    old[:] = values
    return old


class UnsupportedNodesCollector(fx.Interpreter):
    """Finds the nodes of a graph that a program of the device would leave. There are none: an
    operator that is not lowered runs as PyTorch's kernel inside the program."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._unsupported_nodes: list[fx.Node] = []

    def get_unsupported_nodes(self) -> list[fx.Node]:
        return self._unsupported_nodes
