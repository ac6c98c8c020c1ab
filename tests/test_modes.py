"""The suite of behaviours passes in each mode of the device, not only in lazy mode."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch_xla

HERE = Path(__file__).parent
# Values, aliasing and in-place, random numbers, autograd, errors, threads.
SUITE = [
    *sorted(HERE.glob("test_semantics_*.py")),
    HERE / "test_values.py",
    HERE / "test_robustness_errors.py",
    HERE / "test_robustness_threads.py",
]
WITHOUT_PROGRAMS = [*sorted(HERE.glob("test_operators_*.py")), HERE / "test_training.py"]
# Each mode takes so many of the tests; `make test-modes` all of them.
EVERY = 19
# A sample of what tells a device that is not the host from one that is; `make
# test-foreign` runs the others.
FOREIGN = [HERE / "test_foreign.py"]

if torch_xla.experimental.is_eager_mode():
    pytest.skip("the suite already runs in another mode", allow_module_level=True)


@pytest.mark.parametrize(
    ("mode", "files"),
    [
        ("eager", SUITE + WITHOUT_PROGRAMS),
        ("pjrt", SUITE),
        ("foreign", FOREIGN),
        ("interpreted", [*SUITE, *WITHOUT_PROGRAMS, HERE / "test_opinfo.py"]),
    ],
    ids=["eager", "pjrt", "foreign", "interpreted"],
)
def test_behaviours(mode: str, files: list[Path], request: pytest.FixtureRequest) -> None:
    every = 1 if request.config.getoption("--full") or mode == "foreign" else EVERY
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--mode", mode, "--every", str(every), *map(str, files)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
