"""`python -m torch_xla`: what a bug report should say about the machine, and whether it works."""

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator

import torch

from torch_xla import _XLAC, runtime
from torch_xla._internal import plugins
from torch_xla._internal.commands import cache
from torch_xla.version import __version__

_PACKAGES = (
    *("numpy", "fastatomstruct-xla-cpu", "libtpu", "jax", "jaxlib"),
    *("accelerate", "transformers", "lightning", "peft", "safetensors"),
)
_PREFIXES = (
    "TORCH_XLA_",
    "XLA_",
    "PJRT_",
    "TPU_",
    "LIBTPU_",
    "CPU_NUM_",
    "OMP_",
    "MKL_",
    "MALLOC_",
)
_NAMES = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "USE_TORCH_XLA", "LD_LIBRARY_PATH", "LD_PRELOAD")


def run(options: argparse.Namespace) -> int:
    errors = _Errors()
    for name, value in _environment(errors):
        print(f"{name:24} {value}", flush=True)
    passed = True
    for name, test in (("one addition", _add), ("one training step", _train)):
        passed = _print_test(name, test, errors) and passed
    return 0 if passed else 1


class _Errors:
    """What failed so far: one cause often stops all that follows, and is read once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def words(self, error: Exception) -> str:
        words = str(error)
        if words in self._said:
            return "as above"
        self._said.add(words)
        return words


def _environment(errors: _Errors) -> Iterator[tuple[str, str]]:
    yield "torch-pjrt", f"{__version__} in {os.path.dirname(_XLAC.__file__)}"
    yield "PyTorch", f"{torch.__version__}, {torch.get_num_threads()} threads"
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.platform()}, {os.cpu_count()} processors"
    for name in _PACKAGES:
        if (version := _version(name)) is not None:
            yield name, version
    yield "platform", runtime.device_type()
    for name, ask in (
        ("plugin", _plugin),
        ("plugin's version", _XLAC.plugin_version),
        ("devices", _devices),
        ("programs on disk", _cache),
    ):
        yield name, _or_error(ask, errors)
    for name, value in sorted(os.environ.items()):
        if name.startswith(_PREFIXES) or name in _NAMES:
            yield name, repr(value)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _or_error(value: Callable[[], str], errors: _Errors) -> str:
    """A machine that does not work is the one that is reported."""
    try:
        return value()
    except RuntimeError as error:
        return f"error: {errors.words(error)}"


def _plugin() -> str:
    return os.environ.get("TORCH_XLA_PLUGIN_PATH") or plugins.find(runtime.device_type())


def _devices() -> str:
    count = _XLAC.device_count()
    return f"{count}, the first of them {_XLAC.device_description(0)}"


def _cache() -> str:
    directory = _XLAC.default_cache_directory()
    if not directory:
        return "none are kept"
    return f"{cache.total(_XLAC.list_cache(directory, verify=False))} in {directory}"


def _print_test(name: str, test: Callable[[], None], errors: _Errors) -> bool:
    start = time.perf_counter()
    try:
        test()
    except Exception as error:
        print(f"{name:24} FAILED: {type(error).__name__}: {errors.words(error)}")
        return False
    print(f"{name:24} passed in {time.perf_counter() - start:.2f} s")
    return True


def _add() -> None:
    result = (torch.ones(3, device="xla") + torch.arange(3.0, device="xla")).tolist()
    if result != [1, 2, 3]:
        raise RuntimeError(f"1 + [0, 1, 2] is {result}")


def _train() -> None:
    """The loss of a linear model after a step, as the CPU has it."""
    losses = []
    for device in ("cpu", "xla"):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = torch.nn.Linear(4, 2)
            x = torch.randn(8, 4).to(device)
        model = model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    if abs(losses[0] - losses[1]) > 1e-4 * abs(losses[0]):
        raise RuntimeError(f"the loss is {losses[1]}, on the CPU it is {losses[0]}")
