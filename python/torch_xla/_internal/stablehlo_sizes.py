"""Programs for any size of some dimensions: one text, with expressions for what depends on them.

A program is written for several sizes. The texts differ in numbers only; each number that differs
is a polynomial in the sizes, found from its values, and checked with sizes that were not used for
it. In the text, the *template*, it stands as `⟦2*s0*s1+1⟧`. The program for given sizes is the
template with the expressions' values, which the C++ library makes, too (`serve/sizes.cpp`)."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Size = int | str  # a number, or an expression: a sum of products of numbers and symbols

_PLACE = re.compile("⟦([^⟧]*)⟧")
_SIZES = (5, 11, 17, 23), (7, 13, 19, 25), (9, 15, 21, 27)  # seldom those of anything else
# Strings, names, identifiers and hexadecimal numbers stay as they are. Sizes of a type; numbers.
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|[%@#^!][\w$.]+|0x[0-9A-Fa-f]+'
    r"|(?P<sizes>(?<=tensor<)(?:\d+x)+)"
    r"|[A-Za-z_][\w$.]*|(?P<number>-?\d+(?:\.\d+)?(?:e[+-]\d+)?)"
)


class SizesError(ValueError):
    """A program that differs in more than its sizes, and the symbols that it depends on."""

    def __init__(self, why: str, symbols: Sequence[str]) -> None:
        super().__init__(why)
        self.symbols = symbols


@dataclass
class DynamicSizes:
    """Sizes of the inputs and outputs of a program, and the least and the greatest value of each
    symbol in them (None: there is no greatest)."""

    ranges: dict[str, list[int | None]]
    inputs: list[list[Size]]
    outputs: list[list[Size]]


def value_of(size: Size, symbols: Mapping[str, int]) -> int:
    """A size for these values of the symbols."""
    if isinstance(size, int):
        return size
    products = (product.split("*") for product in size.split("+"))
    return sum(
        math.prod(symbols[name] if name in symbols else int(name) for name in product)
        for product in products
    )


def specialised(template: str, symbols: Mapping[str, int]) -> str:
    """The program for these sizes."""
    return _PLACE.sub(lambda place: str(value_of(place[1], symbols)), template)


def symbol_values(sizes: DynamicSizes, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The symbols for inputs of these shapes. Raises where the program does not take them."""
    values: dict[str, int] = {}
    for wanted, given in zip(sizes.inputs, shapes, strict=True):
        for size, number in zip(wanted, given, strict=False):
            symbol = linear_in(size)
            if symbol is not None and symbol not in values:
                start = value_of(size, {symbol: 0})
                values[symbol] = (number - start) // (value_of(size, {symbol: 1}) - start)
    for at, (wanted, given) in enumerate(zip(sizes.inputs, shapes, strict=True)):
        if len(wanted) != len(given) or [value_of(size, values) for size in wanted] != list(given):
            raise ValueError(
                f"input {at} of the program has the sizes [{_listed(wanted)}], and was given "
                f"[{_listed(given)}]" + (f" where {_assigned(values)}" if values else "")
            )
    for symbol, (least, most) in sizes.ranges.items():
        if values[symbol] < (least or 0) or (most is not None and values[symbol] > most):
            limits = f"from {least}" + ("" if most is None else f" to {most}")
            raise ValueError(
                f"the program was exported for sizes {symbol} {limits}, and is given "
                f"{values[symbol]}: export it with another range in torch.export.Dim"
            )
    return values


def linear_in(size: Size) -> str | None:
    """The symbol of a size that has one, and is linear in it."""
    names = set(re.findall(r"[A-Za-z_]\w*", str(size)))
    if len(names) != 1:
        return None
    (name,) = names
    at_0, at_1, at_2 = (value_of(size, {name: value}) for value in range(3))
    return name if at_2 - at_1 == at_1 - at_0 else None


def unsolvable(sizes: DynamicSizes) -> list[str]:
    """Symbols that the shapes of the inputs do not tell."""
    found = {linear_in(size) for shape in sizes.inputs for size in shape}
    return [symbol for symbol in sizes.ranges if symbol not in found]


def _listed(sizes: Sequence[Size]) -> str:
    return ", ".join(map(str, sizes))


def _assigned(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} is {value}" for name, value in values.items())


class Samples:
    """Sizes to write a program for: `points`, of which the last are for checks; and the numbers in
    what is written as functions of them. Polynomials have the degree 2 in each symbol, 3 in all."""

    def __init__(self, ranges: Mapping[str, Sequence[int | None]]) -> None:
        self.symbols = list(ranges)
        axes = [_axis(n, least or 0, most) for n, (least, most) in enumerate(ranges.values())]
        degrees = (range(min(2, len(axis) - 1) + 1) for axis in axes)
        self._exponents = [es for es in itertools.product(*degrees) if sum(es) <= 3]
        self.points: list[tuple[int, ...]] = []
        checks: list[tuple[int, ...]] = []
        reduced: list[list[Fraction]] = []
        for point in sorted(itertools.product(*axes), key=lambda point: _distance(point, axes)):
            row = _reduced(self._powers(point), reduced)
            if any(row):
                reduced.append(row)
                self.points.append(point)
            else:
                checks.append(point)
        self._inverse = _inverse([self._powers(point) for point in self.points])
        self.points += checks[-2:]
        self._known: dict[tuple[int, ...], Size | None] = {}

    def _powers(self, point: Sequence[int]) -> list[Fraction]:
        return [
            Fraction(math.prod(size**e for size, e in zip(point, exponents, strict=True)))
            for exponents in self._exponents
        ]

    def values(self) -> list[dict[str, int]]:
        return [dict(zip(self.symbols, point, strict=True)) for point in self.points]

    def size(self, numbers: tuple[int, ...]) -> Size | None:
        """The polynomial with these values at the points; None if there is none."""
        if len(set(numbers)) == 1:
            return numbers[0]
        if numbers not in self._known:
            self._known[numbers] = self._fitted(numbers)
        return self._known[numbers]

    def shape(self, shapes: Sequence[Sequence[int]]) -> list[Size]:
        """The sizes of a tensor that has these shapes at the points."""
        sizes = [(numbers, self.size(numbers)) for numbers in zip(*shapes, strict=True)]
        for numbers, size in sizes:
            if size is None:
                why = "the size of an input or a result is no polynomial"
                raise SizesError(why, self.dependence(numbers))
        return [size for _, size in sizes if size is not None]

    def _fitted(self, numbers: tuple[int, ...]) -> str | None:
        factors = [_dot(row, numbers[: len(row)]) for row in self._inverse]
        for point, number in zip(self.points, numbers, strict=True):
            if _dot(self._powers(point), factors) != number:
                return None
        if any(factor.denominator != 1 for factor in factors):
            return None
        terms = []
        for factor, exponents in zip(factors, self._exponents, strict=True):
            names = [
                name for name, e in zip(self.symbols, exponents, strict=True) for _ in range(e)
            ]
            if factor:
                terms.append("*".join(([] if factor == 1 and names else [str(factor)]) + names))
        return "+".join(reversed(terms))

    def dependence(self, values: Sequence[object]) -> list[str]:
        """The symbols that something depends on, by its values at the points."""
        first = self.points[0]
        found = []
        for axis, symbol in enumerate(self.symbols):
            for point, value in zip(self.points, values, strict=True):
                changed = [a != b for a, b in zip(point, first, strict=True)]
                if changed[axis] and sum(changed) == 1 and value != values[0]:
                    found.append(symbol)
                    break
        return found or self.symbols


def _axis(number: int, least: int, most: int | None) -> list[int]:
    """Up to four sizes of a range, other ones for each axis: what is alike by chance would be
    written alike. Sizes of 0 and 1 are special to many operators."""
    least = max(least, 2)
    if most is None:
        most = max(least, _SIZES[-1][-1]) + 4
    good = [size for size in _SIZES[number % len(_SIZES)] if least <= size <= most]
    others = [size for size in range(min(most, least + 8), least - 1, -1) if size not in good]
    return (good + others)[:4] or [most]


def _distance(point: Sequence[int], axes: Sequence[Sequence[int]]) -> tuple[int, int]:
    """From the first point: in how many symbols it differs, and how far."""
    places = [axis.index(size) for size, axis in zip(point, axes, strict=True)]
    return sum(place > 0 for place in places), sum(places)


def _dot(xs: Sequence[Fraction], ys: Sequence[Fraction | int]) -> Fraction:
    return sum((x * y for x, y in zip(xs, ys, strict=True)), Fraction(0))


def _reduced(row: list[Fraction], rows: list[list[Fraction]]) -> list[Fraction]:
    """What of a row is independent of the others, which are reduced."""
    for other in rows:
        pivot = next(i for i, value in enumerate(other) if value)
        factor = row[pivot] / other[pivot]
        row = [a - factor * b for a, b in zip(row, other, strict=True)]
    return row


def _inverse(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    n = len(matrix)
    work = [[*row, *(Fraction(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next(j for j in range(i, n) if work[j][i])
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [value / work[i][i] for value in work[i]]
        for j in range(n):
            if j != i:
                work[j] = [a - work[j][i] * b for a, b in zip(work[j], work[i], strict=True)]
    return [row[n:] for row in work]


def template_of(texts: Sequence[str], samples: Samples) -> str:
    """The template of a program's texts for the samples."""
    result = []
    for lines in itertools.zip_longest(*(text.splitlines() for text in texts), fillvalue=""):
        frames, numbers = zip(*map(_taken_apart, lines), strict=True)
        if len(set(frames)) != 1:
            other = lines[[frame != frames[0] for frame in frames].index(True)]
            raise SizesError(
                f"`{_short(lines[0])}` is `{_short(other)}` for another size",
                samples.dependence(frames),
            )
        written = [_number(column, samples, lines) for column in zip(*numbers, strict=True)]
        result.append(
            "".join(map("".join, zip(frames[0].split("⟦⟧"), [*written, ""], strict=True)))
        )
    return "\n".join(result) + "\n"


def _taken_apart(line: str) -> tuple[str, list[str]]:
    """A line with places for its numbers, and these."""
    numbers: list[str] = []

    def take(token: re.Match[str]) -> str:
        if token["sizes"]:
            numbers.extend(token["sizes"].split("x")[:-1])
            return "⟦⟧x" * token["sizes"].count("x")
        if token["number"]:
            numbers.append(token["number"])
            return "⟦⟧"
        return token[0]

    return _TOKEN.sub(take, line), numbers


def _number(written: tuple[str, ...], samples: Samples, lines: Sequence[str]) -> str:
    """A number in a template."""
    if len(set(written)) == 1:
        return written[0]
    values = [float(number) for number in written]
    size = samples.size(tuple(map(int, values))) if all(map(float.is_integer, values)) else None
    if size is None:
        raise SizesError(
            f"{written[0]} in `{_short(lines[0])}` is {written[1]} for another size, and is no "
            "polynomial",
            samples.dependence(written),
        )
    return f"⟦{size}⟧" + (".0" if "." in written[0] else "")


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= 120 else line[:117] + "..."
