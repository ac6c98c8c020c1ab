"""Run a Python program in a process of its own and look at how it ended."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).parent
PRELUDE = "import torch, torch_xla\nimport torch_xla.debug.metrics as metrics\n"


def run_python(
    program: str, *arguments: str, timeout: float = 120.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """torch, torch_xla and its metrics are imported for the program."""
    paths = [str(TESTS), str(TESTS.parent / "examples"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def check_tests(file: str, environment: dict[str, str]) -> None:
    """Tests of a process of their own, for what a process decides once."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:logging", str(TESTS / file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-8000:]


def output_of(program: str, *arguments: str, timeout: float = 120.0, **environment: str) -> str:
    """The output of a program that must succeed."""
    done = run_python(program, *arguments, timeout=timeout, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
