"""A pytest plugin for dev/suites: fewer tests of long files, and a device for PEFT."""

import os
import sys
from collections import defaultdict

import pytest

if os.environ["SUITES_DEVICE"] == "xla":
    import torch_xla  # noqa: F401  (most suites name the device and import nothing)

peft_device = os.environ.get("SUITES_PEFT_DEVICE")
if peft_device:
    import peft.utils

    infer_device = peft.utils.infer_device
    for module in list(sys.modules.values()):
        if vars(module).get("infer_device") is infer_device:
            module.infer_device = lambda: peft_device  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limit = int(os.environ["SUITES_TESTS_A_FILE"])
    files = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        files[item.location[0]].append(item)
    chosen: list[pytest.Item] = []
    for tests in files.values():
        step = max(1, len(tests) / limit)
        chosen += [tests[int(place * step)] for place in range(min(limit, len(tests)))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
