"""TORCH_XLA_CHECK_INDICES: values that PyTorch's CPU kernels refuse are refused by programs too."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from compare import ramp
from torch import Tensor, nn
from torch_xla import _XLAC
from torch_xla.experimental.assume_pure import assume_pure

pytestmark = pytest.mark.host_only("programs call no kernels of this process elsewhere")

Call = Callable[[Tensor, Tensor], Tensor]

# Of numbers [4, 3] and the index 4, or a value that is as wrong.
INDICES: dict[str, Call] = {
    "index": lambda x, i: x[i],
    "index a column": lambda x, i: x[:, i],
    "index_put": lambda x, i: x.index_put((i,), torch.ones((), device=x.device)),
    "accumulate": lambda x, i: x.index_put((i,), torch.ones((), device=x.device), accumulate=True),
    "values under a mask": lambda x, i: x[:, 0].index_put(
        (torch.arange(4, device=x.device) > i,), x[0, :2]
    ),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding bag": lambda x, i: F.embedding_bag(i, x, torch.zeros_like(i)),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x[:1, :1]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x[:1, :1], "sum"),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:1], "prod"),
    "take": lambda x, i: x.take(i * 3),
    "put": lambda x, i: x.put(i * 3, x[:1, :1]),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:1], i),
    "nll_loss": lambda x, i: F.nll_loss(x[:1], i),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:1], i),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "floor division": lambda x, i: i // (i - 4),
    "remainder": lambda x, i: 7 % (i - 4),
    "fmod": lambda x, i: torch.fmod(i, i - 4),
    "rounded division": lambda x, i: torch.div(i, i - 4, rounding_mode="trunc"),
    "negative probability": lambda x, i: torch.multinomial(x[3] - 10 * (i - 3), 1),
    "bernoulli with no probability": lambda x, i: torch.bernoulli(i / x[1, :1]),
    "inputs beyond one": lambda x, i: F.binary_cross_entropy(i / x[1], x[0] / 9),
    "targets beyond one": lambda x, i: F.binary_cross_entropy(x[0] / 9, i / x[1]),
    "too few values for a mask": lambda x, i: x.masked_scatter(x >= 9 - 2 * i, x[:2]),
    "a number beyond the dtype": lambda x, i: x.byte().masked_fill(x > 1, i[0] * 80),
    "no probability": lambda x, i: torch.multinomial(x[3] * (4 - i), 1),
}


# Because they are as fast as programs' own operations, or faster.
CALL_KERNELS_ANYHOW = {
    *("embedding bag", "multi_margin_loss", "one_hot", "floor division", "remainder", "fmod"),
    *("rounded division", "negative probability", "bernoulli with no probability"),
    "no probability",
}


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_CHECK_INDICES", "1")


def _error(call: Call, device: str, index: int) -> Exception:
    with pytest.raises((IndexError, RuntimeError)) as caught:
        call(ramp(4, 3, device=device), torch.tensor([index], device=device)).cpu()
    return caught.value


@pytest.mark.parametrize("name", INDICES)
def test_a_wrong_value_raises_as_on_the_cpu(name: str) -> None:
    expected = _error(INDICES[name], "cpu", 4)
    error = _error(INDICES[name], "xla", 4)
    assert type(error) is type(expected)
    if name != "one_hot":  # of scatter here: PyTorch reads values on the CPU only
        assert str(expected).partition("  (Could this")[0] in str(error)


@pytest.mark.lazy_only
@pytest.mark.parametrize("name", ["index", "embedding", "cross_entropy", "remainder"])
def test_the_error_names_the_line(name: str) -> None:
    call = INDICES[name]
    line = f"{Path(__file__).name}:{call.__code__.co_firstlineno}"
    assert line in str(_error(call, "xla", 4))
    with pytest.raises((IndexError, RuntimeError), match=line):
        pure = assume_pure(call)
        pure(ramp(4, 3, device="xla"), torch.tensor([4], device="xla")).cpu()


@pytest.mark.parametrize("name", INDICES)
def test_a_right_value_gives_what_the_cpu_gives(name: str) -> None:
    def program(device: str) -> Tensor:
        return INDICES[name](ramp(4, 3, device=device) + 1, torch.tensor([1], device=device))

    if name.endswith("probability"):
        assert program("xla").numel() == 1
    else:
        torch.testing.assert_close(program("xla").cpu(), program("cpu"))


@pytest.mark.lazy_only
@pytest.mark.parametrize("name", [name for name in INDICES if "under a mask" not in name])
def test_a_wrong_value_in_the_first_run_raises_by_default(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_XLA_CHECK_INDICES")
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")  # as the first runs are by default
    call = INDICES[name]

    def another(x: Tensor, i: Tensor) -> Tensor:  # than the other tests have compiled
        return call(x * 1, i + 0)

    assert type(_error(another, "xla", 4)) is type(_error(another, "cpu", 4))


@pytest.mark.lazy_only
@pytest.mark.parametrize("name", [name for name in INDICES if name not in CALL_KERNELS_ANYHOW])
def test_what_is_not_asked_for_costs_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program calls no kernel that would look at the values."""

    def kernels(of_its_own: int) -> int:
        x = ramp(4 + of_its_own, 3, device="xla")[of_its_own:] + 1
        result = INDICES[name](x, torch.ones(1, device="xla").long())
        return _XLAC.tensors_stablehlo_text([result]).count("custom_call")

    assert kernels(2) > 0
    monkeypatch.delenv("TORCH_XLA_CHECK_INDICES")
    assert kernels(3) == 0


def test_a_step_that_failed_changed_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = model.weight.tolist()

    def step(target: int) -> Tensor:
        optimizer.zero_grad()
        targets = torch.full((4,), target, device="xla")
        loss = F.cross_entropy(model(ramp(4, 3, device="xla")), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(IndexError, match="Target 2 is out of bounds"):
        step(2).item()
    assert model.weight.tolist() == before
    step(1).item()
    assert model.weight.tolist() != before


def test_indices_on_the_host_are_checked_at_the_call() -> None:
    tensor = ramp(4, 3, device="xla")
    for wrong in (torch.tensor([0, 4]), torch.tensor([-5])):
        with pytest.raises(IndexError, match="is out of bounds for dimension 0 with size 4"):
            tensor[wrong]
        with pytest.raises(IndexError, match="is out of bounds for dimension 0 with size 4"):
            tensor[wrong] = 1.0
    with pytest.raises(IndexError, match=r"index 3 is out of bounds for dimension \d with size 3"):
        tensor[:, torch.tensor([3])]
    tensor = ramp(4, 3, device="xla")  # a kernel may write before it meets the wrong index
    assert tensor[torch.tensor([True, False, True, False]), torch.tensor([2, 0])].tolist() == [2, 6]


ADDITIONS: dict[str, Call] = {
    "rows": lambda x, i: x.index_add(0, i, x[:1]),
    "rows in place": lambda x, i: x.index_add_(0, i, x[:1]),
    "scaled rows": lambda x, i: x.index_add(0, i, x[:1], alpha=2),
    "scaled columns": lambda x, i: x.index_add(1, i, x[:, :1], alpha=0.5),
    "scaled integers": lambda x, i: x.int().index_add_(0, i, x[:1].int(), alpha=3),
    "scaled by one": lambda x, i: x.index_add(0, i, x[:1], alpha=1.0),
    "by complex one": lambda x, i: (x * 1j).index_add(0, i, x[:1] * 1j, alpha=1 + 0j),
    "by a complex number": lambda x, i: (x * 1j).index_add(0, i, x[:1] * 1j, alpha=1j),
    "in the middle": lambda x, i: x[None].index_add(1, i, x[None, :1]),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("wrong", [9, -1])
@pytest.mark.parametrize("name", ADDITIONS)
def test_what_adds_at_an_index_the_host_knows_refuses_it_as_on_the_cpu(
    name: str, wrong: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_XLA_CHECK_INDICES")
    raised = []
    for device in ("cpu", "xla"):
        index = torch.tensor([wrong], dtype=dtype, device=device)
        with pytest.raises((IndexError, RuntimeError)) as caught:
            ADDITIONS[name](ramp(4, 3, device=device), index)
        raised.append((type(caught.value), str(caught.value)))
    assert raised[0] == raised[1]


# Of numbers [4, 3] and the index 9; what is wrong besides is said first.
WRONG_TWICE: dict[str, Call] = {
    "a result of another dtype": lambda x, i: torch.index_select(x, 0, i, out=x.int()),
    "an index of another dtype": lambda x, i: x.gather(0, i[:, None].double()),
    "values of another dtype": lambda x, i: x.index_add_(0, i, x[:1].double()),
    "values of other sizes": lambda x, i: x.index_add(0, i, x[:2]),
    "scattered values of another dtype": lambda x, i: x.scatter(0, i[:, None], x.double()),
    "itself": lambda x, i: x.index_copy_(0, i.repeat(4), x[:]),
    "a tensor expanded": lambda x, i: x[0].expand(4, 3).index_copy_(0, i, x[:1]),
}


# These take an index on the host too, which is looked at when they are called.
FROM_THE_HOST = ("a result of another dtype", "values of another dtype", "values of other sizes")


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, "xla") for name in WRONG_TWICE] + [(name, "cpu") for name in FROM_THE_HOST],
)
def test_what_is_wrong_besides_an_index_is_said_first(name: str, place: str) -> None:
    call = WRONG_TWICE[name]
    expected = _error(call, "cpu", 9)
    with pytest.raises(type(expected)) as caught:
        call(ramp(4, 3, device="xla"), torch.tensor([9], device=place)).cpu()
    assert "out of bounds" not in str(expected)
    assert str(expected).partition("\n")[0] in str(caught.value)


def test_matrices_without_a_factorisation_raise_as_on_the_cpu() -> None:
    """Read by the operator itself, or by whoever reads the result."""
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda x: torch.linalg.cholesky_ex(x, check_errors=True).L,
        lambda x: torch.linalg.svdvals(x * float("nan")),
        torch.linalg.inv,
        lambda x: torch.linalg.solve(x, x),
    ]
    for call in calls:
        with pytest.raises(torch.linalg.LinAlgError) as wanted:
            call(singular)
        with pytest.raises(torch.linalg.LinAlgError) as raised:
            call(singular.to("xla")).cpu()
        assert str(wanted.value) in str(raised.value)


@pytest.mark.parametrize("learnt", [False, True])
def test_a_tensor_without_dimensions_takes_no_index(learnt: bool) -> None:
    """Also where the value that is put requires grad, which is a choice by the mask elsewhere."""
    for device in ("cpu", "xla"):
        value = torch.tensor(2.0, device=device, requires_grad=learnt) * 3
        with pytest.raises(IndexError, match=r"too many indices for tensor of dimension 0 \(got 1"):
            value.index_put((value == value,), value.flatten())
        with pytest.raises(IndexError, match=r"too many indices for tensor of dimension 0 \(got 1"):
            value.index_put_((value == value,), value.flatten())
