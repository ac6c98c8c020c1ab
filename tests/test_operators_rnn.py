"""Recurrent layers: the CPU's operators and its bits, in every mode."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch_xla import _XLAC
from torch_xla.experimental.assume_pure import PureModule
from work import counter

# Elsewhere PyTorch composes an LSTM in bfloat16 of smaller operators, on the CPU too.
HAS_BFLOAT16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()

# Modules that CPU PyTorch gives to oneDNN.
ONEDNN: dict[str, dict[str, Any]] = {
    "plain": {},
    "layers": {"num_layers": 3, "dropout": 0.0},
    "bidirectional": {"bidirectional": True, "num_layers": 2},
    "batch_first": {"batch_first": True},
    "without_biases": {"bias": False, "bidirectional": True},
}
if HAS_BFLOAT16:
    ONEDNN["bfloat16"] = {"dtype": torch.bfloat16}


def recorded(tensors: list[Tensor]) -> str:
    return _XLAC.tensors_ir_text(tensors)


def tensors_like(tensors: tuple[Tensor, ...], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, generator=generator).to(t.device, t.dtype) for t in tensors]


def results(device: str, given: bool = True, steps: int = 5, **options: Any) -> list[Tensor]:
    """What a module returns, and the gradients of its arguments and parameters."""
    torch.manual_seed(0)
    kind, dtype = options.pop("kind", nn.LSTM), options.pop("dtype", None)
    module = kind(4, 3, **options).to(device, dtype)
    inputs = torch.randn(steps, steps, 4).to(device, dtype).requires_grad_()
    state = None
    if given:
        _, shapes = module(inputs.detach())
        state = tensors_like(shapes, 1) if isinstance(shapes, tuple) else tensors_like((shapes,), 1)
        state = [s.requires_grad_() for s in state]
        state = state if kind is nn.LSTM else state[0]
    output, last = module(inputs, state)
    returned = (output, *last) if isinstance(last, tuple) else (output, last)
    leaves = [inputs, *module.parameters()]
    leaves += (state if isinstance(state, list) else [state]) if given else []
    gradients = torch.autograd.grad(returned, leaves, tensors_like(returned, 2))
    return [value.detach() for value in (*returned, *gradients)]


def assert_bits(actual: list[Tensor], expected: list[Tensor]) -> None:
    for got, wanted in zip(actual, expected, strict=True):
        assert got.device.type == "xla"
        rounding = {"rtol": 0, "atol": 0}
        if not _XLAC.has_ffi():
            rounding = {"rtol": 2e-2, "atol": 2e-2} if got.dtype == torch.bfloat16 else {}
        torch.testing.assert_close(got.cpu(), wanted, **rounding)


@pytest.mark.parametrize("given", [True, False], ids=["state", "no_state"])
@pytest.mark.parametrize("name", ONEDNN)
def test_lstm_has_the_bits_of_the_cpu(name: str, given: bool) -> None:
    options = ONEDNN[name]
    assert_bits(results("xla", given, **options), results("cpu", given, **options))


@pytest.mark.host_only("the layer is oneDNN's")
@pytest.mark.lazy_only
@pytest.mark.parametrize("name", ONEDNN)
def test_lstm_is_one_operator_per_layer_and_direction(name: str) -> None:
    options = ONEDNN[name]
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    text = recorded(results("xla", **options))
    assert text.count("torch_xla::mkldnn_rnn_layer") == layers
    assert text.count("aten::mkldnn_rnn_layer_backward") == layers


@pytest.mark.host_only("the layer is oneDNN's")
@pytest.mark.lazy_only
def test_longer_sequences_are_no_larger_graphs() -> None:
    def size(steps: int) -> int:
        return recorded(results("xla", steps=steps)).count("\n")

    assert size(3) == size(30)


@pytest.mark.parametrize(
    "options",
    [
        {"proj_size": 2},
        {"kind": nn.GRU, "steps": 0},
    ],
    ids=["projections", "nothing"],
)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_what_no_layer_takes_is_composed(options: dict[str, Any]) -> None:
    def run(device: str) -> list[Tensor]:
        return results(device, **{"steps": 2, **options})

    try:
        expected = run("cpu")
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error).splitlines()[0])):
            run("xla")
        return
    for got, wanted in zip(run("xla"), expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


# Modules that CPU PyTorch composes of steps.
OWN: dict[str, dict[str, Any]] = {
    "gru": {"kind": nn.GRU},
    "layers": {"kind": nn.GRU, "num_layers": 3},
    "bidirectional": {"kind": nn.GRU, "bidirectional": True, "num_layers": 2},
    "batch_first": {"kind": nn.GRU, "batch_first": True},
    "without_biases": {"kind": nn.GRU, "bias": False, "bidirectional": True},
    "bfloat16": {"kind": nn.GRU, "dtype": torch.bfloat16},
    "float64": {"kind": nn.GRU, "dtype": torch.float64},
    "tanh": {"kind": nn.RNN, "num_layers": 2, "bidirectional": True},
    "relu": {"kind": nn.RNN, "nonlinearity": "relu"},
    "lstm of float64": {"dtype": torch.float64, "bidirectional": True, "num_layers": 2},
    "lstm of float16": {"dtype": torch.float16},
    "gru of float16": {"kind": nn.GRU, "dtype": torch.float16, "bidirectional": True},
}


@pytest.mark.parametrize("given", [True, False], ids=["given", "zeros"])
@pytest.mark.parametrize("name", OWN)
def test_composed_layers_are_one_operation_each(name: str, given: bool) -> None:
    """What they return has the CPU's bits where it is interpreted; gradients add up in another
    order, and more exactly."""
    options = OWN[name]
    actual, expected = results("xla", given, **options), results("cpu", given, **options)
    wide = results("cpu", given, **{**options, "dtype": torch.float64})
    returned = 3 if options.get("kind", nn.LSTM) is nn.LSTM else 2
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    if _XLAC.has_ffi() and not torch_xla.experimental.is_eager_mode():
        text = recorded(results("xla", given, **options))
        assert text.count("torch_xla::recurrent_layer(") == layers
        assert text.count("torch_xla::recurrent_layer_backward") == layers
    widened = [torch.float16] if HAS_BFLOAT16 else [torch.float16, torch.bfloat16]  # to 32 bits
    if _XLAC.has_ffi() and options.get("dtype") not in widened:
        assert_bits(actual[:returned], expected[:returned])
    rounding = torch.finfo(options.get("dtype") or torch.float32).eps
    if not _XLAC.has_ffi():  # where 64 bits are 32
        rounding = max(rounding, torch.finfo(torch.float32).eps)
    for got, exact in zip(actual, wide, strict=True):
        scale = float(exact.abs().max()) + 1
        torch.testing.assert_close(got.cpu().double(), exact, rtol=0, atol=8 * rounding * scale)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences(kind: type[nn.RNNBase], biases: bool) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        module = kind(4, 3, num_layers=2, bidirectional=True, bias=biases).to(device)
        sequences = torch.randn(6, 4, 4).to(device).requires_grad_()
        packed = nn.utils.rnn.pack_padded_sequence(sequences, [4, 6, 1, 4], enforce_sorted=False)
        output, last = module(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(output)
        states = last if isinstance(last, tuple) else (last,)
        loss = padded.square().sum() + sum(state.sin().sum() for state in states)
        gradients = torch.autograd.grad(loss, [sequences, *module.parameters()])
        return [t.detach() for t in (padded, *states, *gradients)]

    for got, wanted in zip(run("xla"), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.lazy_only
@pytest.mark.host_only("the layer is the CPU's")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_are_one_operation_a_layer(kind: type[nn.RNNBase]) -> None:
    module = kind(4, 3, num_layers=2).to("xla")
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(9, 3, 4).to("xla"), [9, 7, 1])
    text = recorded([module(packed)[0].data])
    assert text.count("torch_xla::recurrent_layer(") == 2


def test_some_gradients() -> None:
    """Of the state alone, of frozen weights' input alone, of the last state alone."""

    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        module = nn.GRU(4, 3, bidirectional=True).to(device)
        inputs, state = torch.randn(5, 2, 4).to(device), torch.randn(2, 2, 3).to(device)
        state.requires_grad_()
        module.requires_grad_(False)
        (of_state,) = torch.autograd.grad(module(inputs, state)[0].sum(), state)
        inputs.requires_grad_()
        (of_input,) = torch.autograd.grad(module(inputs, state.detach())[1].square().sum(), inputs)
        module.weight_hh_l0.requires_grad_()
        output, last = module(inputs.detach(), state.detach())
        (of_weight,) = torch.autograd.grad(last[0].sum(), module.weight_hh_l0)
        return [of_state, of_input, of_weight]

    for got, wanted in zip(run("xla"), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True}])
def test_outputs_may_be_changed_in_place(kind: type[nn.RNNBase], options: dict[str, bool]) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        module = kind(4, 3, **options).to(device)
        inputs = torch.randn(5, 2, 4).to(device).requires_grad_()
        output = torch.relu_(module(inputs)[0])
        packed = nn.utils.rnn.pack_padded_sequence(inputs, [5, 2])
        doubled = module(packed)[0].data.mul_(2)
        loss = output.square().sum() + doubled.square().sum()
        return [output.detach(), *torch.autograd.grad(loss, [inputs, *module.parameters()])]

    for got, wanted in zip(run("xla"), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("name", ["bias_ih_l0", "bias_hh_l0", "weight_ih_l0", "weight_hh_l0"])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("learns", ["module", "input", "all"])
def test_parameters_changed_before_the_backward_pass(
    kind: type[nn.RNNBase], name: str, steps: int, learns: str
) -> None:
    """The CPU refuses what its steps have kept, and gives the gradients of what was there."""

    def run(device: str) -> list[Tensor] | str:
        torch.manual_seed(0)
        module = kind(4, 3, dtype=torch.float64).to(device).requires_grad_(learns != "input")
        inputs = torch.randn(steps, 2, 4, dtype=torch.float64).to(device)
        inputs.requires_grad_(learns != "module")
        output = module(inputs)[0]
        with torch.no_grad():
            getattr(module, name).mul_(2)
        leaves = [leaf for leaf in (inputs, *module.parameters()) if leaf.requires_grad]
        try:
            first = torch.autograd.grad(output.square().sum(), leaves, create_graph=True)
            total = sum((gradient.square().sum() for gradient in first), torch.zeros(()).to(device))
            return [*first, *torch.autograd.grad(total, leaves, allow_unused=True)]
        except RuntimeError as error:
            return str(error)[:80]

    got, wanted = run("xla"), run("cpu")
    assert isinstance(wanted, str) == isinstance(got, str), (got, wanted)
    if not isinstance(wanted, str):
        for actual, expected in zip(got, wanted, strict=True):
            close = {"rtol": 1e-4, "atol": 1e-4}  # float64 is float32 on some devices
            torch.testing.assert_close(actual.detach().cpu(), expected.detach(), **close)


def test_transformations() -> None:
    """functorch's, and forward-mode derivatives."""

    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        module = nn.GRU(4, 3).to(device)
        inputs = torch.randn(5, 2, 4).to(device)
        weights = dict(module.named_parameters())

        def loss(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
            output: Tensor = torch.func.functional_call(module, weights, (inputs,))[0]
            return output.square().sum()

        gradients = torch.func.grad(loss)(weights, inputs)
        _, tangent = torch.func.jvp(lambda x: loss(weights, x), (inputs,), (inputs.cos(),))
        return [*gradients.values(), tangent]

    for got, wanted in zip(run("xla"), run("cpu"), strict=True):
        torch.testing.assert_close(got.detach().cpu(), wanted.detach())


def test_wrong_sizes_are_refused_as_on_the_cpu() -> None:
    def message(device: str) -> str:
        module = nn.GRU(4, 3).to(device)
        weights = [parameter.detach() for parameter in module.parameters()]
        state = torch.zeros(1, 2, 5, device=device)
        with pytest.raises(RuntimeError) as caught:
            torch.gru(
                torch.zeros(5, 2, 4, device=device), state, weights, True, 1, 0, False, False, False
            )
        return str(caught.value).splitlines()[0]

    assert message("xla") == message("cpu")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("packed", [False, True])
def test_gradients_of_gradients(kind: type[nn.RNNBase], packed: bool) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        module = kind(4, 3, bidirectional=True).to(device)
        inputs = torch.randn(5, 2, 4).to(device).requires_grad_()
        given = nn.utils.rnn.pack_padded_sequence(inputs, [5, 3]) if packed else inputs
        output = module(given)[0]
        output = output.data if packed else output
        (gradient,) = torch.autograd.grad(output.square().sum(), inputs, create_graph=True)
        gradient.square().sum().backward()
        return [gradient.detach(), *(p.grad for p in module.parameters() if p.grad is not None)]

    for got, wanted in zip(run("xla"), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


def test_gradients_after_calls_without() -> None:
    """Grad mode decides whether a layer keeps what its gradient needs."""
    module = nn.LSTM(4, 3).to("xla")
    inputs = torch.ones(7, 2, 4, device="xla")
    with torch.no_grad():
        without = module(inputs)[0]
    output = module(inputs)[0]
    output.sum().backward()
    torch.testing.assert_close(output, without)
    assert module.weight_ih_l0.grad.isfinite().all()


def test_dropout_between_layers_follows_the_seed() -> None:
    module = nn.LSTM(8, 16, num_layers=2, dropout=0.5).to("xla")
    inputs = torch.ones(5, 2, 8, device="xla")

    def output(seed: int) -> Tensor:
        torch.manual_seed(seed)
        torch_xla.manual_seed(seed)
        return module(inputs)[0].detach()

    assert torch.equal(output(1), output(1))
    assert not torch.equal(output(1), output(2))
    module.eval()
    assert torch.equal(output(1), output(2))


@pytest.mark.host_only("the layer is oneDNN's")
@pytest.mark.skipif(not HAS_BFLOAT16, reason="the processor has no bfloat16 instructions")
def test_autocast() -> None:
    def run(device: str) -> Tensor:
        torch.manual_seed(0)
        module = nn.LSTM(4, 3).to(device)
        with torch.autocast(device, torch.bfloat16):
            output = module(torch.randn(5, 2, 4).to(device))[0]
        assert output.dtype == torch.bfloat16
        output.float().sum().backward()
        assert module.weight_hh_l0.grad is not None
        return module.weight_hh_l0.grad

    assert_bits([run("xla")], [run("cpu")])
    with torch.autocast("xla", torch.float16):  # the CPU has no such layer, and raises
        assert nn.LSTM(4, 3).to("xla")(torch.ones(5, 4, device="xla"))[0].isfinite().all()


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(inputs)[0])
        return scores


def losses(model: nn.Module, device: str, wrap: Callable[[Any], Any]) -> list[float]:
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    inputs = torch.linspace(-1, 1, 7 * 3 * 6).view(7, 3, 6).to(device)
    targets = (torch.arange(7 * 3) % 3).to(device)
    forward = wrap(model)
    values = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(inputs).flatten(0, 1), targets)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


WRAPS: dict[str, Callable[[Any], Any]] = {
    "recorded": lambda model: model,
    "compiled": torch_xla.compile,
    "pure": PureModule,
    "openxla": lambda model: torch.compile(model, backend="openxla"),
}


@pytest.mark.parametrize("wrap", WRAPS)
def test_training(wrap: str) -> None:
    torch.manual_seed(0)
    model = Tagger()
    before = counter("aten::mkldnn_rnn_layer")
    actual = losses(model, "xla", WRAPS[wrap])
    torch.testing.assert_close(actual, losses(model, "cpu", lambda model: model))
    if _XLAC.has_ffi() and not torch_xla.experimental.is_eager_mode():
        assert counter("aten::mkldnn_rnn_layer") > before


@pytest.mark.lazy_only
def test_platforms_without_host_calls_compose(fresh_python: Callable[..., str]) -> None:
    program = """
import torch, torch_xla
module = torch.nn.LSTM(4, 3).to("xla")
output, _ = module(torch.ones(5, 2, 4, device="xla"))
output.sum().backward()
gradient = module.weight_ih_l0.grad
assert "rnn_layer" not in torch_xla._XLAC.tensors_ir_text([output, gradient])
print(bool(gradient.isfinite().all()))
"""
    assert fresh_python(program, TORCH_XLA_HOST_CALLS="0") == "True"


def test_recurrent_layers_count_their_products() -> None:
    """PyTorch's GRU and RNN are products that its counter knows; it counts none of an LSTM's."""
    from torch.utils.flop_counter import FlopCounterMode

    for make in (torch.nn.GRU, torch.nn.RNN):
        counts = {}
        for device in ("cpu", "xla"):
            network = make(32, 64, 2).to(device)
            with FlopCounterMode(display=False) as flops:
                network(torch.randn(40, 3, 32, device=device))[0].sum().backward()
            counts[device] = flops.get_total_flops()
        # PyTorch leaves out the gradient of the first state, which nobody asked for.
        assert counts["cpu"] <= counts["xla"] < 1.05 * counts["cpu"]
