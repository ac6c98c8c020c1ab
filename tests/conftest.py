"""Options, paths and a private program cache for the Python tests."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

_cache = tempfile.TemporaryDirectory(prefix="torch_xla_tests_")
os.environ["TORCH_XLA_CACHE_DIR"] = _cache.name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run every model with every optimizer and every OpInfo sample, not a selection",
    )


@pytest.fixture(scope="session", autouse=True)
def program_cache() -> Iterator[Path]:
    """Programs other runs left behind must not hide a compilation from the tests."""
    yield Path(_cache.name)
    _cache.cleanup()
