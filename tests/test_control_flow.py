"""Branches and loops: what the same program written out in Python computes, as one program."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch_xla import _XLAC
from torch_xla._internal import control_flow
from torch_xla.experimental import eager_mode_context
from torch_xla.experimental.assume_pure import assume_pure
from work import Work

pytestmark = pytest.mark.usefixtures("each_tier")


def leaf(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to("xla").requires_grad_()


def check(function: Callable[..., Any], written_out: Callable[..., Any], *inputs: Tensor) -> None:
    """The same results, and the same gradients of their sum."""

    def all_of(run: Callable[..., Any]) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
        results = torch.utils._pytree.tree_leaves(run(*inputs))
        total = sum((r * r).sum() for r in results if r.requires_grad)
        wanted = [x for x in inputs if x.requires_grad]
        return results, torch.autograd.grad(total, wanted, allow_unused=True)

    for _ in range(2):
        (results, gradients), (expected, expected_gradients) = all_of(function), all_of(written_out)
        for actual, wanted in zip(results, expected, strict=True):
            assert actual.requires_grad == wanted.requires_grad
            torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)
        for actual, wanted in zip(gradients, expected_gradients, strict=True):
            zeros = None if actual is None else torch.zeros_like(actual)
            torch.testing.assert_close(
                actual, zeros if wanted is None else wanted, rtol=1e-4, atol=1e-5
            )


def written_out(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What `scan` does, in Python."""

    def run(init: Any, xs: Tensor, *same: Tensor) -> Any:
        carry, ys = init, []
        for x in xs:
            carry, y = fn(carry, x, *same)
            ys.append(y)
        return carry, torch.stack(ys)

    return run


# ---- scan ----------------------------------------------------------------------------------------


def test_scan_is_the_loop_written_out() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h + x)
        return h, h * 2

    check(lambda h, xs: control_flow.scan(step, h, xs), written_out(step), leaf(3), leaf(5, 3))


def test_scan_with_weights_that_are_the_same_each_time() -> None:
    def step(h: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h @ w + x)
        return h, h.sum()

    check(
        lambda h, xs, w: control_flow.scan(step, h, xs, (w,)),
        written_out(step),
        leaf(2, 3),
        leaf(4, 2, 3),
        leaf(3, 3),
    )


def test_scan_over_closed_over_weights() -> None:
    w, b = leaf(3, 3, seed=1), leaf(3, seed=2)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h @ w + x * b)
        return h, h.exp()

    h, xs = leaf(2, 3), leaf(4, 2, 3)
    check(
        lambda h, xs, w, b: control_flow.scan(step, h, xs),
        lambda h, xs, w, b: written_out(step)(h, xs),
        h,
        xs,
        w,
        b,
    )


def test_a_carry_becomes_differentiable_in_the_loop() -> None:
    w = leaf(3)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h + w * x, h

    zeros, xs = torch.zeros(3, device="xla"), torch.ones(4, 3, device="xla")
    check(lambda w: control_flow.scan(step, zeros, xs), lambda w: written_out(step)(zeros, xs), w)


def test_a_carry_that_stays_and_one_that_counts() -> None:
    def step(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        h = carry["h"] * carry["w"] + x
        return {"h": h, "w": carry["w"], "n": carry["n"] + 1}, h * carry["n"]

    def run(loop: Callable[..., Any], h: Tensor, w: Tensor, xs: Tensor) -> Any:
        init = {"h": h, "w": w, "n": torch.zeros((), dtype=torch.int64, device="xla")}
        return loop(init, xs)

    check(
        lambda *args: run(lambda i, x: control_flow.scan(step, i, x), *args),
        lambda *args: run(written_out(step), *args),
        leaf(3),
        leaf(3, seed=1),
        leaf(4, 3, seed=2),
    )


def test_scan_from_the_last_slice() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h * 0.5 + x, h

    h, xs = leaf(3), leaf(5, 3)

    def reversed_loop(h: Tensor, xs: Tensor) -> Any:
        last, ys = written_out(step)(h, xs.flip(0))
        return last, ys.flip(0)

    check(lambda h, xs: control_flow.scan(step, h, xs, reverse=True), reversed_loop, h, xs)


def test_scan_in_a_scan() -> None:
    def inner(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.sin(h) * x
        return h, h

    def outer(loop: Callable[..., Any]) -> Callable[..., Any]:
        def step(h: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            h, ys = loop(h, rows)
            return h, ys.sum(0)

        return step

    check(
        lambda h, xs: control_flow.scan(outer(lambda a, b: control_flow.scan(inner, a, b)), h, xs),
        written_out(outer(written_out(inner))),
        leaf(3),
        leaf(2, 4, 3),
    )


def test_dropout_in_a_loop_differs_from_iteration_to_iteration() -> None:
    ones = torch.ones(6, 100, device="xla")

    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return carry, nn.functional.dropout(x)

    zero = torch.zeros((), device="xla")
    torch.manual_seed(3)
    _, first = control_flow.scan(step, zero, ones)
    _, second = control_flow.scan(step, zero, ones)
    assert len({tuple(row) for row in first.tolist()}) == 6
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(control_flow.scan(step, zero, ones)[1], first)
    torch.manual_seed(3)
    assert torch.equal(torch_xla.compile(written_out(step))(zero, ones)[1], first)


def test_gradients_of_dropout_use_the_mask_of_the_iteration() -> None:
    xs = torch.ones(6, 100, device="xla", requires_grad=True)

    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return carry, nn.functional.dropout(x)

    _, ys = control_flow.scan(step, torch.zeros((), device="xla"), xs)
    ys.sum().backward()
    assert torch.equal(xs.grad, ys.detach())


def test_batch_norm_in_a_loop_updates_its_statistics() -> None:
    def run(loop: Callable[..., Any]) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(3).to("xla")
        xs = leaf(4, 5, 3)

        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return carry, norm(x)

        _, ys = loop(step)(torch.zeros((), device="xla"), xs)
        (ys * ys.detach().cos()).sum().backward()
        return (
            ys.detach(),
            norm.running_mean,
            norm.running_var,
            norm.num_batches_tracked,
            norm.weight.grad,
            xs.grad,
        )

    actual = run(lambda step: lambda init, xs: control_flow.scan(step, init, xs))
    for got, wanted in zip(actual, run(written_out), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


# ---- while_loop ----------------------------------------------------------------------------------


def test_ten_thousand_iterations_are_one_program(each_tier: str) -> None:
    n, x = torch.tensor(10_000, device="xla"), torch.zeros(3, device="xla")
    torch_xla.sync()
    before = Work.so_far()
    n, x = control_flow.while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x + 2), (n, x))
    assert n.item() == 0
    assert x.tolist() == [20_000] * 3
    # In eager mode the first condition and the operations around are programs, too.
    if each_tier != "eager":
        assert Work.so_far().since(before).executions == 1


def test_the_condition_is_false_at_once() -> None:
    (x,) = control_flow.while_loop(
        lambda x: x.sum() > 100, lambda x: (x * 2,), (torch.ones(3, device="xla"),)
    )
    assert x.tolist() == [1, 1, 1]


def test_while_with_closed_over_limit_and_random_numbers() -> None:
    limit = torch.tensor(7.0, device="xla")

    def body(total: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        return total + torch.rand((), device="xla"), count + 1

    start = (torch.zeros((), device="xla"), torch.zeros((), device="xla"))
    torch.manual_seed(5)
    total, count = control_flow.while_loop(lambda t, c: t < limit, body, start)
    after = torch_xla.compile(torch.rand)(1, device="xla")
    torch.manual_seed(5)

    @torch_xla.compile
    def plain(t: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        while t < limit:
            t, c = body(t, c)
        return t, c

    t, c = plain(*start)
    assert count.item() == c.item() > 7
    torch.testing.assert_close(total, t)
    assert torch.equal(after, torch_xla.compile(torch.rand)(1, device="xla"))


def test_gradients_through_a_while_loop() -> None:
    w = leaf(3)

    def body(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1.5 + torch.sin(w), w

    def loop(x: Tensor, w: Tensor) -> Any:
        return control_flow.while_loop(lambda x, w: x.abs().sum() < 50, body, (x, w))

    def plain(x: Tensor, w: Tensor) -> Any:
        while x.abs().sum() < 50:
            x, w = body(x, w)
        return x, w

    check(loop, plain, leaf(3), w)


# ---- cond ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [True, False])
def test_cond_takes_one_branch_with_its_gradients(taken: bool) -> None:
    w = leaf(3, 3, seed=4)

    def on_true(x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(x @ w) * y

    def on_false(x: Tensor, y: Tensor) -> Tensor:
        return torch.exp(x) + 1

    predicate = torch.tensor(taken, device="xla")
    check(
        lambda x, y, w: control_flow.cond(predicate, on_true, on_false, (x, y)),
        lambda x, y, w: (on_true if taken else on_false)(x, y),
        leaf(2, 3),
        leaf(2, 3, seed=1),
        w,
    )


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_draws_and_writes_only_when_it_is_taken(taken: bool) -> None:
    seen = torch.zeros((), device="xla")

    def on_true(x: Tensor) -> Tensor:
        seen.add_(1)
        return nn.functional.dropout(x)

    torch.manual_seed(1)
    x = torch.ones(50, device="xla")
    result = control_flow.cond(torch.tensor(taken, device="xla"), on_true, lambda x: x * 3, (x,))
    after = torch_xla.compile(torch.rand)(4, device="xla")
    assert seen.item() == int(taken)
    torch.manual_seed(1)
    wanted = torch_xla.compile(nn.functional.dropout)(x) if taken else x * 3
    torch.testing.assert_close(result, wanted)
    assert torch.equal(after, torch_xla.compile(torch.rand)(4, device="xla"))


def test_cond_does_not_cut_a_compiled_region() -> None:
    @torch_xla.compile(full_graph=True)
    def step(x: Tensor) -> Tensor:
        return control_flow.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)) + 1

    for value, expected in ((1.0, 3.0), (-1.0, -1.0)):
        assert step(torch.full((3,), value, device="xla")).tolist() == [expected] * 3


def test_cond_in_a_scan_in_a_pure_function() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = control_flow.cond(x.sum() > 0, lambda h, x: h * x, lambda h, x: h + x, (h, x))
        return h, h

    def plain_step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = h * x if x.sum() > 0 else h + x
        return h, h

    pure = assume_pure(lambda h, xs: control_flow.scan(step, h, xs))
    check(pure, written_out(plain_step), leaf(3), leaf(6, 3, seed=1))
    assert pure.cache_info().traces == 1


# ---- as programs ---------------------------------------------------------------------------------


def loop_text(length: int) -> str:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(h) + x, h

    h = torch.ones(3, device="xla", requires_grad=True)
    with eager_mode_context(False):
        last, _ = control_flow.scan(step, h, torch.ones(length, 3, device="xla"))
        last.sum().backward()
        return _XLAC.tensors_stablehlo_text([last, h.grad])


def test_the_body_is_in_the_program_once_whatever_the_length() -> None:
    short, long = loop_text(4), loop_text(4000)
    assert long.count("stablehlo.while") == 2
    assert long.count("stablehlo.tanh") == short.count("stablehlo.tanh") <= 2
    assert len(long.splitlines()) == len(short.splitlines())


# ---- what is refused -----------------------------------------------------------------------------


def test_errors_name_the_user_s_line() -> None:
    x, xs = torch.ones(3, device="xla"), torch.ones(4, 3, device="xla")
    with pytest.raises(RuntimeError, match=r"test_control_flow.py.*carried tensor 0.*Float\[3\]"):
        control_flow.scan(lambda c, x: (c.sum(), x), x, xs)
    with pytest.raises(TypeError, match="structure must stay the same"):
        control_flow.scan(lambda c, x: ((c, c), x), x, xs)
    with pytest.raises(TypeError, match="must return a pair"):
        control_flow.scan(lambda c, x: c, x, xs)
    with pytest.raises(RuntimeError, match="changes its tensor argument 0 in place"):
        control_flow.scan(lambda c, x: (c.add_(x), x), x, xs)
    with pytest.raises(RuntimeError, match=r"shapes and dtypes must be the same"):
        control_flow.cond(x.sum() > 0, lambda x: x, lambda x: x[:2], (x,))
    with pytest.raises(RuntimeError, match="one bool tensor"):
        control_flow.while_loop(lambda x: x > 0, lambda x: (x,), (x,))
    with pytest.raises(RuntimeError, match="move all its tensors"):
        control_flow.scan(lambda c, x: (c, x), x, torch.ones(4, 3))


def test_the_gradient_of_a_while_loop_needs_its_length() -> None:
    def run(x: Tensor) -> Any:
        return control_flow.while_loop(lambda x: x.sum() < 9, lambda x: (x * 2,), (x,))

    with pytest.raises(RuntimeError, match="number of its iterations"):
        assume_pure(run)(leaf(3))


def test_gradients_of_gradients_are_refused() -> None:
    x = leaf(3)
    last, _ = control_flow.scan(lambda c, x: (c * c, c), x, torch.ones(2, 3, device="xla"))
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(last.sum(), x, create_graph=True)
