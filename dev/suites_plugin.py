"""A pytest plugin for dev/suites: fewer tests of long files, those that pass on the CPU on xla, and
a device for PEFT and for fixtures that name one."""

import os
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ON_CPU = os.environ["SUITES_DEVICE"] == "cpu"
PASSED = Path(os.environ["SUITES_PASSED"])
FIXTURES = os.environ["SUITES_FIXTURES"].split()

if not ON_CPU:
    import torch_xla  # noqa: F401  (most suites name the device and import nothing)

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
        chosen = [item for item in items if item.nodeid in names]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if ON_CPU and report.when == "call" and report.passed:
        with PASSED.open("a") as file:
            file.write(f"{report.nodeid}\n")


def spread(items: list[pytest.Item], limit: int) -> list[pytest.Item]:
    """At most so many tests of a file."""
    files = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        files[item.location[0]].append(item)
    chosen: list[pytest.Item] = []
    for tests in files.values():
        step = max(1, len(tests) / limit)
        chosen += [tests[int(place * step)] for place in range(min(limit, len(tests)))]
    return chosen
