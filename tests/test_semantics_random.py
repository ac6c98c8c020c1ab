"""Random numbers: reproducible from a seed, right in distribution, free of host traffic."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch import Tensor
from work import Work

DRAWS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(50, device="xla"),
    "randn": lambda: torch.randn(50, device="xla"),
    "randint": lambda: torch.randint(1000, (50,), device="xla"),
    "randperm": lambda: torch.randperm(50, device="xla"),
    "normal_": lambda: torch.empty(50, device="xla").normal_(2, 3),
    "uniform_": lambda: torch.empty(50, device="xla").uniform_(-1, 1),
    "bernoulli": lambda: torch.full((50,), 0.5, device="xla").bernoulli(),
    "exponential_": lambda: torch.empty(50, device="xla").exponential_(),
    "dropout": lambda: F.dropout(torch.ones(50, device="xla")),
    "multinomial": lambda: torch.ones(100, device="xla").multinomial(50, replacement=True),
}


@pytest.fixture(params=DRAWS)
def draw(request: pytest.FixtureRequest) -> Callable[[], Tensor]:
    return DRAWS[request.param]


@pytest.mark.parametrize("seed", [torch.manual_seed, torch_xla.manual_seed, xm.set_rng_state])
def test_a_seed_repeats_the_numbers(
    draw: Callable[[], Tensor], seed: Callable[[int], object]
) -> None:
    seed(7)
    first, second = draw().cpu(), draw().cpu()
    seed(7)
    again = draw().cpu()
    seed(8)
    other = draw().cpu()
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_numbers_do_not_depend_on_where_a_step_is_cut() -> None:
    def numbers(cut: bool) -> list[Tensor]:
        torch.manual_seed(3)
        drawn = []
        for _ in range(3):
            drawn.append(torch.randn(5, device="xla"))
            if cut:
                torch_xla.sync()
        return [values.cpu() for values in drawn]

    for cut, whole in zip(numbers(True), numbers(False), strict=True):
        assert torch.equal(cut, whole)


def test_rng_state_can_be_saved() -> None:
    torch.manual_seed(5)
    torch.rand(3, device="xla")
    state = xm.get_rng_state()
    assert isinstance(state, int) and -(2**63) <= state < 2**63
    first = torch.rand(3, device="xla").cpu()
    xm.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="xla").cpu(), first)


def test_generator() -> None:
    generator = torch.Generator(device="xla")
    assert generator.device.type == "xla"
    generator.manual_seed(11)
    first = torch.randn(8, device="xla", generator=generator).cpu()
    torch.rand(3, device="xla")
    second = torch.randn(8, device="xla", generator=generator).cpu()
    generator.manual_seed(11)
    assert torch.equal(torch.randn(8, device="xla", generator=generator).cpu(), first)
    state = generator.get_state()
    third = torch.randn(8, device="xla", generator=generator).cpu()
    assert torch.equal(third, second)
    generator.set_state(state)
    assert torch.equal(torch.randn(8, device="xla", generator=generator).cpu(), third)


def test_moments() -> None:
    torch.manual_seed(0)
    count = 40_000
    normal = torch.randn(count, device="xla") * 3 + 1
    assert normal.mean().item() == pytest.approx(1, abs=0.08)
    assert normal.std().item() == pytest.approx(3, rel=0.03)
    uniform = torch.rand(count, device="xla")
    assert uniform.min().item() >= 0 and uniform.max().item() < 1
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.01)
    assert uniform.var().item() == pytest.approx(1 / 12, rel=0.04)
    integers = torch.randint(-3, 4, (count,), device="xla")
    counts = torch.bincount((integers + 3).cpu(), minlength=7)
    assert counts.min() > count / 7 * 0.9 and len(counts) == 7
    exponential = torch.empty(count, device="xla").exponential_(2.0)
    assert exponential.mean().item() == pytest.approx(0.5, rel=0.04)
    assert torch.equal(torch.randperm(100, device="xla").sort().values.cpu(), torch.arange(100))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_statistics(rate: float) -> None:
    torch.manual_seed(0)
    inputs = torch.ones(20_000, device="xla", requires_grad=True)
    output = F.dropout(inputs, rate)
    output.sum().backward()
    kept = output.detach().cpu() != 0
    assert kept.float().mean().item() == pytest.approx(1 - rate, abs=0.02)
    assert output.max().item() == pytest.approx(1 / (1 - rate))
    assert torch.equal(inputs.grad.cpu(), output.detach().cpu())


@pytest.mark.lazy_only
def test_drawing_neither_recompiles_nor_reads_back() -> None:
    torch.manual_seed(0)
    values = torch.ones(64, device="xla")
    works, results = [], []
    for _ in range(5):
        before = Work.so_far()
        values = F.dropout(values, 0.1) + torch.randn(64, device="xla")
        torch_xla.sync(wait=True)
        works.append(Work.so_far().since(before))
        results.append(values)
    steady = Work(executions=1, compilations=0, fallbacks=0, device_to_host=0)
    assert works[2:] == [steady] * 3
    assert len({result.sum().item() for result in results}) == 5


def test_host_generator_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    torch.rand(4, device="xla")
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("tiers", ["off", "counted"])
def test_whole_numbers_without_an_end_reach_the_largest_of_the_dtype(
    tiers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", tiers)
    for dtype, last in ((torch.int8, 127), (torch.int32, 2**31 - 1), (torch.bfloat16, 256)):
        drawn = torch.empty(4000, dtype=dtype, device="xla").random_(-5, None).cpu().double()
        assert -5 <= drawn.min() < last / 20
        assert last * 0.95 < drawn.max() <= last
