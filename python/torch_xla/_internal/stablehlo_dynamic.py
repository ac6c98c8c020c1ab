"""A template (stablehlo_sizes.py) as StableHLO with dynamic dimensions, for other consumers: sizes
that depend on symbols are `?` in types, and computed from the arguments' sizes where an operation
needs them."""

import re
from collections.abc import Sequence

from torch_xla._internal.stablehlo_sizes import SizesError, linear_in, value_of

_PLACE = re.compile("⟦([^⟧]*)⟧")
_TYPE = re.compile(r"tensor<((?:(?:\d+|⟦[^⟧]*⟧)x)*)([^<>]*(?:<[^<>]*>)?)>")
_ARGUMENT = re.compile(r"(%arg\d+): " + _TYPE.pattern)
_OPERATION = re.compile(r'( *)(%\d+) = "?stablehlo\.(\w+)"?(.*) : (?:\((.*)\) -> )?(tensor<.*>)$')


def dynamic_text(template: str, symbols: Sequence[str]) -> str:
    """The module with `?` for what depends on the symbols."""
    result: list[str] = []
    body: list[str] | None = None
    for line in template.splitlines():
        if line.startswith("  func.func "):
            body, function = [], _Function(line, symbols)
        elif body is not None and line != "  }":
            body.append(function.rewritten(line) if "⟦" in line else line)
            continue
        elif body is not None:
            result += [*function.sizes, *body]
            body = None
        result.append(_with_marks(line))
    return "\n".join(result) + "\n"


def _with_marks(text: str) -> str:
    return _TYPE.sub(lambda type_: f"tensor<{_PLACE.sub('?', type_[1])}{type_[2]}>", text)


def _sizes_of(type_: str) -> list[str]:
    """The sizes in a type: numbers and expressions."""
    found = _TYPE.fullmatch(type_)
    assert found is not None
    return [size.strip("⟦⟧") for size in found[1].split("x")[:-1]]


def _element_of(type_: str) -> str:
    found = _TYPE.fullmatch(type_)
    assert found is not None
    return found[2]


class _Function:
    """Writes the operations of a function, and those that compute sizes, which come first."""

    def __init__(self, header: str, symbols: Sequence[str]) -> None:
        self.sizes: list[str] = []
        self._names: dict[str, str] = {}  # of what is computed
        self._symbols = symbols
        self._arguments = [
            (argument[1], f"tensor<{argument[2]}{argument[3]}>")
            for argument in _ARGUMENT.finditer(header)
        ]

    def _computed(self, operation: str) -> str:
        """The name of the result of an operation on sizes."""
        if operation not in self._names:
            self._names[operation] = name = f"%size{len(self._names)}"
            self.sizes.append(f"    {name} = stablehlo.{operation}")
        return self._names[operation]

    def _binary(self, operation: str, x: str, y: str) -> str:
        return self._computed(f"{operation} {x}, {y} : tensor<i32>")

    def _constant(self, number: int) -> str:
        return self._computed(f"constant dense<{number}> : tensor<i32>")

    def _symbol(self, symbol: str) -> str:
        """A symbol: the first argument's size that tells it, solved."""
        for argument, type_ in self._arguments:
            for dim, size in enumerate(_sizes_of(type_)):
                if linear_in(size) != symbol:
                    continue
                name = self._computed(
                    f"get_dimension_size {argument}, dim = {dim} : ({_with_marks(type_)}) -> "
                    "tensor<i32>"
                )
                start, step = value_of(size, {symbol: 0}), value_of(size, {symbol: 1})
                if start != 0:
                    name = self._binary("subtract", name, self._constant(start))
                factor = step - start
                return name if factor == 1 else self._binary("divide", name, self._constant(factor))
        raise SizesError("a function in it is not given a tensor of that size", [symbol])

    def _size(self, size: str) -> str:
        """A size as tensor<i32>."""
        sums = []
        for product in size.split("+"):
            names = [
                self._symbol(name) if name in self._symbols else self._constant(int(name))
                for name in product.split("*")
            ]
            while len(names) > 1:
                names[:2] = [self._binary("multiply", *names[:2])]
            sums += names
        while len(sums) > 1:
            sums[:2] = [self._binary("add", *sums[:2])]
        return sums[0]

    def _list(self, sizes: Sequence[str]) -> str:
        """Sizes as one tensor."""
        one = "tensor<1xi32>"
        parts = [
            self._computed(f"reshape {self._size(size)} : (tensor<i32>) -> {one}") for size in sizes
        ]
        if len(parts) == 1:
            return parts[0]
        types = ", ".join([one] * len(parts))
        return self._computed(
            f"concatenate {', '.join(parts)}, dim = 0 : ({types}) -> {_list_type(sizes)}"
        )

    def rewritten(self, line: str) -> str:
        """An operation whose types or attributes have sizes."""
        found = _OPERATION.fullmatch(line)
        write = found and getattr(self, f"_write_{found[3]}", None)
        if found and write:
            indent, name, _, operands, operand_types, result = found.groups()
            written = write(operands.strip(), operand_types or "", result)
            if written is not None:
                line = f"{indent}{name} = {written}"
        marked = _with_marks(line)
        if "⟦" in marked:
            raise SizesError(
                "StableHLO cannot say this for any size, so that there is neither text nor "
                "bytecode; the program runs, here and in C++ (torch_xla/serve.h), and is compiled "
                f"for the sizes that it is given: `{_plain(line.strip())}`",
                self._symbols,
            )
        return marked

    def _shaped(self, operation: str, operands: str, types: str, result: str) -> str | None:
        """An operation that takes the sizes of its result as an operand."""
        if "⟦" not in result:
            return None
        sizes = _sizes_of(result)
        first, comma, rest = operands.partition(", ")
        names = f"{first}, {self._list(sizes)}" if first else self._list(sizes)
        return (
            f"stablehlo.{operation} {names}{comma}{rest} : "
            f"({types}{', ' if types else ''}{_list_type(sizes)}) -> {result}"
        )

    def _write_reshape(self, operands: str, types: str, result: str) -> str | None:
        return self._shaped("dynamic_reshape", operands, types, result)

    def _write_broadcast_in_dim(self, operands: str, types: str, result: str) -> str | None:
        return self._shaped("dynamic_broadcast_in_dim", operands, types, result)

    def _write_iota(self, operands: str, types: str, result: str) -> str | None:
        return self._shaped("dynamic_iota", f", {operands}", types, result)

    def _write_constant(self, operands: str, _: str, result: str) -> str | None:
        value = operands.removeprefix("dense<").removesuffix(">")
        element = f"tensor<{_element_of(result)}>"
        if value.startswith("["):
            numbers = [number.strip("⟦⟧") for number in value.strip("[]").split(", ")]
            if "i" not in _element_of(result):
                return None
            return f"stablehlo.convert {self._list(numbers)} : ({_list_type(numbers)}) -> {result}"
        if "⟦" in value:
            size = self._size(value.removesuffix(".0").strip("⟦⟧"))
            if result == element:
                return f"stablehlo.convert {size} : (tensor<i32>) -> {result}"
            scalar = self._computed(f"convert {size} : (tensor<i32>) -> {element}")
        else:
            scalar = self._computed(f"constant {operands} : {element}")
        return self._shaped(
            "dynamic_broadcast_in_dim", f"{scalar}, dims = []", element, result
        ) or (f"stablehlo.broadcast_in_dim {scalar}, dims = [] : ({element}) -> {result}")

    def _write_slice(self, operands: str, types: str, result: str) -> str | None:
        if "⟦" not in operands:
            return None
        name, _, ranges = operands.partition(" [")
        bounds = [[*part.split(":"), "1"] for part in _plain(ranges.rstrip("]")).split(", ")]
        lists = [[bound[i] for bound in bounds] for i in range(3)]
        return self._with_lists("real_dynamic_slice", name, lists, types, result)

    def _write_pad(self, operands: str, types: str, result: str) -> str | None:
        if "⟦" not in operands:
            return None
        name = operands.partition(", low")[0]
        lists = [part.split(", ") for part in re.findall(r"\[([^\]]*)\]", _plain(operands))]
        return self._with_lists("dynamic_pad", name, lists, types, result)

    def _write_gather(self, operands: str, types: str, result: str) -> str | None:
        sizes = re.search(r", slice_sizes = array<i64: ([^>]*)>", operands)
        if sizes is None or "⟦" not in sizes[1]:
            return None
        numbers = _plain(sizes[1]).split(", ")
        called = operands.replace(sizes[0], "").replace(")", f", {self._list(numbers)})", 1)
        return f'"stablehlo.dynamic_gather"{called} : ({types}, {_list_type(numbers)}) -> {result}'

    def _with_lists(
        self, operation: str, operands: str, lists: list[list[str]], types: str, result: str
    ) -> str:
        names = ", ".join([operands, *map(self._list, lists)])
        types = ", ".join([types, *map(_list_type, lists)])
        return f"stablehlo.{operation} {names} : ({types}) -> {result}"


def _list_type(sizes: Sequence[str]) -> str:
    return f"tensor<{len(sizes)}xi32>"


def _plain(text: str) -> str:
    """Without the marks of expressions."""
    return text.replace("⟦", "").replace("⟧", "")
