"""What an operator returns lies in memory in the order of the CPU's result."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

IMAGES = (2, 4, 6, 5)
CONVOLUTIONS = {
    1: (F.conv1d, F.conv_transpose1d),
    2: (F.conv2d, F.conv_transpose2d),
    3: (F.conv3d, F.conv_transpose3d),
}
POOLS = {2: F.max_pool2d, 3: F.max_pool3d}


def reversed_in_memory(tensor: Tensor) -> Tensor:
    dims = list(reversed(range(tensor.dim())))
    return tensor.permute(dims).contiguous().permute(dims)


def channels_last(tensor: Tensor) -> Tensor:
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def with_gaps(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


ORDERS = {
    "reversed": reversed_in_memory,
    "channels last": channels_last,
    "with gaps": with_gaps,
    "first two exchanged": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
}


def numbers(*sizes: int) -> Tensor:
    return torch.arange(torch.Size(sizes).numel()).reshape(sizes).sin()


def assert_lies_alike(compute: Callable[..., Tensor], *tensors: Tensor) -> None:
    wanted = compute(*tensors)
    moved = []
    for tensor in tensors:
        moved.append(torch.empty_strided(tensor.shape, tensor.stride(), device="xla"))
        moved[-1].copy_(tensor)
    got = compute(*moved)
    apart = [dim for dim, size in enumerate(wanted.shape) if size > 1]
    assert got.shape == wanted.shape
    assert [got.stride(dim) for dim in apart] == [wanted.stride(dim) for dim in apart]
    torch.testing.assert_close(got.cpu(), wanted)


OPERATORS = {
    "angle": lambda t: torch.complex(t, t + 1).transpose(0, -1).angle(),
    "batch norm": lambda t: F.batch_norm(t, None, None, training=True),
    "complex": lambda t: torch.complex(t, t.flip(0)),
    "complex of a row": lambda t: torch.complex(t, t[:1, :1]),
    "channel shuffle": lambda t: F.channel_shuffle(t, 2),
    "fft of two": lambda t: torch.fft.rfft2(t, dim=(0, 2)).abs(),
    "floor divide": lambda t: t // 0.3,
    "hfft": lambda t: torch.fft.hfft(t, dim=1),
    "irfft of two": lambda t: torch.fft.irfft2(torch.complex(t, t), dim=(2, 1)),
    "logical and": lambda t: torch.logical_and(t, t.flip(0)),
    "logit": lambda t: torch.logit(t, 0.1),
    "one pixel unfolded": lambda t: F.unfold(t, 1),
    "pixel shuffle": lambda t: F.pixel_shuffle(t, 2),
    "normalised": lambda t: torch.native_group_norm(
        channels_last(t), None, None, 2, 4, 30, 2, 1e-5
    )[0],
    "reflected": lambda t: F.pad(t, (1, 1, 2, 1), mode="reflect"),
    "replicated": lambda t: F.pad(t, (1, 1, 2, 1), mode="replicate"),
    "rfft": lambda t: torch.fft.rfft(t, dim=2).real,
    "unfolded": lambda t: F.unfold(t, 2),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", OPERATORS)
def test_results_lie_as_on_the_cpu(name: str, order: str) -> None:
    assert_lies_alike(OPERATORS[name], ORDERS[order](numbers(*IMAGES)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_convolutions_lie_as_on_the_cpu(dims: int, images: int, order: str) -> None:
    convolution, transposed = CONVOLUTIONS[dims]
    input = numbers(images, 4, *(5, 6, 4)[:dims])
    kernel = numbers(4, 4, *(3, 2, 2)[:dims])
    for one, other in ((ORDERS[order], torch.clone), (torch.clone, ORDERS[order])):
        assert_lies_alike(convolution, one(input), other(kernel))
        assert_lies_alike(transposed, one(input), other(kernel))
    if dims in POOLS:
        assert_lies_alike(lambda t: POOLS[dims](t, 2), ORDERS[order](input))


LOSSES = {
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "huber": lambda t: F.huber_loss(t, t.detach() * 2),
    "masked": lambda t: t.masked_fill(t.detach() > 0, 2.0),
    "maximum": torch.max,
    "mean square": lambda t: F.mse_loss(t, t.detach() * 2),
    "product": torch.prod,
    "smooth": lambda t: F.smooth_l1_loss(t, t.detach() * 2),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_lie_as_on_the_cpu(name: str, order: str) -> None:
    def gradient(tensor: Tensor) -> Tensor:
        leaf = tensor.detach().requires_grad_()
        return torch.autograd.grad(LOSSES[name](leaf).sum(), leaf)[0]

    assert_lies_alike(gradient, ORDERS[order](numbers(2, 3, 4)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_gradients_of_convolutions_lie_as_on_the_cpu(dims: int, order: str) -> None:
    input = numbers(2, 4, *(5, 6, 4)[:dims])
    kernel = numbers(4, 4, *(3, 2, 2)[:dims])
    for convolution in CONVOLUTIONS[dims]:
        for wanted in (0, 1):

            def gradient(*tensors: Tensor, of=convolution, wanted=wanted) -> Tensor:
                leaves = [tensor.detach().requires_grad_() for tensor in tensors]
                return torch.autograd.grad(of(*leaves).square().sum(), leaves[wanted])[0]

            assert_lies_alike(gradient, ORDERS[order](input), kernel)
            assert_lies_alike(gradient, input, ORDERS[order](kernel))


def test_normal_numbers_lie_as_on_the_cpu() -> None:
    for device in ("cpu", "xla"):
        mean = reversed_in_memory(numbers(3, 4, 2)).to(device)
        assert torch.normal(mean, 1.0).is_contiguous()
        assert torch.normal(mean, mean.abs()).is_contiguous()


def test_volumes_and_gradients_of_group_norms_lie_as_on_the_cpu() -> None:
    def gradient(images: Tensor) -> Tensor:
        _, mean, deviation = torch.native_group_norm(images, None, None, 2, 4, 30, 2, 1e-5)
        arguments = (images, images, mean, deviation, None, 2, 4, 30, 2)
        wanted = [True, False, False]
        return torch.ops.aten.native_group_norm_backward(*arguments, wanted)[0]

    volume = numbers(2, 4, 5, 6, 4).to(memory_format=torch.channels_last_3d)
    assert_lies_alike(lambda t: F.pad(t, (1, 1, 1, 1, 1, 1), mode="reflect"), volume)
    assert_lies_alike(gradient, channels_last(numbers(*IMAGES)))
