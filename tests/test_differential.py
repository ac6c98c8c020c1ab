"""A few random programs in every mode; `python tests/differential.py --programs 2000` runs more."""

import math
import warnings
from collections.abc import Iterator

import pytest
import torch
from differential import LINE_BY_LINE, check, chosen_modes
from random_outcomes import number_agrees


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def run(seeds: range, modes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")  # put back at the end
    reports = [report for seed in seeds for report in check(seed, chosen_modes(seed, modes))]
    assert not reports, "\n" + "\n".join(reports)


def test_programs_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    run(range(40), ("never", "eager"), monkeypatch)


@pytest.mark.parametrize("mode", ["off", "counted", "habit", "compile", "pure", "openxla"])
def test_compiled_programs(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(range(40, 44) if mode in LINE_BY_LINE else range(41, 49, 2), (mode,), monkeypatch)


@pytest.mark.parametrize("number", [4.34, complex(4.34, -0.82), complex(math.inf, 0.82)])
def test_numbers_that_were_read_are_compared_as_tensors_are(number: complex) -> None:
    assert number_agrees(number + 1e-6, number)
    assert not number_agrees(number * 1.1 + 0.1j, number)
    assert number_agrees(complex(math.nan, 1.0), complex(math.nan, 1.0))
    assert not number_agrees(complex(math.nan, 1.0), complex(1.0, math.nan))
    assert not number_agrees(math.inf, -math.inf) and not number_agrees(1.0, math.inf)
    assert not number_agrees(1, 2) and not number_agrees(True, False)
