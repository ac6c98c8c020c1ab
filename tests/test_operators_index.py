"""Indexing where it is intricate: places of indices, masks on the left, reductions, NaN."""

import pytest
import torch
import torch_xla  # noqa: F401
from compare import assert_same, ramp
from torch import Tensor

INDEX_PLACES = {
    "first": ([[0, -1, 2]],),
    "middle": (slice(None), [0, -1, 2]),
    "adjacent": (slice(None), [0, -1, 2], [1, 0, 1]),
    "separated": ([[1], [2]], slice(None), [0, -1, 2]),
    "separated behind a slice": (slice(None), [0, 1], slice(None), [1, 2]),
    "broadcast": (slice(None), [[1], [3]], 2, [0, -1, 1]),
    "everywhere": ([0, 1], [1, 2], [2, 3], [0, 1]),
    "none": ([],),
}


def indices(place: str, device: str) -> tuple[object, ...]:
    def index(entry: object) -> object:
        if isinstance(entry, list):
            return torch.tensor(entry, dtype=torch.long, device=device)
        return entry

    return tuple(index(entry) for entry in INDEX_PLACES[place])


@pytest.mark.parametrize("place", INDEX_PLACES)
def test_place_of_indices(place: str) -> None:
    def program(device: str) -> list[Tensor]:
        at = indices(place, device)
        t = ramp(3, 5, 4, 3, device=device)
        read = t[at]
        written, added = t.clone(), t.clone()
        written[at] = -read
        added.index_put_(
            tuple(slice_to_index(t, at)), torch.ones((), device=device), accumulate=True
        )
        return [read, written, added]

    assert_same(program)


def slice_to_index(t: Tensor, at: tuple[object, ...]) -> list[Tensor]:
    """index_put_ takes tensors only: full slices become the equivalent outer index."""
    sizes = t.shape[: len(at)]
    shape_of_indices = torch.broadcast_shapes(*(i.shape for i in at if isinstance(i, Tensor)))
    slices = sum(isinstance(i, slice) for i in at)
    result, position = [], 0
    for size, entry in zip(sizes, at, strict=True):
        if isinstance(entry, slice):
            outer = [1] * slices + [1] * len(shape_of_indices)
            outer[position] = size
            result.append(torch.arange(size, device=t.device).view(outer))
            position += 1
        else:
            result.append(torch.as_tensor(entry, device=t.device))
    return result


def test_accumulating_duplicates() -> None:
    def program(device: str) -> list[Tensor]:
        rows = torch.tensor([1, 1, -1, 1], device=device)
        values = ramp(4, 3, device=device) + 1
        floats = torch.zeros(4, 3, device=device)
        booleans = torch.zeros(4, dtype=torch.bool, device=device)
        yes = torch.tensor([True, False, True, True], device=device)
        return [
            floats.index_put((rows,), values, accumulate=True),
            floats.bfloat16().index_put((rows,), values.bfloat16(), accumulate=True),
            booleans.index_put((rows,), yes, accumulate=True),
            floats.index_add(0, rows.abs(), values, alpha=2.5),
        ]

    assert_same(program)


VALUES_FOR_MASK = {
    "scalar": (),
    "row": (3,),
    "one per true element": (4, 3),
    "column": (4, 1),
    "leading one": (1, 4, 3),
    "per slice before": (2, 1, 1),
    "everything": (2, 4, 3),
}


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shape", VALUES_FOR_MASK.values(), ids=VALUES_FOR_MASK.keys())
def test_mask_in_the_middle(shape: tuple[int, ...], accumulate: bool) -> None:
    def program(device: str) -> Tensor:
        mask = torch.tensor([[True, False, True], [False, True, True]], device=device)
        t = ramp(2, 2, 3, 3, device=device)
        values = -ramp(*shape, device=device)
        return torch.ops.aten.index_put(t, [None, mask], values, accumulate)

    assert_same(program)


def test_masks() -> None:
    def program(device: str) -> list[Tensor]:
        t = ramp(4, 3, device=device)
        rows = torch.tensor([True, False, False, True], device=device)
        none = torch.zeros(4, dtype=torch.bool, device=device)
        first, second, third = t.clone(), t.clone(), t.clone()
        first[rows] = torch.tensor([-1.0, -2.0, -3.0], device=device)
        second[none] = 9
        third[torch.tensor(True, device=device)] = 7
        mixed = t.clone()
        mixed[rows, torch.tensor([1, 2], device=device)] = 5
        source = -ramp(20, device=device)
        return [first, second, third, mixed, t.masked_scatter(t % 2 == 0, source)]

    assert_same(program)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_scatter_reduce(reduce: str, include_self: bool, dtype: torch.dtype) -> None:
    def program(device: str) -> list[Tensor]:
        t = torch.tensor([[3, -7, 2], [-5, 4, 9]], dtype=dtype, device=device)
        index = torch.tensor([[0, 0, 2, 0], [1, 1, 1, 2]], device=device)
        source = torch.tensor([[1, -4, 6, 2], [-3, 8, -2, 5]], dtype=dtype, device=device)
        return [t.scatter_reduce(1, index, source, reduce, include_self=include_self)]

    assert_same(program)


def test_search_orders_nan_last() -> None:
    def program(device: str) -> list[Tensor]:
        values = torch.tensor([float("nan"), float("inf"), -1.0, 2.0, 2.5], device=device)
        result = []
        for length in (1, 2, 3, 7, 8, 9):
            bounds = ramp(length, device=device)
            rows = torch.stack([bounds, bounds - 3])
            per_row = torch.stack([values, values + 1])
            for right in (False, True):
                result.append(torch.bucketize(values, bounds, right=right))
                result.append(torch.searchsorted(rows, per_row, right=right))
        return result

    assert_same(program)


@pytest.mark.parametrize("scale", [False, True])
def test_embedding_gradient(scale: bool) -> None:
    def program(device: str) -> Tensor:
        weight = ramp(6, 2, device=device).requires_grad_()
        rows = torch.tensor([[1, 4, 1], [5, 1, 0]], device=device)
        out = torch.nn.functional.embedding(rows, weight, 5, scale_grad_by_freq=scale)
        out.backward(ramp(2, 3, 2, device=device))
        return weight.grad

    assert_same(program)
