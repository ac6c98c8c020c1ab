"""A device that is not the host (PJRT_DEVICE=FOREIGN): no float64, late failures, no statistics."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch_xla
from compare import FOREIGN, assert_same

if not FOREIGN:
    pytest.skip("run by tests/test_modes.py, with --mode foreign", allow_module_level=True)


def test_nothing_of_the_host_is_used() -> None:
    assert torch_xla._XLAC.platform_name() == "foreign"
    assert not torch_xla._XLAC.host_memory()
    assert not torch_xla._XLAC.has_ffi()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_doubles_are_computed_in_floats(dtype: torch.dtype) -> None:
    third = torch.tensor([1 / 3, 2, -1], dtype=dtype)
    there = third.to("xla")
    single = torch.complex64 if dtype.is_complex else torch.float32
    assert there.dtype == dtype
    assert torch.equal(there.cpu(), third.to(single).to(dtype))

    def scaled(device: str, number: float) -> torch.Tensor:
        return (third.to(device) * number).exp() + torch.full(
            (3,), number, dtype=dtype, device=device
        )

    # As operands, literals, numbers that change, constants, and through a conversion.
    for number in (0.1, 0.2, 0.3):
        assert_same(partial(scaled, number=number))
    assert_same(lambda d: third.to(single).to(d).to(dtype).cumsum(0).mean())
    assert_same(lambda d: torch.view_as_real(third.to(d) + 0j))


def test_series_of_numbers_too_small_for_floats() -> None:
    x = torch.tensor([8.48])  # alone: XLA reorders products of one element
    for function in (torch.i0, torch.special.modified_bessel_k0):
        assert_same(lambda d, function=function: function(x.to(d)), rtol=1e-4, atol=1e-4)
    precise = (torch.special.bessel_j1, torch.special.airy_ai)  # which need doubles
    assert_same(lambda d: [function((-x).to(d)) for function in precise], rtol=1e-4, atol=1e-7)
    assert_same(lambda d: torch.hash_tensor(x.to(d)))  # of the bytes of doubles


def test_a_model_of_doubles_trains() -> None:
    def program(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        model = model.double().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        data = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).to(device)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    assert_same(program, rtol=1e-4, atol=1e-5)


def test_a_failure_comes_late_and_belongs_to_its_values() -> None:
    small = torch.ones(3, device="xla")
    kept = torch.arange(3.0, device="xla")
    weights = torch.ones(3, device="xla")
    torch_xla.sync(wait=True)
    large = small[0].expand(1 << 44).contiguous()
    weights.add_(1)  # in the memory of the former, which the failed program has taken
    torch_xla.sync()
    for lost in (large[:2], weights, weights + 1):
        with pytest.raises(torch.OutOfMemoryError, match="out of device memory"):
            lost.cpu()
    with pytest.raises(torch.OutOfMemoryError):
        torch_xla.sync(wait=True)  # hears of it, too, once
    assert kept.add(1).tolist() == [1, 2, 3]
    assert small.tolist() == [1, 1, 1]
    weights.fill_(7)
    del large, lost
    torch_xla.sync(wait=True)
    assert weights.sum().item() == 21


def test_memory_is_counted_here() -> None:
    before = torch_xla._XLAC.memory_stats(0)
    x = torch.ones(1 << 20, device="xla")
    torch_xla.sync(wait=True)
    after = torch_xla._XLAC.memory_stats(0)
    assert after["bytes_used"] - before["bytes_used"] >= 4 << 20
    assert after["bytes_limit"] == 0
    assert x[0].item() == 1


def test_devices_are_numbered_by_the_client(fresh_python: Callable[..., str]) -> None:
    program = """
import torch, torch_xla, torch_xla.runtime as xr
for i in range(3):
    x = torch.full((2,), float(i), device=f"xla:{i}")
    print((x + 1).to(f"xla:{(i + 1) % 3}").add(1).sum().item())
"""
    assert fresh_python(program, CPU_NUM_DEVICES="3").split() == ["4.0", "6.0", "8.0"]
