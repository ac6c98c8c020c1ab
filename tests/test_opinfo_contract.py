"""What PyTorch's operators promise beyond values: errors, `out=`, layouts, second gradients."""

import warnings

import pytest
from compare import FOREIGN
from opinfo_check import FORMATTED_OPS
from opinfo_contract import CONTRACTS, REFERENCES, check_contract

# Why an operator may do another thing than the CPU's. Without a contract it holds for all.
_COMPLEX_HALF = "there are no tensors of ComplexHalf"
_ORDER = "an out= that is resized gets the order of the result, the CPU's is of columns"
_STATISTICS = "statistics of 16-bit inputs are float32, as on CUDA and as the meta kernel says"
_RANDOM = "random numbers are the device's own"
_ASKS = "values decide what it does or returns, and a traced function has none: it says so"
_COMPRESSED = "a CSR tensor has no storage"
_UNREAD = "memory that nobody has written"
KNOWN_DEVIATIONS: dict[tuple[str, str], str] = {
    ("lu_unpack", "out"): "the CPU's kernel writes past transposed batches, and crashes later",
    ("chalf", "layout"): _COMPLEX_HALF,
    ("chalf", "second"): _COMPLEX_HALF,
    ("chalf", "more"): _COMPLEX_HALF,
    ("cholesky", "out"): _ORDER,
    ("geqrf", "out"): _ORDER,
    ("ormqr", "out"): _ORDER,
    ("fft_ihfft2", "out"): _ORDER,
    ("linalg_householder_product", "out"): _ORDER,
    ("logspace", "out"): "the CPU's keeps the sizes of a larger out=",
    ("ones", "out"): "an out= of other sizes warns, as with every operator",
    ("cholesky", "layout"): "the error of a program has the base type of the CPU's",
    ("normal", "layout"): "standard deviations are not checked",
    ("linalg_vander", "second"): "a gradient of zeros is one, not none",
    ("cov", "pure"): _ASKS,
    ("masked_select", "pure"): _ASKS,
    ("index_fill", "pure"): _ASKS,
    ("nn_functional_gaussian_nll_loss", "pure"): _ASKS,
    ("nn_functional_ctc_loss", "pure"): _ASKS,
    ("linalg_lstsq_grad_oriented", "pure"): _ASKS,
    ("linalg_lstsq", "pure"): _ASKS,
    ("linalg_eig", "pure"): _ASKS,
    ("narrow", "pure"): _ASKS,
    ("tensor_split", "pure"): _ASKS,
    ("to_sparse", "pure"): _ASKS,
    ("sparse_mm_reduce", "pure"): _COMPRESSED,
    ("sparse_sampled_addmm", "pure"): _COMPRESSED,
    ("chalf", "pure"): _COMPLEX_HALF,
    ("native_batch_norm", "more"): _STATISTICS,
    ("_batch_norm_with_update", "more"): _STATISTICS,
    ("_refs_cauchy", "refs"): _RANDOM,
    ("_refs_geometric", "refs"): _RANDOM,
    ("_refs_normal", "refs"): _RANDOM,
    ("_refs_normal__in_place", "refs"): _RANDOM,
    ("_refs_empty", "refs"): _UNREAD,
}
if FOREIGN:
    _TIES = "which of equal elements comes first: the device sorts stably, the CPU does not"
    KNOWN_DEVIATIONS |= {(name, "more"): _TIES for name in ("argsort", "kthvalue", "sort", "topk")}
    _ROUNDED = "float32 where the CPU's kernel computes in float64, or sums in another order"
    _ROUGH = ("matrix_exp", "native_layer_norm", "logcumsumexp", "linalg_eigh")
    KNOWN_DEVIATIONS |= {(name, "pure"): _ROUNDED for name in _ROUGH}
ONE_OF = 30  # operators, in a run that is not full


@pytest.mark.parametrize("contract", CONTRACTS)
def test_contract(
    contract: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_XLA_TIERS", raising=False)  # as users run it
    full = request.config.getoption("--full")
    ops = REFERENCES if contract == "refs" else FORMATTED_OPS
    broken = []
    every = contract == "pure"  # nothing else looks at these, and they are quick
    for name in list(ops)[:: 1 if full or every else ONE_OF]:
        if (name, contract) in KNOWN_DEVIATIONS:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = check_contract(ops[name], contract, "xla:0", 3 if full else 2 if every else 1)
        # What the CPU computes for the device cannot be part of a trace: docs/operators.md.
        refused = FOREIGN and every and "cannot be traced" in outcome.detail
        if outcome.status not in ("pass", "skip") and not refused:
            broken.append(f"{outcome.status} {name}: {outcome.detail}")
    assert not broken, "\n" + "\n".join(broken)
