"""A pytest plugin for dev/suites: fewer tests of long files, those that pass on the CPU on xla, and
the device for suites that do not ask for one and for fixtures and constants that name one; in a run
of its own the random numbers of the CPU."""

import os
import pkgutil
import random
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ON_CPU = os.environ.get("SUITES_DEVICE", "cpu") == "cpu"
PASSED = Path(os.environ.get("SUITES_PASSED", os.devnull))
FAILED = Path(os.environ.get("SUITES_FAILED", os.devnull))
FIXTURES = os.environ.get("SUITES_FIXTURES", "").split()

random.seed(0)  # what a suite draws while it is collected is in names of tests
if find_spec("hypothesis"):  # the same few examples on both devices, however long they take
    from hypothesis import settings

    settings.register_profile("suites", max_examples=10, derandomize=True, deadline=None)
    settings.load_profile("suites")

if os.environ.get("SUITES_HUB"):  # on disk: suites that go online would try again and again
    import httpx
    from huggingface_hub import set_client_factory
    from huggingface_hub.errors import OfflineModeIsEnabled

    def refuse(request: httpx.Request) -> None:
        raise OfflineModeIsEnabled(f"{request.url} is not asked for")

    set_client_factory(lambda: httpx.Client(event_hooks={"request": [refuse]}))

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

    def array_of(tensor: torch.Tensor, dtype: Any = None, copy: Any = None) -> Any:
        return to_array(tensor if tensor.requires_grad else tensor.cpu(), dtype)

    def from_numpy_on_device(array: numpy.ndarray[Any, Any]) -> torch.Tensor:
        return from_numpy(array).to(torch.get_default_device())

    torch.from_numpy = from_numpy_on_device
    torch.Tensor.numpy = numpy_of  # type: ignore[assignment, method-assign]
    torch.Tensor.__array__ = array_of  # type: ignore[assignment, method-assign]

if not ON_CPU and os.environ.get("SUITES_GENERATORS"):
    import torch

    made_generator = torch.Generator

    class FollowsTheDevice(type):
        def __call__(cls, device: Any = None) -> torch.Generator:
            return made_generator(device or torch.get_default_device())

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, made_generator)

    class GeneratorOfDevice(metaclass=FollowsTheDevice):
        pass

    torch.Generator = GeneratorOfDevice  # type: ignore[assignment, misc]

if os.environ.get("SUITES_DEVICE_TYPES"):
    # PyTorch's own tests: those for the CPU, with all their expectations, are given the device.
    from torch.testing._internal import common_device_type

    common_device_type.device_type_test_bases[:] = [common_device_type.CPUTestBase]
    if not ON_CPU:
        common_device_type.CPUTestBase.get_primary_device = classmethod(lambda cls: "xla:0")

if os.environ.get("SUITES_RANDOM_OF_THE_CPU"):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    def has_no_values(value: object) -> bool:
        device = value.device if isinstance(value, torch.Tensor) else value
        return isinstance(device, torch.device) and device.type == "meta"

    class RandomOfTheCpu(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Operators that draw numbers do so on the CPU, from its generator."""

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if torch.Tag.nondeterministic_seeded not in function.tags:
                return function(*args, **kwargs)
            if any(map(has_no_values, tree_leaves((args, kwargs)))):
                return function(*args, **kwargs)
            moved_args, moved = tree_map_only(torch.Tensor, torch.Tensor.cpu, (args, kwargs))
            if "device" in moved:
                moved["device"] = torch.device("cpu")
            if moved.get("generator") is not None and moved["generator"].device.type != "cpu":
                moved["generator"] = None
            drawn = function(*moved_args, **moved)
            if function._schema.is_mutable:
                return args[0].copy_(drawn)
            like = [value for value in args if isinstance(value, torch.Tensor)]
            device = kwargs.get("device") or (like[0].device if like else torch.device("cpu"))
            return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), drawn)

    RandomOfTheCpu().__enter__()  # type: ignore[no-untyped-call]

if not ON_CPU:
    import torch

    def of_xla(said: Any) -> Any:
        """What names the CPU, names xla: a string, a device, a list, or a function of these."""
        if callable(said):
            answer = said()
            return lambda *args, **kwargs: of_xla(answer)
        return [torch.device("xla:0")] if isinstance(said, list) else type(said)("xla")

    for constant in os.environ.get("SUITES_CONSTANTS", "").split():
        holder, _, constant_name = constant.rpartition(".")
        place = pkgutil.resolve_name(holder)
        setattr(place, constant_name, of_xla(getattr(place, constant_name)))

for chooser in () if ON_CPU else os.environ.get("SUITES_CHOOSERS", "").split():
    chosen_by = pkgutil.resolve_name(chooser)
    for module in list(sys.modules.values()):
        if vars(module).get(chosen_by.__name__) is chosen_by:
            setattr(module, chosen_by.__name__, lambda: "xla")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    value = yield
    if not ON_CPU and fixturedef.argname in FIXTURES and str(value) == "cpu":
        value = type(value)("xla")
        fixturedef.cached_result = (value, *fixturedef.cached_result[1:])
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if ON_CPU or not hasattr(getattr(item, "cls", None), "device_type"):
        return (yield)
    import torch

    torch.set_default_device(None)  # PyTorch's tests that name their device
    try:
        return (yield)
    finally:
        torch.set_default_device("xla")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ON_CPU:
        chosen = spread(items, int(os.environ["SUITES_TESTS_A_FILE"]))
    else:
        names = set(PASSED.read_text().splitlines())
        chosen = [item for item in items if on_any_device(item.nodeid) in names]
        cases = sys.modules.get("torch.testing._internal.common_utils")
        if cases:  # without its setUp, its tearDown would take the default device for a leak
            modes = torch._C._len_torch_function_stack()
            cases.TestCase._prev_torch_function_mode_stack_len = modes
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if ON_CPU and report.when == "call" and report.passed:
        with PASSED.open("a") as file:
            file.write(f"{on_any_device(report.nodeid)}\n")
    if not ON_CPU and report.failed:
        with FAILED.open("a") as file:
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
