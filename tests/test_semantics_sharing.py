"""Copies, pickles and files keep what tensors share, with offsets, strides and gradients."""

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same, ramp
from torch import Tensor, nn
from torch.package import PackageExporter, PackageImporter
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.data import DataLoader, Dataset
from torch_xla import _XLAC


def _saved(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


COPIES: dict[str, Callable[[list[Tensor], str], list[Tensor]]] = {
    "deepcopy": lambda views, device: copy.deepcopy(views),
    "copies": lambda views, device: [copy.copy(view) for view in views],
    "load": lambda views, device: torch.load(_saved(views)),
    "load anything": lambda views, device: torch.load(_saved(views), weights_only=False),
    "load to device": lambda views, device: torch.load(_saved(views), map_location=device),
    "load from CPU": lambda views, device: torch.load(
        _saved(_views("cpu")), map_location=torch.device(device)
    ),
    "load by function": lambda views, device: torch.load(
        _saved(views), map_location=lambda storage, place: None
    ),
    "old format": lambda views, device: torch.load(
        _saved(views, _use_new_zipfile_serialization=False)
    ),
}


def _views(device: str) -> list[Tensor]:
    base = ramp(4, 6, device=device)
    return [base, base[1:3, 2:], base.t(), base.view(-1)[3:7], base[0, 0]]


def _sharing(tensors: list[Tensor]) -> list[bool]:
    addresses = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [one == other for one in addresses for other in addresses]


@pytest.mark.parametrize("kind", COPIES)
def test_views_of_one_storage(kind: str) -> None:
    def program(device: str) -> tuple[object, ...]:
        views = _views(device)
        copies = COPIES[kind](views, device)
        before = [t.clone() for t in views]
        copies[0].add_(100)
        places = [(t.storage_offset(), t.untyped_storage().nbytes()) for t in copies]
        shared = _sharing([*copies, *views])
        return (
            copies,
            places,
            shared,
            [torch.equal(x, y) for x, y in zip(before, views, strict=True)],
        )

    assert_same(program)


@pytest.mark.parametrize("weights_only", [True, False])
def test_loading_device_views_on_the_cpu(weights_only: bool) -> None:
    file = _saved(_views("xla"))
    loaded = torch.load(file, map_location="cpu", weights_only=weights_only)
    loaded[0].add_(100)
    expected = _views("cpu")
    expected[0].add_(100)
    torch.testing.assert_close(loaded, expected)
    assert _sharing(loaded) == _sharing(expected)


@pytest.mark.parametrize("weights_only", [True, False])
def test_loading_what_requires_gradients(weights_only: bool) -> None:
    def program(device: str) -> list[object]:
        leaf = ramp(3, 4, device=device).requires_grad_()
        weight = nn.Parameter(ramp(2, device=device))
        loaded = torch.load(_saved([leaf, weight]), weights_only=weights_only)
        return [(type(t).__name__, t.requires_grad, t.is_leaf, t.tolist()) for t in loaded]

    assert_same(program)


class _Tied(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.to(device)
        self.register_buffer("steps", ramp(6, device=device))
        self.register_buffer("window", self.steps[2:4])


def test_packages_of_modules() -> None:
    """PyTorch's package reads typed storages, which are to come back as such."""
    module, stream = nn.Linear(2, 3).to("xla"), io.BytesIO()
    with PackageExporter(stream) as exporter:
        exporter.extern("**")
        exporter.save_pickle("models", "linear.pkl", module)
    stream.seek(0)
    loaded = PackageImporter(stream).load_pickle("models", "linear.pkl")
    assert loaded.weight.device.type == "xla"
    torch.testing.assert_close(loaded.state_dict(), module.state_dict())


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: torch.load(_saved(model), weights_only=False),
    ],
    ids=["deepcopy", "pickle", "save"],
)
def test_modules_with_tied_weights_and_buffers(copied: Callable[[nn.Module], nn.Module]) -> None:
    def program(device: str) -> tuple[object, ...]:
        torch.manual_seed(0)
        model: Any = copied(_Tied(device))
        model.steps.add_(10)
        state = [model.state_dict()[name].detach() for name in ("steps", "window")]
        return model.head.weight is model.embedding.weight, state, _sharing(state)

    assert_same(program)


def test_a_state_dict_with_views() -> None:
    def program(device: str) -> tuple[object, ...]:
        torch.manual_seed(0)
        state = _Tied(device).state_dict()
        loaded = list(torch.load(_saved(state)).values())
        return loaded, _sharing(loaded)

    assert_same(program)


def test_a_copied_leaf_has_its_gradient() -> None:
    def program(device: str) -> tuple[object, ...]:
        leaf = ramp(2, 3, device=device)[:, 1:].requires_grad_()
        (leaf * 2).sum().backward()
        leaf.note = [leaf]  # type: ignore[attr-defined]
        copied: Any = copy.deepcopy(leaf)
        assert leaf.grad is not None
        leaf.grad.zero_()
        return copied, copied.grad, copied.note[0] is copied, copied.requires_grad

    assert_same(program)


class _Marked(Tensor):
    __slots__ = ("mark",)

    def new_empty(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().new_empty(*args, **kwargs).as_subclass(_Marked)

    def clone(self, **kwargs: Any) -> Tensor:  # type: ignore[override]
        return super().clone(**kwargs).as_subclass(Tensor)


def test_a_copied_subclass_is_one() -> None:
    def program(device: str) -> tuple[object, ...]:
        marked = ramp(2, 3, device=device)[:, 1:].as_subclass(_Marked)
        marked.mark = [1]
        copied: Any = copy.deepcopy([marked, marked])
        same = copied[0] is copied[1]
        plain = copied[0].as_subclass(Tensor)
        return type(copied[0]) is _Marked, same, copied[0].mark, plain, plain.stride()

    assert_same(program)


@pytest.mark.lazy_only
@pytest.mark.host_only("other memory is copied in the end")
def test_a_loaded_storage_is_not_reinterpreted_by_programs() -> None:
    loaded = torch.load(_saved(ramp(4, 6)), map_location="xla")
    assert "bitcast" not in _XLAC.tensors_stablehlo_text([loaded + 1])


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "permuted": lambda t: t.permute(0, 2, 3, 1),
    "channels last": lambda t: t.to(memory_format=torch.channels_last),
    "slice": lambda t: t[:, :, ::2],
    "expanded": lambda t: t[:1].expand(4, 3, 4, 5),
    "part": lambda t: t.permute(3, 1, 0, 2)[1:],
}
CONVERSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "double": lambda t: t.double(),
    "half": lambda t: t.to(torch.float16),
    "type": lambda t: t.type(torch.int32),
    "bool": lambda t: t.bool(),
    "complex": lambda t: t.to(torch.complex64),
    "copy": lambda t: t.to(t.dtype, copy=True),
    "contiguous": lambda t: t.to(torch.float64, memory_format=torch.contiguous_format),
    "copysign": lambda t: t.copysign(-2.0),
    "copysign of tensors": lambda t: t.copysign(-t),
    "random": lambda t: torch.rand_like(t) * 0,
    "frexp": lambda t: torch.frexp(t).mantissa,
}


@pytest.mark.parametrize("conversion", CONVERSIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversions_keep_the_order_of_dimensions(layout: str, conversion: str) -> None:
    assert_same(
        lambda device: CONVERSIONS[conversion](LAYOUTS[layout](ramp(2, 3, 4, 5, device=device)))
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_keep_the_order_of_dimensions_on_their_way(layout: str) -> None:
    tensor = LAYOUTS[layout](ramp(2, 3, 4, 5))
    elsewhere = tensor.to("meta").stride()  # any other device
    assert tensor.to("xla").stride() == elsewhere
    assert tensor.to("xla").cpu().stride() == elsewhere
    assert tensor.to("xla", torch.float64).stride() == elsewhere


def _double(received: Any, sent: Any) -> None:
    tensor, weight = received.get()
    sent.put((tensor * 2, tensor.device.type, type(weight).__name__))
    received.get()  # the receiver has its copy


def test_queues_between_processes() -> None:
    context = torch.multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=_double, args=(there, back))
    process.start()
    there.put((torch.arange(3.0, device="xla"), nn.Parameter(torch.ones(2, device="xla"))))
    doubled, device, kind = back.get(timeout=120)
    there.put(None)
    process.join()
    assert (doubled.tolist(), doubled.device.type) == ([0.0, 2.0, 4.0], "xla")
    assert (device, kind) == ("xla", "Parameter")


def _add(first: Any, second: Any, sent: Any) -> None:
    sent.put(((first + second).tolist(), first.device.type, second.device.type))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_arguments_of_a_process(method: str) -> None:
    context = torch.multiprocessing.get_context(method)
    back = context.SimpleQueue()
    arguments = (torch.arange(3.0, device="xla"), torch.ones(3, device="xla"), back)
    process = context.Process(target=_add, args=arguments)
    process.start()
    process.join(timeout=120)
    assert process.exitcode == 0
    assert back.get() == ([1.0, 2.0, 3.0], "xla", "xla")


class Numbers(Dataset[Tensor]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((2,), index, device="xla")


def test_workers_collate_tensors_of_the_device() -> None:
    for batch in DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn"):
        assert (batch.tolist(), batch.device.type) == ([[0, 0], [1, 1]], "xla")


def test_storages_made_for_the_device() -> None:
    assert torch.UntypedStorage([1, 2], device="xla").tolist() == [1, 2]
    assert torch.UntypedStorage(3, device="xla").device.type == "xla"
    assert torch.UntypedStorage([1, 2]).to(device="xla").tolist() == [1, 2]
    swapped = torch.arange(2, dtype=torch.int16, device="xla")
    swapped.untyped_storage().byteswap(torch.int16)
    assert swapped.tolist() == [0, 256]


def test_memory_that_processes_cannot_share() -> None:
    layer = nn.Linear(2, 2).to("xla")
    for share in (layer.share_memory, layer.weight.data.share_memory_):
        with pytest.raises(NotImplementedError, match=r"share tensor\.cpu\(\)"):
            share()
    assert not layer.weight.is_shared()


def test_memory_that_grows_by_half_a_complex_number() -> None:
    def program(device: str) -> list[torch.Tensor]:
        empty = torch.ones(2, 0, dtype=torch.complex64, device=device) * 2
        real = empty.real.T
        with warnings.catch_warnings():  # that it is resized
            warnings.simplefilter("ignore")
            torch.add(torch.tensor(3, device=device), 4, out=real)
        one = torch.ones(1, dtype=torch.complex64, device=device) * 2
        grown = one.real.resize_(3)
        grown[1:] = 5
        as_bytes = (torch.zeros(0, dtype=torch.float64, device=device) + 1).view(torch.uint8)
        as_bytes.resize_(13).copy_(torch.arange(13, device=device))
        return [real.clone(), real.logical_not_(), one, grown, as_bytes]

    for actual, expected in zip(program("xla"), program("cpu"), strict=True):
        assert torch.equal(actual.cpu(), expected)


def test_bytes_behind_the_last_whole_number_are_kept(each_tier: str) -> None:
    def program(device: str) -> list[torch.Tensor]:
        z = torch.full((1,), 2 + 1j, device=device)
        parts = z.real.resize_(3)
        parts[1:] = 5
        z.mul_(2j)
        as_bytes = torch.arange(11, dtype=torch.uint8, device=device)
        as_bytes[4:8].view(torch.int32).add_(1)
        as_bytes[:8].view(torch.complex64).zero_()
        return [z, parts, as_bytes]

    for actual, expected in zip(program("xla"), program("cpu"), strict=True):
        assert torch.equal(actual.cpu(), expected)


def test_parameters_that_wrap_other_tensors_are_saved() -> None:
    model = nn.Linear(2, 2, device="xla")
    halves = model.weight.detach(), model.weight.detach() * 2
    model.weight = nn.Parameter(TwoTensor(*halves))
    weight = torch.load(_saved(model), weights_only=False).weight
    assert type(weight.data) is TwoTensor and weight.requires_grad and weight.is_xla
    for half, expected in zip((weight.a, weight.b), halves, strict=True):
        assert half.is_xla and torch.equal(half.cpu(), expected.cpu())
