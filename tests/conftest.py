"""Options, paths and fixtures shared by the Python tests."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run every model with every optimizer and every OpInfo sample, not a selection",
    )


@pytest.fixture
def fresh_python() -> Callable[..., str]:
    """Runs a program in a new interpreter and returns what it printed; fails if it fails."""

    def run(program: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def counters() -> Iterator[Callable[[str], int]]:
    """Reads counters and the number of samples of metrics, as they grew since the test began."""
    import torch_xla
    import torch_xla.debug.metrics as met

    def value(name: str) -> int:
        data = met.metric_data(name)
        return data[0] if data is not None else met.counter_value(name) or 0

    torch_xla.sync(wait=True)
    met.clear_all()
    yield value
