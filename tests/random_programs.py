"""Random PyTorch programs as lines of source: views, writes through them, indices, promotion,
reductions, gradients. A line is made from a template whose fields are filled with variables that
fit, and is tried on the CPU before it joins the program.
"""

import random
import re
from dataclasses import dataclass, field
from typing import Any

import torch
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
    def raises(self) -> bool:
        return any(line.raises for line in self.lines)

    def names(self) -> list[str]:
        return [line.partition(" ")[0] for line in self.inputs]

    def source(self) -> str:
        return "\n".join([*self.inputs, *(line.text for line in self.lines)])


# Fields: x any tensor, f floating, i integral, b bool, c complex, r that takes part in autograd,
# e whose values are exact; y broadcasts with the first one; w may be written (o: of the dtype and
# sizes of the first); d, D its dimensions; n an index in d, s a number, k a small one; I an
# index of the first, R one that reads values, J of device tensors; p a permutation, t a dtype.
VIEWS = """
{x}[{I}] | {x}[{I}] | {x}[{I}] | {x}.transpose({d}, {D}) | {x}.permute({p}) | {x}.unsqueeze({d})
{x}.squeeze() | {x}.squeeze({d}) | {x}.flatten() | {x}.reshape(-1) | {x}.expand(2, *{v}.shape)
{x}.unsqueeze(0).expand(3, *[-1] * {v}.dim()) | {x}.narrow({d}, 0, 1) | {x}.select({d}, {n})
{x}.unfold({d}, 1, 1) | {x}.unfold({d}, min(2, {v}.size({d})), 1) | {x}.diagonal()
{x}.movedim({d}, {D}) | {x}.diagonal(1, {d}, {D}) | {c}.real | {c}.imag | {c}.conj()
torch.view_as_real({c}.resolve_conj()) | {x}.conj() | {x}.chunk(2, {d})[0] | {x}.split(2, {d})[-1]
{x}.unbind({d})[-1] | {x}.detach() | {x}.contiguous() | {x}.mT | {x}.swapaxes({d}, {D})
{x}.view({v}.shape) | {x}.view(-1) | {x}.as_strided({strided}) | {x}.as_strided({strided})
{x}.view_as({v}) | {x}.data | {x}.ravel() | {x}.tensor_split(2, {d})[1]
{x}.unflatten({d}, (-1, 1)) | {x}.T | {x}.expand_as({v}) | {x}.adjoint()
torch.view_as_complex({f}.unsqueeze(-1).repeat({ones}, 2)) | {c}.conj().imag
({c}.conj()[{I}]).real | {x}.view(torch.uint8) | {x}.clone().view(torch.int8)
torch._neg_view({f}) | {x}.broadcast_to(2, *{v}.shape)
"""
WRITES = """
{w}[{I}] = {s} | {w}[{I}] += {s} | {w}[{I}] *= {k} | {w}[{I}] = {vy} | {w}[{J}] = {s}
{w}[{M}] = {s} | {w}[{J}] += {k} | {w}.add_({s}) | {w}.mul_({k}) | {w}.sub_({y})
{w}.add_({y}, alpha={k}) | {w}.copy_({y}) | {w}.zero_() | {w}.fill_({s}) | {w}.neg_()
{w}.clamp_(-1, 2) | {w}.abs_() | {w}.masked_fill_({v} == {v}, {s})
{w}.index_fill_({d}, {ix}, {s}) | {w}.index_add_({d}, {ix}, {v}[{lead}[0, 0]])
{w}.index_copy_({d}, {ix}[:1], {v}.narrow({d}, 0, 1)) | {w}.cumsum_({d}) | {w}.tril_()
{w}.triu_(1) | {w}.scatter_({d}, {v}.narrow({d}, 0, 1).long() * 0, {s})
{w}.scatter_add_({d}, {v}.long() * 0, {v}.clone()) | {w}.unsqueeze_({d}) | {w}.squeeze_()
{w}.transpose_({d}, {D}) | {w}.t_() | {w}.data.add_({k}) | torch.add({y}, {k}, out={w})
torch.mul({v}, {y}, out={w}) | {w}.logical_not_() | {w}.square_()
{w}.transpose({d}, {D}).add_({k}) | {w}[{I}].mul_({k}) | {w}.select({d}, {n}).zero_()
{w}.diagonal().fill_({s}) | {w}.view(-1)[::2] = {s} | {w}.flatten()[1:] = {s}
{w}.unsqueeze(0).expand(2, *{v}.shape).add_(1) | {w}.expand(2, *{v}.shape).copy_({v})
{w}.detach().mul_({k}) | {w}.as_strided({strided}).add_({k}) | {w}.as_strided({strided}).zero_()
{w}.sigmoid_() | {w}.addcmul_({y}, {y}, value=0.5) | {w}.lerp_({v} * 2, 0.25)
torch._foreach_add_([{w}, {v}.clone()], {k}) | torch._foreach_mul_([{w}], [{y}])
{w}.set_({v}.clone()) | {w}.relu_() | {w}.exp_() | {w}.pow_(2) | {w}.remainder_(3) | {w}.fmod_(2)
{w}.conj().mul_({k}) | {w}.floor_() | {c}.real.mul_({k}) | {c}.imag.add_({s})
{c}.conj()[{I}] = {s} | {c}.conj().imag.zero_() | {w}.eq_({y})
{w}.index_put_(({ix},), {v}[0] * 2) | {w}.index_put_(({ix},), {v}[0], accumulate=True)
{w}[{R}] = {s} | {w}[{R}] += {k} | {w}.unfold({d}, 1, 1).add_({k}) | {w}.swapaxes_({d}, {D})
{w}.fill_diagonal_({s}) | {w}.bitwise_not_() | {w}.div_({k}) | {w}.masked_fill_({M}, {s})
{w}.where({M}, {s}) | {w}[{lead}] = {s} | {w}[..., ::2] -= {k} | {w}[...] = {y}
{w}.floor_divide_({k}) | {w}.put_({ix} * 0, {v}.flatten()[:1].expand({ix}.shape[0]))
{w}.masked_scatter_({M}, {v} * 2) | torch.sum({v}, {d}, out={w}) | {w}.resize_({v}.shape)
{w}.requires_grad_() | {w}.unbind({d})[0].add_({k}) | {w}.baddbmm_({v}, {v}) | {w}.cumprod_({d})
{w}.view(torch.uint8)[...] = 0 | torch._neg_view({w}).add_({k}) | {w}.real.add_({k})
{w}.T.zero_() | {w} += {y} | {w} *= {k}
"""
ELEMENTWISE = """
{x} + {s} | {x} * {s} | {x} - {y} | {x} + {y} | {x} * {y} | {x} / {k} | {x} + {y} | {s} - {x}
-{x} | {x}.abs() | {x}.square() | {e}.sign() | {f}.sin() | {f}.tanh() | {f}.sigmoid()
torch.relu({x}) | {f}.clamp(-3, 3).exp() | {e} > {y} | {e} == {e2} | {e} <= {k}
{e}.logical_not() | {i} & {i2} | {i} | {b} ^ {b2} | ~{b} | {i} // {k} | {e} % {k} | {e} // {k}
torch.maximum({x}, {y}) | torch.minimum({e}, {e2}) | torch.where({e} > 0, {y}, {s})
torch.where({b}, {y}, {y}) | {e}.floor() | {e}.to(torch.{t}) | {e}.to(torch.{t}) | {x}.clone()
{x}.float() | {x}.double() | {e}.long() | {e}.bool() | {x}.masked_fill({e} > {k}, {s})
{x}.to({y}) | {x}.add({y}, alpha={k}) | {x}.addcmul({y}, {y}) | {x}.lerp({y}, 0.5) | {x}.pow(2)
{x}.pow({k}) | {x} ** 3 | {x}.atan2({y}) | {x}.isnan() | {x}.isfinite() | {x}.nan_to_num()
{e}.fmod({k}) | {e}.round() | {e}.trunc() | torch.clamp({x}, min={y}) | {x}.clamp(max={k})
{i} << 1 | {i} >> 1 | {f}.softmax({d}) | {f}.log_softmax({d}) | torch.rsub({x}, {y})
{x}.type_as({y}) | {x}.reciprocal() | {c}.angle() | {c}.abs() | {x}.sgn()
{x} + torch.tensor({s}) | {x} * torch.tensor({s}, dtype=torch.{t})
{x}.addcdiv({y}, {y}.abs() + 1) | {f}.sqrt() | {x}.positive() | {x} + {s}j
torch.logaddexp({x}, {y}) | torch.heaviside({e}, {e2}) | torch.copysign({x}, {y})
{x}.isclose({y}) | {x}.hypot({y}) | torch.nn.functional.gelu({f})
torch.nn.functional.layer_norm({f}, {v}.shape[-1:]) | torch.nn.functional.silu({f})
{x}.xlogy({y}.abs() + 1)
"""
REDUCTIONS = """
{x}.sum() | {x}.sum({d}) | {x}.sum({d}, keepdim=True) | {x}.mean() | {x}.mean({d}) | {x}.prod()
{x}.prod({d}) | {e}.amax({d}) | {e}.amin() | {e}.max({d})[0] | {e}.min({d}).values | {e}.any()
{e}.all({d}) | {x}.cumsum({d}) | {x}.cumprod({d}) | {f}.var({d}) | {f}.std() | {f}.logsumexp({d})
{x}.norm() | {f}.norm(dim={d}) | {e}.count_nonzero() | {x}.sum(({d}, {D}))
{x}.sum(dtype=torch.{t}) | {e}.cummax({d})[0] | {x}.nansum() | {e}.median()
{e}.sort({d}, stable=True)[0] | {e}.sort({d}, stable=True, descending=True)[1]
{e}.topk(1, {d})[0] | {e}.argsort({d}, stable=True) | {x}.std({d}, unbiased=False)
{x}.logcumsumexp({d}) | {e}.max() | {e}.min() | {e}.aminmax()[1] | {x}.trace() | {e}.quantile(0.5)
{e}.unique() | {e}.mode({d})[0] | {e}.kthvalue(1, {d})[0] | {e}.isin({e2}) | {e}.equal({e2})
{e}.histc(4, -3, 3) | {x}.diff(dim={d}) | {x}.cov() | {x}.all()
"""
SHAPES = """
torch.cat([{x}, {v}], {d}) | torch.stack([{x}, {v}], {d}) | {x}.repeat(2, *{ones2})
{x}.flip({d}) | {x}.roll(1, {d}) | {x}.tril() | {x}.diag_embed()
torch.nn.functional.pad({x}, (1, 2)) | torch.nn.functional.pad({x}, (-1, 1), value={s})
{x}.gather({d}, {v}.long() * 0) | {x}.index_select({d}, {ix}) | {x}.take({ix} * 0) | {x}[{J}]
{x}[{J}] | {x}[{R}] | {x}[{R}] | {x}[{M}] | {x}.repeat_interleave(2, {d}) | {x} @ {x2}
{x}.matmul({v}.mT) | torch.einsum("...i,...j->...ij", {x}, {v}) | {x}.nonzero()
{x}.masked_select({M}) | {x}[{lead}] | torch.cat([{x}, {y}])
torch.cat([{x}.flatten(), {x2}.flatten()]) | torch.outer({x}.flatten(), {x2}.flatten()[:3])
{x}.rot90() | torch.zeros_like({x}) | torch.full_like({x}, {s}) | {x}.new_ones(3)
torch.arange(5, device=device) | torch.eye(3, device=device)
torch.tensor([1.5, 2.0], device=device) | torch.linspace(0, 1, 5, device=device)
torch.tensor({s}, device=device) | {x}.tile(2)
{x}.index_add({d}, {ix}, {v}.index_select({d}, {ix})) | {x}.scatter({d}, {v}.long() * 0, {s})
{x}.select_scatter({v}.select({d}, {n}), {d}, {n}) | torch.triu_indices(3, 3, device=device)
torch.bincount({e}.abs().long().flatten()) | {x}.to_sparse().to_dense() | torch.atleast_2d({x})
torch.meshgrid({x}.flatten()[:2], {x2}.flatten()[:3], indexing="ij")[0]
torch.empty(0, 3, device=device) | {x}.new_zeros(0) | torch.zeros(2, 0, 3, device=device)
torch.nn.functional.one_hot({e}.abs().long() % 4, 5)
torch.searchsorted({e}.flatten().sort()[0], {e2}) | torch.broadcast_tensors({x}, {y})[0].clone()
"""
READS = """
{x}.sum().item() | {e}.tolist() | bool(({e} > 0).any()) | int({e}.abs().sum()) | {x}.shape
{x}.stride() | {x}.is_contiguous() | {x}.numel() | {x}.flatten()[0].item() | {x}.dtype
{x}.requires_grad | {x}.is_conj() | len({x}) | torch.equal({x}, {x2})
"""
GRADIENTS = """
torch.autograd.grad({r}.sum(), {leaf}, allow_unused=True, retain_graph=True)[0]
torch.autograd.grad({r}.square().sum(), {leaf}, allow_unused=True, create_graph=True)[0]
torch.autograd.grad({r}.abs().sum(), {leaf}, allow_unused=True, retain_graph=True)[0]
{r}.detach() | {r}.clone().requires_grad_()
"""
QUIET = "with torch.no_grad(): "


def parse(text: str) -> list[str]:
    return [part.strip() for part in re.split(r" \| |\n", text) if part.strip()]


# A template, its chance, whether its result gets a name.
TABLES = [
    (parse(VIEWS), 26, True),
    (parse(WRITES), 30, False),
    (parse(ELEMENTWISE), 16, True),
    (parse(REDUCTIONS), 9, True),
    (parse(SHAPES), 14, True),
    (parse(READS), 3, True),
    (parse(GRADIENTS), 6, True),
]
READING = (
    "{R}",
    "{M}] ",
    "nonzero",
    "masked_select",
    "masked_scatter",
    "bincount",
    "unique",
    "to_sparse",
)
READING += (".item()", ".tolist()", "bool(", "int(", "equal(", "[{M}]", "histc", "one_hot")


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


class Filler:
    """Fills one template's fields with what exists."""

    def __init__(self, rng: random.Random, variables: dict[str, Tensor]) -> None:
        self.rng, self.variables = rng, variables
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

    def value(self, kind: str) -> str:
        kinds = {
            "x": lambda t: True,
            "f": lambda t: t.dtype.is_floating_point,
            "i": lambda t: not t.dtype.is_floating_point and not t.dtype.is_complex,
            "b": lambda t: t.dtype == torch.bool,
            "c": lambda t: t.dtype.is_complex,
            "e": is_exact,
            "w": lambda t: self.may_be_written(t),
            "r": lambda t: t.requires_grad,
            "leaf": lambda t: t.is_leaf and t.requires_grad,
        }
        if kind in kinds:
            return self.tensor(kinds[kind])
        if kind in ("x2", "i2", "b2", "e2"):
            return self.pick(lambda t: kinds[kind[0]](t) and self.fits_first(t))
        if kind == "y":
            return self.tensor(kinds["x"]) if self.first is None else self.pick(self.fits_first)
        return str(getattr(self, "field_" + kind)())

    def may_be_written(self, tensor: Tensor) -> bool:
        """What PyTorch leaves undefined (writes through windows that overlap) is left out."""
        extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        expanded = any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel() > extent + 1 and not expanded:
            return False
        return not (tensor.is_leaf and tensor.requires_grad) or self.rng.random() < 0.1

    def fits_first(self, tensor: Tensor) -> bool:
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
        return self.pick(lambda t: t.dim() <= 1)

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
        elements = self.first.untyped_storage().nbytes() // self.first.element_size()
        sizes = [self.rng.randint(1, 3) for _ in range(self.rng.randint(0, 3))]
        strides = [self.rng.choice([0, 1, 1, 2, 3, 4]) for _ in sizes]
        needed = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        offset = self.rng.randint(0, max(elements - 1 - needed, 0))
        return f"{sizes}, {strides}, {offset}"

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
        self.scope = {"torch": torch, "values": values, "device": "cpu"}
        for text in self.program.inputs:
            exec(text, self.scope)
        for line in self.program.lines:
            self.run(line.text)

    def run(self, text: str) -> Exception | None:
        try:
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
        reads = any(word in template for word in READING)
        error = self.run(text)
        allowed = error is None or self.rng.random() < self.raising
        if not allowed or not self.tame():
            self.replay()
            return
        if error is not None:
            self.replay()
        self.program.lines.append(Line(text, reads, error is not None))

    def tame(self) -> bool:
        for value in self.scope.values():
            if usable(value):
                if value.numel() > MOST_ELEMENTS:
                    return False
                magnitudes = (
                    value.detach().resolve_conj().abs() if value.dtype != torch.bool else value
                )
                if value.numel() and float(magnitudes.double().nan_to_num(0, 0, 0).max()) > LARGEST:
                    return False
        return True
