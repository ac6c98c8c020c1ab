"""PyTorch's module database: each module, forward and backward, as on the CPU."""

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch_xla
from opinfo_check import TOLERANCES
from torch import Tensor, nn
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db
from torch.utils import _pytree as pytree

# Samples that the CPU refuses, too.
REFUSED = {"FractionalMaxPool2d", "FractionalMaxPool3d"}
# Values that are random, or memory that nobody has written.
RANDOM = {"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"}
RANDOM |= {"RReLU"}


def name_of(info: ModuleInfo) -> str:
    return info.module_cls.__name__


CASES = [
    pytest.param(info, training, id=f"{name_of(info)}-{'train' if training else 'eval'}")
    for info in module_db
    if name_of(info) not in REFUSED
    for training in (True, False)
    if training or info.train_and_eval_differ
]


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))


@contextmanager
def tier(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    monkeypatch.setenv("TORCH_XLA_TIERS", "never" if name == "never" else "off")
    with torch_xla.experimental.eager_mode_context(name == "eager"):
        yield


def inputs_of(info: ModuleInfo, training: bool) -> list[ModuleInput]:
    torch.manual_seed(0)
    return info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    )


def scattered(tensor: Tensor) -> Tensor:
    """The same values with gaps between the elements."""
    gaps = tensor.dim() > 0 and tensor.is_floating_point()
    return torch.stack([tensor, tensor], -1)[..., 0] if gaps else tensor


def moved(value: Any, device: str, change: Callable[[Tensor], Tensor]) -> Any:
    def move(tensor: Tensor) -> Tensor:
        there = change(tensor.detach().to(device))
        return there.detach().requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(Tensor, move, value)


def run(
    module: nn.Module, given: ModuleInput, device: str, change: Callable[[Tensor], Tensor]
) -> dict[str, Any]:
    """Results, gradients and the module's state after one step forward and back."""
    torch.manual_seed(3)
    module = copy.deepcopy(module).to(device)
    args, kwargs = moved((given.forward_input.args, given.forward_input.kwargs), device, change)
    results = module(*args, **kwargs)
    ends = [t for t in pytree.tree_leaves(results) if isinstance(t, Tensor) and t.requires_grad]
    if ends:
        sum(
            (end * (0.5 + torch.arange(end.numel()) % 3).reshape(end.shape).to(end)).sum()
            for end in ends
        ).backward()  # type: ignore[union-attr]
    leaves = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    return {
        "results": results,
        "gradients": [leaf.grad for leaf in leaves],
        "parameters": {name: p.grad for name, p in module.named_parameters()},
        "state": dict(module.state_dict()),
    }


def assert_same(actual: Any, expected: Any, values: bool) -> None:
    actual_leaves, actual_tree = pytree.tree_flatten(actual)
    expected_leaves, expected_tree = pytree.tree_flatten(expected)
    assert actual_tree == expected_tree
    for got, wanted in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(wanted, Tensor):
            assert got == wanted
            continue
        assert got.device.type == "xla"
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        if values:
            relative, absolute = TOLERANCES.get(wanted.dtype, (0, 0))
            got = got.detach().cpu()
            torch.testing.assert_close(
                got, wanted.detach(), rtol=relative, atol=10 * absolute, equal_nan=True
            )


def built(info: ModuleInfo, given: ModuleInput, training: bool) -> nn.Module:
    torch.manual_seed(1)
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    return module.train(training)


def has_values(info: ModuleInfo, training: bool) -> bool:
    """Lazy modules draw their parameters in the first call."""
    return not (training and name_of(info) in RANDOM) and not info.is_lazy


@pytest.mark.parametrize(("info", "training"), CASES)
def test_module(
    info: ModuleInfo, training: bool, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = inputs_of(info, training)
    sample = name_of(info) in CASES_IN_PROGRAMS
    modes = ["never", *(["off", "eager"] if full or sample else [])]
    for number, one in enumerate(given if full else given[:2] + given[-1:]):
        module = built(info, one, training)
        for change in (lambda tensor: tensor, scattered):
            if change is scattered and number and not full:
                continue
            expected = run(module, one, "cpu", change)
            for mode in modes:
                with tier(monkeypatch, mode):
                    actual = run(module, one, "xla", change)
                    assert_same(actual, expected, has_values(info, training))


# What a quick run also compiles and runs eagerly: programs have tests of their own.
CASES_IN_PROGRAMS = {name_of(info) for info in module_db[::9]}


@pytest.mark.parametrize("info", [info for info in module_db if not info.is_lazy], ids=name_of)
def test_module_is_saved_and_loaded(info: ModuleInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    with tier(monkeypatch, "never"):
        given = inputs_of(info, False)[0]
        module = built(info, given, False).to("xla")
        state = module.state_dict()
        other = built(info, given, False).to("xla")
        other.load_state_dict({name: value.clone() for name, value in state.items()})
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        for copied in (other, loaded):
            assert copied.state_dict().keys() == state.keys()
            for name, value in copied.state_dict().items():
                assert value.device.type == "xla"
                torch.testing.assert_close(value.cpu(), state[name].cpu(), equal_nan=True)
