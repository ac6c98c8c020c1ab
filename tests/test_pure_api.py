"""assume_pure: what it accepts, what it traces anew, what it tells about itself."""

import collections
import copy
import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch.func import functional_call
from torch_xla.experimental.assume_pure import PureModule, assume_pure


class Traced:
    """Wraps a function and counts how often its body runs."""

    def __init__(self, function: Any):
        self.count = 0
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.function(*args, **kwargs)


def xla(*values: float) -> Tensor:
    return torch.tensor(values, device="xla")


def test_the_function_of_the_seed_is_traced_once() -> None:
    @assume_pure
    def do_some_math(
        # You can pass any number of XLA tensors.
        a: torch.Tensor,
        b: torch.Tensor,
        # Non-tensor arguments are also supported, and passing different values will
        # trigger re-tracing and caching more computations.
        c: int,
    ):
        # Evaluate some pure expressions.
        return a @ b + c

    # Simulate a training loop.
    # Even if we run this function ten times, it will only be traced once.
    for i in range(10):  # noqa: B007
        v = do_some_math(
            torch.tensor([1.0], device="xla"),
            torch.tensor([2.0], device="xla"),
            c=42,
        )
        print(v)
        assert v.item() == 44
    assert do_some_math.cache_info().traces == 1
    do_some_math(xla(1.0), xla(2.0), c=43)
    assert do_some_math.cache_info().traces == 2


def test_the_module_of_the_seed() -> None:
    class MyModule(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(10, 10)

        def forward(self, x):
            return self.linear(x)

    # Create module and move to XLA device
    module = MyModule()
    module = module.to("xla")

    # Convert module's forward pass into a pure function
    pure_forward = lambda params, buffers, x: functional_call(  # noqa: E731
        module, (params, buffers), (x,)
    )

    # Wrap the pure function with @assume_pure
    cached_forward = assume_pure(pure_forward)

    # Simulate a training loop
    # Even if we run the model ten times, its forward function will only be traced once.
    params = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    for i in range(10):  # noqa: B007
        x = torch.randn(5, 10, device="xla")
        y = cached_forward(params, buffers, x)
        print(y)
        torch.testing.assert_close(y, module(x))
    assert cached_forward.cache_info().traces == 1


def test_decorators_methods_callables_and_names() -> None:
    @assume_pure(maxsize=3)
    def doubled(x: Tensor) -> Tensor:
        """Twice."""
        return x * 2

    class Scaler:
        def __init__(self, factor: float):
            self.factor = factor

        @assume_pure
        def scaled(self, x: Tensor) -> Tensor:
            return x * self.factor

        def __call__(self, x: Tensor) -> Tensor:
            return x + self.factor

    assert doubled.__name__ == "doubled" and doubled.__doc__ == "Twice."
    assert doubled(xla(2.0)).item() == 4
    assert doubled.cache_info().maxsize == 3
    assert Scaler(3.0).scaled(xla(2.0)).item() == 6
    assert Scaler(4.0).scaled(xla(2.0)).item() == 8
    assert assume_pure(Scaler(5.0))(xla(2.0)).item() == 7
    assert assume_pure(functools.partial(torch.add, xla(1.0)))(xla(2.0)).item() == 3
    assert assume_pure(nn.ReLU())(xla(-1.0)).item() == 0
    with pytest.raises(TypeError, match="callable"):
        assume_pure(3)  # type: ignore[call-overload]


class Pair(NamedTuple):
    first: Tensor
    second: Any


@dataclasses.dataclass
class Record:
    value: Tensor
    name: str


def test_structures_of_arguments_and_results() -> None:
    body = Traced(
        lambda nested, pair, record, *rest, **named: {
            "sum": nested["a"][0] + nested["b"][1] + pair.first + record.value + rest[0],
            "pair": Pair(pair.first * 2, None),
            "record": Record(record.value + named["shift"], "out"),
            "ordered": collections.OrderedDict(x=[rest[0]], y=(1, "text")),
        }
    )
    pure = assume_pure(body)

    def call() -> Any:
        return pure(
            {"a": [xla(1.0)], "b": (None, xla(2.0))},
            Pair(xla(3.0), "static"),
            Record(xla(4.0), "in"),
            xla(5.0),
            shift=xla(6.0),
        )

    for _ in range(3):
        result = call()
        assert result["sum"].item() == 15
        assert isinstance(result["pair"], Pair) and result["pair"].first.item() == 6
        assert result["pair"].second is None
        assert isinstance(result["record"], Record) and result["record"].value.item() == 10
        assert result["record"].name == "out"
        assert isinstance(result["ordered"], collections.OrderedDict)
        assert result["ordered"]["x"][0].item() == 5 and result["ordered"]["y"] == (1, "text")
    assert body.count == 1


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@pytest.mark.parametrize(
    "values",
    [(1, 2), (1, 1.0), (1, True), (0.0, -0.0), ("a", "b"), (None, 0), (Mode.FAST, Mode.SLOW)],
)
def test_static_arguments_are_told_apart_by_value(values: tuple[Any, Any]) -> None:
    body = Traced(lambda x, static: x + 1)
    pure = assume_pure(body)
    for value in (*values, *values):
        pure(xla(1.0), value)
    assert body.count == 2


def test_an_unhashable_argument_is_named() -> None:
    @assume_pure
    def picky(x: Tensor, options: Any) -> Tensor:
        return x

    with pytest.raises(TypeError, match=r"picky.* set.*cannot be hashed"):
        picky(xla(1.0), {1, 2})


def test_what_makes_another_trace() -> None:
    body = Traced(lambda x: x * 2)
    pure = assume_pure(body)
    kinds = [
        lambda: pure(torch.zeros(2, 3, device="xla")),
        lambda: pure(torch.zeros(3, 2, device="xla")),
        lambda: pure(torch.zeros(3, 2, device="xla").t()),
        lambda: pure(torch.zeros(2, 3, device="xla", dtype=torch.int64)),
        lambda: pure(torch.zeros(2, 3, device="xla", requires_grad=True)),
        lambda: pure(torch.zeros(4, 3, device="xla")[1:3]),
    ]
    for number, kind in enumerate(kinds, start=1):
        kind()
        kind()
        assert body.count == number
    with torch.no_grad():
        kinds[0]()
    with torch.autocast("xla", dtype=torch.bfloat16):
        kinds[0]()
    assert body.count == len(kinds) + 2


def test_tensors_that_share_a_storage() -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 1

    pure = assume_pure(write)
    base = torch.zeros(4, device="xla")
    assert pure(base[:2], base[:2]).tolist() == [1, 1]
    assert pure(base[:2], base[2:]).tolist() == [0, 0]
    other = torch.zeros(2, device="xla")
    assert pure(other, torch.zeros(2, device="xla")).tolist() == [0, 0]
    assert pure.cache_info().traces == 3


def test_the_cache_is_bounded_and_warns() -> None:
    pure = assume_pure(lambda x, n: x * n, maxsize=4)
    with pytest.warns(UserWarning, match=r"traced 16 times.*the argument 14 became 15"):
        for n in range(16):
            pure(xla(1.0), n)
    info = pure.cache_info()
    assert info.traces == 16 and info.currsize == 4
    pure.cache_clear()
    assert pure.cache_info() == (0, 0, 0, 0, 4)


def test_changing_shapes_are_named_in_the_warning() -> None:
    pure = assume_pure(lambda x: x + 1)
    with pytest.warns(UserWarning, match=r"tensor argument 0 had size 15, now 16, in dimension 0"):
        for n in range(1, 17):
            pure(torch.zeros(n, device="xla"))


def test_closed_over_tensors_are_read_anew() -> None:
    scale = torch.tensor(2.0, device="xla")
    pure = assume_pure(lambda x: x * scale)
    assert pure(xla(3.0)).item() == 6
    scale.fill_(5.0)
    assert pure(xla(3.0)).item() == 15
    assert pure.cache_info().traces == 1
    scale = torch.tensor(7.0, device="xla")
    assert pure(xla(3.0)).item() == 21


def test_a_module_s_parameters_are_read_anew() -> None:
    module = nn.Linear(2, 2).to("xla")
    pure = PureModule(module)
    x = torch.randn(3, 2, device="xla")
    torch.testing.assert_close(pure(x), module(x))
    with torch.no_grad():
        module.weight.mul_(2)
    torch.testing.assert_close(pure(x), module(x))
    module.weight.data = torch.ones(2, 2, device="xla")
    torch.testing.assert_close(pure(x), module(x))
    module.bias = nn.Parameter(torch.ones(2, device="xla"))
    torch.testing.assert_close(pure(x), module(x))
    module.load_state_dict({"weight": torch.zeros(2, 2), "bias": torch.ones(2)})
    torch.testing.assert_close(pure(x), module(x))


def test_pure_module_is_the_module() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).to("xla")
    module.note = "kept"
    pure = PureModule(module)
    assert pure.note == "kept" and pure.module is module
    assert list(pure.state_dict()) == list(module.state_dict())
    assert [id(p) for p in pure.parameters()] == [id(p) for p in module.parameters()]
    x = torch.ones(8, 2, device="xla")
    pure.eval()
    assert not module[1].training
    torch.testing.assert_close(pure(x), module(x))
    pure.train()
    assert (pure(x) == 0).any()
    pure.eval()
    torch.testing.assert_close(pure(x), module(x))
    assert pure.cache_info().traces == 2
    assert copy.deepcopy(pure)(x).shape == (8, 2)
    with pytest.raises(AttributeError, match="missing"):
        _ = pure.missing


def test_rng_seed_argument() -> None:
    noisy = assume_pure(lambda x: x + torch.randn_like(x), add_rng_seed_argument=True)
    x = torch.zeros(16, device="xla")
    torch.manual_seed(1)
    before = torch.rand(4, device="xla")
    torch.manual_seed(1)
    first, second, again = (noisy(x, rng_seed=seed) for seed in (0, 1, 0))
    torch.testing.assert_close(first, again)
    assert not torch.equal(first, second)
    torch.testing.assert_close(torch.rand(4, device="xla"), before)
    torch.testing.assert_close(noisy(x, rng_seed=torch.tensor(0, device="xla")), first)
    assert noisy.cache_info().traces == 1
    with pytest.raises(TypeError, match="rng_seed"):
        noisy(x)


def test_inside_torch_compile_the_body_is_seen() -> None:
    pure = assume_pure(lambda x: torch.relu(x) * 2)
    compiled = torch.compile(lambda x: pure(x) + 1, backend="eager", fullgraph=True)
    assert compiled(torch.tensor([-1.0, 2.0])).tolist() == [1, 5]


def test_tensors_of_other_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"given a tensor on cpu.*\.to\('xla'\)"):
        assume_pure(lambda x: x)(torch.ones(1))
    with pytest.raises(RuntimeError, match="returns a tensor on cpu"):
        assume_pure(lambda x: torch.ones(1))(xla(1.0))


def test_counters() -> None:
    from torch_xla.debug import metrics

    def value(name: str) -> int:
        return metrics.counter_value(name) or 0

    before = [value(name) for name in ("PureTrace", "PureHit", "PureMiss")]
    pure = assume_pure(lambda x: x + 1)
    for _ in range(3):
        pure(xla(1.0))
    after = [value(name) for name in ("PureTrace", "PureHit", "PureMiss")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 2, 1]
    torch_xla.sync()


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_what_the_function_derives_from_an_argument_is_not_closed_over(mode: Any) -> None:
    pure = assume_pure(lambda x: (x.detach() * 2, x.data + x.view(-1)))
    with mode():
        for value in (1.0, 2.0, 3.0):
            doubled, summed = pure(xla(value))
            assert doubled.item() == summed.item() == 2 * value
    assert pure.cache_info().traces == 1
