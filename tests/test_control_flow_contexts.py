"""Control flow together with what PyTorch programs have around and inside it."""

from typing import Any

import pytest
import torch
from process import output_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_xla import _XLAC
from torch_xla._internal import control_flow
from torch_xla.experimental import eager_mode_context

pytestmark = pytest.mark.usefixtures("each_tier")


def ones(*shape: int, grad: bool = False) -> Tensor:
    return torch.ones(*shape, device="xla", requires_grad=grad)


def product(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return c * x, c


def test_an_exception_of_the_body_passes_and_leaves_nothing() -> None:
    seen = torch.zeros((), device="xla")

    def body(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        seen.add_(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        control_flow.scan(body, ones(3), ones(4, 3))
    assert seen.item() == 0


def test_values_cannot_be_read_in_a_body() -> None:
    with pytest.raises(RuntimeError, match="asked for the value of a tensor"):
        control_flow.scan(lambda c, x: (c * c.sum().item(), c), ones(3), ones(4, 3))


def test_tensors_of_a_body_cannot_be_kept() -> None:
    kept = []

    def body(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
        kept.append(c * 2)
        return c + x, None

    with pytest.raises(RuntimeError, match="outlives the call"):
        control_flow.scan(body, ones(3), ones(4, 3))


def test_checkpoint_autocast_and_inference_mode() -> None:
    w = ones(3, 3, grad=True)

    def checkpointed(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return checkpoint(lambda c: torch.tanh(c @ w) * x, c, use_reentrant=False), c

    last, _ = control_flow.scan(checkpointed, ones(3), ones(4, 3))
    last.sum().backward()
    plain = ones(3)
    v = ones(3, 3, grad=True)
    for _ in range(4):
        plain = torch.tanh(plain @ v)
    plain.sum().backward()
    torch.testing.assert_close(w.grad, v.grad)
    with torch.autocast("xla", dtype=torch.bfloat16):
        _, ys = control_flow.scan(lambda c, x: (c * x, c @ w), ones(3), ones(4, 3))
    assert ys.dtype == torch.bfloat16
    with torch.inference_mode():
        last, _ = control_flow.scan(product, ones(3), ones(4, 3) * 2)
    assert last.tolist() == [16] * 3


def test_hooks_retained_gradients_and_a_second_backward() -> None:
    init, seen = ones(3, grad=True), []
    last, ys = control_flow.scan(product, init, ones(4, 3))
    last.register_hook(lambda gradient: seen.append(gradient.sum().item()))
    ys.retain_grad()
    total = last.sum() + ys.sum()
    total.backward(retain_graph=True)
    total.backward()
    assert seen == [3, 3]
    assert ys.grad.tolist() == [[2] * 3] * 4
    assert init.grad.tolist() == [10] * 3
    with pytest.raises(RuntimeError, match="a second time"):
        total.backward()


def test_a_saved_tensor_that_changed_is_noticed() -> None:
    xs = ones(4, 3, grad=True) * 1
    last, _ = control_flow.scan(product, ones(3, grad=True), xs)
    xs.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        last.sum().backward()


def test_tensors_that_lie_in_others() -> None:
    def gradient(device: str, loop: Any) -> Tensor:
        big = (torch.arange(48.0, device=device) / 48).reshape(4, 12).requires_grad_()
        last, ys = loop(product, big[0, 2:9:3], big.t()[:3].t())
        other, _ = loop(product, big[1, :3].flip(0), big[:, 9:])
        (result,) = torch.autograd.grad((last + other).sum() + ys.sum(), big)
        return result.cpu()

    def written_out(step: Any, c: Tensor, xs: Tensor) -> Any:
        ys = []
        for x in xs:
            c, y = step(c, x)
            ys.append(y)
        return c, torch.stack(ys)

    torch.testing.assert_close(gradient("xla", control_flow.scan), gradient("cpu", written_out))


def test_dtypes_and_sizes_of_every_kind() -> None:
    (n, b), flags = control_flow.scan(
        lambda c, x: ((c[0] + 1, c[1] * 2), c[0] > 2),
        (torch.zeros((), dtype=torch.int32, device="xla"), ones(2).bfloat16()),
        ones(4, 3),
    )
    assert (n.item(), b.tolist(), flags.tolist()) == (4, [16, 16], [False, False, False, True])
    c = torch.ones(3, dtype=torch.complex64, device="xla", requires_grad=True)
    last, _ = control_flow.scan(lambda c, x: (c * x * 1j, None), c, ones(4, 3))
    (gradient,) = torch.autograd.grad(last.abs().sum(), c)
    torch.testing.assert_close(gradient.cpu(), torch.ones(3, dtype=torch.complex64))
    last, ys = control_flow.scan(lambda c, x: (c, x * 2), ones(0), ones(4, 0))
    assert (last.shape, ys.shape) == ((0,), (4, 0))
    first, second = control_flow.scan(
        lambda c, x: ((c[1], c[0] + x), None), (ones(1), ones(1)), ones(4, 1)
    )[0]
    assert (first.tolist(), second.tolist()) == ([3], [3])


def test_transformations_are_refused_by_name() -> None:
    def loop(x: Tensor) -> Tensor:
        return control_flow.scan(product, x, ones(4, 3))[0].sum()

    with pytest.raises(RuntimeError, match="a tensor of a transformation"):
        torch.func.grad(loop)(ones(3))
    with pytest.raises(RuntimeError, match="a tensor of a transformation"):
        torch.vmap(loop)(ones(2, 3))


def test_what_stays_the_same_is_not_kept_for_each_iteration() -> None:
    u, v, w = (ones(7, 7, grad=True) for _ in range(3))

    def body(carry: dict[str, Tensor], x: Tensor, v: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        c = torch.tanh(carry["c"] @ w) @ v @ carry["u"]
        return {**carry, "c": c}, c

    with eager_mode_context(False):
        last, ys = control_flow.scan(body, {"c": ones(5, 7), "u": u}, ones(9, 5), (v,))
        assert last["u"] is u
        (last["c"].sum() + ys.sum()).backward()
        text = _XLAC.tensors_stablehlo_text([ys.detach(), u.grad, v.grad, w.grad])
    assert "tensor<9x7x7x" not in text
    # The results, and for the gradient the carry before, its tanh, and what `u` multiplies.
    assert text.count("stablehlo.constant dense<0.000000e+00> : tensor<9x5x7xf32>") == 4


def test_over_several_devices() -> None:
    program = """
import torch, torch_xla.distributed.spmd as xs, torch_xla.runtime as xr
from torch_xla.experimental.scan import scan

xr.use_spmd()
mesh = xs.Mesh(range(4), (4,), ("data",))
torch.manual_seed(0)
values = [torch.randn(8, 8), torch.randn(16, 8), torch.randn(5, 16, 8)]

def written_out(step, h, slices):
    ys = []
    for s in slices:
        h, y = step(h, s)
        ys.append(y)
    return h, torch.stack(ys)

def run(device, loop, mark):
    w, x, stack = (value.to(device).clone() for value in values)
    w.requires_grad_()
    mark(w, ("data", None)), mark(x, ("data", None)), mark(stack, (None, "data", None))

    def step(h, s):
        h = torch.tanh(h @ w + s)
        mark(h, ("data", None))
        return h, h.sum()

    last, ys = loop(step, x, stack)
    (last.sum() + ys.sum()).backward()
    return last.detach().cpu(), ys.detach().cpu(), w.grad.cpu()

expected = run("cpu", written_out, lambda tensor, how: None)
actual = run("xla", scan, lambda tensor, how: xs.mark_sharding(tensor, mesh, how))
torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
print("same")
"""
    assert output_of(program, CPU_NUM_DEVICES="4").strip().endswith("same")
