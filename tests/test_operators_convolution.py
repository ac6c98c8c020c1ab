"""Convolutions by each way they run on the CPU platform: matrix products, pieces, whole kernels."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor

DEVICE = "xla"


@dataclass(frozen=True)
class Case:
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True
    transposed: bool = False
    dtype: torch.dtype = torch.float32

    def tensors(self) -> list[Tensor]:
        torch.manual_seed(0)
        out = self.kernel[1] * self.groups if self.transposed else self.kernel[0]
        shapes = [self.image, self.kernel] + ([(out,)] if self.bias else [])
        return [torch.randn(shape, dtype=self.dtype) for shape in shapes]

    def run(self, image: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
        name = f"conv{'_transpose' if self.transposed else ''}{len(self.image) - 2}d"
        return getattr(F, name)(
            image,
            kernel,
            bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


POINTWISE = [
    Case((2, 8, 16, 16), (16, 8, 1, 1)),
    Case((3, 40, 4, 5), (8, 40, 1, 1), bias=False),
    Case((2, 8, 9, 7), (16, 8, 1, 1), stride=2),
    Case((2, 8, 8, 8), (16, 8, 1, 1), stride=2, bias=False),
    Case((1, 3, 5), (2, 3, 1), stride=3),
    Case((2, 4, 3, 4, 5), (4, 4, 1, 1, 1), stride=(1, 2, 2)),
    Case((0, 4, 3, 3), (4, 4, 1, 1)),
    Case((2, 4, 1, 1), (4, 4, 1, 1), dtype=torch.float64),
    Case((2, 4, 6, 6), (4, 4, 1, 1), padding=1),
    Case((2, 4, 6, 6), (4, 2, 1, 1), groups=2),
    Case((2, 4, 6, 6), (4, 4, 1, 1), dtype=torch.bfloat16),
]
IN_PIECES = [
    Case((8, 16, 16, 16), (32, 16, 3, 3), padding=1),
    Case((2, 128, 4, 4), (130, 128, 3, 3), padding=1),
    Case((1, 64, 12, 12), (64, 64, 3, 3), bias=False),
    Case((6, 32, 16, 16), (32, 8, 3, 3), groups=4, dilation=2),
    Case((4, 32, 10, 10), (32, 24, 3, 3), stride=2, padding=1, transposed=True),
    Case((4, 48, 128), (64, 48, 5), padding=2),
    Case((4, 16, 16, 16), (32, 16, 3, 3), dtype=torch.float64),
]
WHOLE = [Case((2, 3, 8, 8), (4, 3, 3, 3)), Case((1, 3, 8, 8), (4, 3, 3, 3), padding=2)]
EMPTY = [
    Case((0, 3, 8, 8), (4, 3, 3, 3)),
    Case((0, 3, 8), (4, 3, 3)),
    Case((0, 3, 8, 8), (3, 4, 3, 3), transposed=True),
    Case((2, 0, 8, 8), (4, 0, 3, 3)),
    Case((2, 0, 8, 8), (4, 0, 1, 1), bias=False),
]


@pytest.mark.parametrize("case", POINTWISE + IN_PIECES + WHOLE + EMPTY, ids=str)
def test_values_and_gradients(case: Case) -> None:
    arguments = case.tensors()
    results = []
    for device in ("cpu", DEVICE):
        leaves = [t.detach().to(device).requires_grad_() for t in arguments]
        result = case.run(*leaves)
        torch.manual_seed(1)
        result.backward(torch.randn(result.shape, dtype=case.dtype).to(device))
        results.append([result.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)])
    tolerance = 0.1 if case.dtype == torch.bfloat16 else 2e-3
    for actual, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [POINTWISE[2], IN_PIECES[0]], ids=str)
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,)], ids=["image", "kernel", "bias"])
def test_one_gradient(case: Case, wanted: tuple[int, ...]) -> None:
    gradients = []
    for device in ("cpu", DEVICE):
        leaves = [t.to(device) for t in case.tensors()]
        for i in wanted:
            leaves[i].requires_grad_()
        loss = case.run(*leaves).square().sum()
        gradients.append(torch.autograd.grad(loss, [leaves[i] for i in wanted])[0].cpu())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-2)


def test_second_derivatives_of_a_pointwise_convolution() -> None:
    case = Case((2, 4, 5, 5), (3, 4, 1, 1), stride=2, dtype=torch.float64)
    values = []
    for device in ("cpu", DEVICE):
        leaves = [t.to(device).requires_grad_() for t in case.tensors()]
        first = torch.autograd.grad(case.run(*leaves).pow(3).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        values.append([g.cpu() for g in second])
    rounding = {} if torch_xla._XLAC.has_doubles() else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(values[1], values[0], **rounding)


def test_cpu_tensors_keep_their_threads() -> None:
    before = torch.get_num_threads()
    case = IN_PIECES[0]
    case.run(*[t.to(DEVICE) for t in case.tensors()]).sum().item()
    assert torch.get_num_threads() == before
