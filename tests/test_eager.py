"""Eager mode: the CPU's PyTorch is the oracle, and work is counted, not only values."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch_xla
from compare import FOREIGN
from process import output_of
from torch import nn
from torch_xla.experimental import eager_mode, eager_mode_context, is_eager_mode
from work import counter, samples

Counters = Callable[[str], int]
DEVICE = "xla"
HERE = os.path.dirname(__file__)
PROGRAMS = FOREIGN or os.environ.get("TORCH_XLA_EAGER") == "pjrt"
of_host_memory = pytest.mark.skipif(PROGRAMS, reason="about the memory of the host")


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    torch_xla.sync(wait=True)
    with eager_mode_context(True):
        yield


@pytest.fixture
def no_programs() -> Iterator[None]:
    """On host memory eager mode compiles and runs nothing through the compiler."""
    if PROGRAMS:
        yield
        return
    before = counter("UncachedCompile"), counter("CachedCompile"), samples("ExecuteTime")
    yield
    after = counter("UncachedCompile"), counter("CachedCompile"), samples("ExecuteTime")
    assert after == before


def same(device: torch.Tensor, cpu: torch.Tensor) -> None:
    assert device.device.type == DEVICE
    assert device.dtype == cpu.dtype and device.stride() == cpu.stride()
    torch.testing.assert_close(device.cpu(), cpu, rtol=0, atol=0)


def both(function: Callable[[torch.device], torch.Tensor]) -> None:
    same(function(torch.device(DEVICE)), function(torch.device("cpu")))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.convolution(x)))
        x = nn.functional.max_pool2d(x, 2)
        return self.linear(x.flatten(1))


def train(device: str, steps: int = 3) -> tuple[list[float], nn.Module]:
    torch.manual_seed(0)
    model = Small()
    data, target = torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
    model, data, target = model.to(device), data.to(device), target.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def test_the_flag() -> None:
    assert is_eager_mode()
    with eager_mode_context(False):
        assert not is_eager_mode()
        with pytest.raises(ValueError), eager_mode_context(True):
            raise ValueError
        assert not is_eager_mode()
    eager_mode(False)
    assert not is_eager_mode()
    eager_mode(True)
    assert is_eager_mode()


def test_setting_the_flag_starts_no_client() -> None:
    program = """
    torch_xla.experimental.eager_mode(True)
    print(torch_xla._XLAC.client_started())
    """
    assert output_of(program).strip() == "False"


def test_operations_run_at_once(no_programs: None) -> None:
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    y = (x @ x.T).relu() + 1
    assert torch_xla._XLAC.pending_node_count(0) == 0
    same(y, (torch.arange(6.0).reshape(2, 3) @ torch.arange(6.0).reshape(2, 3).T).relu() + 1)


def test_in_place_through_views(no_programs: None) -> None:
    def work(device: torch.device) -> torch.Tensor:
        x = torch.zeros(4, 6, device=device)
        x.t()[1:3].add_(1)
        x[2, ::2] = torch.tensor([7.0, 8.0, 9.0], device=device)
        x.view(-1)[5].fill_(4)
        x[:, 1] *= 3
        x.view(torch.int32)[0, 0] = 1065353216
        return x

    both(work)


@of_host_memory
def test_in_place_keeps_the_memory() -> None:
    x = torch.ones(1000, device=DEVICE)
    address = torch_xla._XLAC.host_address(x)
    x.add_(1)
    x[:10].zero_()
    torch.mul(x, 2, out=x)
    assert torch_xla._XLAC.host_address(x) == address


def test_results_may_be_views_or_lists(no_programs: None) -> None:
    both(lambda device: torch.cat(torch.arange(10.0, device=device).split([3, 7])[::-1]))
    both(lambda device: torch.stack(torch._foreach_mul([torch.ones(3, device=device)] * 2, 3.0)))
    both(lambda device: torch.arange(12, device=device).view(3, 4).max(dim=1).indices)
    both(
        lambda device: torch.view_as_real(torch.ones(3, dtype=torch.cfloat, device=device).mul(1j))
    )


def test_sizes_that_depend_on_values(no_programs: None) -> None:
    x = torch.tensor([0.0, 1.0, 0.0, 2.0])
    both(lambda device: x.to(device).nonzero())
    both(lambda device: x.to(device)[x.to(device) > 0])
    both(lambda device: torch.unique(x.to(device)))


def test_out_takes_the_size_of_the_result() -> None:
    def work(device: torch.device) -> torch.Tensor:
        out = torch.empty(0, device=device)
        torch.add(torch.ones(3, 5, device=device), 1, out=out)
        return out.mul_(2)

    both(work)


def test_storages_that_grow() -> None:
    def work(device: torch.device) -> torch.Tensor:
        x = torch.arange(4.0, device=device)
        x.resize_(2, 4)
        x[1] = 5
        return x + 1

    both(work)


def test_storages_that_grew_are_read() -> None:
    def work(device: torch.device) -> torch.Tensor:
        x = torch.ones(3, device=device) * 2
        x.untyped_storage().resize_(400)
        return x + 1

    both(work)


def test_indexing_with_cpu_tensors() -> None:
    x = torch.randn(5, 4)
    index = torch.tensor([3, 0])
    same(x.to(DEVICE)[index], x[index])


def test_a_training_step_is_the_cpus(no_programs: None) -> None:
    losses, model = train(DEVICE)
    expected, reference = train("cpu")
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name].cpu(), value, rtol=1e-4, atol=1e-5)
    assert int(model.norm.num_batches_tracked) == 3


def test_errors_are_raised_at_the_line() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.ones(2, 3, device=DEVICE) @ torch.ones(2, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"at least two devices, xla:0 and cpu"):
        torch.dot(torch.ones(2, device=DEVICE), torch.ones(2))
    with pytest.raises(RuntimeError, match=r"at least two devices, xla:0 and cpu"):
        torch.ones(2).add_(torch.ones(2, device=DEVICE))
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(RuntimeError):
        x.add_(torch.ones(3, device=DEVICE))
    same(x, torch.ones(2))


def test_changing_numbers_compile_nothing(no_programs: None) -> None:
    def work(device: torch.device) -> torch.Tensor:
        x = torch.ones(3, device=device)
        for i in range(5):
            x = x * (0.5 * i) + i
        return x

    both(work)


def test_random_numbers_follow_the_seed(no_programs: None) -> None:
    def draw() -> list[torch.Tensor]:
        x = torch.ones(50, device=DEVICE)
        return [
            torch.randn(50, device=DEVICE),
            torch.rand(50, device=DEVICE),
            torch.randperm(50, device=DEVICE),
            torch.randint(1000, (50,), device=DEVICE),
            torch.bernoulli(x * 0.5),
            nn.functional.dropout(x, 0.5),
            torch.native_dropout(x, 0.5, True)[0],
            torch.multinomial(x, 20),
            torch.empty(50, device=DEVICE).exponential_(),
        ]

    torch.manual_seed(7)
    first, second = draw(), draw()
    torch.rand(3)  # the CPU's generator is another
    torch.manual_seed(7)
    torch.rand(3)
    again = draw()
    for a, b, c in zip(first, second, again, strict=True):
        assert torch.equal(a, c)
        assert not torch.equal(a, b)


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(10000, device=DEVICE)
    for dropped in (nn.functional.dropout(x, 0.25), torch.native_dropout(x, 0.25, True)[0]):
        assert dropped.mean().item() == pytest.approx(1, abs=0.05)
        assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("how", ["foreach", "fused", "for-loop"])
def test_optimizers(how: str, no_programs: None) -> None:
    def work(device: torch.device) -> torch.Tensor:
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(4, 4).to(device))
        options = {"foreach": how == "foreach", "fused": how == "fused"}
        optimizer = torch.optim.AdamW([weight], lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
        return weight.detach()

    torch.testing.assert_close(work(torch.device(DEVICE)).cpu(), work(torch.device("cpu")))


def test_an_operator_of_the_users_own(no_programs: None) -> None:
    kept = torch.ones(3)
    library = torch.library.Library("eager_test", "FRAGMENT")
    library.define("kept(Tensor x) -> Tensor")
    library.define("flat(Tensor(a) x) -> Tensor(a)")
    library.impl("kept", lambda x: kept, "CPU")
    library.impl("flat", lambda x: x.view(-1), "CPU")
    x = torch.zeros(2, 2, device=DEVICE)
    result = torch.ops.eager_test.kept(x).add_(1)
    assert kept.tolist() == [1] * 3 and result.tolist() == [2] * 3
    if not PROGRAMS:
        torch.ops.eager_test.flat(x).add_(2)
        same(x, torch.full((2, 2), 2.0))


def test_under_inference_mode(no_programs: None) -> None:
    with torch.inference_mode():
        x = torch.ones(3, device=DEVICE) * 2
        assert x.is_inference() and x.tolist() == [2] * 3


def test_fork_rng_restores_the_device() -> None:
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type=DEVICE):
        inside = torch.rand(5, device=DEVICE)
    assert torch.equal(torch.rand(5, device=DEVICE), inside)


def test_pending_work_runs_first() -> None:
    with eager_mode_context(False):
        x = torch.arange(4.0, device=DEVICE) * 3
        assert torch_xla._XLAC.pending_node_count(0) > 0
    same(x + 1, torch.arange(4.0) * 3 + 1)
    assert torch_xla._XLAC.pending_node_count(0) == 0


def test_the_users_autocast_of_the_cpu_is_not_the_devices() -> None:
    x = torch.ones(4, 4, device=DEVICE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16


@of_host_memory
def test_host_and_program_share_memory(counters: Counters) -> None:
    x = torch.arange(1000.0, device=DEVICE).add_(1)
    address = torch_xla._XLAC.host_address(x)
    uploads = counters("TransferToDeviceTime")
    with eager_mode_context(False):
        y = x * 2
        torch_xla.sync()
    assert torch_xla._XLAC.host_address(x) == address
    address = torch_xla._XLAC.host_address(y)
    y.add_(1)
    assert torch_xla._XLAC.host_address(y) == address
    same(y, (torch.arange(1000.0) + 1) * 2 + 1)
    same(x, torch.arange(1000.0) + 1)
    assert counters("TransferToDeviceTime") == uploads


def test_a_shared_value_is_copied_on_write() -> None:
    x = torch.arange(1000.0, device=DEVICE)
    with eager_mode_context(False):
        y = x.clone()  # recorded: it still reads x's value
    x.add_(1)
    same(y, torch.arange(1000.0))
    same(x, torch.arange(1000.0) + 1)


@of_host_memory
def test_memory_is_counted_whoever_uses_it() -> None:
    def allocated() -> int:
        gc.collect()
        return torch.xla.memory_allocated()

    before = allocated()
    x = torch.empty(1000, device=DEVICE).fill_(1)
    assert allocated() - before == 4000
    y = x[:500] + x[500:]
    assert allocated() - before == 6000
    with eager_mode_context(False):
        z = y * 2  # asks for nodes of what eager mode made
        torch_xla.sync(wait=True)
    assert allocated() - before == 8000
    for _ in range(2):
        z.add_(x[::2]).mul_(y)  # and eager mode for their memory
    assert allocated() - before == 8000
    torch.add(x, 1, out=(grown := torch.empty(0, device=DEVICE)))
    assert allocated() - before == 12000
    same(grown, torch.full((1000,), 2.0))
    same(z, torch.full((500,), 22.0))
    del x, y, z, grown
    assert allocated() == before


def test_what_inference_mode_made_is_used_outside(no_programs: None) -> None:
    def work(device: torch.device) -> torch.Tensor:
        with torch.inference_mode():
            x = torch.ones(4, 4, device=device) * 2
            y = x.relu()
        weight = torch.full((4, 4), 0.5, device=device, requires_grad=True)
        with torch.no_grad():
            z = x @ y + x.t()
        (weight * z).sum().backward()
        assert weight.grad is not None
        return weight.grad + x

    both(work)


def test_one_tensor_many_times_in_a_call(no_programs: None) -> None:
    def work(device: torch.device) -> torch.Tensor:
        x = torch.arange(9.0, device=device).reshape(3, 3)
        y = torch.cat([x, x.t(), x[1:2], x])
        torch._foreach_add_([x[0], x[1], x[2]], 1.0)
        x.copy_(x.t() + torch.addmm(x, x, x.t()))
        z = torch.where(x > 5, x, -x)
        return y.sum() * z * z

    both(work)


@of_host_memory
def test_threads_read_one_tensor_recorded_and_not() -> None:
    shared = torch.ones(64, 64, device=DEVICE) * 3
    wrong = []

    def work(number: int) -> None:
        for i in range(60):
            y = shared * number + shared.t()
            if i % 7 == number:
                with eager_mode_context(False):  # for all threads
                    y = y + shared - shared
            if y.sum().item() != 64 * 64 * 3 * (number + 1):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eager_mode(True)
    assert not wrong


def test_a_write_waits_for_programs_that_read() -> None:
    x = torch.full((400, 400), 1e-3, device=DEVICE)
    expected = x.cpu()
    with eager_mode_context(False):
        y = x
        for _ in range(30):
            y = y @ x
        torch_xla.sync()
    x.zero_()
    for _ in range(30):
        expected = expected @ torch.full((400, 400), 1e-3)
    torch.testing.assert_close(y.cpu(), expected)


def test_threads_write_their_own_parts() -> None:
    x = torch.zeros(8, 4096, device=DEVICE)

    def work(row: int) -> None:
        for _ in range(200):
            x[row].add_(1)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(x, torch.full((8, 4096), 200.0))


def test_flipping_the_flag_while_others_work() -> None:
    failures: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            x = torch.zeros(16, device=DEVICE)
            for i in range(40):
                x.add_(1)
                y = x * 2
                if i % 8 == 0:
                    assert y.cpu()[0].item() == 2 * (i + 1)
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not stop.is_set():
        eager_mode(not is_eager_mode())
    for thread in threads:
        thread.join()
    eager_mode(True)
    assert not failures


@of_host_memory
def test_metrics(counters: Counters) -> None:
    torch.ones(3, device=DEVICE).add_(1)
    assert counters("EagerOpExecuteTime") >= 2
    assert counters("EagerOpCompileCount") == 0


@pytest.mark.skipif(not PROGRAMS, reason="about programs")
def test_one_program_per_kind_of_call(counters: Counters) -> None:
    x = torch.ones(3, device=DEVICE)
    optimizer = torch.optim.Adam([nn.Parameter(x.clone())], lr=0.1)

    def work(i: int) -> torch.Tensor:
        y = (x * (0.1 * i) + i).clamp(i, i + 0.5).add_(x, alpha=i)
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
        optimizer.param_groups[0]["params"][0].grad = y
        optimizer.step()
        return y

    work(0)
    work(1)
    assert counters("EagerOpCompileCount") > 0 and counters("EagerOpCompileTime") > 0
    programs = counters("UncachedCompile")
    for i in range(2, 6):
        y = work(i)
    assert counters("UncachedCompile") == programs
    assert y.tolist() == [10.5] * 3


@of_host_memory
@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize(
    "function",
    [lambda x: x.cumprod(1), lambda x: x.prod(), lambda x: x.prod(0), lambda x: x.max()],
    ids=["cumprod", "prod", "prod along", "max"],
)
def test_gradients_that_look_at_values_are_pytorchs(
    function: Callable[[torch.Tensor], torch.Tensor], zeros: int
) -> None:
    """Recorded, they look at none; here nothing is lost by it."""

    def gradient(device: torch.device) -> torch.Tensor:
        x = torch.arange(2.0, 14.0).view(3, 4) / 7
        x.view(-1)[1 : 1 + 2 * zeros : 2] = 0
        x = x.to(device).requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    both(gradient)


@of_host_memory
@pytest.mark.parametrize("file", ["test_eager.py", "test_compile.py"])
def test_the_same_with_programs(file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(HERE, file)],
        env={**os.environ, "TORCH_XLA_EAGER": "pjrt"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


def test_the_variable_is_checked() -> None:
    program = """
    torch_xla.experimental.eager_mode(True)
    try:
        torch.ones(2, device="xla")
    except RuntimeError as error:
        print(error)
    """
    assert "TORCH_XLA_EAGER has the value 'fast': it must be host or pjrt" in output_of(
        program, TORCH_XLA_EAGER="fast"
    )
