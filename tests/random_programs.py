"""Random PyTorch programs as lines of source: views, writes through them, indices, promotion,
reductions, gradients. A line is made from a template whose fields are filled with variables that
fit, and is tried on the CPU before it joins the program.
"""

import random
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import random_helpers
import torch
from random_templates import PLAIN, READING, TABLES
from torch import Tensor

DTYPES = [torch.float32] * 5 + [torch.float64, torch.int64, torch.int64, torch.int32, torch.uint8]
DTYPES += [torch.int8, torch.bool, torch.bool, torch.complex64, torch.bfloat16, torch.float16]
CAST_TARGETS = ["float32", "float64", "int64", "int32", "bool", "complex64", "bfloat16"]
LARGEST = 1e4  # values stay small, so that rounding does
MOST_ELEMENTS = 600


def values(seed: int, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """The same numbers on every device, which binary floating point holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-12, 13, sizes, generator=generator) / 4
    if dtype == torch.uint8:
        numbers = numbers.abs()
    if dtype.is_complex:
        numbers = torch.complex(numbers, torch.randint(-8, 9, sizes, generator=generator) / 4)
    return numbers.to(dtype).to(device)


@dataclass(frozen=True)
class Line:
    text: str
    reads: bool = False  # a value on the host: pure functions refuse it
    plain: bool = False  # no part of a function
    raises: bool = False


@dataclass
class Program:
    seed: int
    inputs: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        return any(line.reads for line in self.lines)

    @property
    def plain(self) -> bool:
        return any(line.plain for line in self.lines)

    @property
    def raises(self) -> bool:
        return any(line.raises for line in self.lines)

    def names(self) -> list[str]:
        return [line.partition(" ")[0] for line in self.inputs]

    def source(self) -> str:
        return "\n".join([*self.inputs, *(line.text for line in self.lines)])


MASKS = re.compile(r"[=!]= |> 0\]|True|False")
QUIET = "with torch.no_grad(): "


class NoFit(Exception):
    """No variable fits a template's field."""


def usable(value: Any) -> bool:
    """False for a part of `unbind` whose base was written: PyTorch refuses all questions."""
    try:
        return isinstance(value, Tensor) and isinstance(value.is_leaf, bool)
    except RuntimeError:
        return False


def is_exact(tensor: Tensor) -> bool:
    if tensor.dtype.is_complex:
        return False
    if not tensor.dtype.is_floating_point:
        return True
    scaled = tensor.detach().double() * 64
    return bool((scaled.isfinite() & (scaled == scaled.round())).all())


def is_off_cut(tensor: Tensor) -> bool:
    """Whether no angle is one of minus or plus pi: PyTorch's kernels negate zeros both ways."""
    if not tensor.dtype.is_complex:
        return False
    parts = torch.view_as_real(tensor.detach().resolve_conj().resolve_neg())
    return not bool(((parts[..., 0] <= 0) & (parts[..., 1] == 0)).any())


def places_of(tensor: Tensor) -> list[int]:
    """Where the elements lie in the storage."""
    places = [tensor.storage_offset()]
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = [place + index * stride for place in places for index in range(size)]
    return places


def aliases(text: str, variables: dict[str, Tensor]) -> bool:
    """Whether what `out=` names shares memory with an argument, which PyTorch leaves undefined."""
    before, _, after = text.partition("out=")
    storages = [
        {
            variables[name].untyped_storage()._cdata
            for name in re.findall(r"\w+", part)
            if name in variables
        }
        for part in (before, after)
    ]
    return bool(storages[0] & storages[1])


def changed(tensor: Tensor, before: Tensor) -> bool:
    return not (usable(tensor) and torch.equal(tensor.detach().nan_to_num(), before.nan_to_num()))


class Filler:
    """Fills one template's fields with what exists."""

    def __init__(self, rng: random.Random, variables: dict[str, Tensor]) -> None:
        self.rng, self.variables = rng, variables
        self.written: Tensor | None = None
        self.first: Tensor | None = None
        self.name = ""
        self.dims: dict[str, int] = {}

    def fill(self, template: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: self.value(match[1]), template)

    def pick(self, fits: Any) -> str:
        names = [name for name, tensor in self.variables.items() if fits(tensor)]
        if not names:
            raise NoFit
        return self.rng.choice(names[-6:] if self.rng.random() < 0.7 else names)

    def tensor(self, fits: Any) -> str:
        name = self.pick(fits)
        if self.first is None:
            self.first, self.name = self.variables[name], name
        return name

    def is_apart(self, tensor: Tensor) -> bool:
        """A write reads no other part of the memory that it changes: PyTorch does not say when."""
        if self.written is None or tensor is self.written:
            return True
        return tensor.untyped_storage()._cdata != self.written.untyped_storage()._cdata

    def value(self, kind: str) -> str:
        kinds = {
            "x": lambda t: True,
            "f": lambda t: t.dtype.is_floating_point,
            "g": lambda t: t.dtype.is_floating_point and is_exact(t),
            "i": lambda t: not t.dtype.is_floating_point and not t.dtype.is_complex,
            "b": lambda t: t.dtype == torch.bool,
            "c": lambda t: t.dtype.is_complex,
            "e": is_exact,
            "o": is_off_cut,
            "w": lambda t: self.may_be_written(t),
            "r": lambda t: t.requires_grad,
            "leaf": lambda t: t.is_leaf and t.requires_grad,
        }
        if kind == "w":
            name = self.tensor(kinds[kind])
            self.written = self.written if self.written is not None else self.variables[name]
            return name
        if kind in kinds:
            return self.tensor(lambda t: kinds[kind](t) and self.is_apart(t))
        if kind in ("x2", "i2", "b2", "e2"):
            return self.pick(lambda t: kinds[kind[0]](t) and self.fits_first(t))
        if kind == "y":
            return self.tensor(kinds["x"]) if self.first is None else self.pick(self.fits_first)
        return str(getattr(self, "field_" + kind)())

    def may_be_written(self, tensor: Tensor) -> bool:
        """What PyTorch leaves undefined (writes through windows that overlap) is left out."""
        expanded = any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        if not expanded and len(set(places_of(tensor))) < tensor.numel():
            return False
        return not (tensor.is_leaf and tensor.requires_grad) or self.rng.random() < 0.1

    def fits_first(self, tensor: Tensor) -> bool:
        if not self.is_apart(tensor):
            return False
        try:
            return len(torch.broadcast_shapes(tensor.shape, self.sizes())) >= 0
        except RuntimeError:
            return self.rng.random() < 0.02

    def sizes(self) -> list[int]:
        if self.first is None:
            raise NoFit
        return list(self.first.shape)

    def field_v(self) -> str:
        return self.name

    def field_vy(self) -> str:
        return self.pick(lambda t: t.dim() <= 1 and self.is_apart(t))

    def dim(self, key: str) -> int:
        rank = len(self.sizes())
        if key not in self.dims:
            self.dims[key] = self.rng.randint(-rank, max(rank - 1, 0))
        return self.dims[key]

    def field_d(self) -> int:
        return self.dim("d")

    def field_D(self) -> int:
        return self.dim("D")

    def size_of_d(self) -> int:
        sizes = self.sizes()
        return sizes[self.dim("d")] if sizes else 1

    def field_n(self) -> int:
        size = self.size_of_d()
        return self.rng.randint(-size, max(size - 1, 0))

    def field_s(self) -> str:
        return self.rng.choice(["0", "1", "-2", "0.5", "1.25", "3", "True", "2.0", "-0.75"])

    def field_k(self) -> str:
        return self.rng.choice(["1", "2", "0.5", "-1", "4"])

    def field_t(self) -> str:
        return self.rng.choice(CAST_TARGETS)

    def field_p(self) -> str:
        return ", ".join(map(str, self.rng.sample(range(len(self.sizes())), len(self.sizes()))))

    def field_ones(self) -> str:
        return ", ".join("1" for _ in self.sizes()) or "1"

    def field_ones2(self) -> str:
        return str([1] * len(self.sizes()))

    def field_strided(self) -> str:
        assert self.first is not None
        if self.first.numel() == 0:
            raise NoFit  # its elements are others'
        owner = self.first if self.first._base is None else self.first._base
        # Some losses leave what they summed behind their result.
        used = (max(places_of(owner), default=-1) + 1) * owner.element_size()
        held = self.first.untyped_storage().nbytes()
        elements = min(held, used) // self.first.element_size()
        sizes = [self.rng.randint(1, 3) for _ in range(self.rng.randint(0, 3))]
        strides = [self.rng.choice([0, 1, 1, 2, 3, 4]) for _ in sizes]
        needed = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        offset = self.rng.randint(0, max(elements - 1 - needed, 0))
        if elements <= offset + needed < held // self.first.element_size():
            raise NoFit
        return f"{sizes}, {strides}, {offset}"

    def field_apart(self) -> str:
        """A window of elements that lie apart: others may not be written."""
        for _ in range(20):
            window = self.field_strided()
            places = places_of(torch.empty(9999).as_strided(*eval(window)))
            if len(set(places)) == len(places):
                return window
        raise NoFit

    def one_index(self, size: int) -> str:
        if self.rng.random() < 0.3:
            return str(self.rng.randint(-size, max(size - 1, 0)))
        start = self.rng.choice(["", "", "0", "1", "-1", "-2"])
        stop = self.rng.choice(["", "", "1", "2", "-1", "9"])
        step = self.rng.choice(["", "", "", ":2", ":3"])
        return f"{start}:{stop}{step}"

    def indices(self, special: list[str]) -> str:
        parts = [self.one_index(size) for size in self.sizes()]
        parts = parts[: self.rng.randint(min(1, len(parts)), len(parts))]
        for item in special:
            where = self.rng.randrange(len(parts)) if parts else None
            if where is None:
                parts.append(item)
            else:
                parts[where] = item
        if self.rng.random() < 0.15:
            parts.insert(self.rng.randint(0, len(parts)), "None")
        if self.rng.random() < 0.15:
            parts.insert(self.rng.randint(0, len(parts)), "...")
        return ", ".join(parts) or "..."

    def field_I(self) -> str:
        return self.indices([])

    def index_list(self, size: int, distinct: bool = True) -> list[int]:
        count = self.rng.randint(0, min(size, 3))
        return self.rng.sample(range(-size, 0) if self.rng.random() < 0.3 else range(size), count)

    def field_ix(self) -> str:
        return (
            f"torch.tensor({self.index_list(self.size_of_d())}, dtype=torch.int64, device=device)"
        )

    def field_J(self) -> str:
        sizes = self.sizes()
        if not sizes:
            raise NoFit
        form = self.rng.choice(["list", "device", "device", "host", "int32", "two"])
        numbers = self.index_list(sizes[0])
        if form == "list":
            return f"{numbers}"
        if form == "int32":
            return f"torch.tensor({numbers}, dtype=torch.int32, device=device)"
        place = "'cpu'" if form == "host" else "device"
        index = f"torch.tensor({numbers}, dtype=torch.int64, device={place})"
        if form == "two" and len(sizes) > 1:
            other = [self.rng.randrange(sizes[-1]) if sizes[-1] else 0 for _ in numbers]
            return f"{index}, ..., torch.tensor({other}, dtype=torch.int64, device=device)"
        if len(sizes) > 1 and self.rng.random() < 0.4:
            return f"{index}, {self.one_index(sizes[1])}"
        return index

    def field_R(self) -> str:
        sizes = self.sizes()
        if not sizes:
            return self.rng.choice(
                ["torch.tensor(True, device=device)", f"{self.name} == {self.name}"]
            )
        rows = [self.rng.random() < 0.5 for _ in range(sizes[0])]
        return self.rng.choice(
            [
                f"{self.name} == {self.name}[{', '.join(['0:1'] * len(sizes))}]",
                f"{self.name} != {self.name}",
                f"torch.tensor({rows}, dtype=torch.bool, device=device)",
                f"{rows}" if rows else "...",
                f"torch.tensor({rows}, dtype=torch.bool)",
            ]
        )

    def field_M(self) -> str:
        return self.rng.choice(
            [f"{self.name} == {self.name}", f"{self.name} != 0", f"{self.name} != {self.name}"]
        )

    def field_lead(self) -> str:
        """An index that keeps nothing or little, for sources of index_add_."""
        return self.rng.choice(["[0, 0]", "[0]", "[]", "[0, 99]", "[True]", "[-1]"])


class Generator:
    def __init__(self, seed: int, length: int | None = None, raising: float = 0.15) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed)
        self.length = length or self.rng.randint(5, 30)
        self.raising = raising
        self.scope: dict[str, Any] = {}

    def make(self) -> Program:
        for name in "abcd"[: self.rng.randint(2, 4)]:
            self.add_input(name)
        self.replay()
        attempts = 0
        while len(self.program.lines) < self.length and attempts < 20 * self.length:
            attempts += 1
            self.attempt()
        return self.program

    def add_input(self, name: str) -> None:
        rank = self.rng.choice([0, 1, 2, 2, 3, 3, 4])
        sizes = tuple(self.rng.choice([1, 2, 3, 3, 4, 5]) for _ in range(rank))
        if rank and self.rng.random() < 0.08:
            sizes = (*sizes[:-1], 0)
        dtype = self.rng.choice(DTYPES) if name != "a" else torch.float32
        text = f"{name} = values({self.rng.randrange(1000)}, {sizes}, {dtype}, device)"
        if dtype.is_floating_point and self.rng.random() < 0.4:
            text += ".requires_grad_()"
        self.program.inputs.append(text)

    def replay(self) -> None:
        self.scope = {"torch": torch, "H": random_helpers, "values": values, "device": "cpu"}
        for text in self.program.inputs:
            exec(text, self.scope)
        for line in self.program.lines:
            self.run(line.text)

    def run(self, text: str) -> Exception | None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "An output with one or more elements was resized")
                exec(text, self.scope)
        except Exception as error:  # noqa: BLE001  (whatever PyTorch raises is the answer)
            return error
        return None

    def attempt(self) -> None:
        table, _, named = self.rng.choices(TABLES, [weight for _, weight, _ in TABLES])[0]
        template = self.rng.choice(table)
        variables = {n: v for n, v in self.scope.items() if usable(v)}
        try:
            text = Filler(self.rng, variables).fill(template)
        except NoFit:
            return
        if named:
            text = f"t{len(self.program.lines)} = {text}"
        elif self.rng.random() < 0.1:
            text = QUIET + text
        if "out=" in text and aliases(text, variables):
            return
        reads = any(word in template for word in READING)
        before = {n: v.detach().clone() for n, v in variables.items()}
        error = self.run(text)
        if error is None and not (self.tame() and self.bits_are_known()):
            self.replay()
            return
        if error is not None and any(changed(v, before[n]) for n, v in variables.items()):
            self.replay()  # half done, where PyTorch promises nothing
            return
        if "indexing result of shape" in str(error) and (MASKS.search(text) or "{b}" in template):
            self.replay()  # how many places a mask chooses is not known where it is recorded
            return
        allowed = error is None or self.rng.random() < self.raising
        if not allowed:
            self.replay()
            return
        if error is not None:
            self.replay()
        plain = any(word in template for word in PLAIN)
        self.program.lines.append(Line(text, reads, plain, error is not None))

    def bits_are_known(self) -> bool:
        """Whether nothing shows the bits of numbers that are rounded, by the last operation too."""
        tensors = [value for value in self.scope.values() if usable(value)]
        whole = [t for t in tensors if not (t.is_floating_point() or t.is_complex())]
        seen = {t.untyped_storage()._cdata for t in whole}
        numbers = [t for t in tensors if t.is_floating_point() or t.is_complex()]
        return all(is_exact(t) for t in numbers if t.untyped_storage()._cdata in seen)

    def tame(self) -> bool:
        for value in self.scope.values():
            if usable(value):
                if value.numel() > MOST_ELEMENTS or value.dtype == torch.complex32:
                    return False
                magnitudes = (
                    value.detach().resolve_conj().abs() if value.dtype != torch.bool else value
                )
                if value.numel() and float(magnitudes.double().nan_to_num(0, 0, 0).max()) > LARGEST:
                    return False
        return True


def program_of(seed: int) -> Program:
    """Programs of odd seeds call nothing that is wrong."""
    return Generator(seed, raising=0.0 if seed % 2 else 0.15).make()
