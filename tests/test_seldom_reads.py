"""Programs that neither sync nor read for long keep no batches, and train step by step."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from process import output_of
from torch import Tensor, nn
from torch_xla import _XLAC

pytestmark = pytest.mark.lazy_only

Counters = Callable[[str], int]
Runs = Callable[[], int]


@pytest.fixture
def runs(counters: Counters) -> Runs:
    """How many graphs have run, as programs or interpreted."""
    torch_xla.sync()
    before = counters("ExecuteTime")
    return lambda: counters("ExecuteTime") - before


def train(
    device: str, steps: int, read_every: int, optimizers: int = 1, sync: bool = False
) -> list[float]:
    torch.manual_seed(1)
    models = [nn.Linear(64, 64) for _ in range(optimizers)]
    x, y = torch.randn(32, 64).to(device), torch.randn(32, 64).to(device)
    for model in models:
        model.to(device)
    steppers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    losses = []
    for i in range(steps):
        for model, stepper in zip(models, steppers, strict=True):
            stepper.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            stepper.step()
        if i % read_every == read_every - 1:
            losses.append(loss.item())
        if sync:
            torch_xla.sync()
    return losses


def test_steps_end_graphs_where_the_loss_is_read_now_and_then(runs: Runs) -> None:
    found = train("xla", 12, read_every=6)
    assert runs() == 11  # the first two are one, before it is known
    assert found == pytest.approx(train("cpu", 12, read_every=6), rel=1e-5)


def test_the_first_of_several_optimizers_ends_the_step(runs: Runs) -> None:
    train("xla", 10, read_every=10, optimizers=3)
    assert runs() == 9 + 1  # and what was read


@pytest.mark.parametrize("sync", [False, True], ids=["read", "synced"])
def test_not_where_the_program_ends_each_step(sync: bool, runs: Runs) -> None:
    train("xla", 6, read_every=100 if sync else 1, sync=sync)
    assert runs() == 6


def test_a_compiled_step_is_one_graph(runs: Runs) -> None:
    model = nn.Linear(4, 4).to("xla")
    first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    x = torch.ones(2, 4, device="xla")
    torch_xla.sync()
    before = runs()

    @torch_xla.compile(full_graph=True)
    def two_steps() -> None:
        for optimizer in (first, second, first, second):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    two_steps()
    assert runs() - before == 1


def test_batches_are_not_kept_until_a_read() -> None:
    program = """
    import resource
    model = torch.nn.Conv2d(3, 4, 7, 4).to("xla")
    total = torch.zeros((), device="xla")
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    with torch.no_grad():
        for i in range(120):  # of 10 MB
            total += model(torch.full((16, 3, 224, 224), i / 100).to("xla")).mean()
            if i == 24:
                early = peak()
    print(peak() - early < 300, torch.isfinite(total).item())
    """
    assert output_of(program, TORCH_XLA_TIERS="counted").split() == ["True", "True"]


def test_a_program_that_reads_keeps_its_graphs_when_it_uploads_much(runs: Runs) -> None:
    """Only a few of its operations are pending when a batch comes."""
    weight = torch.ones(4, device="xla")
    torch_xla.sync()
    before = runs()
    for _ in range(40):
        x = torch.ones(2 << 20, 4).to("xla")  # 32 MB
        loss = (x * weight).sum()
        for _ in range(4):
            loss = loss * 0.5
        assert loss.item() == 4 * (2 << 20) / 16
        weight = weight * 1.0
    assert runs() - before == 40


def test_many_operations_are_run() -> None:
    program = """
    from torch_xla import _XLAC
    total = torch.zeros(2, device="xla")
    for _ in range(1050):
        total = total + 1
    print(_XLAC.pending_node_count(0) <= 1, metrics.metric_data("ExecuteTime")[0])
    print(total.sum().item())
    """
    printed = output_of(program, TORCH_XLA_PENDING_OPERATIONS="100", TORCH_XLA_TIERS="never")
    assert printed.split() == ["True", "10", "2100.0"]


def test_settings_that_kernels_look_at_are_those_of_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "counted")
    numerator, denominator = torch.arange(1, 2000, dtype=torch.int32), torch.tensor([7])

    def divided(device: str) -> Tensor:
        a, b = numerator.to(device), denominator.to(device)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            result = a / b
        finally:
            torch.set_default_dtype(before)
        return result.cpu()

    assert torch.equal(divided("xla"), divided("cpu"))


def test_deterministic_algorithms_are_those_of_the_call(runs: Runs) -> None:
    x = torch.zeros(8, device="xla")
    torch_xla.sync()
    before = runs()
    torch.use_deterministic_algorithms(True)
    try:
        x.index_copy_(0, torch.zeros(4, dtype=torch.long, device="xla"), torch.ones(4).to("xla"))
    finally:
        torch.use_deterministic_algorithms(False)
    assert runs() - before == 1
    assert _XLAC.pending_node_count(0) == 0
    assert x.sum().item() == 1
