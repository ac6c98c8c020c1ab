"""torch_xla.compile and torch_xla.step: what is compiled, when, and what else behaves as before."""

import copy
import io
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch_xla.experimental import eager_mode_context, is_eager_mode
from torch_xla.experimental.assume_pure import PureModule, assume_pure
from work import Work

DEVICE = "xla"


@pytest.fixture(params=[True, False], ids=["eager", "lazy"])
def mode(request: pytest.FixtureRequest) -> Iterator[bool]:
    torch_xla.sync(wait=True)
    with eager_mode_context(request.param):
        yield request.param


@pytest.fixture
def eager() -> Iterator[None]:
    torch_xla.sync(wait=True)
    with eager_mode_context(True):
        yield


def work_of(function: Callable[[], object]) -> Work:
    before = Work.so_far()
    function()
    return Work.so_far().since(before)


def pending() -> int:
    return torch_xla._XLAC.pending_node_count(0)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))) * self.scale


def model_and_input() -> tuple[Model, torch.Tensor]:
    torch.manual_seed(0)
    return Model(), torch.randn(5, 8)


def test_a_function_is_one_program(mode: bool) -> None:
    seen = []

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.append(is_eager_mode())
        return (x * 2 + 1).relu()

    compiled = torch_xla.compile(function)
    x = torch.arange(-2.0, 3.0, device=DEVICE)
    compiled(x)
    work = work_of(lambda: compiled(x))
    assert (work.executions, work.compilations) == (1, 0)
    assert seen == [False, False]
    assert pending() == 0
    assert is_eager_mode() == mode
    torch.testing.assert_close(compiled(x).cpu(), (torch.arange(-2.0, 3.0) * 2 + 1).relu())
    assert compiled.__name__ == "function"


def test_decorator_with_and_without_parentheses(eager: None) -> None:
    @torch_xla.compile
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + is_eager_mode() + 1

    @torch_xla.compile(full_graph=True, name="named")
    def named(x: torch.Tensor, *, by: int = 1) -> torch.Tensor:
        return x + is_eager_mode() + by

    class Holder:
        offset = 3

        @torch_xla.compile
        def method(self, x: torch.Tensor) -> torch.Tensor:
            return x + is_eager_mode() + self.offset

    x = torch.ones(2, device=DEVICE)
    assert plain(x).tolist() == [2, 2]
    assert named(x, by=4).tolist() == [5, 5]
    assert Holder().method(x).tolist() == [4, 4]
    assert torch_xla.compile(Holder().method)(x).tolist() == [4, 4]


def test_as_a_context_manager(mode: bool) -> None:
    x = torch.ones(4, device=DEVICE)
    with torch_xla.compile():
        y = x + 1
        z = y * 3
        assert not is_eager_mode()
        assert pending() > 0
    assert pending() == 0
    assert z.tolist() == [6] * 4


@pytest.mark.parametrize("use", ["context", "decorator"])
def test_step(mode: bool, use: str) -> None:
    x = torch.ones(4, device=DEVICE)
    y = x
    if use == "context":
        with torch_xla.step():
            y = x + 1
            assert pending() > 0
    else:
        y = torch_xla.step()(lambda: x + 1)()
    assert pending() == 0
    assert y.tolist() == [2] * 4


def test_pending_work_stays_out(mode: bool) -> None:
    compiled = torch_xla.compile(lambda x: x * 2)
    ones = torch.ones(3, device=DEVICE)
    compiled(ones)
    with eager_mode_context(False):
        for extra in range(1, 4):
            x = ones.clone()
            for _ in range(extra):
                x = x + 1
            torch_xla.sync()
            work = work_of(lambda x=x: compiled(x))
            assert work.compilations == 0
            x = ones + extra
            y = compiled(x)
            assert y.tolist() == [2.0 * (1 + extra)] * 3


def test_a_compiled_module_is_the_module(mode: bool) -> None:
    model, x = model_and_input()
    expected = model(x).detach()
    model = model.to(DEVICE)
    compiled = torch_xla.compile(model)
    torch.testing.assert_close(compiled(x.to(DEVICE)).cpu(), expected)
    assert isinstance(compiled, Model)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    compiled.eval()
    assert not model.training and not model.first.training
    compiled.scale = 4.0
    assert model.scale == 4.0
    torch.testing.assert_close(compiled(x.to(DEVICE)).cpu(), expected * 2)
    compiled.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})
    assert not compiled(x.to(DEVICE)).any()
    handle = compiled.register_forward_hook(lambda module, inputs, result: result + 7)
    assert (compiled(x.to(DEVICE)) == 7).all()
    handle.remove()
    assert repr(compiled) == repr(model)


def test_a_compiled_module_can_be_copied_and_saved(eager: None) -> None:
    model, x = model_and_input()
    compiled = torch_xla.compile(model.to(DEVICE))
    twin = copy.deepcopy(compiled)
    with torch.no_grad():
        twin.first.weight.zero_()
    assert model.first.weight.any()
    assert work_of(lambda: twin(x.to(DEVICE))).executions == 1
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert type(loaded) is Model


def train(device: str, compiled: bool) -> tuple[list[float], Model]:
    model, x = model_and_input()
    model, x = model.to(device), x.to(device)
    target = torch.arange(5).to(device) % 4
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def step(model: Model, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    run = torch_xla.compile(step, full_graph=True) if compiled else step
    return [run(model, x, target).item() for _ in range(6)], model


def test_a_training_step(mode: bool) -> None:
    losses, model = train(DEVICE, compiled=True)
    expected, reference = train("cpu", compiled=False)
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name].cpu(), value, rtol=1e-4, atol=1e-5)


def test_a_training_step_is_one_program_that_donates(eager: None) -> None:
    model, x = model_and_input()
    model, x = model.to(DEVICE), x.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @torch_xla.compile
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    buffers = torch_xla._XLAC.live_buffer_count()
    address = torch_xla._XLAC.host_address(model.first.weight)
    work = work_of(step)
    assert (work.executions, work.compilations) == (1, 0)
    if torch_xla._XLAC.host_memory():
        assert torch_xla._XLAC.host_address(model.first.weight) == address
    assert torch_xla._XLAC.live_buffer_count() <= buffers


@pytest.mark.host_only("addresses are the host's")
@pytest.mark.parametrize("kernel", ["dropout", "convolution"])
@pytest.mark.parametrize("whole", [False, True])
def test_pure_functions_donate_though_they_call_kernels(kernel: str, whole: bool) -> None:
    layers = {
        "dropout": [nn.Linear(8, 8), nn.Dropout(0.5)],
        "convolution": [nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 3, padding=1), nn.Flatten()],
    }
    model = nn.Sequential(*layers[kernel]).to(DEVICE)
    called = model if whole else PureModule(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(4, 8, device=DEVICE)

    @torch_xla.compile(assume_pure=whole, tiers="off")
    def step() -> None:
        optimizer.zero_grad()
        called(x).square().mean().backward()
        optimizer.step()

    for _ in range(4):
        step()
    torch_xla.sync(wait=True)
    weight = next(model.parameters())
    address = torch_xla._XLAC.host_address(weight)
    step()
    assert torch_xla._XLAC.host_address(weight) == address


@pytest.mark.skipif(
    os.environ.get("TORCH_XLA_EAGER") == "pjrt", reason="the pipeline itself compiles programs"
)
@pytest.mark.host_only("operations of eager mode are programs elsewhere")
def test_a_data_pipeline_of_changing_operations(eager: None) -> None:
    model, _ = model_and_input()
    compiled = torch_xla.compile(model.to(DEVICE))

    def batch(i: int) -> torch.Tensor:
        x = torch.arange(40.0, device=DEVICE).reshape(5, 8)
        for _ in range(i % 5):
            x = x * 0.5 + i
        return x.flip(0) if i % 3 == 0 else x - x.mean()

    compiled(batch(0))
    assert work_of(lambda: [compiled(batch(i)) for i in range(20)]).compilations == 0


def test_nested_regions_join(mode: bool) -> None:
    inner = torch_xla.compile(lambda x: x + 1)

    @torch_xla.compile
    def outer(x: torch.Tensor) -> torch.Tensor:
        y = inner(x)
        assert pending() > 0
        with torch_xla.compile():
            y = y * 2
        assert not is_eager_mode()
        return inner(y)

    x = torch.ones(3, device=DEVICE)
    outer(x)
    assert work_of(lambda: outer(x)).executions == 1
    assert outer(x).tolist() == [5] * 3


def test_inside_a_pure_function_a_region_joins_the_trace(mode: bool) -> None:
    doubled = torch_xla.compile(lambda x: x * 2)
    pure = assume_pure(lambda x: doubled(x) + 1)
    x = torch.ones(3, device=DEVICE)
    assert pure(x).tolist() == [3] * 3
    assert pure(x + 1).tolist() == [5] * 3


def test_exceptions_restore_everything(mode: bool) -> None:
    x = torch.zeros(3, device=DEVICE)

    @torch_xla.compile
    def fails(x: torch.Tensor) -> None:
        x.add_(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails(x)
    assert is_eager_mode() == mode
    assert x.tolist() == [1] * 3
    with pytest.raises(KeyError), torch_xla.compile():
        x.add_(1)
        raise KeyError
    assert pending() == 0
    assert x.tolist() == [2] * 3


def test_full_graph_names_what_runs(mode: bool) -> None:
    @torch_xla.compile(full_graph=True)
    def reads(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        return y

    @torch_xla.compile(full_graph=True)
    def looks_for(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).nonzero()

    x = torch.ones(3, device=DEVICE)
    start = "^Unexpected execution happens inside the compiled function, exiting"
    with pytest.raises(RuntimeError, match=start) as error:
        reads(x)
    line = reads.__wrapped__.__code__.co_firstlineno + 3
    assert f"test_compile.py:{line}" in str(error.value)
    assert "item()" in str(error.value) and "reads" in str(error.value)
    with pytest.raises(RuntimeError, match=start + ".*aten::nonzero"):
        looks_for(x)
    with pytest.raises(RuntimeError, match=start + ".*cpu()"), torch_xla.compile(full_graph=True):
        (x + 1).cpu()
    with pytest.raises(RuntimeError, match=start + ".*sync"), torch_xla.compile(full_graph=True):
        y = x + 1
        torch_xla.sync()
    assert y.tolist() == [2] * 3
    assert is_eager_mode() == mode


def test_values_known_before_may_be_read(mode: bool) -> None:
    x = torch.ones(3, device=DEVICE)

    @torch_xla.compile(full_graph=True)
    def reads_an_input(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item() if False else x * x[0].item()

    assert reads_an_input(x).tolist() == [1] * 3


def test_max_different_graphs(mode: bool) -> None:
    @torch_xla.compile(max_different_graphs=2)
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    for size in (3, 4, 3, 4):
        function(torch.ones(size, device=DEVICE))
    with pytest.raises(RuntimeError) as error:
        function(torch.ones(5, device=DEVICE))
    message = str(error.value)
    assert "function traced 3 different graphs, more than max_different_graphs=2" in message
    assert "tensor<3xf32>, then tensor<4xf32>" in message
    assert "tensor<4xf32>, then tensor<5xf32>" in message
    assert message.count("hash") == 3
    assert function(torch.ones(3, device=DEVICE)).tolist() == [2] * 3


def test_custom_compile_options(eager: None) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 3

    x = torch.ones(7, device=DEVICE)
    torch_xla.compile(function)(x)
    options = {"xla_cpu_enable_fast_math": True, "xla_llvm_disable_expensive_passes": True}
    other = torch_xla.compile(function, custom_compile_options=options)
    assert work_of(lambda: other(x)).compilations == 1
    assert work_of(lambda: other(x)).compilations == 0
    wrong = torch_xla.compile(function, custom_compile_options={"no_such_option": 1})
    with pytest.raises(RuntimeError, match="no_such_option"):
        wrong(x)


def test_other_threads_stay_eager(eager: None) -> None:
    inside, outside = threading.Event(), threading.Event()
    results = []

    def eager_worker() -> None:
        inside.wait(30)
        results.append(is_eager_mode())
        y = torch.ones(3, device=DEVICE) + 1
        results.append(y.tolist())
        outside.set()

    thread = threading.Thread(target=eager_worker)
    thread.start()
    with torch_xla.compile():
        x = torch.ones(3, device=DEVICE) * 4
        inside.set()
        assert outside.wait(30)
        assert not is_eager_mode()
    thread.join()
    assert results == [True, [2.0] * 3]
    assert x.tolist() == [4.0] * 3


def test_what_cannot_be_compiled() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    class Generator:
        def __call__(self) -> Iterator[int]:
            yield 1

    for target in (generator, stream, Generator()):
        with pytest.raises(TypeError, match="generator"):
            torch_xla.compile(target)
    for option, value in (
        ("name", 5),
        ("max_different_graphs", "2"),
        ("custom_compile_options", [1]),
    ):
        with pytest.raises(TypeError, match=f"{option}=.*received"):
            torch_xla.compile(lambda: None, **{option: value})
    with pytest.raises(TypeError, match="function or a module"):
        torch_xla.compile()(3)  # type: ignore[operator]
    with pytest.raises(RuntimeError, match="max_different_graphs=0"):
        torch_xla.compile(lambda: None, max_different_graphs=0)


def test_static_and_class_methods(mode: bool) -> None:
    class Model:
        @torch_xla.compile
        @staticmethod
        def double(x: Tensor) -> Tensor:
            return x * 2

        @torch_xla.compile(name="of class")
        @classmethod
        def name_of(cls, x: Tensor) -> tuple[str, Tensor]:
            return cls.__name__, x + 1

    x = torch.ones(2, device="xla")
    assert Model.double(x).tolist() == Model().double(x).tolist() == [2.0, 2.0]
    assert Model().name_of(x)[0] == "Model"
