"""A pytest plugin for dev/suites: fewer tests of long files, those that pass on the CPU on xla, and
the device for suites that do not ask for one and for fixtures and constants that name one."""

import os
import pkgutil
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ON_CPU = os.environ.get("SUITES_DEVICE", "cpu") == "cpu"
PASSED = Path(os.environ.get("SUITES_PASSED", os.devnull))
FIXTURES = os.environ.get("SUITES_FIXTURES", "").split()

if not ON_CPU:
    import torch_xla  # noqa: F401  (most suites name the device and import nothing)

if not ON_CPU and os.environ.get("SUITES_DEFAULT_DEVICE"):
    import numpy
    import torch

    # What a suite makes without naming a device is on xla, and what it hands to numpy is copied,
    # as its authors would write it for any accelerator.
    torch.set_default_device("xla")
    from_numpy, to_numpy, to_array = torch.from_numpy, torch.Tensor.numpy, torch.Tensor.__array__

    def numpy_of(tensor: torch.Tensor, *, force: bool = False) -> Any:
        return to_numpy(tensor if tensor.requires_grad and not force else tensor.cpu(), force=force)

    def array_of(tensor: torch.Tensor, dtype: Any = None) -> Any:
        return to_array(tensor if tensor.requires_grad else tensor.cpu(), dtype)

    def from_numpy_on_device(array: numpy.ndarray[Any, Any]) -> torch.Tensor:
        return from_numpy(array).to(torch.get_default_device())

    torch.from_numpy = from_numpy_on_device
    torch.Tensor.numpy = numpy_of  # type: ignore[assignment, method-assign]
    torch.Tensor.__array__ = array_of  # type: ignore[assignment, method-assign]

if not ON_CPU:
    for constant in os.environ.get("SUITES_CONSTANTS", "").split():
        holder, _, constant_name = constant.rpartition(".")
        place = pkgutil.resolve_name(holder)
        setattr(place, constant_name, type(getattr(place, constant_name))("xla"))

peft_device = os.environ.get("SUITES_PEFT_DEVICE")
if peft_device:
    import peft.utils

    infer_device = peft.utils.infer_device
    for module in list(sys.modules.values()):
        if vars(module).get("infer_device") is infer_device:
            module.infer_device = lambda: peft_device  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    value = yield
    if not ON_CPU and fixturedef.argname in FIXTURES and value == "cpu":
        value = "xla"
        fixturedef.cached_result = (value, *fixturedef.cached_result[1:])
    return value


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ON_CPU:
        chosen = spread(items, int(os.environ["SUITES_TESTS_A_FILE"]))
    else:
        names = set(PASSED.read_text().splitlines())
        chosen = [item for item in items if on_any_device(item.nodeid) in names]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if ON_CPU and report.when == "call" and report.passed:
        with PASSED.open("a") as file:
            file.write(f"{on_any_device(report.nodeid)}\n")


def on_any_device(name: str) -> str:
    """A parametrised test's name without the device in it."""
    test, bracket, parameters = name.partition("[")
    return test + bracket + re.sub(r"\b(xla|tpu)(:0)?\b", "cpu", parameters)


def spread(items: list[pytest.Item], limit: int) -> list[pytest.Item]:
    """At most so many tests of a file, not the same in all: many inherit theirs."""
    files = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    chosen: list[pytest.Item] = []
    for file, tests in files.items():
        step = max(1, len(tests) / limit)
        first = zlib.crc32(file.encode()) % 97 / 97 * (step - 1)
        chosen += [tests[int(first + place * step)] for place in range(min(limit, len(tests)))]
    return chosen
