"""Modules and optimizers moved to the device; mixed precision."""

import copy
import gc
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from compare import assert_same, ramp
from torch import Tensor, nn
from torch.ao import quantization


def test_optimizer_made_before_the_move_trains_the_module() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    reference = copy.deepcopy(model)
    inputs = torch.randn(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to("xla")
    model(inputs.to("xla")).square().sum().backward()
    optimizer.step()
    reference_optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    reference(inputs).square().sum().backward()
    reference_optimizer.step()
    for moved, expected in zip(model.parameters(), reference.parameters(), strict=True):
        assert moved.device.type == "xla"
        torch.testing.assert_close(moved.detach().cpu(), expected.detach())


def test_ties_survive_moving_there_and_back() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    model = Tied().to("xla")
    assert model.head.weight is model.embedding.weight
    assert len(list(model.parameters())) == 1
    model.cpu()
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.device.type == "cpu"


def test_hooks_and_attributes_of_parameters_survive_moving_there_and_back() -> None:
    class Marked(nn.Parameter):
        pass

    model = nn.Linear(2, 1, bias=False)
    model.weight = Marked(torch.ones(1, 2))
    model.weight.mark = "kept"
    doubled = model.weight.register_hook(lambda gradient: 2 * gradient)
    accumulated = []
    model.weight.register_post_accumulate_grad_hook(
        lambda weight: accumulated.append(weight.grad.tolist())
    )
    for device in ("xla", "cpu", "xla"):
        model.to(device).zero_grad()
        model(torch.ones(1, 2, device=device)).sum().backward()
        assert type(model.weight) is Marked
        assert model.weight.mark == "kept"
    doubled.remove()
    model.zero_grad()
    model(torch.ones(1, 2, device="xla")).sum().backward()
    assert accumulated == [[[2, 2]]] * 3 + [[[1, 1]]]


def test_module_dtype_conversion() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to("xla").bfloat16()
    output = model(torch.ones(3, 4, device="xla", dtype=torch.bfloat16))
    assert output.dtype == torch.bfloat16
    assert model[1].num_batches_tracked.item() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("kind", ["layer", "batch", "instance", "group"])
def test_normalisations_train_in_16_bits(kind: str, large: bool, dtype: torch.dtype) -> None:
    width = 512 if large else 8
    norm = {
        "layer": nn.LayerNorm(width),
        "batch": nn.BatchNorm1d(4),
        "instance": nn.InstanceNorm1d(4, affine=True),
        "group": nn.GroupNorm(2, 4),
    }[kind]
    x = torch.randn(16, 4, width)
    gradients = []
    for device in ("cpu", "xla"):
        on_device = copy.deepcopy(norm).to(device).to(torch.float32 if device == "cpu" else dtype)
        leaf = x.to(dtype).to(on_device.weight.dtype).to(device).requires_grad_()
        on_device(leaf).square().sum().backward()
        gradients.append([leaf.grad.cpu().float(), on_device.weight.grad.cpu().float()])
    assert gradients[1][1].shape == norm.weight.shape
    torch.testing.assert_close(gradients[1][1], gradients[0][1], rtol=0.05, atol=0.5)


def test_modules_built_on_the_device() -> None:
    with torch.device("xla"):
        model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        inputs = torch.ones(2, 4)
    assert {parameter.device.type for parameter in model.parameters()} == {"xla"}
    assert model(inputs).shape == (2, 4)
    assert nn.Linear(3, 3, device="xla").weight.abs().sum().item() > 0


def test_meta_module_to_empty() -> None:
    model = nn.Linear(4, 2, device="meta").to_empty(device="xla")
    model.load_state_dict(nn.Linear(4, 2).state_dict())
    assert model.weight.device.type == "xla"


def test_state_dict_round_trip() -> None:
    source = nn.LSTM(4, 8, num_layers=2).to("xla")
    state = source.state_dict()
    assert all(value.device.type == "xla" for value in state.values())
    target = nn.LSTM(4, 8, num_layers=2)
    target.load_state_dict(state)
    for name, value in target.state_dict().items():
        torch.testing.assert_close(value, state[name].cpu())


def test_optimizer_state_round_trip() -> None:
    model = nn.Linear(4, 2).to("xla")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4, device="xla")).sum().backward()
    optimizer.step()
    restored = torch.optim.Adam(model.parameters())
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    moment = restored.state[model.weight]["exp_avg"]
    assert moment.device.type == "xla"
    torch.testing.assert_close(moment.cpu(), optimizer.state[model.weight]["exp_avg"].cpu())


def test_autocast_lists() -> None:
    with torch.autocast("xla", dtype=torch.bfloat16):
        values = torch.ones(2, 2, 4, 4, device="xla")
        matrix = values[0, 0]
        assert (matrix @ matrix).dtype == torch.bfloat16
        assert F.linear(matrix, matrix).dtype == torch.bfloat16
        assert F.conv2d(values, values).dtype == torch.bfloat16
        attended = F.scaled_dot_product_attention(values, values, values.bfloat16())
        assert attended.dtype == torch.bfloat16
        half = matrix.bfloat16()
        assert F.softmax(half, dim=0).dtype == torch.float32
        assert F.layer_norm(half, (4,)).dtype == torch.float32
        assert half.exp().dtype == torch.float32
        assert half.sum().dtype == torch.float32
        assert torch.addcmul(half, matrix, half).dtype == torch.float32
        assert torch.cat([half, matrix]).dtype == torch.float32
        with torch.autocast("xla", enabled=False):
            assert (matrix @ matrix).dtype == torch.float32
        with pytest.raises(RuntimeError, match="binary_cross_entropy"):
            F.binary_cross_entropy(matrix, matrix)
    assert (torch.ones(2, 2, device="xla") @ torch.ones(2, 2, device="xla")).dtype == torch.float32


def test_autocast_training() -> None:
    losses = {}
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(16, 8, generator=generator).to(device)
        targets = torch.randint(4, (16,), generator=generator).to(device)
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            if device == "xla":
                torch_xla.sync()
        assert model[0].weight.grad.dtype == torch.float32
        losses[device] = loss.item()
    assert losses["xla"] == pytest.approx(losses["cpu"], rel=0.02)


def test_nested_autocast_state() -> None:
    assert not torch.is_autocast_enabled("xla")
    with torch.autocast("xla"):
        assert torch.is_autocast_enabled("xla")
        assert torch.get_autocast_dtype("xla") == torch.bfloat16
    assert not torch.is_autocast_enabled("xla")


def test_a_module_moves_while_a_result_of_it_is_alive() -> None:
    model = torch.nn.Linear(3, 2)
    weight = model.weight
    x = torch.randn(4, 3)
    before = model(x)
    model.to("xla")
    assert model.weight is weight and weight.device.type == "xla"
    after = model(x.to("xla"))
    torch.testing.assert_close(after.cpu(), before)
    model.cpu()
    assert model.weight is weight and weight.device.type == "cpu"
    after.sum().backward()  # its own parameters are those it was computed with
    assert weight.grad is None


LAZY: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.LazyLinear(4), (2, 3)),
    "convolution": (lambda: nn.LazyConv2d(4, 3), (2, 3, 8, 8)),
    "normalisation": (nn.LazyBatchNorm1d, (4, 3)),
    "network": (
        lambda: nn.Sequential(
            nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.Linear(144, 3)
        ),
        (2, 3, 8, 8),
    ),
    "mixture": (lambda: nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(3)), (2, 3)),
}


@pytest.mark.parametrize("kind", LAZY)
def test_a_lazy_module_may_be_moved_before_its_first_call(kind: str) -> None:
    make, sizes = LAZY[kind]

    def program(device: str) -> tuple[object, ...]:
        model = make().to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        shape = model(torch.ones(sizes, device=device)).shape
        before = [p.detach().clone() for p in model.parameters()]
        model(torch.ones(sizes, device=device)).sum().backward()
        optimizer.step()
        moved = [not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
        kinds = [(type(p).__name__, p.shape, p.device.type == device) for p in model.parameters()]
        return shape, kinds, type(model).__name__, any(moved), model.to("cpu") is model

    assert_same(program)


@pytest.mark.parametrize("kind", LAZY)
def test_a_lazy_module_may_be_moved_to_where_it_is(kind: str) -> None:
    make, sizes = LAZY[kind]
    with torch.device("xla"):
        model = make()
    before = list(model.parameters())
    model.to("xla")
    assert model(torch.ones(sizes, device="xla")).device.type == "xla"
    assert all(p is q for p, q in zip(model.parameters(), before, strict=True))


CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "one": lambda: nn.Conv2d(3, 4, 3, padding=1),
    "transposed": lambda: nn.ConvTranspose2d(3, 4, 3, stride=2),
    "network": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_tracing_convolutions(kind: str) -> None:
    def program(device: str) -> tuple[Tensor, Tensor, bool]:
        torch.manual_seed(0)
        model = CONVOLUTIONS[kind]().to(device).eval()
        images = ramp(1, 3, 6, 6, device=device) / 100
        traced = torch.jit.trace(model, images)
        again = traced(images * 2)
        again.sum().backward()
        gradient = next(model.parameters()).grad
        assert gradient is not None
        return again.detach(), gradient, "_convolution" in str(traced.inlined_graph)

    assert_same(program, rtol=1e-4, atol=1e-4)


def test_scripted_modules_move() -> None:
    """Also inside others, there and back: their parameters are not Python's alone."""
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    module = nn.Sequential(torch.jit.script(copy.deepcopy(plain)), nn.ReLU()).to("xla")
    x = torch.randn(5, 3)
    y = module(x.to("xla"))
    torch.testing.assert_close(y.cpu(), plain(x).relu())
    y.sum().backward()
    parameters = list(module.parameters())
    assert all(p.grad is not None and p.grad.device.type == "xla" for p in parameters)
    torch.testing.assert_close(module.cpu().eval()(x), plain.eval()(x).relu())


def test_saved_script_modules(tmp_path: Path) -> None:
    """What a file holds has plain tensors for parameters, and may be shared between modules."""
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    x = torch.randn(3, 4)
    expected, files = tied(x), (tmp_path / "cpu.pt", tmp_path / "xla.pt")
    for file, device in zip(files, ("cpu", "xla"), strict=True):
        torch.jit.save(torch.jit.script(tied).to(device), file)
        for target in ("xla", "cpu", None):
            module = torch.jit.load(file, target)
            assert next(module.parameters()).device.type == (target or device)
            moved = module.to("xla")
            torch.testing.assert_close(moved(x.to("xla")).cpu(), expected)
            optimizer = torch.optim.SGD(moved.parameters(), 0.1)
            moved(x.to("xla")).sum().backward()
            optimizer.step()
            first, second = moved.state_dict().values()
            assert torch.equal(first, second) and len(list(moved.parameters())) == 1
        with open(file, "rb") as stream:
            assert torch.jit.load(stream)(x.to(device)).device.type == device


def test_modules_convert_while_a_profile_is_kept() -> None:
    """A profile of the memory refers to the parameters, without keeping them alive."""
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to("xla")
    module[1].weight = module[0].weight
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    with torch.profiler.profile(profile_memory=True, record_shapes=True) as profile:
        module(torch.ones(2, 3, device="xla")).sum().backward()
    before = module[0].weight
    for _ in range(2):
        module.double().cpu().to("xla").float()
    module(torch.ones(2, 3, device="xla")).sum().backward()
    optimizer.step()
    assert module[0].weight is before is module[1].weight
    assert before is optimizer.param_groups[0]["params"][0]
    weight = before.detach().cpu()
    del module, optimizer, before
    gc.collect()
    assert profile.key_averages()
    assert weight.isfinite().all()


def test_scripted_modules_that_list_their_weights(tmp_path: Path) -> None:
    """Recurrent modules do; a file's other tensors come along as PyTorch brings them."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.GRU(4, 4)
            self.scale = {"by": torch.full((4,), 2.0)}

        def forward(self, x: Tensor) -> Tensor:
            return self.recurrent(x)[0] * self.scale["by"].to(x.device)

    plain, x = Scaled(), torch.randn(3, 2, 4)
    expected, file = plain(x), tmp_path / "module.pt"
    scripted = torch.jit.script(plain)
    torch.jit.save(scripted, file)
    for module in (scripted.to("xla"), torch.jit.load(file, "xla")):
        y = module(x.to("xla"))
        torch.testing.assert_close(y.cpu(), expected)
        y.sum().backward()
        assert all(p.grad is not None for p in module.parameters())
        torch.testing.assert_close(module.cpu()(x), expected)
    assert torch.jit.load(file, "xla").scale["by"].device.type == "xla"


@pytest.mark.parametrize("kind", ["default_qat_qconfig", "default_per_channel_qat_qconfig"])
def test_quantisation_aware_training(kind: str) -> None:
    """An observer sizes its ranges when it first sees a weight."""

    def program(device: str) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        configuration = quantization.get_default_qat_qconfig("fbgemm")
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2))
        model.qconfig = configuration if "channel" in kind else quantization.default_qat_qconfig
        model = quantization.prepare_qat(model.train()).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(3):
            optimizer.zero_grad()
            model(ramp(2, 3, 6, 6, device=device) / 100 - step).square().mean().backward()
            optimizer.step()
        return tuple(model.state_dict().values())

    assert_same(program, rtol=1e-2, atol=2e-3)  # a step of the quantiser more or less


def test_embedding_bags_of_many_sizes() -> None:
    """The CPU's kernel returns other sizes than meta's: it is asked for large ones as well, and
    for each mode."""
    for mode, places, dim in (
        ("max", 220, 40),
        ("sum", 20, 4),
        ("sum", 200, 40),
        ("mean", 200, 40),
        ("sum", 210, 50),
    ):
        weight, index = ramp(places, dim), torch.arange(12) * 7 % places

        def program(
            device: str, weight: Tensor = weight, index: Tensor = index, mode: str = mode
        ) -> list[Tensor]:
            table = weight.to(device).detach().requires_grad_()
            bags = F.embedding_bag(index.to(device).view(4, 3), table, mode=mode)
            bags.sum().backward()
            assert table.grad is not None
            return [bags.detach(), table.grad]

        assert_same(program)


def test_a_traced_function_may_read_a_value() -> None:
    def function(x: Tensor) -> Tensor:
        square = torch.full((), x.shape[0] == x.shape[1], dtype=torch.bool, device=x.device)
        return x + 1 if square.all() else x

    def program(device: str) -> Tensor:
        example = torch.ones(3, 3, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(function, example, check_trace=False)
        return traced(example * 2)

    assert_same(program)
