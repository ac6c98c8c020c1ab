"""Autograd on the device: the same gradients, hooks and transforms as on the CPU."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same, ramp
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def test_backward_through_views_and_in_place_writes() -> None:
    def program(device: str) -> Tensor:
        leaf = ramp(3, 4, device=device).requires_grad_()
        hidden = leaf * 2
        hidden[1] = hidden[0].clone() * leaf[2]
        hidden.t()[3] += leaf[:, 0]
        (hidden**2).sum().backward()
        return leaf.grad

    assert_same(program)


def test_in_place_write_to_a_saved_tensor_raises() -> None:
    leaf = ramp(3, device="xla").requires_grad_()
    squared = leaf * 1
    result = squared.pow(2)
    squared.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_gradients_accumulate() -> None:
    def program(device: str) -> Tensor:
        leaf = ramp(3, device=device).requires_grad_()
        for factor in (1, 2, 3):
            (leaf * factor).sum().backward()
        return leaf.grad

    assert_same(program)


def test_kept_gradients_are_only_allocated(counters: Callable[[str], int]) -> None:
    """A gradient that somebody else holds is copied into a new tensor of the layout of its leaf."""

    def program(device: str) -> Tensor:
        leaf = ramp(3, 4, device=device).t().requires_grad_()
        gradient = ramp(4, 3, device=device)
        leaf.add(0).backward(gradient)
        gradient.zero_()
        return leaf.grad

    assert_same(program)
    assert counters("aten::new_empty_strided") == 0


def test_hooks() -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        seen: list[Tensor] = []
        layer = nn.Linear(3, 2).to(device)
        inputs = ramp(2, 3, device=device).requires_grad_()
        inputs.register_hook(lambda grad: grad * 10)
        layer.register_forward_hook(lambda module, args, output: output + 1)
        layer.register_full_backward_hook(lambda module, grads, outs: seen.append(outs[0].clone()))
        layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        layer(inputs).square().sum().backward()
        return [*seen, inputs.grad, layer.weight.grad]

    assert_same(program, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint(use_reentrant: bool) -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).to(device)
        inputs = ramp(2, 4, device=device).div(8).requires_grad_()
        checkpoint(block, inputs, use_reentrant=use_reentrant).square().sum().backward()
        return [inputs.grad, *(parameter.grad for parameter in block.parameters())]

    assert_same(program, rtol=1e-4, atol=1e-5)


def test_checkpoint_repeats_dropout() -> None:
    """The recomputed forward must draw the masks of the first one."""
    torch.manual_seed(0)
    inputs = torch.ones(1000, device="xla", requires_grad=True)
    output = checkpoint(lambda x: F.dropout(x, 0.5) * x, inputs, use_reentrant=False)
    output.sum().backward()
    assert torch.equal(inputs.grad.cpu(), 2 * output.detach().cpu())


def test_double_backward() -> None:
    def program(device: str) -> Tensor:
        leaf = ramp(4, device=device).requires_grad_()
        (gradient,) = torch.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
        gradient.square().sum().backward()
        return leaf.grad

    assert_same(program)


def test_custom_function() -> None:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(values)
            return values.clamp(0, 2)

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            (values,) = ctx.saved_tensors
            return grad * (values < 3)

    def program(device: str) -> tuple[Tensor, Tensor]:
        leaf = ramp(5, device=device).requires_grad_()
        clipped = Clip.apply(leaf)
        clipped.sum().backward()
        return clipped.detach(), leaf.grad

    assert_same(program)


def test_functional_transforms() -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        inputs = ramp(5, 3, device=device) / 10

        def loss(weights: dict[str, Tensor], row: Tensor) -> Tensor:
            return torch.func.functional_call(model, weights, (row,)).square().sum()

        per_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, inputs)
        value_gradients, value = torch.func.grad_and_value(loss)(parameters, inputs[0])
        jacobian = torch.func.jacrev(torch.sin)(inputs[0])
        hessian = torch.func.hessian(lambda row: row.pow(3).sum())(inputs[1])
        _, tangent = torch.func.jvp(torch.exp, (inputs[0],), (torch.ones_like(inputs[0]),))
        gradients = [*per_row.values(), *value_gradients.values()]
        return [*gradients, value, jacobian, hessian, tangent]

    def detached(device: str) -> list[Tensor]:
        return [result.detach() for result in program(device)]

    assert_same(detached, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")
def test_a_linear_layer_of_one_row_is_linearized() -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
        row, direction = ramp(3, device=device) / 10, ramp(3, device=device).cos()
        value, apply = torch.func.linearize(model, row)
        again = [apply(direction), apply(2 * direction)]
        leaf = row.clone().requires_grad_()
        gradients = torch.autograd.grad(model(leaf).sum(), [leaf, *model.parameters()])
        jacobian = torch.func.jacfwd(model)(row)
        results = [value, *again, *torch.func.jvp(model, (row,), (direction,)), jacobian]
        with torch.inference_mode():
            return [result.detach() for result in (*results, *gradients)] + [model(row)]

    assert_same(program, rtol=1e-4, atol=1e-5)


def test_no_grad_inference_mode_and_anomaly() -> None:
    leaf = ramp(3, device="xla").requires_grad_()
    with torch.no_grad():
        assert not (leaf * 2).requires_grad
    with torch.inference_mode():
        assert (leaf * 2).is_inference()
    with torch.autograd.detect_anomaly(check_nan=True):
        with pytest.raises(RuntimeError, match="nan"):
            (leaf - 5).sqrt().sum().backward()


def test_gradient_of_attention() -> None:
    def program(device: str) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        query, key, value = (
            torch.randn(2, 2, 5, 4, generator=generator).to(device).requires_grad_()
            for _ in range(3)
        )
        mask = torch.ones(5, 5, dtype=torch.bool, device=device).tril()
        plain = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        masked = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        (plain + 2 * masked).square().sum().backward()
        return [t.contiguous() for t in (plain.detach(), query.grad, key.grad, value.grad)]

    assert_same(program, rtol=1e-4, atol=1e-5)


@pytest.mark.host_only("differences need the digits of float64")
def test_gradcheck() -> None:
    layer = nn.Linear(3, 2).double().to("xla")
    inputs = torch.randn(2, 3, dtype=torch.float64).to("xla").requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.tanh(layer(x)), (inputs,))


def test_a_gradient_known_to_be_zero_stays_zero_beside_infinity() -> None:
    def program(device: str) -> list[Tensor]:
        x = torch.tensor([0.0, 2.0], device=device, requires_grad=True)
        (first,) = torch.autograd.grad((x.reciprocal() ** 3).sum().abs(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        (sign,) = torch.autograd.grad(x.sgn().sum(), x)
        assert sign._is_zerotensor()
        with pytest.raises(RuntimeError, match="immutable"):
            sign.add_(1)
        return [first.detach(), second, sign + 1, sign.clone().add_(1), sign * float("inf")]

    assert_same(program)
