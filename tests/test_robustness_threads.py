"""Several threads trace, sync and read at once."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch_xla
from process import output_of
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch_xla.experimental.assume_pure import assume_pure

THREADS = 8
Counters = Callable[[str], int]


def in_threads(work: Callable[[int], object]) -> list[object]:
    barrier = threading.Barrier(THREADS)

    def start_together(index: int) -> object:
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start_together, range(THREADS)))


def test_threads_trace_their_own_tensors() -> None:
    def work(index: int) -> list[float]:
        tensor = torch.full((4,), float(index), device="xla")
        seen = []
        for step in range(10):
            tensor = tensor * 2 - index
            if step % 3 == 0:
                torch_xla.sync()
            seen.append(tensor.sum().item())
        return seen

    assert in_threads(work) == [[4.0 * index] * 10 for index in range(THREADS)]


def test_threads_train_their_own_models() -> None:
    def work(index: int) -> float:
        generator = torch.Generator().manual_seed(index)
        weight = torch.randn(3, generator=generator).to("xla").requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
            torch_xla.sync()
        initial = torch.randn(3, generator=generator.manual_seed(index))
        return (weight.detach().cpu() - initial * 0.8**5).abs().max().item()

    assert max(in_threads(work)) < 1e-5


def test_threads_train_by_pure_functions() -> None:
    """A trace watches the optimizers that its own thread steps."""

    def work(index: int, device: str = "xla") -> list[float]:
        generator = torch.Generator().manual_seed(index)
        weight = torch.randn(3 + index, generator=generator).to(device).requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()

        function = step if device == "cpu" else assume_pure(step)
        for _ in range(5):
            function()
        values: list[float] = weight.tolist()
        return values

    for index, values in enumerate(in_threads(work)):
        assert values == pytest.approx(work(index, "cpu"), abs=1e-4)


MANY = 24


def in_many_threads(work: Callable[[int, threading.Barrier], object]) -> list[object]:
    barrier = threading.Barrier(MANY, timeout=240)
    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(work, range(MANY), [barrier] * MANY))


@pytest.mark.lazy_only
def test_a_sync_takes_what_its_own_thread_recorded(counters: Counters) -> None:
    """All have recorded when the first one syncs, and each has a program of its own sizes."""
    rounds = 3

    def work(index: int, barrier: threading.Barrier) -> list[str]:
        x = torch.full((101 + index,), 1.0, device="xla")
        torch_xla.sync()
        states = []
        for _ in range(rounds):
            x.mul_(1.5).sub_(index)
            barrier.wait()
            if index % 2 == 0:
                torch_xla.sync()
            barrier.wait()
            states.append(torch_xla._XLAC.value_state(x))
            barrier.wait()
            torch_xla.sync()
        expected = torch.full((101 + index,), 1.0)
        for _ in range(rounds):
            expected.mul_(1.5).sub_(index)
        torch.testing.assert_close(x.cpu(), expected)
        return states

    found = in_many_threads(work)
    assert found == [["there", "pending"][index % 2 :: 2] * rounds for index in range(MANY)]
    assert counters("UncachedCompile") == 2 * MANY  # what makes x, and what changes it
    assert counters("ExecuteTime") == MANY * (1 + rounds)


@pytest.mark.lazy_only
@pytest.mark.parametrize("reads", [False, True])
def test_threads_that_train_compile_their_own_steps(reads: bool, counters: Counters) -> None:
    """Their backward passes, which share the device's thread, record for those who began them."""
    steps = 3

    def work(index: int, barrier: threading.Barrier) -> float:
        torch.manual_seed(index)
        weight = torch.linspace(-1, 1, 31 + index).to("xla").requires_grad_()
        optimizer = torch.optim.SGD([weight], 0.1)
        loss = torch.zeros(())
        for _ in range(steps):
            barrier.wait()
            optimizer.zero_grad()
            loss = (weight - 0.5).square().sum()
            loss.backward()
            optimizer.step()
            barrier.wait()
            if reads:
                loss.item()
                weight.sum().item()
            else:
                torch_xla.sync()
        return loss.item()

    losses = in_many_threads(work)
    for index, loss in enumerate(losses):
        start = (torch.linspace(-1, 1, 31 + index) - 0.5).square().sum().item()
        assert loss == pytest.approx(start * 0.8 ** (2 * (steps - 1)), rel=1e-4)
    programs = 2 if reads else 1
    assert counters("UncachedCompile") <= (programs + 1) * MANY  # the first step has no momentum
    assert counters("ExecuteTime") <= programs * steps * MANY


@pytest.mark.lazy_only
def test_what_a_thread_left_is_taken_by_others() -> None:
    made: list[Tensor] = []
    worker = threading.Thread(target=lambda: made.append(torch.ones(3, device="xla") * 5))
    worker.start()
    worker.join()
    assert torch_xla._XLAC.value_state(made[0]) == "pending"
    deadline = time.monotonic() + 60  # Python's thread has ended a moment before the system's
    while torch_xla._XLAC.value_state(made[0]) == "pending" and time.monotonic() < deadline:
        torch_xla.sync()
    assert torch_xla._XLAC.value_state(made[0]) == "there"


@pytest.mark.lazy_only
def test_a_sync_takes_what_it_needs_of_another_thread() -> None:
    """And leaves alone the buffers that what others recorded reads."""
    recorded, synced = threading.Event(), threading.Event()
    shared = torch.arange(6.0).to("xla")
    results: dict[str, Tensor] = {}

    def work() -> None:
        results["base"] = shared * 2
        results["read"] = shared + 1
        results["apart"] = torch.ones(4, device="xla") * 3
        recorded.set()
        synced.wait(60)

    worker = threading.Thread(target=work)
    worker.start()
    recorded.wait(60)
    mine = results["base"] + 1
    shared.mul_(10)  # its former buffer is still read by the other thread's
    torch_xla.sync()
    state = torch_xla._XLAC.value_state
    found = {name: state(tensor) for name, tensor in results.items()}
    synced.set()
    worker.join()
    assert state(mine) == state(shared) == "there"
    assert found == {"base": "there", "read": "pending", "apart": "pending"}
    assert mine.tolist() == [1, 3, 5, 7, 9, 11]
    assert shared.tolist() == [0, 10, 20, 30, 40, 50]
    assert results["read"].tolist() == [1, 2, 3, 4, 5, 6]
    assert results["apart"].tolist() == [3] * 4


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("rows", [4, 2**17])
def test_what_another_thread_has_pending_keeps_what_it_is_computed_from(
    read: bool, rows: int
) -> None:
    x = torch.zeros(rows, 4, device="xla")
    torch_xla.sync(wait=True)
    with ThreadPoolExecutor(1) as other:
        for step in range(1, 4):
            x.add_(1)
            doubled = other.submit(lambda: x * 2).result()
            if read:
                assert x[0].tolist() == [step] * 4
            else:
                torch_xla.sync(wait=True)
            assert other.submit(lambda y=doubled: y[-1].tolist()).result() == [2 * step] * 4
    assert x.sum().item() == 3 * 4 * rows


def test_threads_read_one_pending_tensor() -> None:
    shared = torch.arange(100, device="xla").float().sqrt().sum() * 2
    values = in_threads(lambda index: shared.item())
    assert len(set(values)) == 1
    assert values[0] == pytest.approx((torch.arange(100).float().sqrt().sum() * 2).item())


def test_threads_use_tensors_made_elsewhere() -> None:
    tensors = [torch.full((3,), float(index), device="xla") + 1 for index in range(THREADS)]
    sums = in_threads(lambda index: (tensors[index] + tensors[index - 1]).sum().item())
    expected = [3.0 * (index + 1 + (index - 1) % THREADS + 1) for index in range(THREADS)]
    assert sums == expected


def test_threads_write_parts_of_one_tensor() -> None:
    shared = torch.zeros(THREADS, 5, device="xla")
    lock = threading.Lock()

    def work(index: int) -> None:
        for _ in range(10):
            with lock:
                shared[index] += index

    in_threads(work)
    expected = torch.arange(THREADS).float()[:, None].expand(THREADS, 5) * 10
    assert torch.equal(shared.cpu(), expected)


def test_backward_from_several_threads() -> None:
    leaf = torch.ones(4, device="xla", requires_grad=True)

    def work(index: int) -> None:
        (leaf * (index + 1)).sum().backward()

    in_threads(work)
    assert leaf.grad.tolist() == [36.0] * 4


def test_background_thread_moves_batches() -> None:
    """As a prefetching loader does: one thread uploads, the main one trains."""
    uploaded: list[Tensor] = []
    ready = threading.Semaphore(0)

    def upload() -> None:
        for index in range(20):
            uploaded.append(torch.full((4,), float(index)).to("xla", non_blocking=True))
            ready.release()

    thread = threading.Thread(target=upload)
    thread.start()
    total = torch.zeros(4, device="xla")
    for index in range(20):
        ready.acquire()
        total += uploaded[index]
        torch_xla.sync()
    thread.join()
    assert total.tolist() == [190.0] * 4


def test_data_loader_with_worker_processes() -> None:
    dataset = TensorDataset(torch.arange(12.0).reshape(12, 1))
    assert torch.ones(1, device="xla").item() == 1  # the client runs before the workers fork
    total = torch.zeros(1, device="xla")
    for (batch,) in DataLoader(dataset, batch_size=4, num_workers=2):
        total += batch.to("xla").sum(0)
        torch_xla.sync()
    assert total.item() == 66


BACKWARD_PASSES = """
import threading
from torch.utils.checkpoint import checkpoint

ran_on = []

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ran_on.append(threading.get_ident())
        return gradient * 2

class Fails(Double):
    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("on purpose")

def gradient_of(function):
    x = torch.arange(3.0, device="xla", requires_grad=True)
    function(x).sum().backward()
    return x.grad.tolist()

def in_a_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(gradient_of(function)))
    thread.start()
    thread.join()
    return result[0]

here = threading.get_ident()
assert gradient_of(Double.apply) == [2, 2, 2]
assert ran_on == [here]
try:
    gradient_of(lambda x: Double.apply(Fails.apply(Double.apply(x))))
except ArithmeticError:
    pass
else:
    raise AssertionError
def again(x):
    return checkpoint(Double.apply, x, use_reentrant=True)

assert gradient_of(again) == [2, 2, 2]
assert set(ran_on) == {here}

# A second thread's pass, waited for in the midst of the first one's.
seen = []
def hook(gradient):
    seen.append(in_a_thread(Double.apply))

def hooked(x):
    y = Double.apply(x * 1)
    y.register_hook(hook)
    return Double.apply(y)

assert gradient_of(hooked) == [4, 4, 4]
assert seen == [[2, 2, 2]]
assert gradient_of(Double.apply) == in_a_thread(Double.apply) == [2, 2, 2]
print("done")
"""


@pytest.mark.parametrize("eager", [False, True])
def test_backward_passes_run_where_they_are_begun(eager: bool) -> None:
    mode = f"torch_xla.experimental.eager_mode({eager})\n"
    assert "done" in output_of(mode + BACKWARD_PASSES)


def test_a_loader_in_the_middle_of_its_data_ends_before_the_interpreter() -> None:
    output_of(
        """
        import atexit, itertools, os, threading

        def check():  # the last to be called
            if any(thread.name == "torch_xla-loader" for thread in threading.enumerate()):
                os._exit(7)

        atexit.register(check)
        import torch_xla.distributed.parallel_loader as pl
        torch_xla.experimental.eager_mode(True)
        batches = (torch.full((64, 64), float(i)) for i in itertools.count())
        loader = pl.MpDeviceLoader(batches, torch_xla.device())
        first = [batch for batch, _ in zip(loader, range(3))]
        """
    )


def test_a_program_may_end_in_inference_mode() -> None:
    output_of(
        """
        x = torch.ones(2, device="xla", requires_grad=True)
        (x + 1).sum().backward()
        torch.inference_mode().__enter__()
        """
    )


def test_a_program_of_the_cpu_that_ends_with_a_backward_pass_does_not_wait() -> None:
    output_of(
        """
        import os

        class Given(torch.autograd.Function):
            forward = staticmethod(lambda context, x: x)
            backward = staticmethod(lambda context, gradient: gradient)

        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        Given.apply(torch.ones(1, requires_grad=True)).backward()
        """,
        timeout=9,
    )


def test_a_fork_while_others_record() -> None:
    """The child may free tensors, and is refused at the first operation; it waits for no lock."""
    output_of(
        """
        import os, signal, threading

        done = False

        def record():
            x = torch.ones(8, device="xla")
            while not done:
                for _ in range(50):
                    x = x * 1.0 + 0.0
                torch_xla.sync()

        pending = torch.ones(3, device="xla") + 1
        threads = [threading.Thread(target=record) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # ends a child that waits for what nobody will do
                try:
                    pending * 2
                except RuntimeError as error:
                    del pending
                    os._exit(7 if "forked child" in str(error) else 8)
                os._exit(9)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        done = True
        for thread in threads:
            thread.join()
        assert pending.tolist() == [2, 2, 2]
        """
    )


@pytest.mark.parametrize("kind", ["lazy", "eager", "compiled", "traced"])
def test_a_thread_that_holds_the_interpreter_beside_one_that_records(kind: str) -> None:
    """Who records takes the interpreter's lock only where no other lock is held."""
    output_of(
        """
        import sys, threading
        from torch_xla.experimental.assume_pure import assume_pure

        kind = sys.argv[1]
        torch_xla.experimental.eager_mode(kind == "eager")
        wraps = {"compiled": torch_xla.compile, "traced": assume_pure}
        sys.setswitchinterval(1e-4)  # or each operation would wait for 5 ms, as on the CPU
        done = False

        def hold():
            count = 0
            while not done:
                count += len(str(count))

        def train(device, wrap):
            torch.manual_seed(0)
            layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
            model = torch.nn.Sequential(*layers)
            model.to(device)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            x = torch.linspace(0, 1, 32).reshape(8, 4).to(device)

            def step(x):
                optimizer.zero_grad()
                loss = (model(x) - 1).square().mean()
                loss.backward()
                optimizer.step()
                return loss

            run = wrap(step)
            return [run(x).item() for _ in range(5)]

        threads = [threading.Thread(target=hold) for _ in range(2)]
        for thread in threads:
            thread.start()
        got = train("xla", wraps.get(kind, lambda f: f))
        done = True
        for thread in threads:
            thread.join()
        wanted = train("cpu", lambda f: f)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        """,
        kind,
    )


def test_traces_beside_threads_that_ask_with_the_interpreters_lock() -> None:
    """A trace takes references of tensors that Python alone holds, and calls of pure functions look
    at their arguments."""
    output_of(
        """
        import threading
        from torch_xla.experimental.assume_pure import assume_pure

        x = torch.ones(4, device="xla")
        double = assume_pure(lambda x: x * 2)
        double(x)
        done = False

        def ask():
            while not done:
                double(x)

        def trace():
            for _ in range(150):
                tensors = [torch.zeros(3, device="xla") for _ in range(20)]

                def step():
                    for tensor in tensors:
                        tensor.mul_(0.5).add_(1)

                assume_pure(step)()
                assert tensors[0].sum().item() == 3

        asking = [threading.Thread(target=ask) for _ in range(3)]
        tracing = [threading.Thread(target=trace) for _ in range(2)]
        for thread in asking + tracing:
            thread.start()
        for thread in tracing:
            thread.join()
        done = True
        for thread in asking:
            thread.join()
        """
    )
