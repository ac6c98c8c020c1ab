"""Each public name of `torch_xla` 2.9 exists; each function among them is called in the tests."""

import importlib
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NAMES: dict[str, list[str]] = json.loads((TESTS / "torch_xla-2.9.json").read_text())
# Loops in programs come with their own tests.
LOOPS = ("fori_loop", "gradient_accumulation", "gru", "scan", "scan_layers")
MODULES = [m for m in NAMES if m.removeprefix("torch_xla.experimental.") not in LOOPS]


@pytest.fixture(scope="module")
def tested() -> set[str]:
    """The words of all tests."""
    texts = (path.read_text() for path in TESTS.glob("*.py") if path != Path(__file__))
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("module", MODULES)
def test_the_names_of_a_module(module, tested):
    found = importlib.import_module(module)
    missing = [name for name in NAMES[module] if not hasattr(found, name)]
    assert missing == []
    functions = [name for name in NAMES[module] if inspect.isroutine(getattr(found, name))]
    assert [name for name in functions if name not in tested] == []


def test_loops_are_complete_where_they_are():
    for name in LOOPS:
        module = f"torch_xla.experimental.{name}"
        if importlib.util.find_spec(module) is not None:
            found = importlib.import_module(module)
            assert [n for n in NAMES[module] if not hasattr(found, n)] == []


def test_importing_the_package_stays_cheap(fresh_python):
    program = "import torch, sys; before = set(sys.modules); import torch_xla; " + (
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = fresh_python(program).split()
    heavy = ("jax", "jaxlib", "tensorflow", "torch.distributed.fsdp", "torch_xla.stablehlo")
    assert [name for name in loaded if name.startswith((*heavy, "torch_xla.experimental.c"))] == []
    assert len(loaded) < 80, loaded
    assert "torch_xla" in sys.modules


@pytest.mark.parametrize(
    "module",
    ["core.xla_model", "debug.metrics", "distributed.xla_multiprocessing", "utils.utils"],
)
def test_modules_are_there_once_the_package_is_imported(module, fresh_python):
    program = f"import torch_xla; print(torch_xla.{module}.__name__)"
    assert fresh_python(program).strip() == f"torch_xla.{module}"


def test_a_module_that_is_not_there_is_no_attribute():
    assert not hasattr(importlib.import_module("torch_xla.core"), "xla_modle")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("core.xla_model.reduce_scatter", "channel_id use_global_device_ids"),
        ("debug.metrics.counter_value", "name"),
        ("debug.metrics.metric_data", "name"),
        ("distributed.spmd.auto_policy", "mod_name mod mesh"),
        ("experimental.distributed_checkpoint.CheckpointManager", "num_of_threads"),
        ("experimental.stablehlo_custom_call.place_to_host", "t"),
        ("experimental.stablehlo_custom_call.place_to_device", "t"),
        ("experimental.xla_marker.deserialize_composite_attr", "attr"),
        ("utils.dlpack.from_dlpack", "ext_tensor"),
        ("utils.utils.as_list", "t"),
    ],
)
def test_parameters_have_their_names(name: str, parameters: str) -> None:
    module, _, function = name.rpartition(".")
    signature = inspect.signature(getattr(importlib.import_module("torch_xla." + module), function))
    assert set(parameters.split()) <= signature.parameters.keys()
