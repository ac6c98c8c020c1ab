"""assume_pure: changes in place, random numbers, nesting, custom operators, refusals, threads."""

import gc
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_xla import _XLAC
from torch_xla.experimental.assume_pure import PureModule, assume_pure


def xla(*values: float) -> Tensor:
    return torch.tensor(values, device="xla")


def test_batch_norm_statistics() -> None:
    plain = nn.BatchNorm1d(4).to("xla")
    pure = PureModule(nn.BatchNorm1d(4).to("xla"))
    for _ in range(4):
        x = torch.randn(6, 4, device="xla")
        torch.testing.assert_close(pure(x), plain(x))
    torch.testing.assert_close(pure.running_mean, plain.running_mean)
    torch.testing.assert_close(pure.running_var, plain.running_var)
    assert pure.num_batches_tracked.item() == 4
    assert pure.cache_info().traces == 1


def test_hooks_on_what_is_outside_are_refused_and_others_kept() -> None:
    def hooked(x: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        made = make(x)
        made.register_hook(lambda gradient: gradient * 2)
        return made

    x = torch.ones(3, device="xla", requires_grad=True)
    pure = assume_pure(hooked)
    pure(x, torch.neg).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [-2, -2, -2]
    closed_over = torch.ones(3, device="xla", requires_grad=True)
    for view in (lambda x: x, lambda x: x.view(3, 1), lambda x: closed_over[1:]):
        with pytest.raises(RuntimeError, match="registers a hook on an argument"):
            pure(x, view)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_arguments_are_refused(kind: str) -> None:
    """They would stay on the argument: one more after each call."""

    @assume_pure
    def hooked(x: Tensor) -> Tensor:
        getattr(x, kind)(lambda gradient: None)
        return x * 2

    with pytest.raises(RuntimeError, match="registers a hook on an argument"):
        hooked(torch.ones(3, device="xla", requires_grad=True))
    x = torch.ones(3, device="xla", requires_grad=True)
    getattr(x, kind)(lambda gradient: None)  # one of outside may be there
    with pytest.raises(RuntimeError, match="registers a hook on an argument"):
        hooked(x)
    assume_pure(lambda x: x * 2)(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2]


def test_arguments_and_closed_over_tensors_changed_in_place() -> None:
    total = torch.zeros(2, device="xla")

    @assume_pure
    def accumulate(x: Tensor) -> Tensor:
        x.mul_(2)
        total.add_(x)
        return x + total

    for n in range(1, 4):
        x = xla(1.0, 2.0)
        version = x._version
        result = accumulate(x)
        assert x.tolist() == [2, 4] and x._version > version
        assert total.tolist() == [2 * n, 4 * n]
        assert result.tolist() == [2 + 2 * n, 4 + 4 * n]
    assert accumulate.cache_info().traces == 1


def test_writes_through_views() -> None:
    @assume_pure
    def write(x: Tensor) -> None:
        x[1:, 0] = 7
        x.t()[0].add_(1)

    for _ in range(2):
        x = torch.zeros(3, 2, device="xla")
        assert write(x) is None
        assert x.tolist() == [[1, 0], [8, 0], [8, 0]]


def test_random_numbers_are_those_of_the_plain_function() -> None:
    def noisy(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x)

    pure = assume_pure(noisy)
    x = torch.ones(32, device="xla")
    torch.manual_seed(3)
    expected = [noisy(x) for _ in range(3)]
    torch.manual_seed(3)
    actual = [pure(x) for _ in range(3)]
    torch.testing.assert_close(actual, expected)
    assert not torch.equal(actual[0], actual[1])
    assert pure.cache_info().traces == 1


def test_the_mask_of_the_forward_is_that_of_the_backward() -> None:
    x = torch.ones(64, device="xla", requires_grad=True)
    y = assume_pure(lambda a: F.dropout(a, 0.5))(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_generators_given_and_closed_over() -> None:
    generator = torch.Generator(device="xla")
    pure = assume_pure(lambda x: x + torch.rand(x.shape, generator=generator, device="xla"))
    x = torch.zeros(8, device="xla")
    generator.manual_seed(5)
    first = pure(x)
    second = pure(x)
    generator.manual_seed(5)
    torch.testing.assert_close(pure(x), first)
    torch.testing.assert_close(pure(x), second)


def test_nesting_emits_a_repeated_body_once() -> None:
    @assume_pure
    def inner(x: Tensor) -> Tensor:
        return torch.sin(x) * 0.5

    @assume_pure
    def middle(x: Tensor) -> Tensor:
        return inner(inner(x)) + 1

    @assume_pure
    def outer(x: Tensor) -> Tensor:
        for _ in range(10):
            x = middle(x)
        return x

    x = torch.randn(4, device="xla")
    result = outer(x)
    text = _XLAC.tensors_stablehlo_text([result])
    assert text.count("stablehlo.sine") == 1
    assert text.count("func.func private") == 3
    expected = x.cpu()
    for _ in range(10):
        expected = torch.sin(torch.sin(expected) * 0.5) * 0.5 + 1
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outer(x), result)


def test_equal_layers_share_one_body() -> None:
    layers = [PureModule(nn.Linear(3, 3).to("xla")) for _ in range(8)]
    x = torch.randn(2, 3, device="xla")
    result, expected = x, x
    for layer in layers:
        result = torch.relu(layer(result))
        expected = torch.relu(layer.module(expected))
    text = _XLAC.tensors_stablehlo_text([result])
    assert text.count("func.func private") == 1
    torch.testing.assert_close(result, expected)


def test_gradients_through_nested_functions() -> None:
    weight = torch.randn(4, 4, device="xla", requires_grad=True)

    @assume_pure
    def inner(x: Tensor) -> Tensor:
        return torch.tanh(x @ weight)

    outer = assume_pure(lambda x: inner(inner(x)).sum())
    x = torch.randn(2, 4, device="xla", requires_grad=True)
    for _ in range(2):
        actual = torch.autograd.grad(outer(x), (x, weight))
        plain = torch.tanh(torch.tanh(x @ weight) @ weight).sum()
        torch.testing.assert_close(actual, torch.autograd.grad(plain, (x, weight)))


def test_a_function_made_inside_closes_over_the_trace() -> None:
    @assume_pure
    def outer(x: Tensor) -> Tensor:
        y = x * 2
        inner = assume_pure(lambda z: z + y)
        return inner(x) + inner(y)

    for value in (1.0, 5.0):
        assert outer(xla(value)).item() == 7 * value


def test_scope_names_are_in_the_module() -> None:
    layer = torch.nn.Linear(2, 2).to("xla")

    def my_named_layer(x: Tensor) -> Tensor:
        return layer(x).sum()

    x = torch.randn(3, 2, device="xla", requires_grad=True)
    assume_pure(my_named_layer)(x).backward()
    text = _XLAC.tensors_stablehlo_text([x.grad])
    assert re.search(r"my_named_layer_backward", text)


@torch.library.custom_op("pure_tests::scaled_sin", mutates_args=(), device_types="cpu")
def scaled_sin(x: Tensor, scale: float) -> Tensor:
    return torch.from_numpy(x.detach().numpy().copy()).sin() * scale


@scaled_sin.register_fake
def _(x: Tensor, scale: float) -> Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return grad * ctx.saved_tensors[0].cos() * ctx.scale, None


scaled_sin.register_autograd(_backward, setup_context=_setup)


@pytest.mark.host_only("programs call no kernels of this process elsewhere")
def test_custom_operators() -> None:
    pure = assume_pure(lambda x: (scaled_sin(x, 2.0) + 1).sum())
    for _ in range(2):
        x = torch.randn(5, device="xla", requires_grad=True)
        y = pure(x)
        y.backward()
        host = x.detach().cpu()
        torch.testing.assert_close(y.detach().cpu(), (2 * host.sin() + 1).sum())
        torch.testing.assert_close(x.grad.cpu(), 2 * host.cos())
    assert pure.cache_info().traces == 1


def test_attention() -> None:
    q, k, v = (torch.randn(2, 4, 8, 16, device="xla", requires_grad=True) for _ in range(3))
    attend = lambda *args: F.scaled_dot_product_attention(*args, is_causal=True)  # noqa: E731
    actual = torch.autograd.grad(assume_pure(attend)(q, k, v).sum(), (q, k, v))
    expected = torch.autograd.grad(attend(q, k, v).sum(), (q, k, v))
    torch.testing.assert_close(actual, expected)


kept: list[Tensor] = []


class Keeper:
    tensor: Tensor | None = None


def keep_in_global(x: Tensor) -> Tensor:
    kept.append(x * 2)
    return x + 1


def keep_in_attribute(x: Tensor) -> Tensor:
    Keeper.tensor = x * 2
    return x + 1


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "item": (lambda x: x * x.sum().item(), "value of a tensor"),
    "print": (lambda x: print(x), "value of a tensor"),
    "cpu": (lambda x: x.cpu(), "value of a tensor"),
    "condition": (lambda x: x if x.sum() > 0 else -x, "value of a tensor"),
    "shape": (lambda x: x.nonzero(), "shape depends on data"),
    "global": (keep_in_global, "outlives the call"),
    "attribute": (keep_in_attribute, "outlives the call"),
    "sync": (lambda x: torch_xla.sync(), r"torch_xla.sync\(\) was called"),
    "resize": (lambda x: x.resize_(5), "changes the shape or storage"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_repeated_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    pure = assume_pure(function)
    x = xla(1.0, 2.0)
    with pytest.raises(RuntimeError, match=rf"test_pure_effects\.py:\d+.*{reason}"):
        pure(x)
    kept.clear()
    Keeper.tensor = None
    assert pure.cache_info().traces == 0 and pure.cache_info().currsize == 0
    assert (x + 1).tolist() == [2, 3]


def test_in_place_changes_of_arguments_that_require_gradients_are_refused() -> None:
    x = torch.ones(2, device="xla", requires_grad=True)
    with pytest.raises(RuntimeError, match="in-place|in place"):
        assume_pure(lambda a: a.mul_(2))(x)
    y, w = torch.ones(2, device="xla"), torch.ones(2, device="xla", requires_grad=True)
    with pytest.raises(RuntimeError, match="tensor argument 0"):
        assume_pure(lambda a, b: a.mul_(b))(y, w)
    assert not y.requires_grad and y.tolist() == [1, 1]


def test_what_only_a_graph_leads_back_to_is_not_kept() -> None:
    def on_itself(x: Tensor) -> Tensor:
        made, unused = x * 1, x * 2
        unused.mul_(unused.abs())
        view = made[1:].view(-1)
        return view.addcdiv_(view, view.abs() + 1)

    def foreach(x: Tensor) -> Tensor:
        made = x.detach() * 2
        torch._foreach_addcmul_([made], [made], [x], 0.5)
        return made

    def set_to_an_argument(x: Tensor, y: Tensor) -> Tensor:
        view = (x * 2).unsqueeze(0).transpose(0, 1)
        view.set_(y)
        return view + 1

    def run(device: str, wrap: Callable[[Any], Any]) -> list[Tensor]:
        x = torch.tensor([1.0, -2.0, 3.0], device=device).requires_grad_()
        found = [wrap(function)(x) for function in (on_itself, foreach)]
        return [*found, wrap(set_to_an_argument)(x, x.detach() * 5)]

    with FakeTensorMode():
        fake = torch.empty(2, device="xla")  # all tensors are looked at: this one is none of ours
    for got, wanted in zip(run("xla", assume_pure), run("cpu", lambda f: f), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)
    assert fake.device.type == "xla"


def test_parts_of_what_was_written_since_tell_nothing() -> None:
    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x * 2
        mine, given = made.unbind(0)[1], x.unbind(0)[1]
        made.detach().mul_(3)
        x.detach().mul_(1)
        return mine, given

    for wrap, device in ((assume_pure, "xla"), (lambda f: f, "cpu")):
        for part in wrap(parts)(torch.tensor([[1.0], [2.0]], device=device).requires_grad_()):
            assert part.shape == (1,) and part.requires_grad
            with pytest.raises(RuntimeError, match="its base or another view of its base"):
                print(part.is_leaf)
            with pytest.raises(RuntimeError, match="its base or another view of its base"):
                part.sum()


def test_a_leaked_tensor_explains_itself() -> None:
    with pytest.raises(RuntimeError):
        assume_pure(keep_in_global)(xla(1.0))
    leaked = kept.pop()
    with pytest.raises(RuntimeError, match="keep_in_global was being traced"):
        print(leaked)
    with pytest.raises(RuntimeError, match="keep_in_global was being traced"):
        leaked + 1


def test_exceptions_leave_nothing_behind() -> None:
    state = torch.zeros(2, device="xla")
    fail_at = 0

    def body(x: Tensor) -> Tensor:
        for step in range(4):
            if step == fail_at:
                raise ValueError(f"step {step}")
            state.add_(1)
            x = x * 2 + torch.rand_like(x)
        return x

    pure = assume_pure(body)
    torch.manual_seed(0)
    expected = torch.rand(2, device="xla")
    for fail_at in range(4):  # noqa: B007  (the body reads it)
        torch.manual_seed(0)
        with pytest.raises(ValueError, match=f"step {fail_at}"):
            pure(xla(1.0, 2.0))
        torch.testing.assert_close(torch.rand(2, device="xla"), expected)
        assert state.tolist() == [0, 0]
    fail_at = 9
    pure(xla(1.0, 2.0))
    assert state.tolist() == [4, 4]


def test_checking_names_the_first_difference() -> None:
    factor = [2.0]

    def body(x: Tensor) -> Tensor:
        y = x + 1
        return y * factor[0]

    pure = assume_pure(body, check=True)
    pure(xla(1.0))
    pure(xla(1.0))
    factor[0] = 3.0
    with pytest.raises(RuntimeError, match=r"not pure.*aten::mul.*was 2.*is 3"):
        pure(xla(1.0))


def test_the_checking_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_CHECK_PURE", "1")
    sign = [1]
    pure = assume_pure(lambda x: x.sin() if sign[0] > 0 else x.cos())
    pure(xla(1.0))
    sign[0] = -1
    with pytest.raises(RuntimeError, match=r"aten::cos at .*takes the place of aten::sin"):
        pure(xla(1.0))


def test_many_calls_leak_nothing() -> None:
    module = PureModule(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)).to("xla"))
    x = torch.randn(2, 4, device="xla")

    def calls(count: int) -> None:
        for _ in range(count):
            module.zero_grad()
            module(x).sum().backward()
            torch_xla.sync()

    calls(20)
    gc.collect()
    torch_xla.sync(wait=True)
    before = _XLAC.live_buffer_count()
    calls(2000)
    gc.collect()
    torch_xla.sync(wait=True)
    assert _XLAC.live_buffer_count() <= before + 2
    assert module.cache_info().traces == 1


def test_threads_trace_once() -> None:
    count = 0
    weight = torch.randn(8, 8, device="xla", requires_grad=True)

    def body(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return torch.tanh(x @ weight).sum()

    pure = assume_pure(body)
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            x = torch.randn(4, 8, generator=generator)
            start.wait()
            for _ in range(20):
                device_x = x.to("xla").requires_grad_()
                (actual,) = torch.autograd.grad(pure(device_x), device_x)
                host_w = weight.detach().cpu()
                host_x = x.clone().requires_grad_()
                (expected,) = torch.autograd.grad(torch.tanh(host_x @ host_w).sum(), host_x)
                torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
        except BaseException as error:  # noqa: BLE001  (reported below)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not failures, failures[0]
    assert count == 1
