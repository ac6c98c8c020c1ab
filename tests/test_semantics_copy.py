"""Moving values: between devices and dtypes, to disk, to other libraries, into copies."""

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from compare import assert_same, ramp
from torch import Tensor, nn

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(dtype: torch.dtype) -> None:
    for shape in ((3, 4), (), (0,), (2, 0, 3)):
        original = ramp(*shape, dtype=dtype)
        moved = original.to("xla")
        assert moved.device.type == "xla" and moved.dtype == dtype
        assert torch.equal(moved.cpu(), original)


@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_copy_converts_dtypes(target: torch.dtype) -> None:
    def program(device: str) -> list[Tensor]:
        copies = []
        for source in (torch.float32, torch.int64, torch.bool, torch.bfloat16):
            values = ramp(2, 3, dtype=source, device=device)
            copies.append(torch.zeros(2, 3, dtype=target, device=device).copy_(values))
            copies.append(values.to(target))
        return copies

    assert_same(program)


def test_copy_across_devices_and_layouts() -> None:
    source = ramp(4, 6)
    device_side = torch.zeros(6, 4, device="xla")
    device_side.t().copy_(source)
    assert torch.equal(device_side.cpu(), source.t())
    device_side[2:4].copy_(source.t()[0:2].to(torch.float64))
    host_side = torch.full((6, 8), -1, dtype=torch.int32)
    host_side[:, ::2].copy_(device_side)
    expected = source.t().clone()
    expected[2:4] = source.t()[0:2]
    assert torch.equal(host_side[:, ::2], expected.int())
    assert (host_side[:, 1::2] == -1).all()


def test_copy_broadcasts() -> None:
    assert_same(lambda d: torch.zeros(3, 4, device=d).copy_(ramp(4, device=d)))
    target = torch.zeros(3, 4, device="xla")
    assert torch.equal(target.copy_(ramp(3, 1)).cpu(), ramp(3, 1).expand(3, 4))


def test_non_blocking_copies() -> None:
    source = ramp(100, 100)
    moved = source.to("xla", non_blocking=True)
    result = (moved + 1).to("cpu", non_blocking=True)
    assert torch.equal(result, source + 1)
    target = torch.empty(100, 100)
    target.copy_(moved * 2, non_blocking=True)
    assert torch.equal(target, source * 2)


def test_changing_the_host_tensor_after_the_copy_changes_nothing() -> None:
    source = torch.ones(1024)
    moved = source.to("xla")
    source.zero_()
    assert moved.sum().item() == 1024


def test_changing_a_host_copy_does_not_change_the_device() -> None:
    tensor = torch.ones(1024, device="xla")
    tensor.cpu().zero_()
    tensor.cpu().zero_()
    assert tensor.sum().item() == 1024


def test_host_values() -> None:
    tensor = torch.tensor([[1, 2], [3, 4]], device="xla")
    assert tensor.tolist() == [[1, 2], [3, 4]]
    assert tensor[1, 0].item() == 3
    assert bool((tensor > 0).all())
    assert int(tensor.sum()) == 10
    assert [int(row.sum()) for row in tensor] == [3, 7]
    assert (
        repr(torch.tensor([1.5, 2.0], device="xla")) == "tensor([1.5000, 2.0000], device='xla:0')"
    )
    assert tensor.numpy(force=True).tolist() == [[1, 2], [3, 4]]


def test_save_and_load(tmp_path: Path) -> None:
    base = ramp(4, 6, device="xla")
    parameter = nn.Parameter(ramp(3, device="xla"))
    path = tmp_path / "tensors.pt"
    torch.save({"base": base, "view": base[1:3], "parameter": parameter}, path)
    loaded = torch.load(path)
    assert loaded["base"].device.type == "xla"
    assert torch.equal(loaded["base"].cpu(), base.cpu())
    assert torch.equal(loaded["view"].cpu(), base[1:3].cpu())
    assert isinstance(loaded["parameter"], nn.Parameter)
    on_host = torch.load(path, map_location="cpu")
    assert on_host["base"].device.type == "cpu"
    assert torch.equal(on_host["base"], base.cpu())


def test_host_checkpoint_loads_onto_the_device() -> None:
    buffer = io.BytesIO()
    torch.save({"weight": ramp(3, 4)}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location="xla")
    assert loaded["weight"].device.type == "xla"
    assert torch.equal(loaded["weight"].cpu(), ramp(3, 4))


def test_pickle_and_deepcopy() -> None:
    tensor = ramp(3, 4, device="xla")
    unpickled = pickle.loads(pickle.dumps(tensor))
    assert unpickled.device.type == "xla" and torch.equal(unpickled.cpu(), tensor.cpu())
    copied = copy.deepcopy(tensor)
    copied.zero_()
    assert tensor.sum().item() == 66
    linear = nn.Linear(3, 2).to("xla")
    clone = copy.deepcopy(linear)
    with torch.no_grad():
        clone.weight.zero_()
    assert linear.weight.abs().sum().item() > 0
    assert clone.weight.requires_grad


def test_dlpack_with_host_tensors() -> None:
    host = ramp(3, 4)
    tensor = torch.from_dlpack(host).to("xla")
    assert torch.equal(torch.from_dlpack(tensor.cpu()), host)


def test_dlpack_exports_and_imports() -> None:
    from torch_xla.utils import dlpack

    tensor = ramp(3, 4, device="xla") + 1
    exported = torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(tensor))
    assert torch.equal(exported, ramp(3, 4) + 1)
    imported = dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(ramp(2, 3)))
    assert imported.device.type == "xla"
    assert torch.equal(imported.cpu(), ramp(2, 3))


def test_storage_identity() -> None:
    base = ramp(4, 6, device="xla")
    view, other = base[1:], ramp(4, 6, device="xla")
    assert base.is_set_to(base.view(4, 6))
    assert torch._C._is_alias_of(base, view) and not torch._C._is_alias_of(base, other)
    assert base.untyped_storage().nbytes() == 4 * 6 * 4
    assert base.untyped_storage().data_ptr() == view.untyped_storage().data_ptr() != 0
    assert base.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
    assert view.data_ptr() == base.data_ptr() + 6 * 4
    assert base.view(-1)[-1].data_ptr() == base.data_ptr() + 23 * 4
    address = base.data_ptr()
    base.add_(1)
    assert base.data_ptr() == address


def test_factories() -> None:
    def program(device: str) -> list[Tensor]:
        like = ramp(2, 3, dtype=torch.int32, device=device)
        return [
            torch.zeros(2, 3, device=device),
            torch.ones(2, dtype=torch.bool, device=device),
            torch.full((2, 2), 7, device=device),
            torch.full((2,), 1.5, dtype=torch.bfloat16, device=device),
            torch.arange(3, 20, 4, device=device),
            torch.arange(0, 1, 0.25, device=device),
            torch.linspace(0, 1, 5, device=device),
            torch.logspace(0, 2, 3, device=device),
            torch.eye(3, device=device),
            torch.tensor([1, 2, 3], device=device),
            torch.tensor(2.5, device=device),
            torch.scalar_tensor(3, device=device),
            torch.zeros_like(like),
            torch.full_like(like, 4, dtype=torch.float64),
            like.new_ones(2, 2),
            like.new_tensor([1.5]),
            torch.tril_indices(3, 3, device=device),
            torch.empty(0, device=device),
            torch.hann_window(4, device=device),
            torch.kaiser_window(4, False, 3.0, dtype=torch.float64, device=device),
        ]

    assert_same(program)


def test_host_scalars_mix_with_device_tensors() -> None:
    tensor = ramp(3, device="xla")
    assert torch.equal((tensor + torch.tensor(2.0)).cpu(), ramp(3) + 2)
    assert torch.equal((torch.tensor(2.0) * tensor).cpu(), ramp(3) * 2)


def test_a_clone_keeps_strides_of_dimensions_of_one_element(each_tier: str) -> None:
    def strides(device: str) -> list[tuple[int, ...]]:
        part = ramp(1, 3, 4, device=device)[:, 1::3]
        column = ramp(2, 1, device=device)[:1].T
        apart = ramp(2, 3, 4, device=device)[:, 1::3, ::2]
        return [part.clone().stride(), column.clone().stride(), apart.clone().stride()]

    assert strides("xla") == strides("cpu")


def test_memory_that_was_not_written_is_filled_where_algorithms_are_deterministic() -> None:
    def program(device: str) -> list[torch.Tensor]:
        whole = torch.empty(3, dtype=torch.int32, device=device)
        strided = torch.empty_strided((2, 2), (1, 2), device=device)
        grown = torch.ones(2, device=device).resize_(4)
        return [whole, strided, torch.empty_like(strided, dtype=torch.bool), grown]

    torch.use_deterministic_algorithms(True)
    try:
        actual, expected = program("xla"), program("cpu")
    finally:
        torch.use_deterministic_algorithms(False)
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True)


def test_mode_is_written_where_it_is_told() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        values = torch.empty(2, dtype=torch.int64, device=device)
        places = torch.empty(2, dtype=torch.int64, device=device)
        numbers = torch.tensor([[1, 2, 2], [3, 3, 1]], device=device)
        torch.mode(numbers, 1, out=(values, places))
        return values, places

    assert_same(program)
