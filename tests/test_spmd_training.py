"""The decoder trained on 8 devices, sharded in every usual way: the numbers of one device."""

import json
from typing import Any

import pytest
from process import TESTS, output_of

CASES = [
    "data_parallel-lazy",
    "fsdp-lazy",
    "tensor_parallel-lazy",
    "two_dimensional-lazy",
    "two_dimensional-compile",
    "fsdp-pure",
]
FIRST_STEPS = 2  # they make the optimizer's state, and then read it: two graphs


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    program = (
        f"import runpy, sys; runpy.run_path({str(TESTS / 'spmd_training.py')!r}, {{}}, '__main__')"
    )
    return json.loads(output_of(program, *CASES, timeout=600, CPU_NUM_DEVICES="8"))


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_one_device(runs: dict[str, Any], case: str) -> None:
    assert runs[case]["losses"] == pytest.approx(runs["no_mesh-lazy"]["losses"], rel=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_one_program(runs: dict[str, Any], case: str) -> None:
    run = runs[case]
    assert set(run["executions"]) == {1}
    assert sum(run["compilations"][FIRST_STEPS:]) == 0
    assert run["host_calls"] == 0


def test_the_compiler_inserts_the_collectives_one_expects(runs: dict[str, Any]) -> None:
    def collectives(layout: str) -> dict[str, int]:
        return runs[f"{layout}-lazy"]["collectives"]

    data = collectives("data_parallel")  # gradients are summed, in few large operations
    assert 0 < data["all-reduce"] <= 4
    assert data["all-gather"] <= 1 and data["all-to-all"] == 0  # the targets, to pick logits
    fsdp = collectives("fsdp")  # parameters are gathered where they are used
    assert fsdp["all-gather"] >= 10 and fsdp["all-reduce"] + fsdp["reduce-scatter"] > 0
    assert collectives("tensor_parallel")["all-reduce"] >= 8  # two layers, twice each, both ways
    both = collectives("two_dimensional")
    assert both["all-reduce"] >= 4 and both["all-gather"] > 0
    assert not any(collectives("no_mesh").values())


def test_parameters_and_optimizer_state_are_spread_over_the_devices(runs: dict[str, Any]) -> None:
    def share(case: str, what: str) -> float:
        return runs[case][f"{what}_bytes"] / runs[case][f"whole_{what}_bytes"]

    for case in ("fsdp-lazy", "fsdp-pure"):
        assert share(case, "parameter") == share(case, "state") == pytest.approx(1 / 8)
    for case in ("tensor_parallel-lazy", "two_dimensional-lazy", "two_dimensional-compile"):
        # All but the embedding and the norms, which are not marked.
        assert share(case, "parameter") < 0.25 and share(case, "state") < 0.25
    assert share("data_parallel-lazy", "parameter") == 1
