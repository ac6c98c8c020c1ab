"""Products with large matrices: the ways that the CPU platform takes for few rows and many."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torch_xla
from torch import Tensor, nn
from torch_xla.core.dynamo_bridge import extract_compiled_graph
from torch_xla.experimental import eager_mode_context

DEVICE = "xla"
Function = Callable[..., Tensor]

PRODUCTS: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "linear": (F.linear, [(0, 1024), (1030, 1024), (1030,)]),
    "linear without bias": (F.linear, [(0, 1024), (1030, 1024)]),
    "mm of a transposed view": (lambda x, w: x.mm(w.t()), [(0, 1024), (1030, 1024)]),
    "mm of a matrix as it lies": (lambda x, w: x.mm(w), [(0, 1024), (1024, 1030)]),
    "addmm": (
        lambda b, x, w: torch.addmm(b, x, w.t(), beta=0.5, alpha=2),
        [(1030,), (0, 1024), (1030, 1024)],
    ),
    "bmm": (lambda q, k: q.bmm(k.transpose(1, 2)), [(2, 0, 512), (2, 2050, 512)]),
    "baddbmm": (
        lambda b, q, k: torch.baddbmm(b, q, k.transpose(1, 2), beta=2, alpha=0.5),
        [(2, 0, 2050), (2, 0, 512), (2, 2050, 512)],
    ),
    "the rows are transposed, too": (
        lambda x, w: x.t().mm(w.t()),
        [(1024, 0), (1030, 1024)],
    ),
}


@pytest.mark.parametrize("rows", [0, 1, 3, 256, 300])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_and_gradients(name: str, rows: int, dtype: torch.dtype) -> None:
    function, shapes = PRODUCTS[name]
    torch.manual_seed(0)
    # Whole numbers, so that the order of additions does not matter.
    arguments = [
        torch.randint(-2, 3, [size or rows for size in shape]).to(dtype) for shape in shapes
    ]
    results = []
    for device in ("cpu", DEVICE):
        leaves = [t.detach().to(device).requires_grad_() for t in arguments]
        result = function(*leaves)
        result.sum().backward()
        results.append([result.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("rows", [1, 8, 300])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_training_in_16_bits(rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024))
    x = torch.randn(rows, 1024)
    gradients = []
    for device in ("cpu", DEVICE):
        trained = copy.deepcopy(model).to(device)
        with torch.autocast(device, dtype=dtype):
            loss = trained(x.to(device)).float().square().mean()
        loss.backward()
        gradients.append([p.grad.cpu() for p in trained.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0.1, atol=1e-3)


def test_integers() -> None:
    x, w = torch.randint(-9, 9, (2, 1024)), torch.randint(-9, 9, (1030, 1024))
    product = x.to(DEVICE) @ w.to(DEVICE).t()
    torch.testing.assert_close(product.cpu(), x @ w.t())


def test_weights_are_not_copied_for_a_few_rows() -> None:
    """The compiled program has no transposed copy of the matrix."""
    x, w = torch.ones(4, 1024, device=DEVICE), torch.ones(1030, 1024, device=DEVICE)
    torch_xla.sync(wait=True)
    with eager_mode_context(False):
        hlo = torch_xla._XLAC.tensors_optimized_hlo_text([F.linear(x, w)])
    assert "f32[1030,1024]" in hlo
    assert "f32[1024,1030]" not in hlo
    graph = extract_compiled_graph(torch.fx.symbolic_trace(lambda x, w: F.linear(x, w)), [x, w])
    torch.testing.assert_close(graph(x, w).cpu(), F.linear(x.cpu(), w.cpu()))


LONG = [
    (512, 128, 96),
    (520, 260, 24),
    (96, 128, 512),
    (64, 512, 512),
    (1, 512, 520),
    (4, 1376, 512),
]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float32, torch.float64, torch.complex64], ids=str
)
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_long_products_in_programs(
    shape: tuple[int, int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are calls of the CPU's kernel, in pieces, which write to the results' own memory."""
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")
    rows, inner, columns = shape
    torch.manual_seed(0)
    # Whole numbers, so that the order of additions does not matter.
    x, y = (torch.randint(-2, 3, size).to(dtype) for size in ((rows, 2 * inner), (columns, inner)))
    for function in (
        torch.mm,
        lambda a, b: torch.mm(b.t(), a.t()).t(),
        lambda a, b: torch.addmm(a.new_ones(columns), a, b, beta=0.5, alpha=2),
        lambda a, b: torch.addmm(a.new_ones(rows, 1), a, b),
        lambda a, b: torch.bmm(a.expand(3, rows, inner), b.expand(3, inner, columns)),
        lambda a, b: torch.baddbmm(a.new_ones(3, rows, 1), a.expand(3, rows, inner),
                                   b.expand(3, inner, columns)),
        lambda a, b: torch.mv(a, b[:, 1 % columns]),
        lambda a, b: torch.addmv(a.new_ones(rows), a, b[:, 0], beta=0.5, alpha=2),
        lambda a, b: torch.mm(a, b[:, :5]),
    ):  # fmt: skip
        product = function(x.to("xla")[:, ::2], y.to("xla").t())
        torch.testing.assert_close(product.cpu(), function(x[:, ::2], y.t()))


# By how x and y are divided into groups: rows of x, columns of y, or what is summed over.
GROUPED = {
    "rows": [(12, 8), (3, 8, 4)],
    "columns": [(3, 4, 8), (8, 12)],
    "summed": [(4, 12), (12, 8)],
    "batches": [(3, 4, 8), (3, 8, 4)],
}


@pytest.mark.parametrize(
    "host_calls", [pytest.param("1", marks=pytest.mark.host_only("nobody else has them")), "0"]
)
def test_products_of_groups(host_calls: str, fresh_python: Callable[..., str]) -> None:
    """Where the groups end is a value: other ends read nothing and compile nothing."""
    program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch, torch_xla
from work import Work
torch.manual_seed(0)
def step(kind, shapes, ends, device):
    leaves = [x.detach().to(device).requires_grad_() for x in shapes]
    groups = None if kind == "batches" else torch.tensor(ends, dtype=torch.int32, device=device)
    torch_xla.sync(wait=True)
    before = Work.so_far()
    out = torch.nn.functional.grouped_mm(*leaves, offs=groups)
    (out * out).sum().backward()
    torch_xla.sync(wait=True)
    return [out.detach(), *(leaf.grad for leaf in leaves)], Work.so_far().since(before)
for kind, shapes in {GROUPED}.items():
    arguments = [torch.randn(shape) for shape in shapes]
    for ends in ([2, 2, 12], [5, 6, 12], [0, 7, 12]):
        expected, _ = step(kind, arguments, ends, "cpu")
        results, work = step(kind, arguments, ends, "xla")
        torch.testing.assert_close([x.cpu() for x in results], expected)
        print(work.executions, work.compilations, work.device_to_host)
"""
    printed = fresh_python(program, TORCH_XLA_TIERS="off", TORCH_XLA_HOST_CALLS=host_calls)
    assert printed.split("\n") == ["1 1 0", "1 0 0", "1 0 0"] * len(GROUPED)
