"""Sharded tensors. The number of devices is a process's for life, so the tests are in files of
their own (spmd_*_cases.py), which run in a process with 8 devices."""

import os
import subprocess
import sys

import pytest
from process import TESTS, run_python

FILES = sorted(path.name for path in TESTS.glob("spmd_*_cases.py"))


@pytest.mark.parametrize("file", FILES)
def test_on_eight_devices(file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:logging", str(TESTS / file)],
        env={**os.environ, "CPU_NUM_DEVICES": "8", "XLA_USE_SPMD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-8000:]


def test_marking_outside_of_spmd_mode_says_what_to_call() -> None:
    done = run_python(
        """
        import torch_xla.distributed.spmd as xs
        mesh = xs.Mesh([0], (1,), ("data",))
        xs.mark_sharding(torch.ones(4, device="xla"), mesh, ("data",))
        """
    )
    assert done.returncode != 0 and "use_spmd()" in done.stderr


def test_a_plugin_that_does_not_connect_processes_says_so_at_its_start() -> None:
    done = run_python(
        """
        import torch_xla.runtime as xr
        from torch.distributed import HashStore
        xr.init_processes(HashStore(), 1, 2)
        assert (xr.process_index(), xr.process_count()) == (1, 2)
        torch.ones(1, device="xla").cpu()
        """
    )
    assert done.returncode != 0 and "does not connect processes" in done.stderr
