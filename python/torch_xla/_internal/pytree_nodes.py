"""Containers that only Python knows, for the extension's flattening of arguments."""

import dataclasses
from typing import Any

from torch.utils import _pytree

from torch_xla import _XLAC


def _flatten(value: Any) -> tuple[list[Any], Any] | None:
    """Children and what is needed to rebuild the value, or None for a leaf."""
    kind = _pytree._get_node_type(value)
    node = _pytree.SUPPORTED_NODES.get(kind)
    if node is not None:
        children, context = node.flatten_fn(value)
        return list(children), _Context(kind, type(value), context)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return [getattr(value, field.name) for field in fields], _Context(None, type(value), None)
    return None


@dataclasses.dataclass(frozen=True)
class _Context:
    kind: Any  # of a registered node; None for a dataclass
    type: type
    context: Any


def _unflatten(context: _Context, children: list[Any]) -> Any:
    if context.kind is not None:
        return _pytree.SUPPORTED_NODES[context.kind].unflatten_fn(children, context.context)
    value: Any = object.__new__(context.type)
    for field, child in zip(dataclasses.fields(context.type), children, strict=True):  # type: ignore[arg-type]
        object.__setattr__(value, field.name, child)
    return value


def install() -> None:
    """Makes these functions known to the extension."""
    _XLAC.set_node_functions(_flatten, _unflatten)
