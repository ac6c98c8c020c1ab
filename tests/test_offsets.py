"""Where a window begins is a number: a loop over positions is two programs, however far it runs."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from compare import ramp
from process import output_of
from torch import Tensor
from torch_xla import _XLAC
from torch_xla.debug import recompilation
from torch_xla.experimental.assume_pure import assume_pure

pytestmark = pytest.mark.lazy_only

Step = Callable[[Tensor, int], Tensor]


@dataclass
class Case:
    step: Step
    shape: tuple[int, ...]
    positions: Sequence[int] = field(default_factory=lambda: range(20))
    dtype: torch.dtype = torch.float32


def assign(x: Tensor, i: int) -> Tensor:
    x[:, i] = torch.full((4, 5), -float(i), device=x.device)
    return x


def assign_from_cpu(x: Tensor, i: int) -> Tensor:
    x[i] = torch.arange(5.0) - i
    return x


def add_to_row(x: Tensor, i: int) -> Tensor:
    x[i] += 1
    return x


def add_to_range(x: Tensor, i: int) -> Tensor:
    x[:, i : i + 3] += i
    return x


def assign_steps(x: Tensor, i: int) -> Tensor:
    x[:, i : i + 6 : 3] = -i
    return x


def assign_transposed(x: Tensor, i: int) -> Tensor:
    x.t()[i] = torch.arange(4, device=x.device) - i
    return x


def assign_bool(x: Tensor, i: int) -> Tensor:
    x[:, i : i + 2] = ~x[:, i : i + 2]
    return x


def fill_across_rows(x: Tensor, i: int) -> Tensor:
    x.as_strided((2, 3), (5, 1), i).fill_(-i)
    return x


def move_within(x: Tensor, i: int) -> Tensor:
    x[i + 2] = x[i] * 2
    return x


CASES = {
    "assign": Case(assign, (4, 20, 5)),
    "assign_from_cpu": Case(assign_from_cpu, (20, 5)),
    "add_to_row": Case(add_to_row, (20, 5)),
    "add_to_range": Case(add_to_range, (2, 24, 3)),
    "assign_steps": Case(assign_steps, (2, 27)),
    "assign_transposed": Case(assign_transposed, (4, 20)),
    "assign_bool": Case(assign_bool, (3, 24), dtype=torch.bool),
    "move_within": Case(move_within, (24, 5)),
    "slice": Case(lambda x, i: x[i : i + 3] * 2, (24, 5)),
    "narrow": Case(lambda x, i: x.narrow(1, i, 3) * 2, (3, 24, 5)),
    "select": Case(lambda x, i: x.select(0, i) * 2, (20, 5)),
    "element": Case(lambda x, i: x[i % 4, i] * 2, (4, 20)),
    "two_dimensions": Case(lambda x, i: x[:, i : i + 2, i % 4] * 2, (3, 24, 4)),
    "unfold": Case(lambda x, i: x.unfold(1, 4, 2)[:, i] * 2, (3, 44, 2)),
    "steps": Case(lambda x, i: x[:, i : i + 9 : 3] * 2, (3, 30, 2)),
    "transposed": Case(lambda x, i: x.t()[i : i + 2] * 2, (5, 24)),
    "permuted": Case(lambda x, i: x.permute(2, 0, 1)[:, 1:3, i] * 2, (4, 20, 3)),
    "expanded": Case(lambda x, i: x[i].expand(3, 5) * 2, (20, 5)),
    "flat": Case(lambda x, i: x.view(-1)[i : i + 6].view(2, 3) * 2, (5, 6)),
    "bfloat16": Case(lambda x, i: x[:, i] * 2, (3, 24), dtype=torch.bfloat16),
    "bool": Case(lambda x, i: ~x[i : i + 2], (24, 3), dtype=torch.bool),
    "other_dtype": Case(
        lambda x, i: x.view(torch.int16)[i : i + 2] + 1, (24, 2), dtype=torch.int32
    ),
    "complex": Case(lambda x, i: torch.view_as_real(x)[i] * 2, (20, 2), dtype=torch.complex64),
    "always_across_rows": Case(lambda x, i: x.as_strided((2, 3), (5, 1), 5 * i + 3) * 2, (24, 5)),
    "write_always_across_rows": Case(lambda x, i: fill_across_rows(x, 5 * i + 3), (24, 5)),
    "host_kernel": Case(lambda x, i: torch.linalg.matrix_exp(x[i : i + 3] / 100), (23, 3)),
    "select_scatter": Case(lambda x, i: torch.select_scatter(x, x[:, 0] + 1, 1, i), (3, 20)),
    "slice_scatter": Case(
        lambda x, i: torch.slice_scatter(x, x[:, :3] + 1, 1, i, i + 6, 2), (3, 26)
    ),
    "narrow_copy": Case(lambda x, i: torch.narrow_copy(x, 1, i - 22, 2), (3, 22)),
}


def gradient_of(step: Step) -> Step:
    def gradient(x: Tensor, i: int) -> Tensor:
        x = x.detach().requires_grad_()
        step(x, i).square().sum().backward()
        assert x.grad is not None
        return x.grad

    return gradient


def triple_column(x: Tensor, i: int) -> Tensor:
    y = x * 2
    y[:, i] *= 3
    return y


GRADIENTS = {
    "select": Case(lambda x, i: x[i], (20, 5)),
    "slice": Case(lambda x, i: x[:, i : i + 2], (3, 24, 2)),
    "steps": Case(lambda x, i: x[:, i : i + 6 : 3], (3, 26)),
    "unfold": Case(lambda x, i: x.unfold(0, 3, 2)[i], (43, 2)),
    "written": Case(triple_column, (3, 20)),
}
CASES |= {
    f"gradient_{name}": Case(gradient_of(case.step), case.shape) for name, case in GRADIENTS.items()
}


# Numbers other than places that move.
NUMBERS: dict[str, Step] = {
    "roll": lambda x, i: x.roll(i - 7, 1),
    "roll_flat": lambda x, i: x.roll(3 * i - 20),
    "roll_two": lambda x, i: x.roll((i, -2 * i), (0, -1)),
    "roll_gradient": gradient_of(lambda x, i: x.roll(i, 0) * x),
    "tril": lambda x, i: x.tril(i - 4),
    "triu_in_place": lambda x, i: x.clone().triu_(i - 5),
    "mask": lambda x, i: torch.ones(5, 7, device=x.device, dtype=torch.bool).tril(i - 3),
    "arange": lambda x, i: torch.arange(i, i + 5, device=x.device) * 2,
    "arange_of_steps": lambda x, i: torch.arange(3 * i, 3 * i + 11, 3, device=x.device),
    "arange_down": lambda x, i: torch.arange(i + 10, i, -2, device=x.device),
    "arange_float": lambda x, i: torch.arange(i, i + 4, dtype=torch.float32, device=x.device),
    "pow": lambda x, i: (x.remainder(2) + 1) ** (i * 0.1 + 0.07),
    "pow_gradient": gradient_of(lambda x, i: (x.remainder(2) + 1) ** (i * 0.1 + 0.07)),
    "huber": lambda x, i: F.huber_loss(x, x.roll(1), delta=i + 0.5),
    "smooth_l1": lambda x, i: F.smooth_l1_loss(x, x.roll(1), beta=i + 0.5),
    "norm": lambda x, i: torch.linalg.vector_norm(x, i * 0.3 + 0.75, dim=1),
    "norm_of_all": lambda x, i: torch.norm(x, p=i * 0.3 + 0.75),
    "norm_of_whole_order": lambda x, i: torch.norm(x, p=i + 3, dim=0),
    "norm_gradient": gradient_of(lambda x, i: (x + 1).norm(p=i * 0.1 + 2.13, dim=1)),
    "kthvalue": lambda x, i: torch.cat(x.sin().kthvalue(i % 7 + 1)),
    "kthvalue_of_columns": lambda x, i: x.sin().kthvalue(i % 5 + 1, 0, keepdim=True)[0],
    "kthvalue_gradient": gradient_of(lambda x, i: x.sin().kthvalue(i % 7 + 1)[0]),
    "round": lambda x, i: torch.round(x.sin() * 1000, decimals=i - 5),
    "round_gradient": gradient_of(lambda x, i: x.sin().round(decimals=i - 5) * x),
    "pad": lambda x, i: F.pad(x, (1, 2, 0, 1), value=i * 0.3),
    "pad_of_whole_numbers": lambda x, i: F.pad(x.long(), (1, 2), value=i),
    "pad_gradient": gradient_of(lambda x, i: F.pad(x, (1, -2), value=i * 0.3)),
    "randint": lambda x, i: torch.randint(i, i + 1, (5,), device=x.device) * 2,
    "random_float": lambda x, i: torch.empty(5, device=x.device).random_(-i, 1 - i),
    "random": lambda x, i: torch.empty(5, dtype=torch.int32, device=x.device).random_(-i, 1 - i),
}


def base_of(case: Case, device: str) -> Tensor:
    return ramp(*case.shape, device="cpu").remainder(97).to(case.dtype).to(device)


def run(case: Case, step: Step) -> None:
    """The step at each position, on the CPU and on the device."""
    expected, actual = base_of(case, "cpu"), base_of(case, "xla")
    torch_xla.sync(wait=True)
    for i in case.positions:
        wanted, got = case.step(expected, i), step(actual, i)
        torch_xla.sync()
        torch.testing.assert_close(got.cpu(), wanted)
    torch.testing.assert_close(actual.cpu(), expected)


def compilations(work: Callable[[], None]) -> int:
    torch_xla.sync()  # what another test left
    before = _XLAC.last_compile_serial()
    work()
    return len(recompilation.events(before))


@pytest.mark.parametrize("name", CASES)
def test_two_programs_for_all_positions(name: str) -> None:
    case = CASES[name]
    assert compilations(lambda: run(case, case.step)) <= 2
    result = case.step(base_of(case, "xla"), case.positions[-1])
    text = _XLAC.tensors_stablehlo_text([result])
    assert "stablehlo.dynamic_" in text
    assert "gather" not in text and "scatter" not in text


@pytest.mark.parametrize("name", CASES)
def test_in_a_compiled_region(name: str) -> None:
    case = CASES[name]
    assert compilations(lambda: run(case, torch_xla.compile(case.step))) <= 2


@pytest.mark.parametrize("name", NUMBERS)
def test_two_programs_for_all_numbers(name: str) -> None:
    case = Case(NUMBERS[name], (5, 7))
    assert compilations(lambda: run(case, case.step)) <= 2
    assert compilations(lambda: run(case, torch_xla.compile(case.step))) <= 2


def test_orders_of_norms_and_places_of_decimals_that_are_other_computations() -> None:
    x = torch.tensor([[0.0, -1.25, 2.5], [1e-3, 3.75, -4.0]], dtype=torch.float64)
    moved = x.to("xla")
    orders = [1.5, 0, 1, 2, float("inf"), -float("inf"), 3.25, -1, 0.0, 1.0, 2.0, -2.5]
    for order in orders * 2:
        wanted = torch.linalg.vector_norm(x, order, dim=1)
        torch.testing.assert_close(torch.linalg.vector_norm(moved, order, dim=1).cpu(), wanted)
    for decimals in [0, 2, -1, 30, -30, 22, -22, 1] * 2:
        wanted = torch.round(x, decimals=decimals)
        torch.testing.assert_close(torch.round(moved, decimals=decimals).cpu(), wanted)


def test_numbers_are_drawn_from_a_range_that_grows() -> None:
    def draw(end: int) -> list[int]:
        return torch.randint(0, end, (1000,), device="xla").tolist()

    assert compilations(lambda: [draw(end) for end in range(1, 20)]) <= 2
    for end in (2, 7, 2**31):
        drawn = draw(end)
        assert min(drawn) >= 0
        assert max(drawn) < end
        assert len(set(drawn)) == end if end < 10 else len(set(drawn)) > 990
    with pytest.raises(RuntimeError, match="expects 'from' to be less than 'to'"):
        draw(0)


def test_what_moves_is_refused_as_on_the_cpu() -> None:
    x = torch.ones(3, 4, device="xla")
    for wrong in (
        lambda x, i: x.roll(i, 2),
        lambda x, i: x.roll((i, i), 0),
        lambda x, i: x[0].tril(i),
        lambda x, i: F.huber_loss(x, x, delta=-i),
        lambda x, i: x.kthvalue(i + 4),
        lambda x, i: x.kthvalue(1 - i),
        lambda x, i: x.kthvalue(i, 2),
        lambda x, i: torch.arange(i, 0, 1, device=x.device),
        lambda x, i: torch.arange(0, i, 0, device=x.device),
    ):
        for i in (1, 2):
            with pytest.raises((RuntimeError, IndexError)) as expected:
                wrong(x.cpu(), i)
            with pytest.raises(type(expected.value), match=re.escape(str(expected.value)[:40])):
                wrong(x, i)


def test_windows_that_cross_rows_here_and_there() -> None:
    """Those that do, and those that do not, are two kinds of windows."""
    for name, step in (
        ("read", lambda x, i: x.as_strided((2, 3), (5, 1), i) * 2),
        ("write", fill_across_rows),
    ):
        case = Case(step, (8, 5), range(30))
        assert compilations(lambda case=case: run(case, case.step)) <= 4, name


def windows(count: int) -> list[tuple[list[int], list[int], int]]:
    """Sizes, strides and span of windows without elements in common with themselves."""
    chosen: list[tuple[list[int], list[int], int]] = []
    generator = random.Random(0)
    while len(chosen) < count:
        rank = generator.randint(1, 3)
        sizes, strides, row = [0] * rank, [0] * rank, 1
        for dim in generator.sample(range(rank), rank):
            sizes[dim] = generator.randint(1, 4)
            strides[dim] = row * generator.randint(1, 3)
            row = strides[dim] * sizes[dim] + generator.randint(0, 3)
        span = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        if span <= 60:
            chosen.append((sizes, strides, span))
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_any_kind_at_all_positions(seed: int) -> None:
    for sizes, strides, span in windows(40)[seed::4]:
        elements = span + 13

        def step(x: Tensor, i: int, sizes=sizes, strides=strides) -> Tensor:  # type: ignore[no-untyped-def]
            read = x.as_strided(sizes, strides, i) + 100
            x.as_strided(sizes, strides, i).copy_(read)
            return read * 2

        case = Case(step, (elements,), range(14))
        assert compilations(lambda case=case: run(case, case.step)) <= 4, (sizes, strides)


def test_inside_assume_pure() -> None:
    def shifted(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for i in range(20):
            y[:, i] = x[:, 19 - i] * i
        return y

    pure = assume_pure(shifted)
    x = ramp(3, 20)
    on_device = x.to("xla")
    torch_xla.sync(wait=True)

    def work() -> None:
        for _ in range(3):
            torch.testing.assert_close(pure(on_device).cpu(), shifted(x))

    assert compilations(work) == 1


def test_beside_assume_pure() -> None:
    pure = assume_pure(lambda x: x * 2)

    def step(x: Tensor, i: int) -> Tensor:
        function = pure if x.device.type == "xla" else pure.__wrapped__
        x[:, i] = function(torch.ones(3, device=x.device) * i)
        return x

    case = Case(step, (3, 20))
    assert compilations(lambda: run(case, case.step)) <= 2


def test_thousands_of_positions() -> None:
    x = torch.zeros(3, 5000, device="xla")
    torch_xla.sync(wait=True)

    def work() -> None:
        for i in range(4999):
            x[:, i + 1] = x[:, i] + 1
            torch_xla.sync()

    assert compilations(work) <= 2
    assert x[1, 4999].item() == 4999


def test_one_program_for_each_operation_that_runs_at_once() -> None:
    printed = output_of(
        """
        import os
        os.environ["TORCH_XLA_EAGER"] = "pjrt"
        torch_xla.experimental.eager_mode(True)
        from torch_xla import _XLAC
        from torch_xla.debug import recompilation

        def step(x, i):
            x[:, i] += 1
            x[i % 3, i : i + 2] = -i
            return x.narrow(1, i, 3) * 2

        x = torch.zeros(3, 30)
        y = x.to("xla")
        for i in range(24):
            if i == 1:
                before = _XLAC.last_compile_serial()
            assert torch.equal(step(x, i), step(y, i).cpu()), i
        assert torch.equal(x, y.cpu())
        print(len(recompilation.events(before)))
        """
    )
    assert int(printed) == 0


def test_indices_out_of_range_are_refused_at_each_call() -> None:
    x = torch.zeros(4, 3, device="xla")
    for i in range(4):
        torch.select_scatter(x, x[0], 0, i)
    with pytest.raises(IndexError):
        torch.select_scatter(x, x[0], 0, 4)
    with pytest.raises((RuntimeError, IndexError), match="exceeds|out of range"):
        torch.narrow_copy(x, 0, 2, 3)
