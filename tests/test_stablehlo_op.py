"""Operators written in StableHLO, in every mode."""

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch_xla import stablehlo
from torch_xla.experimental import eager_mode_context, stablehlo_op
from torch_xla.experimental.assume_pure import assume_pure

TYPE = "tensor<4xf32>"
cube_gradient = stablehlo_op(
    f"""
    func.func @cube_gradient(%x: {TYPE}, %g: {TYPE}) -> {TYPE} {{
      %three = stablehlo.constant dense<3.0> : {TYPE}
      %square = stablehlo.multiply %x, %x : {TYPE}
      %slope = stablehlo.multiply %square, %three : {TYPE}
      %result = stablehlo.multiply %slope, %g : {TYPE}
      return %result : {TYPE}
    }}
    """
)
cube = stablehlo_op(
    f"""
    func.func @cube(%x: {TYPE}) -> {TYPE} {{
      %square = func.call @square(%x) : ({TYPE}) -> {TYPE}
      %result = stablehlo.multiply %square, %x : {TYPE}
      return %result : {TYPE}
    }}
    func.func private @square(%x: {TYPE}) -> {TYPE} {{
      %result = stablehlo.multiply %x, %x : {TYPE}
      return %result : {TYPE}
    }}
    """,
    lambda inputs, outputs, gradients: [cube_gradient(*inputs, *gradients)],
)
X = torch.arange(4.0)

MODES = {
    "as it is": lambda: cube,
    "torch_xla.compile": lambda: torch_xla.compile(lambda x: cube(x) + 0, full_graph=True),
    "assume_pure": lambda: assume_pure(lambda x: cube(x)),
    "torch.compile": lambda: torch.compile(
        lambda x: cube(x) * 1, backend="openxla", fullgraph=True
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("eager", [False, True])
def test_it_has_values_and_gradients_in_every_mode(mode: str, eager: bool) -> None:
    with eager_mode_context(eager):
        function = MODES[mode]()
        for _ in range(2):
            x = X.to("xla").requires_grad_()
            y = function(x)
            y.sum().backward()
            assert y.tolist() == (X**3).tolist() and x.grad.tolist() == (3 * X**2).tolist()


def test_it_runs_on_the_cpu_and_is_exported() -> None:
    x = X.clone().requires_grad_()
    cube(x).sum().backward()
    assert x.grad.tolist() == (3 * X**2).tolist()

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return cube(x) + 1

    module = stablehlo.exported_program_to_stablehlo(torch.export.export(Model(), (X,)))
    assert module(X).tolist() == (X**3 + 1).tolist()
    assert "custom_call" not in module.get_stablehlo_text()


def test_several_results_of_which_one_has_a_gradient() -> None:
    both = stablehlo_op(
        f"""
        module {{
          func.func @main(%x: {TYPE}, %i: tensor<i64>) -> ({TYPE}, tensor<i64>) {{
            return %x, %i : {TYPE}, tensor<i64>
          }}
        }}
        """,
        lambda inputs, outputs, gradients: [gradients[0] * 2, None],
    )
    x = X.to("xla").requires_grad_()
    same, number = both(x, torch.tensor(3, device="xla"))
    same.sum().backward()
    assert number.item() == 3 and x.grad.tolist() == [2.0] * 4


def test_refusals() -> None:
    with pytest.raises(RuntimeError, match=r"takes tensor<4xf32> as argument 0, and was given"):
        cube(torch.ones(3, device="xla"))
    with pytest.raises(RuntimeError, match="no autograd formula"):
        cube_gradient(X.to("xla").requires_grad_(), X.to("xla")).sum().backward()
    with pytest.raises(ValueError, match="takes the text of a function"):
        stablehlo_op("stablehlo.add %x, %y : tensor<4xf32>")
