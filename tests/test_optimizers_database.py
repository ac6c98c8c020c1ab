"""PyTorch's optimizer database: every optimizer with every kind of arguments, as on the CPU."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla
from torch import Tensor
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 3
# "default" is what an optimizer that was not told chooses for many small parameters.
IMPLEMENTATIONS = ("for-loop", "foreach", "fused", "default")
CASES = [
    pytest.param(info, implementation, id=f"{info.name}-{implementation}")
    for info in optim_db
    for implementation in IMPLEMENTATIONS
    if implementation in ("for-loop", "default") or implementation in info.supported_impls
    if implementation != "fused" or "cpu" in info.supports_fused_on
]
# What a quick run also compiles and runs eagerly.
IN_PROGRAMS = {"AdamW", "SGD", "Muon"}


def options_of(info: OptimizerInfo, implementation: str) -> list[dict[str, Any]]:
    """Without what PyTorch allows on accelerators alone, which the CPU is not."""
    given = [dict(one.kwargs) for one in info.optim_inputs_func("cpu")]
    for flag in ("foreach", "fused"):
        for options in given:
            if implementation == "default":
                options.pop(flag, None)
            elif flag in info.supported_impls:
                options[flag] = flag == implementation
    return given


def parameters_of(info: OptimizerInfo, implementation: str, device: str) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = [(4, 3), (3, 5)] if info.name == "Muon" else [(4, 3), (5,), ()]
    if info.only_supports_sparse_grads:
        sizes = sizes[:2]
    if implementation == "default":
        sizes *= 4
    return [torch.randn(size).to(device).requires_grad_() for size in sizes]


def give_gradients(info: OptimizerInfo, parameters: list[Tensor], step: int) -> None:
    for number, parameter in enumerate(parameters):
        steps = torch.arange(parameter.numel()).reshape(parameter.shape)
        gradient = torch.sin(steps + 1.7 * number + 0.9 * step).to(parameter.device)
        if info.only_supports_sparse_grads:
            gradient = gradient.to_sparse()
        parameter.grad = gradient


def train(
    info: OptimizerInfo, implementation: str, options: dict[str, Any], device: str
) -> dict[str, Any]:
    """Parameters and state after some steps, the last ones with an optimizer that was loaded."""
    parameters = parameters_of(info, implementation, device)
    if info.step_requires_closure:
        # It would arrive in 20 iterations, and differences of what is left there are rounding.
        options = {"max_iter": 3, **options}
    optimizer = info.optim_cls(parameters, **copy.deepcopy(options))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = sum(((p - 0.5) ** 2 + (p - 0.5) ** 4).sum() for p in parameters)
        loss.backward()  # type: ignore[union-attr]
        return loss  # type: ignore[return-value]

    step: Callable[[], Any] = optimizer.step
    for number in range(STEPS):
        if number == STEPS - 1:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = info.optim_cls(parameters, **copy.deepcopy(options))
            optimizer.load_state_dict(state)
            step = optimizer.step
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            give_gradients(info, parameters, number)
            step()
    return {"parameters": parameters, "state": optimizer.state_dict()["state"]}


def assert_same(actual: Any, expected: Any) -> None:
    if isinstance(expected, Tensor):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), rtol=2e-4, atol=2e-5, equal_nan=True
        )
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key, value in expected.items():
            assert_same(actual[key], value)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for got, wanted in zip(actual, expected, strict=True):
            assert_same(got, wanted)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-4)
    else:
        assert actual == expected


@pytest.mark.parametrize(("info", "implementation"), CASES)
def test_optimizer(
    info: OptimizerInfo,
    implementation: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = request.config.getoption("--full")
    modes = ["never", *(["off", "eager"] if full or info.name in IN_PROGRAMS else [])]
    every = options_of(info, implementation)
    for options in every:
        expected = train(info, implementation, options, "cpu")
        for mode in modes if full or options is every[-1] else modes[:1]:
            monkeypatch.setenv("TORCH_XLA_TIERS", "never" if mode == "never" else "off")
            with torch_xla.experimental.eager_mode_context(mode == "eager"):
                assert_same(train(info, implementation, options, "xla"), expected)


@pytest.mark.parametrize(
    ("sizes", "lists"), [([8] * 12, True), ([8] * 2, False), ([200_000] * 12, False)]
)
def test_many_small_parameters_are_updated_in_lists(sizes: list[int], lists: bool) -> None:
    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names = set[str]()

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.names.add(str(function))
            return function(*args, **(kwargs or {}))

    parameters = [torch.zeros(size, device="xla", requires_grad=True) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters)
    with Seen() as seen:
        optimizer.step()
    assert any(name.startswith("aten._foreach_lerp_") for name in seen.names) == lists
    assert optimizer.state_dict()["param_groups"][0]["foreach"] is None


def test_lists_accept_betas_that_are_tensors() -> None:
    """As Adam's loop on the CPU does."""
    updated = []
    for device in ("cpu", "xla"):
        parameters = [torch.ones(3, device=device, requires_grad=True) for _ in range(12)]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.5)
        betas = (torch.tensor(0.9), torch.tensor(0.99))
        torch.optim.Adam(parameters, betas=betas).step()
        updated.append(parameters[0].detach().cpu())
    torch.testing.assert_close(*updated)
