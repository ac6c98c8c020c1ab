"""Sparse tensors on the device; what it has no tensors for says so at the call."""

import copy
import functools
import io
import textwrap
from collections.abc import Callable

import pytest
import torch
import torch_xla
import work
from compare import assert_same
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch_xla.experimental.assume_pure import assume_pure


def _sparse(device: str) -> Tensor:
    indices = torch.tensor([[0, 1, 1], [2, 0, 2]], device=device)
    return torch.sparse_coo_tensor(indices, torch.tensor([3.0, 4.0, 5.0], device=device), (2, 3))


def _dense(device: str, *shape: int) -> Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel(), device=device).reshape(shape)


CALLS: dict[str, Callable[[str], Tensor]] = {
    "made of lists": lambda d: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], device=d),
    "made of a dense one": lambda d: torch.tensor([[0, 1.0], [2, 0]], device=d).to_sparse(),
    "with a dense dimension": lambda d: _dense(d, 2, 3) + _dense(d, 2, 3).to_sparse(1),
    "moved": lambda d: _sparse("cpu").to(d),
    "coalesced": lambda d: (_sparse(d) + _sparse(d)).coalesce(),
    "indices": lambda d: _sparse(d).coalesce().indices(),
    "values": lambda d: _sparse(d).coalesce().values(),
    "sum with a dense one": lambda d: torch.add(_dense(d, 2, 3), _sparse(d), alpha=-2),
    "added in place": lambda d: _dense(d, 2, 3).add_(_sparse(d)),
    "scaled": lambda d: _sparse(d) * 2,
    "product": lambda d: torch.sparse.mm(_sparse(d), _dense(d, 3, 2)),
    "matmul": lambda d: _sparse(d) @ _dense(d, 3, 2),
    "addmm": lambda d: torch.sparse.addmm(_dense(d, 2, 2), _sparse(d), _dense(d, 3, 2), beta=2),
    "transposed": lambda d: _sparse(d).t(),
    "sum": lambda d: torch.sparse.sum(_sparse(d)),
    "softmax": lambda d: torch.sparse.softmax(_sparse(d), 1),
    "masked": lambda d: _dense(d, 2, 3).sparse_mask(_sparse(d).coalesce()),
    "a sparse one masked": lambda d: (_sparse(d) + _sparse(d)).sparse_mask(_sparse(d).coalesce()),
    "converted": lambda d: _sparse(d).double(),
    "zeroed": lambda d: _sparse(d).clone().zero_(),
    "copied": lambda d: _sparse(d).zero_().copy_(_sparse(d)),
    # PyTorch's kernels of these for dense tensors take any device, if nobody knows better.
    "full sum": lambda d: _sparse(d).sum(),
    "isinf": lambda d: _sparse(d).isinf(),
    "mv": lambda d: _sparse(d).mv(_dense(d, 3)),
    "stack": lambda d: torch.stack([_sparse(d), _sparse(d)]),
    "permuted": lambda d: _sparse(d).unsqueeze(0).permute(2, 0, 1),
    "batches": lambda d: torch.bmm(_sparse(d).unsqueeze(0), _dense(d, 1, 3, 2)),
    "smm, whose result it takes twice": lambda d: torch.smm(_sparse(d), _dense(d, 3, 2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_sparse_tensors(name: str) -> None:
    def program(device: str) -> tuple[Tensor, torch.layout, torch.Size]:
        result = CALLS[name](device)
        dense = result.to_dense() if result.is_sparse else result
        return dense, result.layout, result.shape

    assert_same(program)


def test_printing_and_counting() -> None:
    tensor = _sparse("xla")
    assert "layout=torch.sparse_coo" in str(tensor)
    assert tensor._nnz() == 3
    assert tensor.cpu().to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]


def test_gradients_of_a_sparse_product() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        dense = _dense(device, 3, 2).requires_grad_()
        result = torch.sparse.mm(_sparse(device), dense)
        (gradient,) = torch.autograd.grad(result.square().sum(), dense)
        return result.detach(), gradient

    assert_same(program)


def test_gradients_of_the_values_of_a_sparse_tensor() -> None:
    def program(device: str) -> tuple[Tensor, Tensor]:
        values = torch.tensor([3.0, 4.0, 5.0], device=device, requires_grad=True)
        graph = torch.sparse_coo_tensor(_sparse(device)._indices(), values, (2, 3))
        result = torch.sparse.mm(graph, _dense(device, 3, 2))
        (gradient,) = torch.autograd.grad(result.square().sum(), values)
        return result.detach(), gradient

    assert_same(program)


@pytest.mark.parametrize("optimizer", ["SGD", "SparseAdam", "Adagrad"])
def test_training_with_sparse_gradients(optimizer: str) -> None:
    def program(device: str) -> tuple[list[Tensor], bool]:
        torch.manual_seed(0)
        table = nn.Embedding(6, 3, sparse=True).to(device)
        optimize = getattr(torch.optim, optimizer)(table.parameters(), 0.1)
        results = []
        for step in range(3):
            optimize.zero_grad()
            loss = table(torch.tensor([1, 2, 1, step], device=device)).square().sum()
            loss.backward()
            optimize.step()
            results.append(loss.detach())
        assert table.weight.grad is not None
        return [*results, table.weight.detach()], table.weight.grad.is_sparse

    assert_same(program)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sparse_gradients_of_bags(mode: str) -> None:
    def program(device: str) -> Tensor:
        torch.manual_seed(0)
        bags = nn.EmbeddingBag(6, 3, sparse=True, mode=mode).to(device)
        indices = torch.tensor([1, 2, 1, 5], device=device)
        bags(indices, torch.tensor([0, 2], device=device)).square().sum().backward()
        assert bags.weight.grad is not None
        return bags.weight.grad.to_dense()

    assert_same(program)


def test_sparse_tensors_inside_a_pure_function() -> None:
    def program(device: str) -> Tensor:
        def function(indices: Tensor, values: Tensor, dense: Tensor) -> Tensor:
            sparse = torch.sparse_coo_tensor(indices, values, (2, 3), check_invariants=False)
            return torch.sparse.mm(sparse, dense) + sparse.to_dense()[:, :2]

        call = assume_pure(function) if device == "xla" else function
        sparse = _sparse(device).coalesce()
        return call(sparse.indices(), sparse.values(), _dense(device, 3, 2))

    assert_same(program)


def _csr(device: str, values: Tensor | None = None) -> Tensor:
    values = torch.tensor([3.0, 4.0, 5.0]) if values is None else values
    rows, columns = torch.tensor([0, 1, 3]).to(device), torch.tensor([2, 0, 2]).to(device)
    return torch.sparse_csr_tensor(rows, columns, values.to(device), (2, 3))


def _blocks(device: str) -> Tensor:
    return _dense(device, 4, 4).to_sparse_bsr((2, 2))


COMPRESSED: dict[str, Callable[[str], Tensor]] = {
    "made of lists": lambda d: torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), device=d),
    "made checked": lambda d: torch.sparse_csr_tensor(
        [0, 1], [0], [1.0], (1, 1), device=d, check_invariants=True
    ),
    "made of a dense one": lambda d: torch.tensor([[0, 1.0], [2, 0]], device=d).to_sparse_csr(),
    "isinf": lambda d: torch.tensor([[0, 1.0], [2, 0]], device=d).to_sparse_csr().isinf(),
    "columns of a dense one": lambda d: _dense(d, 2, 3).to_sparse(layout=torch.sparse_csc),
    "blocks": _blocks,
    "product of blocks": lambda d: _blocks(d) @ _dense(d, 4, 2),
    "made of indices": lambda d: _sparse(d).coalesce().to_sparse_csr(),
    "indices": lambda d: _csr(d).to_sparse_coo().indices(),
    "moved": lambda d: _csr("cpu").to(d),
    "converted": lambda d: _csr(d).double(),
    "cloned": lambda d: _csr(d).clone(),
    "detached": lambda d: _csr(d).detach(),
    "rows": lambda d: _csr(d).crow_indices(),
    "columns": lambda d: _csr(d).t().row_indices(),
    "values": lambda d: _csr(d).values(),
    "transposed": lambda d: _csr(d).t(),
    "transposed twice": lambda d: _csr(d).t().transpose(0, 1),
    "columns as rows": lambda d: _csr(d).t().to_sparse_csr(),
    "product": lambda d: _csr(d) @ _dense(d, 3, 2),
    "product of the transposed": lambda d: torch.sparse.mm(_csr(d).t(), _dense(d, 2, 2)),
    "product with a vector": lambda d: _csr(d) @ _dense(d, 3),
    "product of two": lambda d: _csr(d) @ _csr(d).t().to_sparse_csr(),
    "dense by sparse": lambda d: _dense(d, 2, 2) @ _csr(d),
    "addmm": lambda d: torch.addmm(_dense(d, 2, 2), _csr(d), _dense(d, 3, 2), alpha=2),
    "mean": lambda d: torch.sparse.mm(_csr(d), _dense(d, 3, 2), "mean"),
    "sum of two": lambda d: _csr(d) + _csr(d),
    "scaled": lambda d: _csr(d) * 2,
    "sine": lambda d: _csr(d).sin(),
    "zeroed": lambda d: _csr(d).zero_(),
    "copied": lambda d: (_csr(d) * 0).copy_(_csr(d)),
    "copied to the CPU": lambda d: (_csr("cpu") * 0).copy_(_csr(d)).to(d),
    "like another": lambda d: torch.zeros_like(_csr(d)),
    "row": lambda d: _csr(d).select(0, 1),
    "batch": lambda d: _dense(d, 2, 2, 2).to_sparse_csr(),
}


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "bsc"])
def test_scripts_make_compressed_tensors(kind: str, sized: bool) -> None:
    source = f"""
    def make(ends, places, values):
        # type: (Tensor, Tensor, Tensor) -> Tensor
        return torch.sparse_{kind}_tensor(ends, places, values, {"[4, 4], " if sized else ""}
            dtype=values.dtype, device=values.device)
    """
    made = torch.jit.CompilationUnit(textwrap.dedent(source)).make

    def program(device: str) -> Tensor:
        blocks = kind[0] == "b"
        values = torch.arange(1.0, 17).view(4, 2, 2) if blocks else torch.arange(1.0, 5)
        ends = torch.tensor([0, 2, 4] if blocks else [0, 1, 2, 3, 4])
        places = torch.tensor([0, 1, 0, 1] if blocks else [3, 0, 2, 1])
        result = made(ends.to(device), places.to(device), values.to(device))
        assert result.device.type == device
        return result.to_dense()

    assert_same(program)


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_sparse_tensors(name: str) -> None:
    def program(device: str) -> tuple[Tensor, torch.layout, torch.Size]:
        result = COMPRESSED[name](device)
        assert result.device.type == device
        dense = result.to_dense() if result.layout != torch.strided else result
        return dense, result.layout, result.shape

    assert_same(program)


def test_gradients_of_compressed_values() -> None:
    def program(device: str) -> Tensor:
        matrix = _csr(device).detach().requires_grad_()
        matrix.values().square().sum().backward()
        return matrix.grad.to_dense()

    assert_same(program)


def test_gradients_of_compressed_products() -> None:
    def program(device: str) -> list[Tensor | None]:
        values = torch.tensor([3.0, 4.0, 5.0], device=device).requires_grad_()
        dense = _dense(device, 3, 2).requires_grad_()
        product = torch.sparse.mm(_csr(device, values), dense)
        mean = torch.sparse.mm(_csr(device), dense, "mean")
        (product.square().sum() + mean.square().sum()).backward()
        matrix = _csr(device).requires_grad_()
        (matrix @ dense.detach()).square().sum().backward()
        assert matrix.grad is not None
        return [product.detach(), values.grad, dense.grad, matrix.grad.to_dense()]

    assert_same(program)


@pytest.mark.parametrize("reduce", ["amax", "amin", "mean", "sum"])
def test_gradients_of_reductions_that_remember_their_places(reduce: str) -> None:
    """The kernel keeps them only for a tensor that requires a gradient: it read what it had not
    written, and ended the process."""

    def program(device: str) -> list[Tensor | None]:
        dense = (_dense(device, 3, 2) - 2).requires_grad_()
        values = torch.tensor([3.0, -4.0, 5.0], device=device).requires_grad_()
        product = torch.sparse.mm(_csr(device, values), dense, reduce)
        product.square().sum().backward()
        with torch.no_grad():
            plain = torch.sparse.mm(_csr(device), dense, reduce)
        return [product.detach(), plain, values.grad, dense.grad]

    assert_same(program)


def test_a_compressed_product_is_recorded() -> None:
    def program(matrix: Tensor, dense: Tensor) -> Tensor:
        return matrix.t() @ (matrix @ dense)

    matrix, dense = _csr("xla"), _dense("xla", 3, 2)
    torch_xla.sync()
    before = work.Work.so_far()
    with torch_xla.experimental.eager_mode_context(False):
        result = program(matrix, dense)
    assert work.Work.so_far().since(before) == work.Work(0, 0, 0, 0)
    assert_same(lambda device: program(_csr(device), _dense(device, 3, 2)))
    assert result.shape == (3, 2)


def test_compressed_tensors_are_printed_and_saved() -> None:
    matrix = _csr("xla")
    assert "device='xla:0', size=(2, 3), nnz=3" in str(matrix) and matrix.is_sparse_csr
    file = io.BytesIO()
    torch.save({"matrix": matrix, "copy": copy.deepcopy(matrix)}, file)
    file.seek(0)
    for loaded in torch.load(file).values():
        assert loaded.device.type == "xla" and loaded.layout == torch.sparse_csr
        assert torch.equal(loaded.to_dense().cpu(), _csr("cpu").to_dense())


REFUSED: dict[str, Callable[[], object]] = {
    "quantised": lambda: torch.quantize_per_tensor(
        torch.ones(2, device="xla"), 0.1, 0, torch.quint8
    ),
    "complex32": lambda: torch.ones(2, device="xla").to(torch.complex32),
    "mkldnn": lambda: torch.ones(2, device="xla").to_mkldnn(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_kinds_of_tensors_are_refused_at_the_call(name: str) -> None:
    with pytest.raises((NotImplementedError, RuntimeError), match="the xla device"):
        REFUSED[name]()


def test_jagged_tensors() -> None:
    def program(device: str) -> list[Tensor]:
        parts = [torch.arange(3.0), torch.arange(5.0)]
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged, device=device)
        values = torch.arange(8.0, device=device).requires_grad_()
        offsets = torch.tensor([0, 3, 8], device=device)
        again = torch.nested.nested_tensor_from_jagged(values, offsets)
        (gradient,) = torch.autograd.grad((again * 2).values().sum(), values)
        padded = torch.nested.to_padded_tensor(jagged, 0.0)
        return [*(jagged * 2 + 1).unbind(), gradient, padded]

    assert_same(program)


def test_jagged_tensors_are_padded_and_back_with_gradients() -> None:
    def program(device: str) -> list[Tensor]:
        offsets = torch.tensor([0, 3, 3, 8], device=device)
        values = torch.arange(16.0, device=device).reshape(8, 2).requires_grad_()
        pad = torch.ops.aten._jagged_to_padded_dense_forward
        cut, padded = (pad(values.detach(), [offsets], [longest], -1.0) for longest in (4, 6))
        back = torch.ops.aten._padded_dense_to_jagged_forward(padded.square(), [offsets], 8)
        nested = torch.nested.nested_tensor_from_jagged(values, offsets).to_padded_tensor(0.0)
        (gradient,) = torch.autograd.grad(nested.square().sum(), values)
        return [cut, padded, back, nested, gradient]

    assert_same(program)


def _attention(device: str, causal: bool, apart: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Over sequences of their own lengths, or over each apart."""
    torch.manual_seed(0)
    parts = [torch.randn(n, 6).to(device).requires_grad_() for n in (3, 5, 1)]
    attend = functools.partial(scaled_dot_product_attention, is_causal=causal)
    if apart:
        heads = [part[None].unflatten(-1, (2, 3)).transpose(1, 2) for part in parts]
        results = [attend(x, x, 2 * x).transpose(1, 2).flatten(-2)[0] for x in heads]
    else:
        jagged = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
        x = jagged.unflatten(-1, [2, 3]).transpose(1, 2)
        results = list(attend(x, x, 2 * x).transpose(1, 2).flatten(-2).unbind())
    loss = torch.stack([result.square().sum() for result in results]).sum()
    return results, list(torch.autograd.grad(loss, parts))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_jagged_tensors(causal: bool) -> None:
    if not causal:  # which PyTorch knows on GPUs only
        assert_same(lambda device: _attention(device, causal, apart=False))
    expected, expected_gradients = _attention("cpu", causal, apart=True)
    results, gradients = _attention("xla", causal, apart=False)
    for got, wanted in zip(results + gradients, expected + expected_gradients, strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.lazy_only
def test_attention_over_jagged_tensors_cuts_no_graph(counters: Callable[[str], int]) -> None:
    values = torch.randn(9, 2, 4).to("xla").requires_grad_()
    offsets = torch.tensor([0, 3, 8, 9]).to("xla")
    jagged = torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=1, max_seqlen=5)
    x = jagged.transpose(1, 2)
    for _ in range(3):
        x = scaled_dot_product_attention(x, x, x)
    x.transpose(1, 2).values().sum().backward()
    assert counters("ExecuteTime") == 0
    torch_xla.sync(wait=True)
    assert counters("ExecuteTime") == 1
    assert values.grad is not None


NESTED: dict[str, Callable[[], object]] = {
    "of host tensors": lambda: torch.nested.nested_tensor([torch.ones(2)], device="xla"),
    "of tensors": lambda: torch.nested.as_nested_tensor([torch.ones(2, device="xla")]),
    "moved": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).to("xla"),
}


@pytest.mark.parametrize("name", NESTED)
def test_strided_nested_tensors_are_refused_at_the_call(name: str) -> None:
    with pytest.raises(NotImplementedError, match=r"no nested tensors of layout torch\.strided"):
        NESTED[name]()
