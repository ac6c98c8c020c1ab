"""Numbers of a trace that each call computes anew.

A training step computes numbers in Python: step counts, bias corrections, a learning rate that a
schedule moves. While a pure function is traced these are symbols: arithmetic with them is written
down, and repeated at each call with that call's values (`replay.py`). A comparison is answered with
the value of now and becomes a condition of the trace.

Some numbers only the device knows: how many steps were not skipped. Arithmetic with them is part of
the trace, and operators that are given them read them there. A comparison is refused, as any other
value that is read.
"""

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

import torch

from torch_xla import _XLAC

Number = int | float

_SINGLE = struct.Struct("f")


def rounded(x: Any) -> Any:
    """`x` as a float32 holds it."""
    if isinstance(x, torch.Tensor):
        return x.float().double()
    return float(_SINGLE.unpack(_SINGLE.pack(x))[0])


class Leaf:
    """A number that each call finds anew."""

    def read(self) -> Number | None:
        """Its value now; None where the trace does not hold any more."""
        raise NotImplementedError

    def write(self, value: Number) -> None:
        """Its value after the call."""
        raise NotImplementedError


class Recorder:
    """The arithmetic of one trace, as the source of a function."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self._lines: list[str] = []
        self._symbols: dict[tuple[Any, ...], Symbol] = {}
        self._given: list[str] = []
        self._numbers = _XLAC.TraceNumbers()

    def is_idle(self) -> bool:
        """Has the trace neither been given a number nor asked about one?"""
        return not self._given and len(self._lines) == len(self.leaves)

    def leaf(self, leaf: Leaf, value: Number) -> "Symbol":
        self.leaves.append(leaf)
        return self._symbol(f"leaves[{len(self.leaves) - 1}]", value)

    def apply(self, function: Callable[..., Any], text: str, *operands: Any) -> Any:
        """The symbol for `text` over the operands; the same one for the same question."""
        if any(isinstance(x, Symbol) and x.node.computed is not None for x in operands):
            return self.computed(function(*map(_on_device, operands)))
        values = [x.node.value if isinstance(x, Symbol) else x for x in operands]
        key = (text, *(x.node.name if isinstance(x, Symbol) else (type(x), x) for x in operands))
        if key not in self._symbols:
            self._symbols[key] = self._symbol(text.format(*map(_text, operands)), function(*values))
        return self._symbols[key]

    def computed(self, number: torch.Tensor) -> "Symbol":
        """The symbol for a number that the trace computes."""
        return Symbol(Node(self, "", 1.0, number.detach().double()))

    def condition(self, text: str, operands: tuple[Any, ...], outcome: object) -> None:
        line = f"if ({text.format(*map(_text, operands))}) != {outcome!r}: return None"
        if line not in self._lines:
            self._lines.append(line)

    def give(self, node: "Node") -> int:
        """The number becomes one of the computation: calls give it, or the trace computes it."""
        if node.computed is not None:
            return self._numbers.add_computed(node.computed)
        self._given.append(node.name)
        known_by: int = self._numbers.add(float(node.value))
        return known_by

    def function(self, results: list[Any]) -> Callable[[list[Number]], Any]:
        """leaves → (numbers that calls give, values of `results`), or None where the trace does
        not hold for these leaves."""
        body = [
            *self._lines,
            f"return [{', '.join(self._given)}], [{', '.join(map(_text, results))}]",
        ]
        source = "def numbers(leaves):\n" + "".join(f"    {line}\n" for line in body)
        names: dict[str, Any] = {"rounded": rounded, "math": math, "inf": math.inf, "nan": math.nan}
        exec(source, names)
        numbers: Callable[[list[Number]], Any] = names["numbers"]
        return numbers

    def _symbol(self, text: str, value: Number) -> "Symbol":
        name = f"s{len(self._lines)}"
        self._lines.append(f"{name} = {text}")
        return Symbol(Node(self, name, value))


def _on_device(x: Any) -> Any:
    """A symbol as a tensor."""
    if not isinstance(x, Symbol):
        return x
    if x.node.computed is not None:
        return x.node.computed
    number: Any = x
    return torch.full((), number, dtype=torch.float64, device="xla")


def _text(x: Any) -> str:
    return x.node.name if isinstance(x, Symbol) else repr(x)


class Node:
    """What PyTorch asks of a symbolic number."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        value: Number,
        computed: torch.Tensor | None = None,
    ) -> None:
        self.recorder = recorder
        self.name = name
        self.value = value
        self.computed = computed
        self._known_by: int | None = None

    def maybe_as_int(self) -> int:
        """Which number of the computation it is: asked when an operator is given it."""
        if self._known_by is None:
            self._known_by = self.recorder.give(self)
        return self._known_by

    def guard_float(self, file: str, line: int) -> float:
        return float(Symbol(self))

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_float(self) -> bool:
        return True

    def is_nested_int(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def maybe_as_float(self) -> None:
        return None

    def maybe_as_bool(self) -> None:
        return None


def _arithmetic(text: str, function: Callable[..., Any], reflected: bool = False) -> Any:
    def method(self: "Symbol", other: Any) -> Any:
        if not isinstance(other, (int, float, Symbol)):
            return NotImplemented
        operands = (other, self) if reflected else (self, other)
        return self.node.recorder.apply(function, f"({{}} {text} {{}})", *operands)

    return method


def _comparison(text: str, function: Callable[..., bool]) -> Any:
    def method(self: "Symbol", other: Any) -> Any:
        if not isinstance(other, (int, float, Symbol)):
            return NotImplemented
        if any(isinstance(x, Symbol) and x.node.computed is not None for x in (self, other)):
            return bool(function(_on_device(self), _on_device(other)))  # refused at its line
        theirs = other.node.value if isinstance(other, Symbol) else other
        outcome = function(self.node.value, theirs)
        self.node.recorder.condition(f"{{}} {text} {{}}", (self, other), outcome)
        return outcome

    return method


def _unary(text: str, function: Callable[..., Any]) -> Any:
    return lambda self: self.node.recorder.apply(function, text, self)


class Symbol(torch.SymFloat):
    """A number of a trace."""

    node: Node

    def __init__(self, node: Node) -> None:
        super().__init__(node)  # type: ignore[no-untyped-call]

    __add__, __radd__ = _arithmetic("+", operator.add), _arithmetic("+", operator.add, True)
    __sub__, __rsub__ = _arithmetic("-", operator.sub), _arithmetic("-", operator.sub, True)
    __mul__, __rmul__ = _arithmetic("*", operator.mul), _arithmetic("*", operator.mul, True)
    __truediv__ = _arithmetic("/", operator.truediv)
    __rtruediv__ = _arithmetic("/", operator.truediv, True)
    __floordiv__ = _arithmetic("//", operator.floordiv)
    __rfloordiv__ = _arithmetic("//", operator.floordiv, True)
    __mod__, __rmod__ = _arithmetic("%", operator.mod), _arithmetic("%", operator.mod, True)
    __pow__, __rpow__ = _arithmetic("**", operator.pow), _arithmetic("**", operator.pow, True)
    __neg__ = _unary("(-{})", operator.neg)
    __abs__ = _unary("abs({})", operator.abs)

    __eq__, __ne__ = _comparison("==", operator.eq), _comparison("!=", operator.ne)
    __lt__, __le__ = _comparison("<", operator.lt), _comparison("<=", operator.le)
    __gt__, __ge__ = _comparison(">", operator.gt), _comparison(">=", operator.ge)

    def __pos__(self) -> "Symbol":
        return self

    def __bool__(self) -> bool:
        return bool(self != 0)

    # As a number of Python's it is what it is now: with another one the function is traced anew.
    def __float__(self) -> float:
        value = float(self._known())
        self.node.recorder.condition("float({})", (self,), value)
        return value

    def __int__(self) -> int:
        value = int(self._known())
        self.node.recorder.condition("int({})", (self,), value)
        return value

    __index__ = __trunc__ = __int__

    def __round__(self, digits: int | None = None) -> Number:
        value = round(self._known(), digits)
        self.node.recorder.condition(f"round({{}}, {digits})", (self,), value)
        return value

    def _known(self) -> Number:
        if self.node.computed is not None:
            return self.node.computed.item()  # refused at its line
        return self.node.value

    def __hash__(self) -> int:
        return hash((id(self.node.recorder), self.node.name))

    # For people to read, not to compute with.
    def __repr__(self) -> str:
        return repr(self.node.value)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.node.value, spec)


class HostScalar(torch.Tensor):
    """Stands for a number that an optimizer keeps in a CPU tensor (a count of steps)."""

    symbol: Any

    @staticmethod
    def of(tensor: torch.Tensor, symbol: Any) -> "HostScalar":
        scalar = torch.Tensor._make_subclass(HostScalar, tensor.detach().clone())
        scalar.symbol = symbol
        return scalar

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":  # an attribute
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return _call(name, args, kwargs or {})


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "truediv": operator.truediv,
    "true_divide": operator.truediv,
    "pow": operator.pow,
}
_IN_PLACE = {f(name): name for name in _OPERATIONS for f in ("{}_".format, "__i{}__".format)}
_REFLECTED = {f"__r{name}__": name for name in _OPERATIONS}
_NEW = {f(name): name for name in _OPERATIONS for f in ("{}".format, "__{}__".format)}
_PLAIN: dict[str, Callable[..., Any]] = {
    "item": lambda x: x,
    "__float__": float,
    "__int__": int,
    "__bool__": bool,
    "neg": operator.neg,
    "sqrt": lambda x: x**0.5,
    "__neg__": operator.neg,
    "__repr__": repr,
    "__format__": format,
    "rsub": lambda x, y: y - x,
}
_COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_PLAIN |= {
    f(name): compare for name, compare in _COMPARISONS.items() for f in (str, "__{}__".format)
}


def _value(x: Any) -> Any:
    if isinstance(x, HostScalar):
        return x.symbol
    if isinstance(x, torch.Tensor):
        return x.item()
    return x


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of PyTorch's on numbers that stand for CPU tensors."""
    if name.startswith("_foreach_") and name.endswith("_"):
        others = args[1] if isinstance(args[1], (list, tuple)) else [args[1]] * len(args[0])
        for x, y in zip(args[0], others, strict=True):
            _call(name.removeprefix("_foreach_"), (x, y), kwargs)
        return None
    if name in _PLAIN:
        return _PLAIN[name](*map(_value, args))
    if name in ("fill_", "copy_"):
        return _write(args[0], _value(args[1]))
    if name == "to":
        device, dtype, *_ = torch._C._nn._parse_to(*args[1:], **kwargs)
        dtype, device = dtype or args[0].dtype, device or torch.device("cpu")
        return torch.full((), args[0].symbol, dtype=dtype, device=device)
    if len(args) == 2:
        x, y = _value(args[0]), _value(args[1])
        if kwargs.get("alpha", 1) != 1:
            y = y * kwargs["alpha"]
        if name in _IN_PLACE:
            return _write(args[0], _OPERATIONS[_IN_PLACE[name]](x, _rounded(args[0], y)))
        if name in _NEW:
            return _OPERATIONS[_NEW[name]](x, y)
        if name in _REFLECTED:
            return _OPERATIONS[_REFLECTED[name]](y, x)
    raise NotImplementedError(
        f"{name} of a number that the optimizer keeps in a CPU tensor cannot be repeated by the "
        "calls of a pure function: keep that number on the device, or as a Python number"
    )


def _write(tensor: HostScalar, value: Any) -> HostScalar:
    tensor.symbol = _rounded(tensor, value)
    return tensor


def _rounded(tensor: HostScalar, x: Any) -> Any:
    """`x` as the tensor holds it."""
    if tensor.dtype != torch.float32:
        return x
    return x.node.recorder.apply(rounded, "rounded({})", x) if isinstance(x, Symbol) else rounded(x)
