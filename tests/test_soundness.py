"""What the device once answered wrongly, named after what went wrong."""

import _thread
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import torch
import torch_xla
from compare import assert_same, ramp
from process import output_of
from torch import Tensor
from torch_xla._internal import integration
from torch_xla.experimental.assume_pure import assume_pure


@pytest.fixture(params=[False, True], ids=["recorded", "eager"])
def each_mode(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch_xla.experimental.eager_mode_context(request.param):
        yield


# ---- pure functions -----------------------------------------------------------------------------

PURE: dict[str, Callable[[Tensor], Tensor]] = {
    "cov": torch.cov,
    "corrcoef": torch.corrcoef,
    "inverse": lambda x: torch.inverse(x @ x.T + torch.eye(3, device=x.device)),
    "solve": lambda x: torch.linalg.solve(x @ x.T + torch.eye(3, device=x.device), x),
    "combinations": lambda x: torch.combinations(x[0]),
    "a mask": lambda x: x[[True, False, True]] + x[torch.tensor([False, True, False])],
    "a mask of two dimensions": lambda x: x[:, 1:][torch.ones(3, 4, device=x.device) > 0],
    "a constant": lambda x: x * 2 if bool(torch.arange(3, device=x.device).sum() == 3) else x,
}


@pytest.mark.parametrize("name", PURE)
def test_pure_functions_that_ask_for_what_is_always_the_same(name: str) -> None:
    function = assume_pure(PURE[name])
    for seed in range(2):
        x = torch.randn(3, 5, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(function(x.to("xla")).cpu(), PURE[name](x), rtol=1e-4, atol=1e-4)
    assert function.cache_info().misses == 1


def test_masks_of_other_sizes_are_refused_in_pure_functions() -> None:
    for function in (lambda x: x[[True, False]], lambda x: x[:, torch.ones(3) > 0]):
        sentences = []
        for wrapped, device in ((function, "cpu"), (assume_pure(function), "xla")):
            with pytest.raises(IndexError) as refused:
                wrapped(torch.ones(3, 5, device=device))
            sentences.append(str(refused.value))
        assert sentences[0] == sentences[1]


def test_pure_functions_still_refuse_what_depends_on_arguments() -> None:
    function = assume_pure(
        lambda x: x if bool((x + torch.arange(3, device="xla")).sum() > 0) else -x
    )
    with pytest.raises(RuntimeError, match="asked for the value"):
        function(torch.ones(3, device="xla"))


def test_leaves_that_a_pure_function_makes_are_leaves_outside() -> None:
    def program(device: str) -> list[object]:
        weight = ramp(3, device=device).requires_grad_()

        def make(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            leaf = (x * 2).detach().requires_grad_()
            return leaf, leaf * leaf * weight, leaf.view(-1)[1:]

        function = make if device == "cpu" else assume_pure(make)
        seen: list[object] = []
        for shift in (0.0, 1.0):
            leaf, product, tail = function(ramp(3, device=device) + shift)
            seen += [leaf.requires_grad, leaf.is_leaf, product.requires_grad]
            (again,) = torch.autograd.grad(product.sum(), leaf, retain_graph=True)
            (product.sum() + tail.sum()).backward()
            seen += [again, leaf.grad, weight.grad]
        return seen

    assert_same(program)


def test_arguments_that_a_pure_function_tells_to_require_gradients_keep_theirs() -> None:
    def program(device: str) -> list[object]:
        def train(x: Tensor) -> Tensor:
            x.requires_grad_()
            x.square().sum().backward()
            return x * 2

        function = train if device == "cpu" else assume_pure(train)
        seen: list[object] = []
        for shift in (0.0, 1.0):
            x = ramp(3, device=device) + shift
            seen += [function(x).requires_grad, x.requires_grad, x.grad]
        return seen

    assert_same(program)


def test_gradients_of_gradients_of_leaves_that_a_pure_function_makes_are_refused() -> None:
    @assume_pure
    def make(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        return leaf, leaf * leaf

    leaf, product = make(ramp(3, device="xla"))
    with pytest.raises(RuntimeError, match="made and returns, and cannot be differentiated twice"):
        torch.autograd.grad(product.sum(), leaf, create_graph=True)


# ---- operators ----------------------------------------------------------------------------------


def test_complex_logaddexp() -> None:
    infinite = complex(-float("inf"), 1)

    def program(device: str) -> Tensor:
        x = torch.tensor([1 + 2j, -300 + 1j, 200 - 3j, infinite, infinite], device=device)
        y = torch.tensor([0.5 - 1j, -301 + 2j, 3 + 1j, 1 + 1j, infinite], device=device)
        return torch.logaddexp(x, y)

    assert_same(program)


def test_a_sparse_tensor_without_dimensions_becomes_dense() -> None:
    assert_same(lambda device: torch.tensor(2.5, device=device).to_sparse().to_dense())


def test_fake_tensors_made_on_the_device_have_its_index() -> None:
    function = torch.compile(
        lambda x: torch.atan2(x, torch.linspace(0, 1, 5, device="xla")), backend="openxla"
    )
    x = torch.ones(3, 5)
    expected = torch.atan2(x, torch.linspace(0, 1, 5))
    torch.testing.assert_close(function(x.to("xla")).cpu(), expected)


def test_results_that_are_written_somewhere_have_the_dtype_of_that_place() -> None:
    def program(device: str) -> list[Tensor]:
        x = torch.tensor([[0.6, 0.7, -0.8, 1.6], [2.9, 0.2, 1.1, 1.2]], device=device)
        made = [torch.empty(0, dtype=torch.int32, device=device) for _ in range(4)]
        torch.sum(x, 0, out=made[0])
        torch.cumsum(x, 0, out=made[1])
        torch.prod(x, 0, out=made[2])
        torch.cumprod(x, 1, out=made[3])
        return made

    assert_same(program)


def test_the_gradient_of_a_product_of_nothing() -> None:
    def program(device: str) -> Tensor:
        x = torch.empty(0, device=device, requires_grad=True)
        (gradient,) = torch.autograd.grad(x.prod(), x)
        return gradient

    assert_same(program)


def test_a_sparse_boolean_without_dimensions_becomes_dense() -> None:
    assert_same(lambda device: torch.tensor(True, device=device).to_sparse().to_dense())


def test_tensors_are_split_at_places_of_the_device() -> None:
    places = torch.tensor([1, 3], device="xla")
    x = ramp(5, 2, device="xla").requires_grad_()
    first, *_, last = torch.tensor_split(x, places)
    (gradient,) = torch.autograd.grad(last.sum(), x)
    assert first.shape == (1, 2)
    assert gradient.sum().item() == 4


# ---- writes and indices -------------------------------------------------------------------------

EXPANDED: dict[str, Callable[[Tensor], object]] = {
    "masked_fill_": lambda x: x.masked_fill_(ramp(2, 3, device=x.device.type) == 0, 9.0),
    "index_put_": lambda x: x.index_put_((torch.tensor([0, 1], device=x.device),), x[0] * 2),
    "index_fill_": lambda x: x.index_fill_(1, torch.tensor([0], device=x.device), 7.0),
    "setitem": lambda x: x.__setitem__(torch.tensor([1], device=x.device), 5.0),
    "add_": lambda x: x.add_(1),
    "copy_": lambda x: x.copy_(x.clone()),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, 3, dtype=torch.int64, device=x.device), 1.0),
    "fill_ from a tensor": lambda x: x.fill_(torch.tensor(2.0, device=x.device)),
    "triu_": lambda x: x.triu_(),
    "out=": lambda x: torch.add(x.clone(), 1, out=x),
}


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("name", EXPANDED)
@pytest.mark.usefixtures("each_mode")
def test_a_write_through_an_expanded_dimension_is_what_the_cpu_makes_of_it(name: str) -> None:
    def program(device: str) -> list[object]:
        base = torch.arange(3.0, device=device)
        doubled = base * 2  # what was recorded before sees the former value
        try:
            EXPANDED[name](base.expand(2, 3))
        except RuntimeError as error:
            return [str(error)[:60], base]
        return [base, doubled, base + 1]

    assert_same(program)


@pytest.mark.usefixtures("each_mode")
def test_a_write_of_nothing_through_an_expanded_dimension() -> None:
    empty = torch.empty(3, 0, device="xla")
    empty.expand(2, 3, 0).copy_(empty)


@pytest.mark.usefixtures("each_mode")
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[[0, 99]],
        lambda x: x[(0, 1), [1, 4]],
        lambda x: x.__setitem__([-5], 1.0),
        lambda x: x.index_put_((torch.tensor([7], device=x.device),), x[0].clone()),
        lambda x: x.index_select(1, torch.tensor([4], device=x.device)),
        lambda x: x.index_select(1, torch.tensor([-1], device=x.device)),
        lambda x: x.index_copy_(1, torch.tensor([-1], device=x.device), x[:, :1]),
        lambda x: x.index_add_(1, torch.tensor([-1], device=x.device), x[:, :1]),
    ],
)
def test_indices_the_host_gave_are_checked_at_the_call(use: Callable[[Tensor], object]) -> None:
    x = ramp(4, 4, device="xla")
    with pytest.raises((IndexError, RuntimeError), match="out of (DATA )?(bounds|range)"):
        use(x)
    torch.testing.assert_close(x.cpu(), ramp(4, 4))


@pytest.mark.usefixtures("each_mode")
def test_a_window_beyond_its_storage_is_refused() -> None:
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        torch.zeros(2, device="xla").as_strided_([3], [3], 0)


def test_indices_of_nothing_are_not_looked_at() -> None:
    def program(device: str) -> list[Tensor]:
        x = torch.zeros(3, 0, device=device)
        x[[0, 99]] = 1
        return [x, x[[0, 99]]]

    assert_same(program)


# ---- Ctrl-C, warnings, bounds -------------------------------------------------------------------


def test_a_warning_of_a_thread_without_frames_below_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="from a thread") as caught:
        _thread.start_new_thread(integration._warn, ("from a thread",))
        for _ in range(1000):
            if not caught:
                time.sleep(0.01)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes in the background may be made to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    library = torch.library.Library("soundness", "DEF")
    yield library
    library._destroy()


def test_an_interrupt_in_a_kernel_that_is_tried_reaches_the_user(
    library: torch.library.Library, interruptible: None
) -> None:
    """The recorder asks meta and CPU kernels, and goes on if they refuse."""
    library.define("interrupted(Tensor x) -> Tensor")

    def interrupted(x: Tensor) -> Tensor:
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):
            pass
        return x.clone()

    library.impl("interrupted", interrupted, "Meta")
    library.impl("interrupted", lambda x: x.clone(), "CPU")
    with pytest.raises(KeyboardInterrupt):
        torch.ops.soundness.interrupted(torch.ones(3, device="xla"))
    library.define("interrupted_on_cpu(Tensor x) -> Tensor")
    library.impl("interrupted_on_cpu", interrupted, "CPU")
    with pytest.raises(KeyboardInterrupt):
        torch.ops.soundness.interrupted_on_cpu(torch.ones(3, device="xla"))


def test_values_may_decide_what_an_operator_without_a_meta_kernel_returns(
    library: torch.library.Library,
) -> None:
    """Their sizes, or whether they are refused, as torchaudio's are for wrong lengths."""

    def within(x: Tensor, lengths: Tensor) -> Tensor:
        if lengths.max() != x.numel():
            raise ValueError("wrong lengths")
        return x * 2

    library.define("positive(Tensor x) -> Tensor")
    library.impl("positive", lambda x: x[x > 0], "CPU")
    library.define("large(Tensor x) -> Tensor")
    library.impl("large", lambda x: x[x > 5], "CPU")
    library.define("within(Tensor x, Tensor lengths) -> Tensor")
    library.impl("within", within, "CPU")
    library.define("above(Tensor x, float limit) -> Tensor")
    library.impl("above", lambda x, limit: x[x > limit], "CPU")
    library.define("above_(Tensor x, float limit) -> Tensor", tags=torch.Tag.dynamic_output_shape)
    library.impl("above_", lambda x, limit: x[x > limit], "CPU")
    x = torch.tensor([1.0, -1, 7], device="xla")
    assert torch.ops.soundness.positive(x).tolist() == [1, 7]
    assert torch.ops.soundness.within(x, torch.tensor([1, 3], device="xla")).tolist() == [2, -2, 14]
    with pytest.raises((ValueError, RuntimeError), match="wrong lengths"):
        torch.ops.soundness.within(x, torch.tensor([1, 2], device="xla"))
    assert torch.ops.soundness.large(x).tolist() == [7]
    with pytest.raises(RuntimeError, match="dynamic_output_shape"):  # zeros and ones lead astray
        torch.ops.soundness.above(x, -0.5).tolist()
    assert torch.ops.soundness.above_(x, -0.5).tolist() == [1, 7]


def test_a_size_that_the_fake_kernel_leaves_open(library: torch.library.Library) -> None:
    """As torchvision's nms: without a tag, the fake kernel alone says that values decide."""
    library.define("kept(Tensor x, float limit) -> Tensor")
    library.impl("kept", lambda x, limit: (x > limit).nonzero()[:, 0], "CPU")

    @torch.library.register_fake("soundness::kept", lib=library)
    def _(x: Tensor, limit: float) -> Tensor:
        return x.new_empty((torch.library.get_ctx().new_dynamic_size(),), dtype=torch.long)

    x = torch.arange(10.0, device="xla")
    for limit in (4.5, -9, 20):
        expected = [i for i in range(10) if i > limit]
        assert torch.ops.soundness.kept(x, limit).tolist() == expected
        assert torch.ops.soundness.kept(x * 2 / 2, limit).tolist() == expected


LONG = """
import os, signal, sys, threading, time
os.environ["TORCH_XLA_TIERS"] = "off"
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
x = torch.full((1000, 1000), 1 / 1000, device="xla")

def start(n=200):
    y = x
    for _ in range(n):
        y = (y @ x).relu()  # of products alone the plugin thinks they are short, and waits
    torch_xla.sync()
    return y

def read():
    return start()[0, 0].item()

def wait():
    start()
    torch_xla.sync(wait=True)

def run_ahead():
    for _ in range(4):
        start()

def write():
    start()
    torch_xla.experimental.eager_mode(True)
    x.add_(0)

use = globals()[sys.argv[1]]
start()  # compiled from here on
torch_xla.sync(wait=True)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    use()
    print("not interrupted")
except KeyboardInterrupt:
    interrupted = time.monotonic() - begun
    torch_xla.experimental.eager_mode(False)
    torch_xla.sync(wait=True)
    print(interrupted < 0.7 * (time.monotonic() - begun))
print(round(read(), 5), round(x.sum().item()))
"""


@pytest.mark.parametrize("use", ["read", "wait", "run_ahead", "write"])
def test_an_interrupt_ends_a_wait_for_a_program_that_goes_on(use: str) -> None:
    assert output_of(LONG, use).split() == ["True", "0.001", "1000"]


@pytest.mark.host_only("the interpreter runs where memory is the host's")
@pytest.mark.parametrize("tiers", ["off", "never"])
def test_what_an_interrupt_left_uncomputed_is_computed_when_it_is_read(tiers: str) -> None:
    program = """
    import os, signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = torch.ones(500, device="xla")
    torch_xla.sync()
    x = torch.ones(500, 500, device="xla")  # pending, as is what was drawn
    drawn = torch.rand(3, device="xla")
    y = x
    for _ in range(600):
        y = torch.sin(y @ x)
    kept.add_(y[0] * 0 + 1)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        torch_xla.sync()
        print("not interrupted")
    except KeyboardInterrupt:
        pass
    print((drawn == torch.rand(3, device="xla")).any().item(), x[0, 0].item())
    torch_xla.sync()
    print(abs(y[0, 0].item()) <= 1, kept[0].item())
    """
    assert output_of(program, TORCH_XLA_TIERS=tiers).split() == ["False", "1.0", "True", "2.0"]


@pytest.mark.parametrize("tiers", ["off", "never"])
def test_an_interrupt_in_a_first_step_loses_nothing(tiers: str) -> None:
    program = """
    import os, signal
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(600, 600) for _ in range(12)])
    data = torch.randn(2000, 600)

    def train(device, interrupted):
        copy = __import__("copy").deepcopy(model).to(device)
        optimizer = torch.optim.AdamW(copy.parameters(), lr=1e-3)
        x = data.to(device) + 0  # pending

        def step():
            optimizer.zero_grad()
            loss = copy(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        loss = step()
        if interrupted:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            try:
                torch_xla.sync()
                print("not interrupted")
            except KeyboardInterrupt:
                pass
        values = [step().item() for _ in range(3)] + [loss.item(), copy[0].weight.sum().item()]
        return torch.tensor(values)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    wanted, got = train("cpu", False), train("xla", True)
    print(torch.allclose(got, wanted, rtol=1e-3, atol=1e-4))
    """
    assert output_of(program, TORCH_XLA_TIERS=tiers).split() == ["True"]


def test_an_error_of_python_is_raised_as_often_as_its_value_is_read(
    library: torch.library.Library,
) -> None:
    library.define("refuses(Tensor x) -> Tensor")

    def refuses(x: Tensor) -> Tensor:
        if x.sum() > 100:
            raise ValueError("too large")
        return x.clone()

    library.impl("refuses", torch.empty_like, "Meta")
    library.impl("refuses", refuses, "CPU")
    y = torch.ops.soundness.refuses(torch.full((3,), 50.0, device="xla")) + 1
    with pytest.raises((ValueError, RuntimeError), match="too large"):
        y.tolist()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="too large"):
            y.tolist()
