"""Functions of StableHLO under construction, as text. `_hlo_ops` adds operations, `xla_builder` is
the public side."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch

from torch_xla._internal.stablehlo_text import dtype_of, tensor_type

_serials = itertools.count()
_SYMBOL = re.compile(r"@<(\d+)>")
_NAME = re.compile(r"%\w+")


@dataclass(frozen=True)
class TensorShape:
    dtype: torch.dtype
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return tensor_type(self.sizes, self.dtype)


Shapes = Union[TensorShape, tuple["Shapes", ...]]  # noqa: UP007  (recursive)


@dataclass(frozen=True)
class Value:
    """A tensor that is computed by a function under construction."""

    builder: "Builder"
    name: str
    shape: TensorShape

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.shape.sizes

    @property
    def rank(self) -> int:
        return len(self.shape.sizes)

    @property
    def dtype(self) -> torch.dtype:
        return self.shape.dtype


@dataclass(frozen=True)
class Tuple:
    """Several of them. In the text tuples do not occur: their parts do."""

    parts: tuple[Any, ...]

    @property
    def shape(self) -> Shapes:
        return tuple(part.shape for part in self.parts)

    @property
    def builder(self) -> "Builder":
        builder: Builder = self.parts[0].builder
        return builder


Node = Value | Tuple


def leaves(node: Any) -> list[Any]:
    """The tensors of nested tuples, of values or of shapes."""
    parts = node.parts if isinstance(node, Tuple) else node
    if isinstance(parts, (Value, TensorShape)):
        return [parts]
    return [leaf for part in parts for leaf in leaves(part)]


def structured(shape: Shapes, values: Any) -> Node:
    """Values in the structure of a shape."""
    source = iter(values)

    def build(part: Shapes) -> Node:
        if isinstance(part, TensorShape):
            value: Value = next(source)
            return value
        return Tuple(tuple(build(inner) for inner in part))

    return build(shape)


@dataclass(frozen=True)
class Computation:
    """A finished function. Its lines name others by their serial numbers."""

    serial: int
    name: str
    parameters: tuple[Shapes, ...]
    result: Shapes
    inputs: tuple[str, ...]  # the parameters' names in the lines
    outputs: tuple[str, ...]
    lines: tuple[str, ...]
    called: tuple["Computation", ...]

    def function_text(self) -> str:
        pairs = zip(self.inputs, leaves(self.parameters), strict=True)
        header = ", ".join(f"{name}: {shape}" for name, shape in pairs)
        types = ", ".join(str(shape) for shape in leaves(self.result))
        body = "".join(f"    {line}\n" for line in self.lines)
        returned = f"    return {', '.join(self.outputs)} : {types}\n"
        return f"@<{self.serial}>({header}) -> ({types}) {{\n{body}{returned}  }}\n"

    def module_text(self) -> str:
        """A module whose @main is this function."""
        names: dict[str, str] = {}
        order: list[Computation] = []

        def collect(computation: Computation) -> None:
            if str(computation.serial) not in names:
                names[str(computation.serial)] = f"f{len(names)}" if names else "main"
                order.append(computation)
                for other in computation.called:
                    collect(other)

        collect(self)
        functions = "".join(
            f"  func.func {'private' if i else 'public'} {computation.function_text()}"
            for i, computation in enumerate(order)
        )
        body = _SYMBOL.sub(lambda found: f"@{names[found.group(1)]}", functions)
        return f"module {{\n{body}}}\n"


class Builder:
    """One function."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[str] = []
        self._count = 0
        self._parameters: dict[int, tuple[Shapes, list[Value]]] = {}
        self._called: list[Computation] = []

    def value(self, shape: TensorShape) -> Value:
        self._count += 1
        return Value(self, f"%{self._count}", shape)

    def parameter(self, number: int, shape: Shapes) -> Node:
        values = [self.value(leaf) for leaf in leaves(shape)]
        self._parameters[number] = (shape, values)
        return structured(shape, values)

    def line(self, text: str) -> None:
        self._lines.append(text)

    def emit(
        self,
        op: str,
        operands: Sequence[Value],
        results: Sequence[TensorShape],
        attributes: str = "",
        regions: Sequence[str] = (),
    ) -> list[Value]:
        """Appends an operation in MLIR's generic form."""
        values = [self.value(shape) for shape in results]
        names = ", ".join(operand.name for operand in operands)
        properties = f" <{{{attributes}}}>" if attributes else ""
        bodies = f" ({', '.join(regions)})" if regions else ""
        types = ", ".join(str(operand.shape) for operand in operands)
        returned = ", ".join(str(shape) for shape in results)
        left = ", ".join(value.name for value in values)
        self.line(f'{left} = "{op}"({names}){properties}{bodies} : ({types}) -> ({returned})')
        return values

    def call_text(self, computation: Computation, arguments: Sequence[Value]) -> tuple[str, str]:
        """A call of a function, and the types of its results."""
        if computation not in self._called:
            self._called.append(computation)
        expected = [str(leaf) for leaf in leaves(computation.parameters)]
        given = [str(argument.shape) for argument in arguments]
        if expected != given:
            raise ValueError(
                f"the computation {computation.name} takes ({', '.join(expected)}), and was given "
                f"({', '.join(given)})"
            )
        names = ", ".join(argument.name for argument in arguments)
        returned = ", ".join(str(leaf) for leaf in leaves(computation.result))
        call = f"func.call @<{computation.serial}>({names}) : ({', '.join(given)}) -> ({returned})"
        return call, returned

    def region(self, computation: Computation, captured: Sequence[Value] = ()) -> str:
        """A region that computes what a function does: of its arguments, or of captured values."""
        self._called += [other for other in computation.called if other not in self._called]
        shapes = leaves(computation.parameters)
        self._count += 1
        prefix = f"%r{self._count}_"
        names = {name: prefix + name[1:] for name in computation.inputs}
        header = ""
        if captured:
            pairs = zip(computation.inputs, captured, strict=True)
            names = {name: value.name for name, value in pairs}
        else:
            arguments = zip(names.values(), shapes, strict=True)
            header = f"^bb0({', '.join(f'{name}: {shape}' for name, shape in arguments)}):\n"

        def inlined(text: str) -> str:
            return _NAME.sub(lambda n: names.get(n.group(), prefix + n.group()[1:]), text)

        body = "".join(f"      {inlined(line)}\n" for line in computation.lines)
        outputs = inlined(", ".join(computation.outputs))
        types = ", ".join(str(shape) for shape in leaves(computation.result))
        end = f'      "stablehlo.return"({outputs}) : ({types}) -> ()\n'
        return f"{{\n    {header}{body}{end}    }}"

    def build(self, root: Node) -> Computation:
        numbers = sorted(self._parameters)
        if numbers != list(range(len(numbers))):
            raise ValueError(f"{self.name}: parameters must be numbered from 0, got {numbers}")
        inputs = [v.name for number in numbers for v in self._parameters[number][1]]
        return Computation(
            serial=next(_serials),
            name=self.name,
            parameters=tuple(self._parameters[number][0] for number in numbers),
            result=root.shape,
            inputs=tuple(inputs),
            outputs=tuple(value.name for value in leaves(root)),
            lines=tuple(self._lines),
            called=tuple(self._called),
        )


def shapes_of(types: Sequence[str]) -> list[TensorShape]:
    """Of types such as "tensor<2x3xf32>"."""
    result = []
    for text in types:
        *sizes, element = text.removeprefix("tensor<").removesuffix(">").split("x")
        # complex<f32> has no x, so that the last part is the element type.
        result.append(TensorShape(dtype_of(element), tuple(map(int, sizes))))
    return result


def literal(tensor: torch.Tensor) -> str:
    """A dense attribute with a tensor's values."""
    host = tensor.detach().cpu().contiguous()
    shape = tensor_type(host.shape, host.dtype)
    if host.numel() == 0:
        return f"dense<> : {shape}"
    if host.dtype == torch.bool:  # whose bytes MLIR packs
        return f"dense<{str(host.tolist()).lower()}> : {shape}"
    data = host.reshape(-1).view(torch.uint8).numpy().tobytes().hex().upper()
    return f'dense<"0x{data}"> : {shape}'
