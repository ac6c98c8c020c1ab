"""Run by test_device_interfaces.py without PJRT_DEVICE: the device is nobody's default."""

import pytest
import torch
from torch.utils.data import DataLoader


def test_nobody_gets_an_accelerator_unasked() -> None:
    assert not torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() is None
    assert torch.get_device_module() is torch.cpu
    with pytest.raises(RuntimeError, match="accelerator"):
        torch.ones(1).to(0)
    assert not torch.ones(1).is_pinned()
    data = DataLoader(torch.arange(4.0), batch_size=2)
    assert [batch.sum().item() for batch in data] == [1, 5]


def test_fork_rng_keeps_the_numbers_of_a_device_used_by_name() -> None:
    torch.rand(1, device="xla").item()
    for options, kept in (({}, True), ({"devices": []}, False), ({"enabled": False}, False)):
        with torch.random.fork_rng(**options):
            inside = torch.rand(3, device="xla"), torch.rand(3)
        after = torch.rand(3, device="xla"), torch.rand(3)
        assert torch.equal(inside[0], after[0]) == kept
        assert torch.equal(inside[1], after[1]) == options.get("enabled", True)
