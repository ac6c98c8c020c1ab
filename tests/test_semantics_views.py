"""Views are windows on shared storages: writes through any of them are seen by all."""

from collections.abc import Callable

import pytest
import torch
import torch_xla
from compare import assert_same, ramp
from torch import Tensor
from torch.nn import functional
from torch_xla.experimental.assume_pure import assume_pure

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda t: t[1:3],
    "step": lambda t: t[:, ::2],
    "select": lambda t: t[2],
    "element": lambda t: t[1, 2],
    "transpose": lambda t: t.t(),
    "transposed slice": lambda t: t.t()[1:4],
    "reshape": lambda t: t.view(3, 8),
    "flatten part": lambda t: t.view(-1)[5:20],
    "unfold": lambda t: t.unfold(1, 2, 2),
    "diagonal": lambda t: t.diagonal(1),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "narrow": lambda t: t.narrow(1, 2, 3),
    "chunk": lambda t: t.chunk(2, dim=1)[1],
    "permute": lambda t: t.view(2, 2, 6).permute(2, 0, 1),
    "as_strided": lambda t: t.as_strided((3, 2), (7, 3), 2),
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data[::2],
    "view of view": lambda t: t[1:].t()[2:5].unsqueeze(0)[..., 1:],
}


@pytest.fixture(params=VIEWS, ids=lambda name: name.replace(" ", "-"))
def view(request: pytest.FixtureRequest) -> Callable[[Tensor], Tensor]:
    return VIEWS[request.param]


def test_reading_a_view(view: Callable[[Tensor], Tensor]) -> None:
    assert_same(lambda device: view(ramp(4, 6, device=device)))


def test_computing_with_a_view(view: Callable[[Tensor], Tensor]) -> None:
    assert_same(lambda device: view(ramp(4, 6, device=device)).mul(2) + 1)


def test_writing_through_a_view(view: Callable[[Tensor], Tensor]) -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        base = ramp(4, 6, device=device)
        window = view(base)
        window.mul_(-2)
        window += 1
        return base, window

    assert_same(program)


def test_a_view_sees_later_writes_to_its_base(view: Callable[[Tensor], Tensor]) -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        base = ramp(4, 6, device=device)
        window = view(base)
        base.add_(100)
        base[1].zero_()
        return base, window

    assert_same(program)


@pytest.mark.parametrize("sizes", [(4, 2), (2, 4), (3, 3)])
@pytest.mark.parametrize(
    "window", [((2, 3), (3, 1)), ((5,), (1,)), ((3, 2), (2, 1)), ((2, 3), (1, 2)), ((2, 2), (3, 1))]
)
def test_writing_across_the_rows_of_what_a_program_computed(
    sizes: tuple[int, ...], window: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    def program(device: str) -> list[Tensor]:
        computed = [ramp(*sizes, device=device) * 2 for _ in range(2)]
        for offset, tensor in enumerate(computed):
            tensor.as_strided(*window, offset).zero_()
        return computed

    assert_same(program)


def test_overlapping_views_see_each_other() -> None:
    def program(device: str) -> tuple[Tensor, ...]:
        base = ramp(10, device=device)
        left, right = base[:7], base[3:]
        left.mul_(10)
        right.sub_(1)
        left[5] = -5
        return base, left, right

    assert_same(program)


def test_views_read_to_the_host_between_writes() -> None:
    def program(device: str) -> list[float]:
        base = ramp(3, 4, device=device)
        column = base[:, 1]
        seen = []
        for step in range(3):
            column += step + 1
            seen.append(base.sum().item())
            base[step] = 0
            seen.append(column.sum().item())
        return seen

    assert_same(program)


def test_expanded_operands() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        row = ramp(1, 4, device=device)
        wide = row.expand(3, 4)
        return wide * 2, wide + ramp(3, 1, device=device)

    assert_same(program)


def test_writing_to_an_expanded_tensor_raises_as_on_cpu() -> None:
    messages = []
    for device in ("cpu", "xla"):
        with pytest.raises(RuntimeError) as raised:
            torch.zeros(1, device=device).expand(3).add_(torch.ones(3, device=device))
        messages.append(str(raised.value))
    assert "single memory location" in messages[1]


def test_set_shares_and_reshapes_a_storage() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        source = ramp(12, device=device)
        alias = torch.empty(0, device=device)
        alias.set_(source.untyped_storage(), 2, (2, 3), (4, 1))
        alias.neg_()
        return source, alias

    assert_same(program)


PLACES = {
    "other sizes": (0, (10,)),
    "other strides": (1, (3, 2), (4, 1)),
    "own sizes, further on": (1, (2, 3)),
    "own sizes": (0, (2, 3)),
    "negative": (-1, (2, 3)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("expanded", [False, True])
def test_set_makes_room_or_refuses(place: str, expanded: bool) -> None:
    """What it describes is in the storage: elements behind its end were others' memory."""

    def program(device: str) -> tuple[object, ...]:
        tensor = ramp(3, device=device).expand(2, 3) if expanded else ramp(2, 3, device=device)
        try:
            tensor.set_(tensor.untyped_storage(), *PLACES[place])
        except RuntimeError as error:
            return str(error), tensor
        room = tensor.untyped_storage().nbytes()
        return room, tensor.size(), tensor.stride(), tensor.zero_()

    assert_same(program)


def test_data_assignment() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        first, second = ramp(3, device=device), ramp(2, 2, device=device) + 10
        first.data = second
        second.mul_(2)
        return first, second

    assert_same(program)


def test_data_may_come_from_another_device() -> None:
    parameter = torch.nn.Parameter(ramp(3))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    for device in ("xla", "cpu", "xla"):
        parameter.data = parameter.data.to(device)
        parameter.grad = None
        (parameter * 2).sum().backward()
        assert parameter.grad is not None and parameter.grad.device.type == device
        optimizer.step()
        assert parameter.device.type == device and parameter.is_leaf
    assert parameter.tolist() == [-6, -5, -4]
    tied = torch.nn.Linear(2, 2)
    tied.to("xla").weight.data = torch.ones(2, 2)
    assert tied.weight.sum().item() == 4 and tied.weight.device.type == "cpu"


def test_resize_keeps_what_fits() -> None:
    def program(device: str) -> tuple[Tensor, Tensor, int]:
        tensor = ramp(6, device=device)
        tensor.resize_(2, 2)
        shrunk = tensor.clone()
        tensor.resize_(10)
        tensor[6:] = 0
        return shrunk, tensor, tensor.untyped_storage().nbytes()

    assert_same(program)


def test_results_with_room_between_their_rows_fit_their_storage() -> None:
    def program(device: str) -> tuple[Tensor, ...]:
        matrix = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).to(device)
        solution = torch.linalg.lstsq(matrix, ramp(6, 2, device=device)).solution
        assert solution.storage_offset() == 0
        return solution.contiguous(), (solution @ ramp(2, 4, device=device)).sum(0)

    assert_same(program, rtol=1e-4, atol=1e-4)


def test_storage_resize_to_nothing_and_back() -> None:
    tensor = ramp(8, device="xla")
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0
    tensor.untyped_storage().resize_(32)
    tensor.copy_(torch.ones(8))
    assert tensor.sum().item() == 8


def test_channels_last() -> None:
    def program(device: str) -> tuple[Tensor, ...]:
        images = ramp(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last)
        doubled = images * 2
        doubled[:, 1] = 0
        like = torch.empty_like(images).fill_(1)
        return images, doubled, like, doubled.contiguous()

    assert_same(program)


def test_results_lie_as_the_cpus_kernels_lay_them() -> None:
    def program(device: str) -> tuple[Tensor, ...]:
        columns = ramp(3, 4, device=device)[-2:].t()
        images = ramp(2, 3, 4, 5, device=device)
        thin = ramp(5, 2, 1, 5, device=device)
        wide = thin.permute(3, 2, 1, 0)
        crooked = images.diagonal(1, 0, 2)
        normal = torch.nn.functional.batch_norm
        places = torch.empty(3, 3, 0, dtype=torch.int64, device=device)
        torch.nonzero(images, out=places)
        return (
            normal(columns, None, None, training=True),
            normal(images.to(memory_format=torch.channels_last), None, None, training=True),
            normal(images.transpose(2, 3), None, None, training=True),
            places,
            columns.logical_not(),
            columns.logical_xor(columns),
            columns.long().copysign(columns.sum()),
            columns.copysign(columns),
            wide.logaddexp(thin),
            wide.logaddexp2(thin),
            wide.heaviside(thin),
            wide.logical_and(thin),
            wide.logical_or(thin),
            wide // (thin.abs() + 1),
            columns.to(torch.complex64).angle(),
            crooked[crooked[:, 0, 0] > 0],
            crooked[torch.tensor([True, False, True])],
        )

    assert_same(program, atol=1e-5, rtol=1e-4)


KEEP_THE_FORMAT: dict[str, Callable[[Tensor], Tensor]] = {
    "convolution": lambda x: functional.conv2d(x, x[:, :, :2, :2]),
    "convolution by such a weight": lambda x: functional.conv2d(x.contiguous(), x[:, :, :2, :2]),
    "transposed": lambda x: functional.conv_transpose2d(x, x[:, :3, :2, :2].contiguous()),
    "shuffled": lambda x: functional.pixel_shuffle(x, 2),
    "channels shuffled": lambda x: functional.channel_shuffle(x, 2),
    "padded": lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "padded by its edges": lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
}


@pytest.mark.parametrize("name", KEEP_THE_FORMAT)
def test_images_keep_their_memory_format(name: str) -> None:
    def program(device: str) -> Tensor:
        images = ramp(4, 4, 5, 6, device=device) / 100
        return KEEP_THE_FORMAT[name](images.to(memory_format=torch.channels_last))

    assert_same(program, atol=1e-4, rtol=1e-4)


def test_one_volume_keeps_its_memory_format() -> None:
    def program(device: str) -> tuple[Tensor, ...]:
        volumes = ramp(1, 2, 4, 4, 6, device=device)
        last = volumes.to(memory_format=torch.channels_last_3d)[0].requires_grad_()
        pooled, places = functional.max_pool3d(last, 2, return_indices=True)
        (gradient,) = torch.autograd.grad(pooled.sum(), last)
        return pooled, places, functional.max_pool3d(volumes[0], 2), gradient

    assert_same(program)


def test_a_view_that_strides_forbid_raises() -> None:
    images = ramp(2, 3, 4, 5, device="xla").to(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        images.view(2, 60)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.int32),
        (torch.int32, torch.uint8),
        (torch.float64, torch.int64),
        (torch.bfloat16, torch.int16),
        (torch.uint8, torch.float32),
    ],
    ids=str,
)
def test_viewing_as_another_dtype(source: torch.dtype, target: torch.dtype) -> None:
    assert_same(lambda device: ramp(2, 8, dtype=source, device=device).view(target))


def test_writing_through_a_dtype_view() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        base = ramp(4, device=device)
        bits = base.view(torch.int32)
        bits[1] = 0x40490FDB
        base[2:] *= 2
        return base, bits

    assert_same(program)


def test_complex_views() -> None:
    def program(device: str) -> tuple[Tensor, ...]:
        pairs = ramp(3, 2, device=device)
        numbers = torch.view_as_complex(pairs)
        numbers.mul_(1j)
        numbers.real.add_(100)
        return pairs, numbers, numbers.imag, torch.view_as_real(numbers.conj().resolve_conj())

    assert_same(program)


def test_out_arguments_write_windows() -> None:
    def program(device: str) -> Tensor:
        base = torch.zeros(4, 6, device=device)
        left, right = ramp(4, 3, device=device), ramp(4, 3, device=device) + 1
        torch.add(left, right, out=base[:, 3:])
        torch.mul(left[0], 2, out=base[1, :3])
        return base

    assert_same(program)


def test_metadata_changes_in_place() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        base = ramp(2, 3, device=device)
        alias = base.view(2, 3)
        alias.t_().unsqueeze_(0)
        alias.mul_(3)
        return base, alias

    assert_same(program)


OVERLAPS: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda t: t[1:].add_(t[:-1]),
    "copy_": lambda t: t[1:].copy_(t[:-1]),
    "out": lambda t: torch.mul(t[:-1], 2, out=t[1:]),
    "in the other direction": lambda t: t[:-1].sub_(t[1:]),
    "not at all": lambda t: t[:6].add_(t[6:]),
    "wholly": lambda t: t.add_(t),
    "index_copy_": lambda t: t[1:].index_copy_(0, torch.tensor([0], device=t.device), t[:1]),
    "index_put_ under a mask": lambda t: t.index_put_((t == t,), t[:]),
    "index_copy_ of itself": lambda t: t.index_copy_(0, torch.arange(12, device=t.device), t[:]),
    "index_add_ of itself": lambda t: t.index_add_(0, torch.arange(12, device=t.device), t),
    "scatter_ of itself": lambda t: t.scatter_(0, torch.arange(12, device=t.device), t),
    "index_put_ at its own values": lambda t: (
        places := torch.arange(4, device=t.device)
    ).index_put_((places,), places.clone()),
    "cat into what it reads": lambda t: torch.cat([t[:2], t[1:3]], out=t[2:6]),
    "index_copy_ at no place": lambda t: t.index_copy_(0, torch.arange(0, device=t.device), t[:1]),
    "index_add_ at no place": lambda t: t.index_add_(0, torch.arange(0, device=t.device), t[:1]),
    "add_ of other sizes": lambda t: t[:4].add_(t[2:7]),
    "copy_ of other sizes": lambda t: t[:4].copy_(t[2:7]),
    "expanded add_": lambda t: t[:1].expand(3).add_(1),
    "expanded fill_": lambda t: t[:1].expand(3).fill_(2),
    "expanded zero_": lambda t: t[1:2].expand(3).zero_(),
    "expanded copy_": lambda t: t[:1].expand(3).copy_(t[:3]),
}


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_writing_what_is_read_elsewhere_is_refused_as_on_the_cpu(overlap: str) -> None:
    def program(device: str) -> tuple[Tensor, str]:
        base = ramp(12, device=device)
        try:
            OVERLAPS[overlap](base)
        except RuntimeError as error:
            return base, str(error)[:40]
        return base, "accepted"

    assert_same(program)


def test_views_of_views_are_kept_as_on_the_cpu() -> None:
    """Not by the functions that led to them, copied from view to view."""

    def program(device: str) -> list[object]:
        source = torch.ones((), device=device, requires_grad=True)
        base = torch.zeros(3, 4, device=device)
        view = base
        for _ in range(2000):  # a square of that would take seconds
            view = view.view(4, 3).t().unsqueeze(0).squeeze(0).t().view(12)[:12].view(3, 4)
        view.mul_(source)
        assert type(view.grad_fn).__name__ == "AsStridedBackward0"
        base.square().sum().backward()
        return [base.detach(), source.grad]

    assert_same(program)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.split(2)[1],
        lambda t: t.unbind()[0],
        lambda t: torch.view_as_real(t[1:])[0, :, 1],
        lambda t: torch.view_as_complex(torch.view_as_real(t)[1:, :2]).T,
        lambda t: t.conj()[1:].conj().mT,
        lambda t: torch._neg_view(t.mT)[1:3].conj(),
        lambda t: t[1:].view(torch.float32).view(torch.complex64),
        lambda t: t[1:].unsqueeze_(0).squeeze(),
    ],
)
@pytest.mark.parametrize("grad_mode", [True, False])
def test_a_view_sees_writes_that_autograd_does(
    view: Callable[[Tensor], Tensor], grad_mode: bool
) -> None:
    def program(device: str) -> list[object]:
        leaf = ramp(3, 4, dtype=torch.complex64, device=device).requires_grad_()
        base = leaf * 2
        with torch.set_grad_enabled(grad_mode):
            seen = view(base)
        said = ""
        base[1:] *= leaf[1:]
        try:
            seen.real.mul_(3)
        except RuntimeError as error:
            said = str(error)
        (gradient,) = torch.autograd.grad(base.abs().sum(), leaf)
        return [base, gradient, said.replace("CPUComplexFloatType", "XLAComplexFloatType")]

    assert_same(program)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool])
def test_whole_numbers_take_what_requires_gradients(dtype: torch.dtype) -> None:
    def program(device: str) -> list[Tensor | bool]:
        leaf = torch.full((), 2.0, device=device, requires_grad=True)
        base = torch.zeros(3, 5, dtype=dtype, device=device)
        base.view(-1).eq_(leaf * 0)
        other = torch.zeros(3, 5, dtype=dtype, device=device)
        flat = other.view(-1)
        flat[flat == 0] = leaf
        return [base, base.is_leaf, other, other.is_leaf]

    assert_same(program)


def test_tangents_of_views() -> None:
    def program(device: str) -> list[Tensor]:
        x, t = ramp(3, 4, device=device), ramp(3, 4, device=device) * 2
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.clone().T, t.T)
            view = dual[1:].unsqueeze(0)
            view.mul_(view.sum())
            dual[0] = 3
            return list(torch.autograd.forward_ad.unpack_dual(dual * 1))

    assert_same(program)


def test_functionalized_views_in_vmap() -> None:
    def change(x: Tensor) -> Tensor:
        copy = x.clone()
        first, second = copy.split(2)
        first.add_(1)
        second.mul_(2)
        return copy

    def program(device: str) -> list[Tensor]:
        rows = ramp(3, 4, device=device)
        inside = torch.func.vmap(torch.func.functionalize(change))(rows)
        return [inside, torch.func.functionalize(torch.func.vmap(change))(rows)]

    assert_same(program)


def test_bytes_of_bools_that_are_none(each_tier: str) -> None:
    def written(mask: Tensor) -> list[Tensor]:
        small = mask.view(torch.int8)
        small[1:3] -= 5
        small.view(torch.int16)[2:] = 0x0703
        return [small.clone(), mask & True, mask.int().sum(), mask.clone().sum()]

    def program(device: str, function: Callable[[Tensor], list[Tensor]] = written) -> list[Tensor]:
        mask = (torch.arange(6) % 2 == 0).to(device)
        return [*function(mask), *function(mask), mask.view(torch.int8), mask.sum()]

    for function in (written, assume_pure(written), torch_xla.compile(written)):
        assert_same(
            lambda device, own=function: program(device, own if device == "xla" else written)
        )


def test_any_bytes_may_be_seen_as_bools(each_tier: str) -> None:
    """Those of an image of 0 and 255, say. Programs would add them up."""

    def program(device: str) -> list[Tensor]:
        numbers = torch.tensor([0, 2, 255, 1, 0], dtype=torch.uint8)
        here = numbers.to(device)
        masks = [numbers.view(torch.bool).to(device), here.view(torch.bool)]
        masks.append(torch.zeros(7, dtype=torch.bool, device=device))
        masks[-1][1:6] = numbers.view(torch.bool)
        masks.append(torch.empty(0, dtype=torch.bool, device=device))
        masks[-1].set_(here.clone().untyped_storage(), 0, (5,))
        masks += [mask.clone() for mask in masks]
        masks += [torch.zeros_like(mask).copy_(mask) for mask in masks]
        if device == "xla":
            torch_xla.sync()  # some were copied by CPU kernels
            with torch_xla.experimental.eager_mode_context(False):
                return [mask.sum() for mask in masks]
        return [mask.sum() for mask in masks]

    assert_same(program)
