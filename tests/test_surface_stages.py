"""`fn.lower(*args)` and `.compile()`, in the manner of JAX's stages."""

import pytest
import torch
import torch_xla
from torch import nn
from torch_xla.experimental.assume_pure import PureModule, assume_pure
from work import Work


def test_a_pure_function_is_lowered_and_analysed_without_running() -> None:
    @assume_pure
    def product(x: torch.Tensor, w: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return torch.tanh(x @ w) * scale

    x = torch.randn(8, 16, device="xla", requires_grad=True)
    w = torch.randn(16, 4, device="xla")
    torch_xla.sync()
    before = Work.so_far()
    lowered = product.lower(x, w, scale=2.0)
    text = lowered.as_text()
    assert Work.so_far().since(before) == Work(0, 0, 0, 0)
    assert "@main(%arg0: tensor<8x16xf32>, %arg1: tensor<16x4xf32>) -> tensor<8x4xf32>" in text
    for line in ("stablehlo.tanh", "contracting_dims = [1] x [0]", "dense<2.000000e+00>"):
        assert line in text
    assert "custom_call" not in text
    assert "test_surface_stages.py" not in text
    assert "test_surface_stages.py" in lowered.as_text(debug_info=True)
    with pytest.raises(ValueError, match="'stablehlo' only"):
        lowered.as_text("hlo")

    compiled = lowered.compile()
    assert compiled.as_text().startswith("HloModule")
    costs = compiled.cost_analysis()
    assert 2 * 8 * 16 * 4 <= costs["flops"] < 3 * 8 * 16 * 4
    assert costs["bytes accessed"] >= 4 * (8 * 16 + 16 * 4 + 8 * 4)
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 4 * (8 * 16 + 16 * 4)
    assert memory.output_size_in_bytes == 4 * 8 * 4
    assert memory.alias_size_in_bytes == 0
    torch.testing.assert_close(compiled(x, w, scale=2.0), torch.tanh(x @ w) * 2)
    with pytest.raises(TypeError, match=r"lowered for .*float32\[8, 16\].*float32\[3, 16\]"):
        compiled(x[:3], w, scale=2.0)


def test_a_training_step_is_lowered_with_what_it_writes_and_changes_nothing() -> None:
    model = nn.Linear(4, 2).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    pure = assume_pure(step)
    x = torch.randn(3, 4, device="xla")
    with pytest.raises(RuntimeError, match="after a first one"):
        pure.lower(x)
    pure(x)
    torch_xla.sync()
    before = {name: value.cpu() for name, value in model.state_dict().items()}
    for function in (pure, torch_xla.compile(step), torch_xla.compile(step, assume_pure=True)):
        lowered = function.lower(x)
        memory = lowered.compile().memory_analysis()
        state = 2 * (2 * 4 + 2) * 4  # parameters and their momentum are updated in place
        assert memory.alias_size_in_bytes >= state
    for name, value in model.state_dict().items():
        assert torch.equal(value.cpu(), before[name])


def test_modules_methods_and_seeded_functions_are_lowered() -> None:
    x = torch.randn(3, 4, device="xla")
    module = nn.Sequential(nn.Linear(4, 2), nn.ReLU()).to("xla")
    for way in (PureModule(module), torch_xla.compile(module)):
        assert "stablehlo.dot_general" in way.lower(x).as_text()  # type: ignore[operator]

    @assume_pure(add_rng_seed_argument=True)
    def noise(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    assert "stablehlo.rng_bit_generator" in noise.lower(x, rng_seed=3).as_text()


def test_what_cannot_be_lowered_says_why() -> None:
    @assume_pure
    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    with pytest.raises(RuntimeError, match="test_surface_stages.py"):
        reads.lower(torch.ones(2, device="xla"))
