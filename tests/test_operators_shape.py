"""Padding, diagonals, triangles, windows and sequences, with their gradients."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch_xla  # noqa: F401
from compare import assert_same, ramp
from torch import Tensor


def forward_and_gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    x.requires_grad_()
    y = f(x)
    y.backward(ramp(*y.shape, device=str(x.device)) + 1)
    return [y.detach(), x.grad]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("pad", [(2, 1), (0, 3), (1, 0, 2, 2), (2, 1, 0, 1, 1, 2)])
def test_padding(mode: str, pad: tuple[int, ...]) -> None:
    spatial = (4, 5, 6)[: len(pad) // 2]
    assert_same(
        lambda device: forward_and_gradient(
            lambda x: F.pad(x, pad, mode=mode), ramp(2, 3, *spatial, device=device)
        )
    )


def test_negative_padding() -> None:
    def program(device: str) -> list[Tensor]:
        result = []
        for mode in ("replicate", "constant"):
            x = ramp(1, 2, 4, 5, device=device)
            result += forward_and_gradient(lambda x, m=mode: F.pad(x, (-1, 2, 1, -2), mode=m), x)
        return result

    assert_same(program)


@pytest.mark.parametrize("offset", [-3, -1, 0, 2, 4])
def test_diagonals(offset: int) -> None:
    def program(device: str) -> list[Tensor]:
        t = ramp(4, 5, 6, device=device)
        line = ramp(2, 3, device=device)
        diagonal = t.diagonal(offset, 0, 2)
        return [
            *forward_and_gradient(lambda x: x.diagonal(offset, 1, 2).clone(), t.clone()),
            torch.diag_embed(line, offset),
            torch.diag_embed(line, offset, 0, 2),
            torch.diagonal_scatter(t, -diagonal, offset, 0, 2),
            torch.diagonal_copy(t, offset, 2, 1),
            t.tril(offset),
            t.triu(offset),
        ]

    assert_same(program)


@pytest.mark.parametrize("rows, columns", [(5, 5), (3, 7), (7, 3), (1, 4), (4, 1), (40, 33)])
def test_triangle_indices(rows: int, columns: int) -> None:
    def program(device: str) -> list[Tensor]:
        offsets = (-8, -3, -1, 0, 1, 2, 6)
        return [
            make(rows, columns, offset, device=device)
            for make in (torch.tril_indices, torch.triu_indices)
            for offset in offsets
        ]

    assert_same(program)


@pytest.mark.parametrize("size, step", [(3, 2), (4, 1), (2, 3), (10, 1), (7, 3)])
def test_windows(size: int, step: int) -> None:
    assert_same(
        lambda device: forward_and_gradient(
            lambda x: x.unfold(1, size, step) * 1, ramp(2, 10, 3, device=device)
        )
    )


@pytest.mark.parametrize(
    "kernel, dilation, padding, stride",
    [((2, 3), 1, 0, 1), ((3, 2), (2, 1), (1, 2), (2, 1)), (1, 1, 0, 2)],
)
def test_im2col(kernel: object, dilation: object, padding: object, stride: object) -> None:
    arguments = (kernel, dilation, padding, stride)
    assert_same(
        lambda device: forward_and_gradient(
            lambda x: F.unfold(x, *arguments), ramp(2, 3, 7, 8, device=device)
        )
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16])
def test_sequences(dtype: torch.dtype) -> None:
    def program(device: str) -> list[Tensor]:
        kind = {"dtype": dtype, "device": device}
        return [
            torch.arange(9, -3, -2, **kind),
            torch.arange(3, 17, **kind),
            *(torch.linspace(-2, 9, steps, **kind) for steps in (0, 1, 2, 5, 8)),
            torch.logspace(0, 4, 5, 2.0, **kind),
            torch.eye(3, 5, **kind),
            torch.full((2, 2), 3, **kind),
        ]

    assert_same(program)


def test_arange_does_not_drift() -> None:
    def last(device: str) -> Tensor:
        return torch.arange(0, 1000, 0.1, device=device)[-1]

    torch.testing.assert_close(last("xla").cpu(), torch.tensor(999.9), rtol=0, atol=0)


@pytest.mark.parametrize("ends", ["up to n", "down from n", "from 3 to 97"])
def test_linspace_of_whole_numbers_is_exact(ends: str) -> None:
    """One interval too short by a rounding error would give 3, 3, 5, 5 for 3, 4, 5, 6."""
    wrong = []
    for n in (2, 7, 49, 50, 99, 108):
        start, end = {"up to n": (1, n), "down from n": (n, 1), "from 3 to 97": (3, 97)}[ends]
        expected = torch.linspace(start, end, n, dtype=torch.int64)
        if not torch.equal(
            torch.linspace(start, end, n, dtype=torch.int64, device="xla").cpu(), expected
        ):
            wrong.append(n)
    assert not wrong


def test_logspace_of_one_step_keeps_the_precision_of_its_start() -> None:
    expected = torch.logspace(4.3, -3, 1, dtype=torch.bfloat16)
    actual = torch.logspace(4.3, -3, 1, dtype=torch.bfloat16, device="xla")
    assert torch.equal(actual.cpu(), expected)
