"""Mistakes raise at the user's line, in PyTorch's words, and the next step works."""

import inspect
import os
import threading
import traceback
import warnings
from collections.abc import Callable

import pytest
import torch
import torch_xla
from process import output_of, run_python


def works_afterwards() -> None:
    assert (torch.ones(3, device="xla") * 2).sum().item() == 6


MISTAKES: dict[str, Callable[[str], object]] = {
    "matmul shapes": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "broadcast": lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d),
    "cat": lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)], 0),
    "reshape": lambda d: torch.ones(6, device=d).reshape(4, 2),
    "view": lambda d: torch.ones(2, 3, device=d).t().view(6),
    "dimension": lambda d: torch.ones(2, device=d).sum(3),
    "index": lambda d: torch.ones(2, device=d)[5],
    "squeeze": lambda d: torch.ones(2, 3, device=d).transpose(0, 4),
    "softmax of ints": lambda d: torch.ones(2, dtype=torch.int64, device=d).softmax(0),
    "in-place dtype": lambda d: torch.ones(2, dtype=torch.int64, device=d).add_(0.5),
    "mixed matmul": lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, device=d).double(),
    "bitwise float": lambda d: torch.ones(2, device=d) & torch.ones(2, device=d),
    "item of many": lambda d: torch.ones(2, device=d).item(),
    "truth of many": lambda d: bool(torch.ones(2, device=d)),
    "in-place shape": lambda d: torch.ones(1, device=d).add_(torch.ones(3, device=d)),
    # PyTorch's meta kernels let these pass.
    "empty maximum": lambda d: torch.empty(0, device=d).max(),
    "empty minimum along": lambda d: torch.empty(0, 3, device=d).min(0),
    "mode of nothing": lambda d: torch.empty(0, device=d).mode(),
    "minus True": lambda d: torch.ones(3, device=d) - True,
    "large minus True": lambda d: torch.ones(9999, device=d) - True,
    "complex trunc": lambda d: torch.ones(3, dtype=torch.complex64, device=d).trunc(),
    "large complex floor": lambda d: torch.ones(9999, dtype=torch.complex64, device=d).floor(),
    "complex clamp": lambda d: torch.ones(3, dtype=torch.complex64, device=d).clamp(0, 1),
    "mean of truths, written": lambda d: torch.mean(
        torch.ones(3, dtype=torch.bool, device=d), 0, out=torch.ones((), device=d)
    ),
    "bool alpha": lambda d: torch.sub(torch.ones(3, device=d), 1, alpha=True),
    "addmm": lambda d: torch.addmm(torch.ones(1, 999, device=d), *[torch.ones(9, 9, device=d)] * 2),
    "top-k": lambda d: torch.ones(3, device=d).topk(4),
    "index_put": lambda d: index_put(d, 2, torch.ones(3, 9999, device=d)),
    "index_put of no values": lambda d: index_put(d, 2, torch.ones(0, 9999, device=d)),
    "too few strides": lambda d: torch.ones(3, device=d).new_empty_strided([1], []),
    "strides of no dimension": lambda d: torch.empty_strided([2], [1, 2], device=d),
    "negative strides": lambda d: torch.empty_strided([2, 3], [-1, 1], device=d),
    "random": lambda d: torch.randint(5, 5, (3,), device=d),
    "random in place": lambda d: torch.ones(3, device=d).random_(2, 1),
    "samples": lambda d: torch.ones(3, device=d).multinomial(4),
    "convolution bias": lambda d: convolution(d, bias=4),
    "convolution padding": lambda d: convolution(d, padding=-1),
    "convolution stride": lambda d: convolution(d, stride=0),
    "convolution channels": lambda d: convolution(d, channels=3),
}


def index_put(device: str, places: int, values: torch.Tensor) -> None:
    rows = torch.zeros(places, dtype=torch.int64, device=device)
    torch.ones(5, 9999, device=device).index_put_((rows,), values)


def convolution(device: str, channels: int = 2, bias: int = 3, **options: int) -> None:
    image, kernel = torch.ones(1, 2, 60, 60, device=device), torch.ones(3, channels, 3, 3)
    torch.conv2d(image, kernel.to(device), torch.ones(bias, device=device), **options)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=[n.replace(" ", "-") for n in MISTAKES])
def test_message_and_line(mistake: Callable[[str], object]) -> None:
    with pytest.raises(Exception) as expected:
        mistake("cpu")
    with pytest.raises(type(expected.value)) as raised:
        mistake("xla")
    assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0]
    lines = [frame.lineno for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert inspect.getsourcelines(mistake)[1] in lines
    works_afterwards()


DRAWS: dict[str, tuple[Callable[[torch.Tensor, float], object], float, float]] = {
    "cauchy": (lambda t, sigma: t.cauchy_(0, sigma), 1, 0),
    "normal": (lambda t, std: t.normal_(0, std), 1, -1),
    "exponential": (lambda t, rate: t.exponential_(rate), 1, -1),
    "geometric": (lambda t, p: t.geometric_(p), 0.5, 2),
    "bernoulli": (lambda t, p: t.bernoulli_(p), 0.5, 2),
    "uniform": (lambda t, low: t.uniform_(low, 1), 0, 2),
    "normal of means": (lambda t, std: torch.normal(t, std), 1, -1),
    "Huber loss": (lambda t, delta: torch.nn.functional.huber_loss(t, t, delta=delta), 1, -1),
    "histogram": (lambda t, low: t.histc(3, low, 1), 0, 2),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_each_number_is_checked(draw: str) -> None:
    call, right, wrong = DRAWS[draw]
    with pytest.raises(RuntimeError) as expected:
        call(torch.ones(3), wrong)
    call(torch.ones(3, device="xla"), right)
    cpu_state = torch.get_rng_state()
    with pytest.raises(RuntimeError) as raised:
        call(torch.ones(3, device="xla"), wrong)
    assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0]
    assert torch.equal(torch.get_rng_state(), cpu_state)
    works_afterwards()


def test_layouts_that_do_not_exist() -> None:
    with pytest.raises(NotImplementedError, match="only strided tensors"):
        torch.ones(3, 3, device="xla").to_mkldnn()
    works_afterwards()


def test_tensors_on_two_devices() -> None:
    x = torch.ones(2, device="xla")
    for mixed in (
        lambda: torch.cat([x, torch.ones(2)]),
        lambda: torch.dot(x, torch.ones(2)),
        lambda: torch.ones(2).add_(x),  # a copy would be written
        lambda: torch.tensor(1.0).add_(x[0]),
        lambda: torch._foreach_add_([torch.tensor(1.0)], [x[0]]),
        lambda: torch.empty(()).random_(generator=torch.Generator("xla")),
    ):
        with pytest.raises(RuntimeError, match="xla:0.*cpu|cpu.*xla:0"):
            mixed()
        works_afterwards()


def test_arithmetic_moves_cpu_tensors_as_in_2_9() -> None:
    y = torch.arange(3.0)
    x = y.to("xla") + 1
    assert (x + y).tolist() == (y + x).tolist() == [1, 3, 5]
    assert (y - x).tolist() == [-1, -1, -1] and (y**x).tolist() == [0, 1, 8]
    x *= y
    assert x.tolist() == [0, 2, 6]


def test_wrong_device_index() -> None:
    with pytest.raises(RuntimeError, match="63"):
        torch.ones(2, device="xla:63")
    with pytest.raises(RuntimeError, match="63"):
        torch_xla.device(63)
    works_afterwards()


def test_a_file_whose_name_is_no_text() -> None:
    namespace: dict[str, object] = {}
    code = compile("def add(x):\n    return (x + 1).tolist()", os.fsdecode(b"of_\xff.py"), "exec")
    exec(code, {}, namespace)
    assert namespace["add"](torch.ones(2, device="xla")) == [2, 2]  # type: ignore[operator]
    if not torch_xla.experimental.is_eager_mode():  # a mode without graphs
        assert torch_xla.debug.recompiles(show=False)[-1].file == r"of_\udcff.py"


def test_exception_in_the_middle_of_a_step() -> None:
    weight = torch.ones(4, device="xla", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def step(fail: bool) -> None:
        optimizer.zero_grad()
        loss = (weight * 2).sum()
        if fail:
            raise KeyError("in the user's code")
        loss.backward()
        optimizer.step()
        torch_xla.sync()

    step(fail=False)
    with pytest.raises(KeyError):
        step(fail=True)
    step(fail=False)
    assert weight.tolist() == [-1.0] * 4


def test_far_too_large_allocation() -> None:
    with pytest.raises(RuntimeError) as raised:
        huge = torch.ones(2**50, device="xla")
        huge.sum().item()
    assert "1125899906842624" in str(raised.value) or "memory" in str(raised.value).lower()
    works_afterwards()


def test_large_result_that_does_not_fit() -> None:
    column = torch.ones(2**22, 1, device="xla")
    with pytest.raises(RuntimeError):
        product = column + column.t()
        torch_xla.sync(wait=True)
        product[5, 5].item()
    del column
    works_afterwards()


def test_an_operator_without_any_kernel_raises() -> None:
    library = torch.library.Library("torch_xla_tests", "DEF")
    library.define("without_kernel(Tensor x) -> Tensor")
    with pytest.raises((RuntimeError, NotImplementedError), match="without_kernel"):
        torch.ops.torch_xla_tests.without_kernel(torch.ones(2, device="xla"))
    works_afterwards()


def test_use_after_fork() -> None:
    program = """
    import os, sys
    tensor = torch.ones(2, device="xla")
    assert tensor.sum().item() == 2
    child = os.fork()
    if child == 0:
        try:
            (torch.ones(2, device="xla") + 1).sum().item()
        except RuntimeError as error:
            os._exit(7 if "fork" in str(error) else 8)
        os._exit(9)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
    assert (tensor + 1).sum().item() == 4
    """
    assert output_of(program).strip() == "7"


def test_missing_plugin() -> None:
    program = "torch.ones(2, device='xla').sum().item()"
    done = run_python(program, TORCH_XLA_PLUGIN_PATH="/no/such/plugin.so")
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr and "/no/such/plugin.so" in done.stderr


def test_wrong_plugin(tmp_path) -> None:  # type: ignore[no-untyped-def]
    wrong = tmp_path / "plugin.so"
    wrong.write_bytes(b"not a library")
    done = run_python("torch.ones(2, device='xla').sum().item()", TORCH_XLA_PLUGIN_PATH=str(wrong))
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr and str(wrong) in done.stderr


def test_import_does_not_start_the_client() -> None:
    program = """
    from torch_xla import _XLAC
    assert not _XLAC.client_started()
    torch.ones(2, device="xla").sum().item()
    assert _XLAC.client_started()
    """
    output_of(program)


def test_exceptions_in_one_thread_leave_the_others_alone() -> None:
    failures = []

    def fail() -> None:
        try:
            torch.ones(2, device="xla") + torch.ones(3, device="xla")
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=fail)
    tensor = torch.ones(2, device="xla")
    thread.start()
    thread.join()
    assert len(failures) == 1
    assert (tensor + 1).sum().item() == 4


def test_no_warning_in_ordinary_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = torch.nn.Linear(3, 3).to("xla")
        model(torch.ones(2, 3, device="xla")).sum().backward()
        torch_xla.sync()
        assert model.weight.grad.abs().sum().item() > 0


def test_what_warns_once_warns_again() -> None:
    one = torch.ones(1, device="xla")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one.std()
    for _ in range(2):
        with pytest.warns(UserWarning, match="degrees of freedom"):
            one.std()


def test_an_error_that_is_pending_leaves_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "never")  # kernels refuse what programs do not look at
    x, mask = torch.zeros(5, device="xla"), torch.ones(5, dtype=torch.bool, device="xla")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        wrong = x.masked_scatter(mask, torch.ones(2, device="xla", dtype=x.dtype))
    finally:
        torch.set_default_dtype(before)
    assert torch.get_default_dtype() == before
    with pytest.raises(RuntimeError, match="Number of elements of source"):
        wrong.cpu()


def test_orders_of_norms_are_checked_each_time() -> None:
    nothing = torch.zeros(0, device="xla")
    assert torch.linalg.vector_norm(nothing, 0.9).item() == 0
    with pytest.raises(RuntimeError, match="cannot compute"):
        torch.linalg.vector_norm(nothing, -1.5)
