"""A selection of PyTorch's OpInfo database is exported, read again, and gives the CPU's results;
`python tests/opinfo_export.py` does the rest."""

import opinfo_export
import pytest
import torch
from opinfo_check import FORMATTED_OPS
from torch_xla._internal import dense_decompositions

# What is composed for programs that can call no kernel of PyTorch's.
COMPOSED = """cdist cholesky_inverse cummin histc histogram linalg_det linalg_eigh linalg_lu
    linalg_lu_solve linalg_pinv linalg_qr linalg_svd logcumsumexp ormqr
    _segment_reduce_offsets""".split()


def test_samples_of_the_database() -> None:
    names = sorted({*list(FORMATTED_OPS)[::40], *COMPOSED})
    refused = {}
    outcomes = list(opinfo_export.outcomes(names, limit=1))
    for name, outcome in outcomes:
        if outcome:
            refused[name] = outcome
    assert len(outcomes) > 25 and len(refused) <= 0.2 * len(outcomes), refused
    # What does not export says so: no other error, and no other number.
    assert all("this program cannot be exported" in text for text in refused.values()), refused
    assert not refused.keys() & set(COMPOSED), refused


@pytest.mark.parametrize("adjoint", [False, True])
def test_large_matrices_are_left_alone(adjoint: bool) -> None:
    a = torch.eye(40) * 2
    assert (
        dense_decompositions.TABLE[torch.ops.aten.linalg_lu_factor_ex.default](a) is NotImplemented
    )
    lu, pivots = torch.linalg.lu_factor(a)
    solve = dense_decompositions.TABLE[torch.ops.aten.linalg_lu_solve.default]
    assert solve(lu, pivots, a, adjoint=adjoint) is NotImplemented
