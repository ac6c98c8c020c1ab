"""Sharded tensors. The number of devices is a process's for life, so the tests are in files of
their own (spmd_*_cases.py), which run in a process with 8 devices."""

import os
import re
from pathlib import Path

import pytest
import torch_xla.runtime as xr
from process import TESTS, check_tests, output_of, run_python

FILES = sorted(path.name for path in TESTS.glob("spmd_*_cases.py"))


@pytest.mark.parametrize("file", FILES)
def test_on_eight_devices(file: str) -> None:
    check_tests(file, {**os.environ, "CPU_NUM_DEVICES": "8", "XLA_USE_SPMD": "1"})


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


def test_the_guide_runs_as_it_stands() -> None:
    guide = (TESTS.parent / "docs" / "spmd.md").read_text()
    program = "".join(re.findall(r"```python\n(.*?)```", guide, re.DOTALL))
    output = output_of(program, CPU_NUM_DEVICES="8")
    for layout in ("data parallel", "fsdp", "tensor parallel"):
        assert len(re.findall(rf"^{layout} [34]\.\d+$", output, re.MULTILINE)) == 3
    assert "0:8 |" in output and f"{xr.device_type()} 7" in output


def test_a_changed_sharding_is_the_reason_given_for_a_compilation() -> None:
    program = """
        import torch_xla.distributed.spmd as xs
        mesh = xs.get_1d_mesh("x")
        for marks in (("x", None), ("x", None), (None, "x")):
            tensor = torch.ones(8, 8).to("xla")
            xs.mark_sharding(tensor, mesh, marks)
            result = tensor * 2
            torch_xla.sync()
    """
    environment = {"CPU_NUM_DEVICES": "8", "XLA_USE_SPMD": "1", "TORCH_XLA_EXPLAIN": "1"}
    done = run_python(program, **environment)
    assert done.returncode == 0, done.stderr
    assert "was sharded as {devices=[8,1]" in done.stderr
    assert "now {devices=[1,8]" in done.stderr


def test_partitioned_programs_are_kept_on_disk(tmp_path: Path) -> None:
    program = """
        import torch_xla.distributed.spmd as xs
        tensor = torch.arange(64.0).reshape(8, 8).to("xla")
        xs.mark_sharding(tensor, xs.get_1d_mesh("x"), ("x", None))
        result = tensor @ tensor
        torch_xla.sync()
        print(torch_xla._XLAC._get_xla_sharding_spec(result), result.sum().item())
        print(metrics.counter_value("UncachedCompile"))
    """
    environment = {
        "CPU_NUM_DEVICES": "8",
        "XLA_USE_SPMD": "1",
        "TORCH_XLA_CACHE_DIR": str(tmp_path / "cache"),
    }
    first, second = (output_of(program, **environment).splitlines() for _ in range(2))
    assert first[0] == second[0] and first[0].startswith("{devices=[8,1]")
    assert int(first[1]) > 0 and second[1] == "None"
