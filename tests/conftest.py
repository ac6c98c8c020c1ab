"""Options, paths, fixtures and a private program cache for the Python tests."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

_cache = tempfile.TemporaryDirectory(prefix="torch_xla_tests_")
os.environ["TORCH_XLA_CACHE_DIR"] = _cache.name
os.environ["HF_HUB_OFFLINE"] = "1"  # no test waits for a network

import torch_xla  # noqa: E402, F401  (every test may use the device)

pytest_plugins = ["hangs"]

LONGEST_FILES = {"test_modes", "test_installed", "test_training", "test_opinfo"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--mode",
        choices=("lazy", "eager", "pjrt", "interpreted", "foreign"),
        default="lazy",
        help="run the tests in this mode of the device (pjrt: eager, a program per operation; "
        "interpreted: lazy, but no graph is ever compiled; foreign: on a device that is not the "
        "host, PJRT_DEVICE=FOREIGN)",
    )
    parser.addoption(
        "--full",
        action="store_true",
        help="run every model with every optimizer, every OpInfo sample and every test in each "
        "mode, not a selection (-o hang_timeout=0: some take a quarter of an hour)",
    )
    parser.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="run every N-th test and OpInfo's every N-th operator only",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "lazy_only: tests what lazy mode alone promises, such as the number of programs"
    )
    config.addinivalue_line(
        "markers",
        "host_only(reason): tests what the CPU platform alone can; skipped with --mode foreign",
    )
    mode = config.getoption("--mode")
    if mode == "foreign":
        os.environ["PJRT_DEVICE"] = "FOREIGN"
        # What is float64 to PyTorch is computed in float32 there.
        precisions = torch.testing._comparison._DTYPE_PRECISIONS
        precisions[torch.float64] = precisions[torch.float32]
        precisions[torch.complex128] = precisions[torch.complex64]
    # Programs are what most tests test; tests/test_tiers.py and --mode interpreted do the rest.
    if mode == "interpreted":
        os.environ["TORCH_XLA_TIERS"] = "never"
    os.environ.setdefault("TORCH_XLA_TIERS", "off")
    if mode in ("eager", "pjrt"):
        os.environ["TORCH_XLA_EAGER"] = "pjrt" if mode == "pjrt" else "host"
        torch_xla.experimental.eager_mode(True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mode = config.getoption("--mode")
    if mode == "foreign":
        for item in items:
            if (marker := item.get_closest_marker("host_only")) is not None:
                (reason,) = marker.args
                item.add_marker(pytest.mark.skip(reason=f"the CPU platform alone: {reason}"))
    elif mode != "lazy":
        items[:] = [item for item in items if item.get_closest_marker("lazy_only") is None]
    every = config.getoption("--every")
    items[:] = [
        item
        for number, item in enumerate(items)
        if number % every == 0 or item.path.stem == "test_opinfo"  # which takes a sample itself
    ]
    # Two workers share the files: a long one at the end would run alone.
    items.sort(key=lambda item: item.path.stem not in LONGEST_FILES)


@pytest.fixture(scope="session", autouse=True)
def program_cache() -> Iterator[Path]:
    """Programs other runs left behind must not hide a compilation from the tests."""
    yield Path(_cache.name)
    _cache.cleanup()


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


@pytest.fixture(params=["off", "counted", "eager"])
def each_tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A test runs as programs, interpreted at first, and in eager mode."""
    name: str = request.param
    monkeypatch.setenv("TORCH_XLA_TIERS", "counted" if name == "counted" else "off")
    with torch_xla.experimental.eager_mode_context(name == "eager"):
        yield name


@pytest.fixture
def counters() -> Iterator[Callable[[str], int]]:
    """Reads counters and the number of samples of metrics, as they grew since the test began."""
    import torch_xla.debug.metrics as met

    def value(name: str) -> int:
        data = met.metric_data(name)
        return data[0] if data is not None else met.counter_value(name) or 0

    torch_xla.sync(wait=True)
    met.clear_all()
    yield value
