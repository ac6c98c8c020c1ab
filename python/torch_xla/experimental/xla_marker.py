"""Marks on tensors: where a part of a model begins and ends that is one operation to others.

In StableHLO the part becomes a `stablehlo.composite` with the part as its decomposition. Computing
and gradients are as without marks. `torch_xla.experimental.mark_pattern_utils` is the usual way.
"""

import dataclasses
import json
import re
from typing import Any

import torch

from torch_xla._internal.stablehlo_text import float32, quoted

__all__ = [
    "BoundaryMetadata",
    "BoundaryMetadataSerializer",
    "deserialize_composite_attr",
    "mark_tensor",
    "mark_tensor_meta",
    "mark_tensor_xla",
    "serialize_composite_attr",
]

_Attributes = dict[str, Any] | None
_NAME = re.compile(r"[a-zA-Z]\w*(\.[\w$]+)+", re.ASCII)  # as StableHLO wants them


def _is_attribute(value: Any) -> bool:
    if not isinstance(value, (list, tuple)):
        return isinstance(value, (str, bool, int, float))
    kinds = {type(item) for item in value}
    return len(kinds) == 1 and kinds <= {bool, int, float}


def _check_attributes(attr: _Attributes) -> None:
    for name, value in (attr or {}).items():
        if not isinstance(name, str) or not _is_attribute(value):
            raise ValueError(
                "attributes of a composite are strings, booleans, integers and floats by name, or "
                f"lists of one kind of number, got {name!r}: {value!r}"
            )


@dataclasses.dataclass
class BoundaryMetadata:
    """A mark: of input or output number `pos` of the part `id` called `name`."""

    name: str
    id: str
    pos: int = 0
    is_input: bool = True
    attr: _Attributes = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not self.id:
            raise ValueError(
                "a mark needs an id and the name of its part with a namespace, such as 'my.op', "
                f"got {self.name!r}"
            )
        if self.pos < 0:
            raise ValueError(f"inputs and outputs are numbered from 0, got {self.pos}")
        _check_attributes(self.attr)


class BoundaryMetadataSerializer(json.JSONEncoder):
    """Writes BoundaryMetadata as JSON."""

    def default(self, o: Any) -> Any:
        if isinstance(o, BoundaryMetadata):
            return dataclasses.asdict(o)
        return super().default(o)


def serialize_composite_attr(attr: _Attributes) -> tuple[Any, ...] | None:
    """Attributes as a flat tuple of names and values, which operators can take."""
    _check_attributes(attr)
    return None if attr is None else tuple(part for item in attr.items() for part in item)


def deserialize_composite_attr(attr: tuple[Any, ...] | None) -> _Attributes:
    """The other way round."""
    if attr is None:
        return None
    return dict(zip(attr[::2], attr[1::2], strict=True))


def _attribute(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        items = [_attribute(item).split(" ")[0] for item in value]
        kind = {bool: "i1", int: "i64", float: "f32"}[type(value[0])]
        return f"dense<[{', '.join(items)}]> : tensor<{len(items)}x{kind}>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return f"{float32(value)} : f32"
    return quoted(value)


class _Mark(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *mark: Any) -> torch.Tensor:
        marked: torch.Tensor = torch.ops.torch_xla.mark_tensor(x, *mark)
        return marked

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0], None, None, None, None, None


def mark_tensor(
    x: torch.Tensor,
    name: str,
    pos: int,
    id: str,
    is_input: bool,
    attr: _Attributes | tuple[Any, ...] = None,
) -> torch.Tensor:
    """`x`, marked. Attributes are given with an output."""
    given = deserialize_composite_attr(attr) if isinstance(attr, tuple) else attr
    mark = BoundaryMetadata(name, id, pos, is_input, given)
    items = [f"{key} = {_attribute(value)}" for key, value in (mark.attr or {}).items()]
    text = f"{{{', '.join(items)}}}" if items else ""
    result: torch.Tensor = _Mark.apply(x, name, pos, id, is_input, text)  # type: ignore
    return result


mark_tensor_xla = mark_tensor


def mark_tensor_meta(
    x: torch.Tensor,
    name: str,
    pos: int,
    id: str,
    is_input: bool,
    attr: _Attributes | tuple[Any, ...] = None,
) -> torch.Tensor:
    """What `mark_tensor` gives, without values."""
    return torch.empty_like(x)
