"""The loops of `torch_xla.experimental`: what they say they are written out, compiled once."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_xla import _XLAC
from torch_xla.experimental import eager_mode_context
from torch_xla.experimental.assume_pure import assume_pure
from torch_xla.experimental.fori_loop import _xla_while_loop_wrapper, fori_loop, while_loop
from torch_xla.experimental.gradient_accumulation import gradient_accumulation
from torch_xla.experimental.gru import GRU
from torch_xla.experimental.scan import scan, value_and_grad_partitioned
from torch_xla.experimental.scan_layers import scan_layers

pytestmark = pytest.mark.usefixtures("each_tier")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def blocks(count: int) -> list[Block]:
    torch.manual_seed(0)
    return [Block(4) for _ in range(count)]


def on_device(layers: list[Any]) -> list[Any]:
    return [copy.deepcopy(layer).to("xla") for layer in layers]


def gradients_of(layers: list[Any]) -> list[Tensor]:
    return [parameter.grad.cpu() for layer in layers for parameter in layer.parameters()]


# ---- scan_layers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pure", [False, True])
def test_a_hundred_layers_have_the_gradients_of_the_layers_one_by_one(pure: bool) -> None:
    plain = blocks(100)
    layers = on_device(plain)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    for _ in range(2):
        expected = nn.Sequential(*plain)(x)
        expected.square().sum().backward()
        actual = scan_layers(layers, x.to("xla"), is_layer_pure=pure)
        actual.square().sum().backward()
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)
    for got, wanted in zip(gradients_of(layers), gradients_of(plain), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def program_of(count: int) -> str:
    """Without what stacks the layers' parameters, and takes their gradients apart."""
    layers = on_device(blocks(count))
    stacked = {
        name: torch.stack([layer.get_parameter(name) for layer in layers]).detach().requires_grad_()
        for name, _ in layers[0].named_parameters()
    }

    def step(x: Tensor, parameters: dict[str, Tensor]) -> tuple[Tensor, None]:
        return torch.func.functional_call(layers[0], parameters, (x,)), None

    _XLAC.sync()
    with eager_mode_context(False):
        last, _ = scan(step, torch.ones(3, 4, device="xla"), stacked)
        gradients = torch.autograd.grad(last.sum(), list(stacked.values()))
        return _XLAC.tensors_stablehlo_text([last, *gradients])


def test_the_layer_is_in_the_program_once_whatever_the_number_of_layers() -> None:
    with ThreadPoolExecutor(1) as thread:  # which has no habit of running operations as called
        few, many = thread.map(program_of, (3, 100))
    assert many.count("stablehlo.while") == 2
    assert many.count("stablehlo.dot_general") == few.count("stablehlo.dot_general") <= 8
    assert len(many.splitlines()) == len(few.splitlines())


def test_scan_layers_in_one_program_has_one_body() -> None:
    layers = on_device(blocks(100))
    with eager_mode_context(False):
        output = scan_layers(layers, torch.ones(3, 4, device="xla"))
        text = _XLAC.tensors_stablehlo_text([output])
    assert text.count("stablehlo.while") == 1
    assert text.count("stablehlo.dot_general") == 2


def test_layers_with_buffers_update_them() -> None:
    torch.manual_seed(0)
    plain = [nn.BatchNorm1d(4) for _ in range(3)]
    layers = on_device(plain)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    expected, actual = nn.Sequential(*plain)(x), scan_layers(layers, x.to("xla"))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)
    for layer, other in zip(layers, plain, strict=True):
        for name, buffer in other.named_buffers():
            torch.testing.assert_close(layer.get_buffer(name).cpu(), buffer)
    for module in (*layers, *plain):
        module.eval()
    expected, actual = nn.Sequential(*plain)(x), scan_layers(layers, x.to("xla"))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_pure_layers_notice_that_training_ended() -> None:
    layers = on_device([nn.Dropout(0.5) for _ in range(2)])
    x = torch.ones(100, device="xla")
    assert (scan_layers(layers, x, is_layer_pure=True) == 0).any()
    for layer in layers:
        layer.eval()
    assert torch.equal(scan_layers(layers, x, is_layer_pure=True), x)


def test_layers_take_the_parts_of_a_tuple() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(y), x * 2

    layers = on_device([Both() for _ in range(3)])
    expected: tuple[torch.Tensor, ...] = (torch.ones(3, device="xla"), torch.rand(3, device="xla"))
    found = scan_layers(layers, expected)
    for layer in layers:
        expected = layer(*expected)
    torch.testing.assert_close(found, expected)


def test_layers_must_be_alike() -> None:
    x = torch.ones(4, device="xla")
    assert scan_layers([], x) is x
    with pytest.raises(ValueError, match="layers must be alike"):
        scan_layers([nn.Linear(4, 4).to("xla"), nn.Linear(4, 8).to("xla")], x)
    with pytest.raises(ValueError, match="only one of them has 'bias'"):
        scan_layers([nn.Linear(4, 4).to("xla"), nn.Linear(4, 4, bias=False).to("xla")], x)


# ---- scan ----------------------------------------------------------------------------------------


def test_scan_over_trees_is_traced_once_if_it_is_pure() -> None:
    calls = 0

    def step(carry: dict[str, Tensor], x: tuple[Tensor, Tensor]) -> Any:
        nonlocal calls
        calls += 1
        total = carry["total"] + x[0] * x[1]
        return {"total": total}, [total, None]

    init = {"total": torch.zeros(2, device="xla")}
    xs = (torch.ones(3, 2, device="xla"), torch.full((3, 2), 2.0, device="xla"))
    for is_fn_pure, expected in ((True, 1), (False, 3)):
        calls = 0
        for _ in range(3):
            carry, (ys, nothing) = scan(step, init, xs, is_fn_pure=is_fn_pure)
        assert calls == expected
        assert nothing is None
        assert carry["total"].tolist() == [6, 6]
        assert ys.tolist() == [[2, 2], [4, 4], [6, 6]]


def test_scan_refuses_what_it_would_ignore() -> None:
    x, xs = torch.zeros(2, device="xla"), torch.ones(3, 2, device="xla")
    with pytest.raises(ValueError, match="minimum cut"):
        scan(lambda c, x: (c, x), x, xs, partition_fn=lambda *args: None)
    with pytest.raises(ValueError, match="same first dimension"):
        scan(lambda c, x: (c, c), x, (xs, xs[:2]))
    with pytest.raises(ValueError, match="needs a function"):
        scan(None, x, xs)  # type: ignore[arg-type]
    from functorch.compile import default_partition, min_cut_rematerialization_partition

    for partition in (default_partition, min_cut_rematerialization_partition):
        assert scan(lambda c, x: (c + x, x), x, xs, partition_fn=partition)[0].tolist() == [3, 3]


def test_a_step_and_its_gradient_as_functions() -> None:
    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        carry = torch.sin(carry) * x
        return carry, carry * x

    generator = torch.Generator().manual_seed(0)
    init = torch.randn(3, generator=generator).to("xla").requires_grad_()
    xs = torch.randn(4, 3, generator=generator).to("xla").requires_grad_()
    last, ys = scan(step, init, xs)
    wanted = torch.autograd.grad(last.sum() + ys.sum(), (init, xs))
    forward, alias_input, backward = value_and_grad_partitioned(step, init, xs)
    with torch.no_grad():
        end, (outputs, kept) = scan(forward, init, xs)
        torch.testing.assert_close((end, outputs), (last.detach(), ys.detach()))
        incoming = (torch.ones_like(ys), alias_input(kept, xs))
        flipped = torch.utils._pytree.tree_map(lambda t: t.flip(0), incoming)
        of_init, of_xs = scan(backward, torch.ones_like(last), flipped)
    torch.testing.assert_close((of_init, of_xs.flip(0)), wanted)


# ---- fori_loop and while_loop --------------------------------------------------------------------


def test_fori_loop_with_numbers_has_gradients_everywhere() -> None:
    x = torch.ones(3, device="xla", requires_grad=True)

    def run(x: Tensor) -> Tensor:
        left, y = fori_loop(2, 7, lambda x: x * 1.5, x)
        assert left.shape == ()
        return y

    for function in (run, assume_pure(run)):
        (gradient,) = torch.autograd.grad(function(x).sum(), x)
        assert gradient.tolist() == [1.5**5] * 3
    assert fori_loop(3, 3, lambda x: x * 2, x)[1] is x


def test_fori_loop_with_tensors() -> None:
    lower, upper = torch.tensor([2], device="xla"), torch.tensor([52], device="xla")
    one, x = torch.tensor([1], device="xla"), torch.tensor([1], device="xla")
    left, one, result = fori_loop(lower, upper, lambda one, x: (one.clone(), x + one), one, x)
    assert (left.item(), result.item()) == (0, 51)


@pytest.mark.parametrize("loop", [while_loop, _xla_while_loop_wrapper])
def test_while_loop_with_additional_inputs(loop: Callable[..., Any]) -> None:
    def cond(n: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return n > 0

    def body(n: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return n - 1, x @ w

    w = torch.eye(3, device="xla") * 2
    n, x = loop(cond, body, (torch.tensor(3, device="xla"), torch.ones(3, device="xla")), (w,))
    assert x.tolist() == [8, 8, 8]


# ---- gradient accumulation -----------------------------------------------------------------------


def test_gradient_accumulation_is_the_loop_over_batches() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    model = copy.deepcopy(plain).to("xla")
    data, target = torch.randn(5, 3, 4), torch.randn(5, 3, 2)

    def train_step(x: Tensor, y: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        return nn.functional.mse_loss(model(x), y), count + 10

    for _ in range(2):
        losses = [
            nn.functional.mse_loss(plain(x), y) / 5 for x, y in zip(data, target, strict=True)
        ]
        sum(losses).backward()  # type: ignore[union-attr]
        loss, count = gradient_accumulation(
            train_step, (data.to("xla"), target.to("xla")), model, torch.tensor(10, device="xla")
        )
        assert count.item() == 60
        torch.testing.assert_close(loss.cpu(), sum(losses).detach())  # type: ignore[union-attr]
        for got, wanted in zip(gradients_of([model]), gradients_of([plain]), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_gradient_accumulation_without_carried_tensors_is_one_loop() -> None:
    model = nn.Linear(4, 1).to("xla")
    with eager_mode_context(False):
        loss = gradient_accumulation(
            lambda x: model(x).square().mean(), (torch.ones(50, 2, 4, device="xla"),), model
        )
        assert model.weight.grad is not None
        text = _XLAC.tensors_stablehlo_text([loss, model.weight.grad])
    assert text.count("stablehlo.while") == 1
    with pytest.raises(ValueError, match="number of steps"):
        gradient_accumulation(
            lambda x, y: model(x).sum(), (torch.ones(2, 4), torch.ones(3, 4)), model
        )


# ---- GRU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2},
        {"batch_first": True, "bias": False},
        {"bidirectional": True, "num_layers": 2},
    ],
)
def test_gru_is_that_of_pytorch(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plain = nn.GRU(3, 5, **options)
    gru = GRU(3, 5, **options).to("xla")
    gru.load_state_dict(plain.state_dict())
    for x in (torch.randn(7, 4, 3), torch.randn(6, 3)):
        expected, hidden = plain(x)
        (expected.square().sum() + hidden.sum()).backward()
        output, last = gru(x.to("xla"))
        (output.square().sum() + last.sum()).backward()
        torch.testing.assert_close((output.cpu(), last.cpu()), (expected, hidden))
    for got, wanted in zip(gradients_of([gru]), gradients_of([plain]), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    packed = nn.utils.rnn.pack_sequence([torch.ones(2, 3)])
    with pytest.raises(TypeError, match="PackedSequence"):
        gru(packed)


def test_a_scan_whose_function_changes_its_arguments_as_2_9_s_examples_do() -> None:
    def running(total, x):
        total += x
        return total, total

    first, xs = torch.zeros(1, device="xla"), torch.tensor([1.0, 2.0, 3.0], device="xla")
    for _ in range(2):
        last, history = scan(running, first, xs)
        assert last.tolist() == [6] and history.flatten().tolist() == [1, 3, 6]
    assert first.tolist() == [0]
