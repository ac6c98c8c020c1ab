"""Sizes that torch.export left dynamic, in a program's inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_xla._internal.devices import existing_device
from torch_xla._internal.stablehlo_sizes import (
    DynamicSizes,
    Samples,
    Size,
    SizesError,
    unsolvable,
)


@dataclass
class DynamicInputs:
    """`shapes`: of each of the flat inputs that is a tensor, its sizes, numbers or expressions of
    sympy's. `ranges`: the symbols in them, each with its least and greatest value."""

    names: list[str]
    shapes: list[list[Any] | None]
    ranges: dict[str, list[int | None]]

    @classmethod
    def of(cls, program: Any) -> "DynamicInputs":
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        found = cls([node.name for node in nodes], [], {})
        for node in nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
                raise TypeError(
                    f"the argument {node.name} is a number that torch.export left dynamic: make it "
                    "a tensor, or leave it out of dynamic_shapes"
                )
            if not isinstance(value, torch.Tensor):
                found.shapes.append(None)
                continue
            found.shapes.append([_expression(size) for size in value.shape])
            for size in found.shapes[-1] or []:
                for symbol in sorted(getattr(size, "free_symbols", ()), key=str):
                    found.ranges[str(symbol)] = _limits(program.range_constraints[symbol])
        return found

    def resized(self, inputs: Sequence[Any], symbols: Mapping[str, int]) -> list[Any]:
        """The inputs, those of dynamic sizes with these."""
        result = []
        for value, shape in zip(inputs, self.shapes, strict=True):
            if shape is not None and any(not isinstance(size, int) for size in shape):
                sizes = [_number(size, symbols) for size in shape]
                value = torch.zeros(sizes, dtype=value.dtype).to(existing_device(None))
            result.append(value)
        return result

    def sizes(self, samples: Samples) -> list[list[Size]]:
        """The sizes of the tensors as expressions of ours."""
        found = []
        for shape in self.shapes:
            if shape is None:
                continue
            found.append(
                samples.shape(
                    [[_number(size, symbols) for size in shape] for symbols in samples.values()]
                )
            )
        unknown = unsolvable(DynamicSizes(self.ranges, found, []))
        if unknown:
            raise SizesError("no input has a size that tells it", unknown)
        return found

    def named(self, symbols: Sequence[str]) -> str:
        """The dimensions that have these symbols, for errors."""
        found = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            for dim, size in enumerate(shape or []):
                if {str(symbol) for symbol in getattr(size, "free_symbols", ())} & {*symbols}:
                    found.append(f"dimension {dim} of {name}")
        return " and ".join(found)


def _expression(size: Any) -> Any:
    expression = size.node.expr if isinstance(size, torch.SymInt) else size
    return expression if getattr(expression, "free_symbols", None) else int(expression)


def _number(size: Any, symbols: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    return int(size.xreplace({name: symbols[str(name)] for name in size.free_symbols}))


def _limits(range_: Any) -> list[int | None]:
    """Sizes beyond what a computer has are no limit."""
    least, most = int(range_.lower), float(range_.upper)
    return [least, None if most > 2**48 else int(most)]
