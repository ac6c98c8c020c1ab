"""PyTorch's control flow on the device: `torch.cond`, `while_loop`, `scan`, `map`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla
from compare import assert_same
from torch import Tensor
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as torch_map
from torch_xla import _XLAC
from torch_xla.experimental import eager_mode_context
from torch_xla.experimental.assume_pure import assume_pure
from work import Work

pytestmark = pytest.mark.usefixtures("each_tier")


def ramp(device: str, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.float32).reshape(shape) / count - 0.3
    return values.to(device).requires_grad_()


def with_gradients(run: Callable[..., Any], *inputs: Tensor) -> list[Tensor]:
    results = torch.utils._pytree.tree_leaves(run(*inputs))
    total = sum((r * r).sum() for r in results if r.requires_grad)
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [result.detach() for result in results] + list(gradients)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(sign: float) -> None:
    def program(device: str) -> Any:
        w = ramp(device, 3)

        def run(x: Tensor, w: Tensor) -> Tensor:
            return torch.cond(
                x.sum() * sign > 0, lambda x: torch.tanh(x) * w, lambda x: x * x - w, (x,)
            )

        return with_gradients(run, ramp(device, 2, 3), w)

    assert_same(program, rtol=1e-5, atol=1e-6)


def test_scan() -> None:
    def program(device: str) -> Any:
        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            carry = torch.sin(carry) + x
            return carry, carry * 2

        def run(init: Tensor, xs: Tensor) -> Any:
            last, ys = scan(step, init, xs)
            other, zs = scan(step, init, xs.transpose(0, 1), dim=1, reverse=True)
            return last, ys, other, zs

        return with_gradients(run, ramp(device, 3), ramp(device, 5, 3))

    # The operator's own kernel on the CPU stacks in another memory format.
    expected, actual = program("cpu"), program("xla")
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-6)


def test_while_loop() -> None:
    def program(device: str) -> Any:
        limit = torch.tensor(50.0, device=device)
        with torch.no_grad():
            return while_loop(
                lambda n, tree: tree["x"].sum() < limit,
                lambda n, tree: (n + 1, {"x": tree["x"] * 2}),
                (torch.tensor(0, device=device), {"x": torch.ones(3, device=device)}),
            )

    assert_same(program)


def test_while_loop_with_gradients() -> None:
    def program(device: str) -> Any:
        def run(x: Tensor, w: Tensor) -> Any:
            return while_loop(
                lambda x, w: x.abs().sum() < 50, lambda x, w: (x * 1.5 + w.sin(), w.clone()), (x, w)
            )

        return with_gradients(run, ramp(device, 3), ramp(device, 3))

    assert_same(program, rtol=1e-5, atol=1e-5)


def test_map_and_associative_scan() -> None:
    def program(device: str) -> Any:
        def run(xs: Tensor, w: Tensor) -> Any:
            return (
                torch_map(lambda x, w: torch.sin(x) * w, xs, w),
                associative_scan(lambda a, b: a * b, xs, 0, combine_mode="generic"),
            )

        return with_gradients(run, ramp(device, 4, 3), ramp(device, 3))

    assert_same(program, rtol=1e-5, atol=1e-6)


def test_they_are_single_operations_of_the_program() -> None:
    x, xs = torch.ones(3, device="xla"), torch.ones(7, 3, device="xla")
    with eager_mode_context(False):
        chosen = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        looped = while_loop(lambda x: x.sum() < 90, lambda x: (x * 2,), (x,))[0]
        scanned = scan(lambda c, x: (c + x, c * x), x, xs)[1]
        mapped = torch_map(lambda x: torch.tanh(x), xs)
        text = _XLAC.tensors_stablehlo_text([chosen, looped, scanned, mapped])
    assert text.count("stablehlo.if") == 1
    assert text.count("stablehlo.while") == 3
    assert text.count("stablehlo.tanh") == 1


def test_they_work_while_a_pure_function_is_traced() -> None:
    @assume_pure
    def run(x: Tensor, xs: Tensor) -> Tensor:
        x = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        return scan(lambda c, x: (c + x, c.clone()), x, xs)[0]

    xs = torch.ones(4, 3, device="xla")
    for value, expected in ((1.0, 6.0), (-1.0, 2.0)):
        assert run(torch.full((3,), value, device="xla"), xs).tolist() == [expected] * 3


def test_cond_does_not_cut_a_compiled_region() -> None:
    @torch_xla.compile(full_graph=True)
    def step(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)) + 1

    for value, expected in ((1.0, 3.0), (-1.0, -1.0)):
        assert step(torch.full((3,), value, device="xla")).tolist() == [expected] * 3


# ---- torch.compile -------------------------------------------------------------------------------


def openxla(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(function, backend="openxla", fullgraph=True)
    return compiled


def test_cond_under_torch_compile() -> None:
    def run(x: Tensor, w: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.tanh(x) * w, lambda x: x * x - w, (x,)) + 1

    compiled = openxla(run)
    for sign in (1, -1):
        inputs = [sign * ramp("cpu", 2, 3), ramp("cpu", 3)]
        inputs = [x.detach() for x in inputs]
        with torch.no_grad():
            actual = compiled(*(x.to("xla") for x in inputs))
        torch.testing.assert_close(actual.cpu(), run(*inputs))
        before = Work.so_far()
        with torch.no_grad():
            compiled(*(x.to("xla") for x in inputs))
        assert Work.so_far().since(before).executions == 1
        assert Work.so_far().since(before).fallbacks == 0


def test_loops_under_torch_compile() -> None:
    def run(x: Tensor, xs: Tensor) -> Any:
        (y,) = while_loop(lambda x: x.sum() < 50, lambda x: (x * 2,), (x,))
        last, ys = scan(lambda c, x: (c + x, c * x), y, xs)
        return last, ys, torch_map(lambda x: torch.sin(x), xs)

    inputs = [torch.ones(3), ramp("cpu", 4, 3).detach()]
    with torch.no_grad():
        actual = openxla(run)(*(x.to("xla") for x in inputs))
        expected = run(*inputs)
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


def test_training_with_control_flow_under_torch_compile() -> None:
    def run(x: Tensor, xs: Tensor) -> Any:
        x = torch.cond(x.sum() > 0, lambda x: torch.tanh(x), lambda x: x * x, (x,))
        last, ys = scan(lambda c, x: (torch.sin(c) * x, c * x), x, xs)
        return (last.sum() + ys.sum(),)

    results = []
    for device, function in (("cpu", run), ("xla", openxla(run))):
        results.append(with_gradients(function, ramp(device, 3), ramp(device, 4, 3)))
    for wanted, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-6)
