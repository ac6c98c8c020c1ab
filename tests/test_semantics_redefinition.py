"""A custom operator may be defined again, as when a notebook's cell runs twice."""

import pytest
import torch
from torch import Tensor
from torch_xla.experimental.assume_pure import assume_pure


def _define(factor: float, columns: int = 1) -> None:
    @torch.library.custom_op("torch_xla_tests::again", mutates_args=(), device_types="cpu")
    def again(x: Tensor) -> Tensor:
        return (x * factor).repeat(1, columns)

    @again.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(x.shape[0], x.shape[1] * columns)


def _define_in_place(step: float) -> None:
    @torch.library.custom_op("torch_xla_tests::again_", mutates_args=("x",), device_types="cpu")
    def again_(x: Tensor) -> None:
        x.add_(step)


def _again(x: Tensor) -> Tensor:
    result: Tensor = torch.ops.torch_xla_tests.again(x)
    return result


def test_the_last_definition_counts() -> None:
    x = torch.ones(2, 3, device="xla")
    for factor, columns in [(2.0, 1), (3.0, 1), (5.0, 2), (7.0, 1)]:
        _define(factor, columns)
        for _ in range(2):
            result = _again(x) + 1
            assert result.tolist() == [[factor + 1] * 3 * columns] * 2


def test_an_operator_that_writes() -> None:
    for step in (1.0, 2.0):
        _define_in_place(step)
        x = torch.zeros(2, device="xla")
        torch.ops.torch_xla_tests.again_(x)
        assert x.tolist() == [step] * 2


def test_what_was_recorded_before_is_still_run() -> None:
    _define(2.0)
    pending = _again(torch.ones(2, 3, device="xla"))
    _define(2.0)
    assert pending.tolist() == [[2.0] * 3] * 2


@pytest.mark.host_only("programs call no kernels of this process elsewhere")
def test_a_pure_function_calls_the_next_definition() -> None:
    _define(2.0)
    function = assume_pure(lambda x: _again(x) * 10)
    x = torch.ones(2, 3, device="xla")
    assert function(x).tolist() == [[20.0] * 3] * 2
    _define(2.0)
    assert function(x).tolist() == [[20.0] * 3] * 2


def test_another_schema() -> None:
    x = torch.ones(2, 3, device="xla")
    for number, (schema, arguments) in enumerate([("Tensor x", ()), ("Tensor x, float y", (4.0,))]):
        with torch.library._scoped_library("torch_xla_tests", "FRAGMENT") as library:
            library.define(f"changing({schema}) -> Tensor")
            library.impl("changing", lambda x, y=3.0: x * y, "CPU")
            library.impl("changing", lambda x, y=3.0: torch.empty_like(x), "Meta")
            result = torch.ops.torch_xla_tests.changing(x, *arguments).cpu()
        assert result.tolist() == [[3.0 + number] * 3] * 2
