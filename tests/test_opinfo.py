"""PyTorch's OpInfo database: each operator agrees with the CPU, or is listed with a reason."""

import json
from pathlib import Path

import opinfo_runner
import pytest
from compare import FOREIGN
from opinfo_check import FORMATTED_OPS

RESULTS = Path(__file__).parents[1] / "out" / ("foreign.json" if FOREIGN else "opinfo.json")
# Of all operators that the CPU supports, those below included.
REQUIRED_PASS_RATE = 0.97 if FOREIGN else 0.99
SAMPLES = {"float32": 2, "gradient": 2}  # the others are these in place or of other dtypes

# (operator, category) -> why its value may differ from the CPU's.
_STATISTICS = "statistics of 16-bit inputs are float32, as on CUDA and as the meta kernel says"
_UNUSED = "statistics that evaluation leaves unused have the sizes the meta kernel says, not none"
_RESIZED = "the CPU's kernel changes the sizes of what it writes in place, the meta kernel refuses"
_COMPLEX_HALF = "there are no tensors of ComplexHalf"
KNOWN_DEVIATIONS: dict[tuple[str, str], str] = {
    **{("chalf", kind): _COMPLEX_HALF for kind in opinfo_runner.CATEGORIES if kind != "inplace"},
    ("addbmm", "inplace"): _RESIZED,
    ("native_batch_norm", "float32"): _UNUSED,
    ("_native_batch_norm_legit", "float32"): _UNUSED,
    ("native_layer_norm", "bfloat16"): _STATISTICS,
    ("native_batch_norm", "bfloat16"): _STATISTICS,
    ("_native_batch_norm_legit", "bfloat16"): _STATISTICS,
    ("_batch_norm_with_update", "bfloat16"): _STATISTICS,
}
_TIES = "which of equal elements comes first: the device sorts stably, the CPU does not"
if FOREIGN:
    KNOWN_DEVIATIONS |= {
        ("argsort", "bool"): _TIES,
        ("argsort", "bfloat16"): _TIES,
        ("sort", "bool"): _TIES,
        ("sort", "bfloat16"): _TIES,
        ("kthvalue", "int64"): _TIES,
        ("topk", "int64"): _TIES,
        ("linalg_eigh", "float32"): "eigenvectors are the CPU's but for their signs",
        ("matrix_exp", "bfloat16"): "the CPU's are no numbers",
    }


def every(config: pytest.Config) -> int:
    """Of how many operators one is looked at; `make test-operators` looks at all of them."""
    return 1 if config.getoption("--full") else max(int(config.getoption("--every")), 3)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> list[opinfo_runner.Result]:
    samples = {category: SAMPLES.get(category, 1) for category in opinfo_runner.CATEGORIES}
    if request.config.getoption("--full"):
        samples = dict.fromkeys(samples)
    operators = list(FORMATTED_OPS)[:: every(request.config)]
    results = opinfo_runner.run(operators, samples)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1))
    print(opinfo_runner.summary(results))
    return results


def with_status(results: list[opinfo_runner.Result], *statuses: str) -> list[str]:
    return [
        f"{result['op']} [{result['category']}]: {result['detail']}"
        for result in results
        if result["status"] in statuses
        and (result["op"], result["category"]) not in KNOWN_DEVIATIONS
    ]


def test_no_wrong_value(results: list[opinfo_runner.Result]) -> None:
    wrong = with_status(results, "wrong")
    assert not wrong, "\n" + "\n".join(wrong)


def test_no_crash_and_no_hang(results: list[opinfo_runner.Result]) -> None:
    broken = with_status(results, "crash", "hang")
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize("category", opinfo_runner.CATEGORIES)
def test_pass_rate(
    results: list[opinfo_runner.Result], category: str, request: pytest.FixtureRequest
) -> None:
    """Of a few operators one is half a percent: a sample leaves out what is listed above, so that
    what is not listed has the whole of the bound."""
    counted = [r for r in results if r["category"] == category]
    if every(request.config) > 1:
        counted = [r for r in counted if (r["op"], category) not in KNOWN_DEVIATIONS]
    rate = opinfo_runner.pass_rates(counted)[category]
    listing = "\n".join(with_status(counted, "raises", "wrong", "crash", "hang"))
    assert rate >= REQUIRED_PASS_RATE, f"{category}: {rate:.1%} of the operators pass\n{listing}"


def test_known_deviations_are_still_needed(
    results: list[opinfo_runner.Result], request: pytest.FixtureRequest
) -> None:
    full = request.config.getoption("--full")  # a selection has no sample of evaluation
    needed = {
        key
        for key, reason in KNOWN_DEVIATIONS.items()
        if full or (key[1] in SAMPLES and reason is not _UNUSED)
    }
    passing = {(r["op"], r["category"]) for r in results if r["status"] == "pass"}
    assert not passing & needed
