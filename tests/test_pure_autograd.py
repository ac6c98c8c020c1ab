"""assume_pure under autograd: the gradients of the undecorated function."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same, ramp
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_xla.experimental.assume_pure import PureModule, assume_pure
from work import Work


def leaf(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(*shape, device="xla").requires_grad_(grad)


def check(function: Callable[..., Any], *inputs: Tensor) -> None:
    """Gradients of the sum of all results agree with the plain function's."""

    def gradients(f: Callable[..., Any]) -> tuple[Tensor | None, ...]:
        results = f(*inputs)
        results = results if isinstance(results, (tuple, list)) else [results]
        total = sum((r.float() ** 2).sum() for r in results if r.requires_grad)
        wanted = [x for x in dict.fromkeys(inputs) if x.requires_grad]
        return torch.autograd.grad(total, wanted, allow_unused=True)

    pure = assume_pure(function)
    for _ in range(2):
        for actual, expected in zip(gradients(pure), gradients(function), strict=True):
            assert (actual is None) == (expected is None)
            if expected is not None:
                torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    assert pure.cache_info().traces == 1


@pytest.mark.parametrize("which", [(True, True), (True, False), (False, True)])
def test_any_subset_of_inputs(which: tuple[bool, bool]) -> None:
    check(lambda a, b: torch.tanh(a @ b), leaf(3, 4, grad=which[0]), leaf(4, 2, grad=which[1]))


def test_no_gradient_needed() -> None:
    result = assume_pure(lambda a: a * 2)(leaf(3, grad=False))
    assert not result.requires_grad
    with torch.no_grad():
        assert not assume_pure(lambda a: a * 2)(leaf(3)).requires_grad


def test_repeated_and_unused_inputs() -> None:
    x, y = leaf(3), leaf(3)
    check(lambda a, b, c: a * b.exp(), x, x, y)


def test_results_of_every_kind() -> None:
    x, y = leaf(3, 4), leaf(4)
    check(lambda a, b: (a * b, a.argmax(1), (a * 2).detach(), b.sum()), x, y)
    check(lambda a, b: (a, a * 2, a.t(), b), x, y)
    check(lambda a, b: ((h := a * b), h.view(-1), h[0]), x, y)


def test_gradients_that_are_parts_of_another_tensor() -> None:
    x, y = leaf(3, 4), leaf(2, 4)
    check(lambda a, b: torch.cat([a, b]), x, y)
    check(lambda a, b: torch.cat([b.flatten(), a.flatten()]) * 2, x, y)
    check(lambda a, b: torch.hstack([a.t(), b.t()]).relu(), x, y)
    check(lambda a, b: torch.stack([a[1], b[1]]).exp(), x, y)


def test_a_result_that_is_an_argument_is_the_argument() -> None:
    x = leaf(3)
    same, view = assume_pure(lambda a: (a, a.view(3, 1)))(x)
    assert same is x
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    view.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1, 1]


def test_a_tensor_returned_twice_is_one_tensor() -> None:
    def twice(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = a * 2
        return made, made.view(-1), made

    x = leaf(3)
    first, view, again = assume_pure(twice)(x)
    assert first is again and view is not first
    (first.sum() + again.sum() + view.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [6, 6, 6]
    quiet = assume_pure(twice)(torch.ones(3, device="xla"))
    assert quiet[0] is quiet[2]


def test_results_without_a_derivative_say_so_when_asked_for_it() -> None:
    def some(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        moved = a.lerp(a, 0.5)
        with torch.no_grad():
            moved.unsqueeze_(-1)
        return a * 2, a // 2, moved

    def outcomes(make: Callable[..., Any], device: str) -> list[object]:
        x = torch.tensor([1.0, 4.0], device=device, requires_grad=True)
        found: list[object] = []
        for result in make(some)(x):
            try:
                (gradient,) = torch.autograd.grad(result.sum(), x, retain_graph=True)
                found.append(gradient.tolist())
            except RuntimeError as error:
                words = ("floor_divide", "invalid gradient")
                found.append([word for word in words if word in str(error)])
        return found

    expected = outcomes(lambda function: function, "cpu")
    assert expected == [[2, 2], ["floor_divide"], ["invalid gradient"]]
    assert outcomes(assume_pure, "xla") == expected
    x = leaf(2)
    with pytest.raises(RuntimeError, match="floor_divide"):  # in loops and branches at once
        torch.cond(x.sum() > 0, lambda a: a // 2, lambda a: a * 2, (x,))


def test_unused_results_and_closed_over_parameters() -> None:
    weight = leaf(4, 4)
    hidden = leaf(4, 4) * 2  # not a leaf: its gradient flows on
    hidden.retain_grad()
    pure = assume_pure(lambda x: (x @ weight @ hidden, x.sum()))
    x = leaf(2, 4)
    pure(x)[0].sum().backward(retain_graph=True)
    grads = [weight.grad, hidden.grad, x.grad]
    weight.grad = hidden.grad = x.grad = None
    (x @ weight @ hidden).sum().backward()
    for actual, expected in zip(grads, [weight.grad, hidden.grad, x.grad], strict=True):
        torch.testing.assert_close(actual, expected)


def test_tied_weights_and_accumulation() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.relu(self.first(x)))

    module = Tied().to("xla")
    pure = PureModule(module)
    x = torch.randn(3, 4, device="xla")
    for _ in range(2):
        pure(x).sum().backward()
    accumulated = module.first.weight.grad
    module.zero_grad()
    for _ in range(2):
        module(x).sum().backward()
    torch.testing.assert_close(accumulated, module.first.weight.grad)


def test_retain_graph_and_a_second_backward() -> None:
    x = leaf(3)
    y = assume_pure(lambda a: a.exp().sum())(x)
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().exp())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_double_and_triple_backward() -> None:
    x = leaf(4)
    weight = leaf(4)
    for function in (assume_pure(lambda a: (a.sin() * a * weight).sum()),):
        (g,) = torch.autograd.grad(function(x), x, create_graph=True)
        (gg, gw) = torch.autograd.grad((g * g).sum(), (x, weight), create_graph=True)
        (ggg,) = torch.autograd.grad(gg.sum(), x)

        def plain(a: Tensor) -> Tensor:
            return (a.sin() * a * weight).sum()

        (e,) = torch.autograd.grad(plain(x), x, create_graph=True)
        (ee, ew) = torch.autograd.grad((e * e).sum(), (x, weight), create_graph=True)
        (eee,) = torch.autograd.grad(ee.sum(), x)
        for actual, expected in ((g, e), (gg, ee), (gw, ew), (ggg, eee)):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_double_backward_repeats_the_dropout_mask() -> None:
    x = torch.full((64,), 2.0, device="xla", requires_grad=True)
    pure = assume_pure(lambda a: F.dropout(a**3, 0.5))
    y = pure(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (gg,) = torch.autograd.grad(g.sum(), x)
    kept = y != 0
    torch.testing.assert_close(g != 0, kept)
    torch.testing.assert_close(gg, torch.where(kept, 24.0, 0.0))


def test_hooks_are_called_once() -> None:
    weight, x = leaf(3), leaf(3)
    calls = []
    weight.register_hook(lambda g: (calls.append("weight"), g * 2)[1])
    x.register_hook(lambda g: (calls.append("x"), g * 3)[1])
    pure = assume_pure(lambda a: a * weight)
    y = pure(x)
    y.register_hook(lambda g: (calls.append("y"), g * 5)[1])
    y.sum().backward()
    assert sorted(calls) == ["weight", "x", "y"]
    torch.testing.assert_close(weight.grad, 10 * x.detach())
    torch.testing.assert_close(x.grad, 15 * weight.detach())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_inside_and_outside(reentrant: bool) -> None:
    w = leaf(4, 4)

    def layer(x: Tensor) -> Tensor:
        return torch.tanh(x @ w)

    pure = assume_pure(layer)
    inside = assume_pure(lambda x: checkpoint(layer, x, use_reentrant=reentrant))

    def gradients(f: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        x = torch.ones(2, 4, device="xla", requires_grad=True)
        w.grad = None
        f(x).sum().backward()
        assert x.grad is not None and w.grad is not None
        return x.grad, w.grad

    expected = gradients(layer)
    outside = gradients(lambda x: checkpoint(pure, x, use_reentrant=reentrant))
    torch.testing.assert_close(outside, expected)
    if not reentrant:
        torch.testing.assert_close(gradients(inside), expected)


def test_saved_tensor_hooks_see_the_kept_values() -> None:
    packed = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor.cpu()

    x, w = leaf(2, 4), leaf(4, 4)
    pure = assume_pure(lambda a, b: torch.tanh(a @ b) @ b)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to("xla")):
        y = pure(x, w)
    assert packed
    actual = torch.autograd.grad(y.sum(), (x, w))
    expected = torch.autograd.grad((torch.tanh(x @ w) @ w).sum(), (x, w))
    torch.testing.assert_close(actual, expected)


def test_a_kept_argument_must_not_change_before_the_backward() -> None:
    w, x = leaf(3), leaf(3)
    y = assume_pure(lambda a, b: (a * b).sum())(w, x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_autocast() -> None:
    x, w = leaf(4, 8), leaf(8, 8)
    pure = assume_pure(lambda a, b: a @ b)
    with torch.autocast("xla", dtype=torch.bfloat16):
        y = pure(x, w)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert w.grad is not None and w.grad.dtype == torch.float32
    assert pure(x, w).dtype == torch.float32


def test_torch_func_within_and_around() -> None:
    def squares(x: Tensor) -> Tensor:
        return (x**3).sum()

    x = torch.randn(5, 3, device="xla")
    inside = assume_pure(lambda a: torch.func.vmap(torch.func.grad(squares))(a))
    torch.testing.assert_close(inside(x), 3 * x**2)
    pure = assume_pure(squares)
    torch.testing.assert_close(torch.func.grad(pure)(x), 3 * x**2)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(pure))(x), 3 * x**2)


def test_complex_gradients() -> None:
    z = torch.randn(4, dtype=torch.complex64, device="xla", requires_grad=True)
    check(lambda a: (a * a.conj()).real.sqrt(), z)


HOST_FREE: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "median": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(),
    "prod": lambda x: x.prod(),
    "prod-along": lambda x: x.prod(1),
    "prod-keepdim": lambda x: x.prod(0, keepdim=True),
    "prod-dtype": lambda x: x.prod(1, dtype=torch.float64),
    "cumprod": lambda x: x.cumprod(1),
    "cumprod_": lambda x: (x * 1).cumprod_(1),
    "kron": lambda x: torch.kron(x, x + 1),
    "masked_scatter": lambda x: x.masked_scatter(x > 2, (x * 3).square()),
    "tensor_split": lambda x: torch.cat([t * (i + 1) for i, t in enumerate(x.tensor_split(2, 1))]),
}
VALUES = {
    "ties": [[1.0, 5.0, 2.0, 4.0], [4.0, 3.0, 5.0, 1.0]],
    "one-zero": [[1.0, 0.0, 2.0, 4.0], [4.0, 3.0, 5.0, 1.0]],
    "zeros": [[0.0, 3.0, 0.0, 4.0], [0.0, 0.0, 5.0, 1.0]],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("function", HOST_FREE.values(), ids=HOST_FREE)
def test_gradients_that_read_nothing(
    function: Callable[[Tensor], Tensor], values: list[list[float]]
) -> None:
    def gradients(device: str, wrapped: Callable[[Tensor], Tensor]) -> list[Tensor]:
        x = torch.tensor(values, device=device, requires_grad=True)
        (alone,) = torch.autograd.grad(wrapped(x).square().sum(), x)
        (first,) = torch.autograd.grad(wrapped(x).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return [alone.cpu(), first.detach().cpu(), second.cpu()]

    expected = gradients("cpu", function)
    before = Work.so_far()
    recorded = gradients("xla", function)
    assert Work.so_far().since(before).device_to_host == len(recorded)
    torch.testing.assert_close(recorded, expected)
    torch.testing.assert_close(gradients("xla", assume_pure(function)), expected)


LEARNT: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "assigned": lambda x, m, token: x.clone().index_put_((m,), token),
    "assigned-row": lambda x, m, token: x.index_put((m,), token[None]),
    "view": lambda x, m, token: (y := x * 2, y[1].index_put_((m[1],), token), y)[-1],
    "masked_fill": lambda x, m, token: x.masked_fill(m[..., None], token[1]),
    "masked_fill_": lambda x, m, token: (x + 1).masked_fill_(m[..., None], token[1]),
}


@pytest.mark.parametrize("name", LEARNT)
def test_a_learnt_value_under_a_mask_reads_nothing(name: str) -> None:
    def run(device: str, wrapped: Callable[..., Tensor], mask: list[list[bool]]) -> list[Tensor]:
        x = torch.arange(24.0, device=device).reshape(2, 3, 4).requires_grad_()
        token = torch.arange(4.0, device=device).requires_grad_()
        result = wrapped(x, torch.tensor(mask, device=device), token)
        gradients = torch.autograd.grad((result.square() * x.detach()).sum(), (x, token))
        return [tensor.detach().cpu() for tensor in (result, *gradients)]

    pure = assume_pure(LEARNT[name])
    for mask in ([[True, False, True], [False, True, True]], [[False] * 3] * 2):
        expected = run("cpu", LEARNT[name], mask)
        for wrapped in (LEARNT[name], pure):
            before = Work.so_far()
            torch.testing.assert_close(run("xla", wrapped, mask), expected)
            assert Work.so_far().since(before).device_to_host == len(expected)


def test_kron_with_a_closed_over_weight() -> None:
    def weights(device: str, decorate: Callable[..., Any]) -> list[Tensor]:
        x = torch.ones(2, 3, device=device)
        weight = torch.full((2, 2), 2.0, device=device, requires_grad=True)
        function = decorate(lambda x: torch.kron(weight, x))
        for _ in range(2):
            function(x).sum().backward()
        assert weight.grad is not None
        return [weight.grad.cpu()]

    expected = weights("cpu", lambda function: function)
    torch.testing.assert_close(weights("xla", assume_pure), expected)


def test_other_derivatives_of_reductions_without_reads() -> None:
    x = torch.tensor([1.0, 5.0, 2.0])
    for device in ("cpu", "xla"):
        value, tangent = torch.func.jvp(
            torch.prod, (x.to(device),), (torch.ones_like(x).to(device),)
        )
        assert (value.item(), tangent.item()) == (10, 17)
        assert torch.func.grad(torch.max)(x.to(device)).tolist() == [0, 1, 0]


def test_a_view_older_than_its_bases_requires_grad() -> None:
    """PyTorch says that such a view requires gradients, and has no place for them."""

    def program(device: str) -> tuple[Tensor, ...]:
        def function(x: Tensor) -> tuple[Tensor, ...]:
            base = x * 2
            view = base.transpose(0, -1)
            base.requires_grad_()
            return base, view, base.square().sum()

        call = function if device == "cpu" else assume_pure(function)
        base, view, loss = call(ramp(3, device=device))
        loss.backward()
        return base, view, loss, base.grad

    assert_same(program)


def test_requires_grad_inside() -> None:
    @assume_pure
    def marks_its_argument(x: Tensor) -> Tensor:
        return x.requires_grad_() * 2

    for _ in range(2):
        x = torch.ones(3, device="xla")
        marks_its_argument(x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2, 2, 2]

    @assume_pure
    def differentiates(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        leaf.square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad * x

    for _ in range(2):
        x = torch.full((3,), 3.0, device="xla", requires_grad=True)
        differentiates(x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [6, 6, 6]


def marked_views(x: Tensor) -> Any:
    same, part = x.view(x.shape), x.detach()[1:]
    same.requires_grad_()
    part.requires_grad_()
    return same, part, (same * 3).sum() + part.prod()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_views_of_arguments_are_marked(dtype: torch.dtype) -> None:
    marked = assume_pure(marked_views)
    for _ in range(2):
        x = torch.full((3,), 2.0, dtype=dtype)
        leaves = [function(t) for function, t in ((marked_views, x), (marked, x.to("xla")))]
        for same, part, result in leaves:
            assert same.requires_grad and same.is_leaf and part.requires_grad and part.is_leaf
            result.abs().backward()
        for expected, actual in zip(*leaves, strict=True):
            torch.testing.assert_close(actual.cpu(), expected)
            if expected.is_leaf:
                torch.testing.assert_close(actual.grad.cpu(), expected.grad)
        assert leaves[1][0].untyped_storage()._cdata == leaves[1][1].untyped_storage()._cdata


BESIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "of a diagonal": lambda x: x.diagonal().as_strided([2, 3], [1, 2], 1),
    "of nothing": lambda x: x[:0].as_strided([], [], 2),
    "of a transposed row": lambda x: x.t()[1].as_strided([9], [1], 0)[2:7],
    "of one of a row": lambda x: x[1].as_strided([2, 3], [3, 1], 2).as_strided([4], [2], 1),
    "of all": lambda x: x.as_strided([4], [2], 1),
}


@pytest.mark.parametrize("name", BESIDE)
def test_no_gradient_reaches_what_lies_beside_a_view(name: str) -> None:
    """as_strided() shows more of a storage than the view that it is called on."""

    def program(device: str) -> list[Tensor | None]:
        x = ramp(3, 3, device=device).requires_grad_()
        weight = ramp(3, 3, device=device).requires_grad_()

        def views(t: Tensor) -> tuple[Tensor, Tensor]:
            return BESIDE[name](t), BESIDE[name](weight)

        function = views if device == "cpu" else assume_pure(views)
        seen: list[Tensor | None] = []
        for _ in range(2):
            of_argument, of_weight = function(x)
            (of_argument.square().sum() + of_weight.exp().sum()).backward()
            seen += [of_argument.detach(), x.grad, weight.grad]
        return seen

    assert_same(program)


def test_views_of_marked_views_are_refused() -> None:
    def marks(x: Tensor) -> Any:
        same = x.view(x.shape).requires_grad_()
        return same, same[1:]

    with pytest.raises(RuntimeError, match=r"calls requires_grad_\(\) on a view"):
        assume_pure(marks)(torch.ones(3, device="xla"))


@pytest.mark.parametrize("returned", [False, True])
def test_views_of_what_was_made_a_leaf_of_an_argument_are_refused(returned: bool) -> None:
    """Their gradient does not reach the argument."""

    def detached(x: Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        return (leaf, leaf[1:]) if returned else leaf[1:]

    for learnt in (False, True):
        with pytest.raises(RuntimeError, match=r"calls requires_grad_\(\) on a view"):
            assume_pure(detached)(torch.ones(3, device="xla", requires_grad=learnt))


def test_gradients_of_products_beyond_the_largest_number() -> None:
    for values in ([1e30, 1e30, 2.0], [float("inf"), 2.0, 3.0], [0.0, 2.0, 1e30]):
        for product in (torch.prod, lambda t: t.prod(0)):
            leaves = [torch.tensor(values, device=d, requires_grad=True) for d in ("cpu", "xla")]
            for leaf in leaves:
                product(leaf).backward()
            torch.testing.assert_close(leaves[1].grad.cpu(), leaves[0].grad, equal_nan=True)


def test_resized_storage_of_an_argument() -> None:
    def grows(x: Tensor, empty: Tensor) -> Tensor:
        return torch.sigmoid(x, out=empty.T)

    with pytest.raises(RuntimeError, match="changes the shape or storage of tensor argument 1"):
        assume_pure(grows)(torch.ones(2, device="xla"), torch.zeros(3, 0, device="xla"))


def test_bytes_that_were_copied_from_a_leaf() -> None:
    """PyTorch marks them as requiring gradients, of which nothing can be asked."""

    def copies(x: Tensor) -> tuple[Tensor, Tensor]:
        as_bytes = torch.zeros(3, dtype=torch.uint8, device=x.device)
        torch._foreach_copy_([as_bytes], [x])
        return as_bytes, x * 2

    x = torch.ones(3, device="xla", requires_grad=True)
    pure = assume_pure(copies)
    for _ in range(2):
        x.grad = None
        as_bytes, doubled = pure(x)
        doubled.sum().backward()
        assert as_bytes.tolist() == [1, 1, 1]
        assert x.grad.tolist() == [2, 2, 2]
