"""The device through PyTorch's own interfaces, as users of `torch.cuda` and of any accelerator know
them."""

import os
import time

import pytest
import torch
import torch.utils.checkpoint
import torch_xla
from process import check_tests
from torch import nn

MEGABYTE = 1 << 20


# torch.accelerator


@pytest.mark.parametrize("cases", ["asked_for", "unasked"])
def test_as_an_accelerator(cases: str) -> None:
    """A process asks for it once, so the tests are in files of their own."""
    environment = {name: value for name, value in os.environ.items() if name != "PJRT_DEVICE"}
    if cases == "asked_for":
        environment["PJRT_DEVICE"] = "CPU"
    check_tests(f"accelerator_{cases}_cases.py", environment)


def test_memory_of_the_host_and_of_programs_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value counts once, whoever uses its bytes."""
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")
    torch_xla.sync(wait=True)
    before = torch.xla.memory_allocated()
    with torch_xla.experimental.eager_mode_context(True):
        made = torch.ones(MEGABYTE, device="xla")
    assert torch.xla.memory_allocated() == before + 4 * MEGABYTE
    result = made * 2
    torch_xla.sync(wait=True)
    assert torch.xla.memory_allocated() == before + 8 * MEGABYTE
    with torch_xla.experimental.eager_mode_context(True):
        made.add_(1)
        result.add_(1)
    assert torch.xla.memory_allocated() == before + 8 * MEGABYTE
    del made, result
    assert torch.xla.memory_allocated() == before


# torch.xla, as torch.cuda


def test_what_a_device_is() -> None:
    assert torch.get_device_module("xla") is torch.xla
    assert torch.xla.is_available() and torch.xla.is_bf16_supported()
    properties = torch.xla.get_device_properties("xla:0")
    assert torch.xla.get_device_name() == properties.name and "Cpu" in properties.name
    assert properties.total_memory == torch.xla.mem_get_info()[1] > 0
    assert "PJRT API" in properties.plugin and torch.xla.get_device_capability() == (0, 0)
    torch.xla.set_device("xla:0")
    with torch.xla.device(0):
        assert torch.xla.current_device() == 0
    for use in (torch.xla.set_device, torch.xla.device, torch.xla.get_device_name):
        with pytest.raises(RuntimeError, match="there is no device xla:9"):
            use(9)


def test_moving_by_name() -> None:
    host = torch.arange(3.0)
    assert host.xla().is_xla and host.xla(0).device == host.xla("xla:0").device
    assert not host.is_xla and host.xla().cpu().tolist() == [0, 1, 2]
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = model[0].weight
    assert model.xla() is model and model[0].weight is weight and weight.is_xla
    assert model[1].running_mean.is_xla
    with pytest.raises(ValueError, match="expected an xla device"):
        host.xla("cuda:0")


def test_types_by_name_lead_to_the_device_and_back() -> None:
    device, host = torch.arange(2, device="xla"), torch.arange(2.0, dtype=torch.bfloat16)
    assert host.xla().type() == "torch.xla.BFloat16Tensor"
    for moved in (host.type("torch.xla.LongTensor"), host.type(device.type())):
        assert moved.device == device.device and torch.equal(moved, device)
    assert device.type(device.type()) is device
    assert device.type("torch.xla.FloatTensor").dtype == torch.float32
    assert device.type("torch.DoubleTensor").device.type == "cpu"
    assert nn.Linear(1, 1).type("torch.xla.HalfTensor").weight.type() == "torch.xla.HalfTensor"
    with pytest.raises(ValueError, match=r"invalid type: 'torch\.xla\.Tensors'"):
        host.type("torch.xla.Tensors")


def test_random_state() -> None:
    torch.xla.manual_seed(7)
    assert torch.xla.initial_seed() == 7
    state = torch.xla.get_rng_state()
    first = torch.rand(3, device="xla").tolist()
    with torch.random.fork_rng(device_type="xla"):
        torch.xla.manual_seed_all(8)
        assert torch.rand(3, device="xla").tolist() != first
    torch.xla.set_rng_state(state)
    assert torch.rand(3, device="xla").tolist() == first


@pytest.mark.parametrize("make", [torch.xla.Event, lambda **k: torch.Event("xla", **k)])
def test_events_measure_what_is_between_them(make) -> None:
    matrix = torch.rand(600, 600, device="xla")
    (matrix @ matrix).sum().item()
    begin, end, later = (make(enable_timing=True) for _ in range(3))
    start = time.perf_counter()
    begin.record()
    result = matrix
    for _ in range(6):
        result = result @ matrix
    end.record()
    wall = 1000 * (time.perf_counter() - start)
    later.record()
    end.synchronize()
    assert 0.1 < begin.elapsed_time(end) <= wall
    assert later.elapsed_time(begin) < 0 and end.query()
    assert result.isfinite().all()


def test_streams_are_the_one_in_order() -> None:
    stream = torch.xla.Stream()
    assert stream == torch.xla.current_stream() == torch.xla.default_stream("xla:0")
    stream.wait_stream(torch.xla.current_stream())
    with torch.xla.stream(stream):
        value = torch.ones(2, device="xla") * 2
        event = stream.record_event()
    torch.xla.current_stream().wait_event(event)
    event.synchronize()
    stream.synchronize()
    assert torch.xla._XLAC.pending_node_count(0) == 0 and value.tolist() == [2, 2]


def test_mixed_precision() -> None:
    model, x = nn.Linear(4, 2).xla(), torch.ones(3, 4, device="xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.xla.amp.GradScaler(init_scale=4.0)
    with torch.autocast("xla", dtype=torch.float16):
        loss = model(x).float().square().sum()
    assert torch.get_autocast_dtype("xla") == torch.bfloat16
    before = model.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4 and not torch.equal(before, model.weight)


def test_default_device() -> None:
    torch.set_default_device("xla")
    try:
        assert torch.get_default_device().type == "xla"
        assert torch.ones(1).is_xla and nn.Linear(1, 1).weight.is_xla
    finally:
        torch.set_default_device(None)
    with torch.device("xla"):
        assert torch.arange(3).is_xla and nn.Embedding(2, 2).weight.is_xla
    assert not torch.ones(1).is_xla


# Helpers of PyTorch that know devices by these interfaces


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_repeats_random_numbers(reentrant: bool) -> None:
    x = torch.ones(64, device="xla", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(
        nn.functional.dropout, x, use_reentrant=reentrant, preserve_rng_state=True
    )
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_tests_written_for_device_types(fresh_python) -> None:
    """PyTorch's own way to run a test on each device, with this one among them."""
    program = """
import torch
from torch.testing._internal import common_device_type
from torch.testing._internal.common_utils import TestCase, run_tests

class XLATestBase(common_device_type.DeviceTypeTestBase):
    device_type = "xla"

common_device_type.device_type_test_bases.append(XLATestBase)

class TestAdd(TestCase):
    @common_device_type.dtypes(torch.float32, torch.int64)
    def test_add(self, device, dtype):
        x = torch.ones(3, device=device, dtype=dtype)
        self.assertEqual(x + x, torch.full((3,), 2, device=device, dtype=dtype))
        print(x.device, dtype)

    @common_device_type.onlyCPU
    def test_cpu(self, device):
        raise AssertionError("not for this device")

common_device_type.instantiate_device_type_tests(TestAdd, globals(), only_for="xla", allow_xpu=True)
import unittest
result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(TestAddXLA))
print(result.testsRun, len(result.skipped), result.wasSuccessful())
"""
    lines = fresh_python(program).splitlines()
    assert lines[-1] == "3 1 True"
    assert {"xla:0 torch.float32", "xla:0 torch.int64"} <= set(lines)
