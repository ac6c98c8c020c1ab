"""Run by test_device_interfaces.py with PJRT_DEVICE set: the device is the accelerator."""

import gc

import pytest
import torch
import torch.utils.benchmark
import torch.utils.checkpoint
import torch_xla
from torch import nn
from torch.utils.data import DataLoader

MEGABYTE = 1 << 20


def test_accelerator() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("xla")
    assert torch.accelerator.device_count() == 1
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(0):
        torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().device.type == "xla"
    assert torch.bfloat16 in torch.accelerator.get_device_capability()["supported_dtypes"]
    assert torch.get_device_module() is torch.xla


def test_numbers_are_devices() -> None:
    assert torch.device(0) == torch.ones(2).to(0).device == torch.device("xla:0")
    assert torch.ones(2, device=0).is_xla and nn.Linear(2, 2).to(0).weight.is_xla


@pytest.mark.parametrize("module", [torch.accelerator, torch.xla])
def test_memory_follows_tensors(module, each_tier: str) -> None:
    gc.collect()  # what other tests left
    torch_xla.sync(wait=True)
    module.reset_peak_memory_stats()
    before = module.memory_allocated()
    assert module.max_memory_allocated() == before
    first = torch.ones(MEGABYTE, device="xla")
    torch_xla.sync(wait=True)
    assert module.memory_allocated() == before + 4 * MEGABYTE
    second = first + 1
    torch_xla.sync(wait=True)
    assert module.memory_allocated() == before + 8 * MEGABYTE
    del second
    assert module.memory_allocated() == before + 4 * MEGABYTE
    assert module.max_memory_allocated() == before + 8 * MEGABYTE
    stats = module.memory_stats()
    assert stats["allocated_bytes.all.current"] == module.memory_allocated()
    assert stats["allocated_bytes.all.peak"] == module.max_memory_allocated()
    module.reset_peak_memory_stats()
    assert module.max_memory_allocated() == before + 4 * MEGABYTE
    first.add_(1)  # in place: no more memory, neither as a program nor as memory of the host
    torch_xla.sync(wait=True)
    assert module.memory_allocated() == before + 4 * MEGABYTE
    module.empty_cache()
    info = torch.accelerator.get_memory_info if module is torch.accelerator else module.mem_get_info
    free, total = info()
    assert free == total - module.memory_allocated() > 0
    assert first.sum().item() == 2 * MEGABYTE


def test_pinned_memory() -> None:
    plain = torch.arange(6.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and pinned[2:].is_pinned() and not plain.is_pinned()
    assert pinned.pin_memory() is pinned
    assert pinned.to("xla", non_blocking=True).tolist() == plain.tolist()
    assert torch.empty(3, pin_memory=True).is_pinned()
    del pinned
    assert not torch.arange(6.0).is_pinned()


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_with_pinned_memory(workers: int) -> None:
    data = DataLoader(torch.arange(8.0), batch_size=4, num_workers=workers, pin_memory=True)
    batches = list(data)
    assert [batch.is_pinned() for batch in batches] == [True, True]
    assert [batch.xla().sum().item() for batch in batches] == [6, 22]


def test_autograd_on_an_accelerator() -> None:
    """The engine orders streams of accelerators: gradients are those of the CPU."""
    gradients = {}
    for device in ("cpu", "xla"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        x = torch.randn(5, 4)
        model, x = model.to(device), x.to(device).requires_grad_()
        result = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        (result + model(x)).sum().backward()
        gradients[device] = [p.grad.cpu() for p in (x, *model.parameters())]
    torch.testing.assert_close(gradients["xla"], gradients["cpu"])


def test_benchmark_timer() -> None:
    timer = torch.utils.benchmark.Timer(
        "(x @ x).sum(); torch.xla.synchronize()",
        globals={"x": torch.rand(32, 32, device="xla"), "torch": torch},
    )
    assert timer.timeit(3).median > 0
