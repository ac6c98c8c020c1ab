"""A selection of PyTorch's OpInfo database is exported, read again, and gives the CPU's results;
`python tests/opinfo_export.py` does the rest."""

from typing import Any

import mpmath
import opinfo_export
import pytest
import torch
import torch_xla
from opinfo_check import FORMATTED_OPS
from torch_xla import stablehlo
from torch_xla._internal import decompositions

pytestmark = pytest.mark.host_only("what is exported computes in float64")

# What is composed for programs that can call no kernel of PyTorch's.
COMPOSED = """
    _segment_reduce_offsets _upsample_bilinear2d_aa as_strided_scatter cdist cholesky_inverse
    cummin frexp grid_sampler_3d hash_tensor histc histogram histogramdd i0 igamma linalg_det
    linalg_eigh linalg_lu linalg_lu_solve linalg_pinv linalg_qr linalg_svd logcumsumexp
    matrix_exp mode nextafter nn_functional_embedding_bag nn_functional_fractional_max_pool2d
    ormqr polygamma_polygamma_n_2 special_airy_ai special_bessel_j1 special_bessel_y0
    special_chebyshev_polynomial_v special_erfcx special_hermite_polynomial_h
    special_modified_bessel_i1 special_ndtri special_scaled_modified_bessel_k1 special_zeta
""".split()


def test_samples_of_the_database() -> None:
    names = sorted({*list(FORMATTED_OPS)[::40], *COMPOSED})
    refused = {}
    outcomes = list(opinfo_export.outcomes(names, limit=1))
    for name, outcome in outcomes:
        if outcome:
            refused[name] = outcome
    assert len(outcomes) > 45 and len(refused) <= 0.1 * len(outcomes), refused
    # What does not export says so: no other error, and no other number.
    assert all("this program cannot be exported" in text for text in refused.values()), refused
    assert not refused.keys() & set(COMPOSED), refused


# Arguments beyond those of the database's samples, every branch and the places where they meet, and
# what is true: PyTorch's own are right to 1e-6 only in places.
RANGES: dict[str, tuple[float, float, Any]] = {
    "special_bessel_j0": (-60, 60, lambda x: mpmath.besselj(0, x)),
    "special_bessel_j1": (-60, 60, lambda x: mpmath.besselj(1, x)),
    "special_bessel_y0": (0.01, 60, lambda x: mpmath.bessely(0, x)),
    "special_bessel_y1": (0.01, 60, lambda x: mpmath.bessely(1, x)),
    "i0": (-80, 80, lambda x: mpmath.besseli(0, x)),
    "special_i1e": (-300, 300, lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x))),
    "special_modified_bessel_k0": (0.01, 60, lambda x: mpmath.besselk(0, x)),
    "special_scaled_modified_bessel_k1": (
        *(0.01, 1e4),
        lambda x: mpmath.besselk(1, x) * mpmath.exp(x),
    ),
    "special_airy_ai": (-30, 10, mpmath.airyai),
    "special_erfcx": (-5, 50, lambda x: mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x)),
}


@pytest.mark.parametrize("name", RANGES)
def test_special_functions_are_exact_in_all_of_their_range(name: str) -> None:
    low, high, exact = RANGES[name]
    x = torch.linspace(low, high, 121, dtype=torch.float64)
    actual = decompositions.table()[getattr(torch.ops.aten, name).default](x)
    expected = torch.tensor([float(exact(each)) for each in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-10)


def test_the_inverse_of_the_normal_distribution() -> None:
    p = torch.cat([10.0 ** torch.linspace(-37, -2, 60), torch.linspace(0, 1, 101)]).double()
    actual = decompositions.table()[torch.ops.aten.special_ndtri.default](p)
    torch.testing.assert_close(actual, torch.special.ndtri(p), rtol=1e-9, atol=1e-9)


class Selects(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sum()


class Scales(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()


@pytest.mark.parametrize("model", [Selects(), Scales()])
def test_values_of_the_example_are_no_constants_of_the_program(model: torch.nn.Module) -> None:
    program = torch.export.export(model, (torch.ones(3),), strict=False)
    with pytest.raises(RuntimeError, match="reads a value that depends on its inputs"):
        stablehlo.exported_program_to_stablehlo(program)
    torch_xla.sync()


@pytest.mark.parametrize("adjoint", [False, True])
def test_large_matrices_are_left_alone(adjoint: bool) -> None:
    a = torch.eye(40) * 2
    assert decompositions.table()[torch.ops.aten.linalg_lu_factor_ex.default](a) is NotImplemented
    lu, pivots = torch.linalg.lu_factor(a)
    solve = decompositions.table()[torch.ops.aten.linalg_lu_solve.default]
    assert solve(lu, pivots, a, adjoint=adjoint) is NotImplemented
