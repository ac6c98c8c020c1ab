"""Masked and indexed reads and writes; writes never bring anything back to the host."""

import warnings
from collections.abc import Callable

import pytest
import torch
import torch_xla
from compare import assert_same, ramp
from torch import Tensor
from work import Work


def write_mask_number(t: Tensor, device: str) -> None:
    t[t > 10] = -1


def write_mask_row(t: Tensor, device: str) -> None:
    t[torch.tensor([True, False, True, False], device=device)] = ramp(6, device=device)


def write_mask_device_scalar(t: Tensor, device: str) -> None:
    t[t > 10] = t.sum()


def write_index(t: Tensor, device: str) -> None:
    t[torch.tensor([3, 0], device=device)] = ramp(2, 6, device=device) + 50


def write_index_and_slice(t: Tensor, device: str) -> None:
    t[1:3, torch.tensor([5, 0, 2], device=device)] = 7


def write_pairs(t: Tensor, device: str) -> None:
    t[torch.tensor([0, 3], device=device), torch.tensor([1, -1], device=device)] = -9


def accumulate(t: Tensor, device: str) -> None:
    indices = (torch.tensor([1, 1, 2], device=device),)
    t.index_put_(indices, torch.ones(3, 6, device=device), accumulate=True)


def index_copy(t: Tensor, device: str) -> None:
    t.index_copy_(1, torch.tensor([4, 0], device=device), ramp(4, 2, device=device))


def index_add(t: Tensor, device: str) -> None:
    t.index_add_(0, torch.tensor([2, 2], device=device), ramp(2, 6, device=device), alpha=2)


def index_fill(t: Tensor, device: str) -> None:
    t.index_fill_(1, torch.tensor([0, 5], device=device), 3)


def masked_fill(t: Tensor, device: str) -> None:
    t.masked_fill_(t % 2 == 0, float("-inf"))


def masked_scatter(t: Tensor, device: str) -> None:
    t.masked_scatter_(t % 3 == 0, ramp(24, device=device) + 100)


def scatter(t: Tensor, device: str) -> None:
    t.scatter_(1, torch.tensor([[0, 2], [5, 1]], device=device), 8.0)


def scatter_add(t: Tensor, device: str) -> None:
    index = torch.tensor([[0, 0, 2], [1, 1, 1]], device=device)
    t.scatter_add_(1, index, torch.ones(2, 3, device=device))


def scatter_reduce(t: Tensor, device: str) -> None:
    index = torch.tensor([[0, 0, 2], [1, 1, 1]], device=device)
    t.scatter_reduce_(1, index, ramp(2, 3, device=device) + 20, "amax")


def slice_with_step(t: Tensor, device: str) -> None:
    t[::2, 1::3] = ramp(2, 2, device=device)


def swap_rows(t: Tensor, device: str) -> None:
    t[torch.tensor([0, 1], device=device)] = t[torch.tensor([1, 0], device=device)]


def where_in_place(t: Tensor, device: str) -> None:
    t.copy_(torch.where(t > 5, t, -t))


def fill_diagonal(t: Tensor, device: str) -> None:
    t.fill_diagonal_(-4)


def write_through_a_view(t: Tensor, device: str) -> None:
    column = t.t()[2]
    column[column > 7] = 0


WRITES = [
    write_mask_number,
    write_mask_row,
    write_mask_device_scalar,
    write_index,
    write_index_and_slice,
    write_pairs,
    accumulate,
    index_copy,
    index_add,
    index_fill,
    masked_fill,
    masked_scatter,
    scatter,
    scatter_add,
    scatter_reduce,
    slice_with_step,
    swap_rows,
    where_in_place,
    fill_diagonal,
    write_through_a_view,
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_write_matches_cpu(write: Callable[[Tensor, str], None]) -> None:
    def program(device: str) -> Tensor:
        tensor = ramp(4, 6, device=device)
        write(tensor, device)
        return tensor

    assert_same(program)


@pytest.mark.lazy_only
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_write_reads_nothing_back(write: Callable[[Tensor, str], None]) -> None:
    tensor = ramp(4, 6, device="xla")
    torch_xla.sync(wait=True)
    before = Work.so_far()
    write(tensor, "xla")
    recorded = Work.so_far().since(before)
    assert (recorded.device_to_host, recorded.executions) == (0, 0)
    torch_xla.sync(wait=True)
    done = Work.so_far().since(before)
    assert (done.device_to_host, done.executions) == (0, 1)


def test_reads_match_cpu() -> None:
    def program(device: str) -> list[Tensor]:
        t = ramp(4, 6, device=device)
        rows = torch.tensor([3, -1, 0], device=device)
        return [
            t[rows],
            t[:, rows],
            t[rows, rows],
            t[rows[:, None], rows],
            t[1, rows],
            t[..., None, 2],
            t.index_select(1, rows.abs()),
            t.gather(1, torch.tensor([[5, 0], [1, 1]], device=device)),
            t.take(torch.tensor([0, 23, 7], device=device)),
            t.take_along_dim(t.argsort(1, descending=True), 1),
            torch.nn.functional.embedding(rows.abs(), t),
            t.roll(2, 1),
            t.flip(0, 1),
        ]

    assert_same(program)


def nothing(device: str) -> Tensor:
    return torch.zeros(0, dtype=torch.int64, device=device)


EMPTY_WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "mask-add": lambda t, mask, none: t.__setitem__(mask, t[mask] + 1),
    "mask-assign": lambda t, mask, none: t.__setitem__(mask, t[mask]),
    "mask-of-elements": lambda t, mask, none: t.__setitem__(t < 0, t[t < 0]),
    "mask-of-columns": lambda t, mask, none: t.t().__setitem__((slice(None), mask), t.t()[:, mask]),
    "index_put": lambda t, mask, none: t.index_put_((mask,), t[none], accumulate=True),
    "scatter": lambda t, mask, none: t.scatter_(0, none, t.clone()),
    "scatter_add": lambda t, mask, none: t.scatter_add_(0, none, t + 1),
    "scatter_reduce": lambda t, mask, none: t.scatter_reduce_(0, none, t + 1, "prod"),
    "index_add": lambda t, mask, none: t.index_add_(0, none, t[none]),
    "index_copy": lambda t, mask, none: t.index_copy_(0, none, t[none]),
    "put": lambda t, mask, none: t.put_(none, t[0, none]),
    "beside a wrong one": lambda t, mask, none: t.index_put_(
        (torch.tensor([9]).to(t.device), none), t[0, 0] + 1
    ),
}


@pytest.mark.parametrize("write", EMPTY_WRITES.values(), ids=EMPTY_WRITES)
def test_writing_nothing(write: Callable[[Tensor, Tensor, Tensor], object]) -> None:
    def program(device: str) -> Tensor:
        tensor = ramp(4, 6, device=device)
        write(tensor, tensor[:, 0] < 0, nothing(device))
        return tensor

    assert_same(program)


def test_reading_nothing_with_gradients() -> None:
    def program(device: str) -> list[Tensor]:
        tensor = ramp(4, 6, device=device).requires_grad_()
        none = nothing(device)
        picked = [tensor[tensor < 0], tensor[tensor[:, 0] < 0], tensor[none], tensor.take(none)]
        picked += [tensor.gather(0, none), tensor.index_select(1, none)]
        (sum(t.sum() for t in picked) + tensor.sum()).backward()
        assert tensor.grad is not None
        return [tensor.grad, *picked]

    assert_same(program)


def test_a_mixture_of_experts_with_an_idle_expert() -> None:
    def program(device: str) -> list[Tensor]:
        tokens = ramp(6, 4, device=device).requires_grad_()
        weights = (ramp(3, 4, 4, device=device) / 10).requires_grad_()
        expert = torch.tensor([0, 1, 0, 1, 1, 0], device=device)  # the last one has no tokens
        output = torch.zeros_like(tokens)
        for i in range(3):
            mine = expert == i
            output[mine] += (tokens[mine] @ weights[i]).relu()
        output.sum().backward()
        assert tokens.grad is not None
        assert weights.grad is not None
        return [output, tokens.grad, weights.grad]

    assert_same(program)


def test_shapes_that_depend_on_data() -> None:
    def program(device: str) -> list[Tensor]:
        t = ramp(4, 6, device=device)
        return [
            t[t > 10],
            t.nonzero(),
            torch.masked_select(t, t % 5 == 0),
            (t % 3).unique(),
            torch.repeat_interleave(t[0], torch.arange(6, device=device)),
            torch.bincount((t % 4).long().flatten()),
        ]

    assert_same(program)


def test_boolean_index_over_two_dimensions() -> None:
    def program(device: str) -> Tensor:
        t = ramp(2, 3, 4, device=device)
        t[t[..., 0] > 4] = -1
        return t

    assert_same(program)


@pytest.mark.host_only("masks in other memory are not counted at the call")
def test_a_mask_of_the_host_takes_as_many_values_as_it_has_places() -> None:
    wrong = r"value tensor of shape \[{}\] cannot be broadcast to indexing result of shape \[{}\]"
    tensor = ramp(4, 3, device="xla")
    mask = torch.tensor([True, False, True, True])
    for given in (mask, mask.to("xla")):
        with pytest.raises(RuntimeError, match=wrong.format("2, 3", "3, 3")):
            tensor[given] = torch.zeros(2, 3, device="xla")
        with pytest.raises(RuntimeError, match=wrong.format("3", "4, 2")):
            tensor[:, given[1:]] = torch.zeros(3, device="xla")
        tensor[given] = torch.arange(9.0, device="xla").view(3, 3)
        tensor[given, 0] = torch.full((1,), 7.0, device="xla")
    assert tensor.tolist() == [[7, 1, 2], [3, 4, 5], [7, 4, 5], [7, 7, 8]]


def test_values_that_no_mask_can_take_are_refused_at_the_call() -> None:
    tensor = ramp(4, 3, device="xla")
    for sizes, mask in (((5, 3), tensor[:, 0] > 1), ((2, 2), tensor > 1), ((13,), tensor > 1)):
        with pytest.raises(RuntimeError, match="shape mismatch: value tensor of shape"):
            tensor[mask] = torch.zeros(sizes, device="xla")


def test_values_of_another_dtype_fill_a_mask_only() -> None:
    wrong = "dtypes match|shape mismatch"
    place = torch.tensor([1])
    mask = torch.tensor([True, False, True])
    for index in ((mask,), (place,), (mask, place)):
        for values in (torch.ones(1, 2), torch.ones(1), torch.ones(())):
            for accumulate in (False, True):
                results = []
                for device in ("cpu", "xla"):
                    at = tuple(i.to(device) for i in index)
                    given = values.half().to(device)
                    target = torch.zeros(3, 2, device=device)
                    try:
                        target.index_put_(at, given, accumulate=accumulate)
                        results.append(target.tolist())
                    except RuntimeError as error:
                        results.append(str(error)[:40])
                assert results[0] == results[1], (index, values, accumulate)
    with pytest.raises(RuntimeError, match=wrong):
        torch.zeros(3, device="xla")[mask.to("xla")] = torch.ones(1, 2, device="xla").long()


CHOICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_select": lambda x, i: x.index_select(-1, i),
    "index_select_1": lambda x, i: x.reshape(1, -1).index_select(1, i),
    "gather": lambda x, i: x.gather(0, i),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put_(i, x.new_ones(i.shape)),
    "scatter": lambda x, i: x.scatter(0, i, 1),
    "scatter_": lambda x, i: x.scatter_(0, i, x.new_ones(i.shape)),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x.new_ones(i.shape)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x.new_ones(i.shape), "amax"),
    "index_add": lambda x, i: x.index_add_(0, i, x.new_ones(i.shape)),
    "index_add_to_columns": lambda x, i: x.expand(2, -1).index_add(1, i, x.new_ones(2, i.numel())),
    "index_add_in_the_middle": lambda x, i: x.reshape(1, -1, 1).index_add(
        1, i.reshape(-1), x.new_ones(1, i.numel(), 1)
    ),
    "index_copy": lambda x, i: x.index_copy(0, i, x.new_ones(i.shape)),
    "index_fill": lambda x, i: x.index_fill_(0, i, 1),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x.new_ones(i.shape), "prod"),
    "take_along_dim": lambda x, i: x.take_along_dim(i),
}


def outcome(choice: Callable[[Tensor, Tensor], Tensor], tensor: Tensor, index: Tensor) -> str:
    try:
        return str(tuple(choice(tensor, index).shape))
    except (IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.host_only("indices in other memory are not looked at during the call")
@pytest.mark.parametrize("name", CHOICES)
def test_places_that_do_not_exist_raise_at_the_call(name: str) -> None:
    for sizes, kind in (((), torch.uint8), ((3,), torch.float32)):
        for place in (-4, -1, 0, 3):
            outcomes = []
            for device in ("cpu", "xla"):
                index = torch.full(sizes and (1,), place).to(device)
                outcomes.append(
                    outcome(CHOICES[name], torch.ones(sizes, dtype=kind).to(device), index)
                )
            assert outcomes[0] == outcomes[1], (sizes, place)


@pytest.mark.host_only("indices in other memory are not looked at during the call")
@pytest.mark.parametrize("sizes", [(3, 0), (0, 3), (0,)])
def test_places_of_an_empty_tensor_raise_where_the_cpu_minds(sizes: tuple[int, ...]) -> None:
    choices = {
        "select": lambda x, i: x.index_select(-1, i),
        "reduce": lambda x, i: x.index_reduce(0, i, x.new_ones(1, *sizes[1:]), "prod"),
        "add": lambda x, i: x.index_add(0, i, x.new_ones(1, *sizes[1:])),
        "copy": lambda x, i: x.index_copy(0, i, x.new_ones(1, *sizes[1:])),
        "fill": lambda x, i: x.index_fill(0, i, 1),
        "index": lambda x, i: x[i],
    }
    for name, choice in choices.items():
        outcomes = []
        for device in ("cpu", "xla"):
            index = torch.tensor([4]).to(device)
            outcomes.append(outcome(choice, torch.ones(sizes, device=device), index))
        assert outcomes[0] == outcomes[1], name


def test_an_index_out_of_range_raises_or_is_reported() -> None:
    tensor = ramp(4, device="xla")
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 4"):
        tensor[9]


def test_a_call_warns_once_of_one_thing() -> None:
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        for device in ("cpu", "xla"):
            t = ramp(2, 3, device=device)
            mask = torch.tensor([[1, 0, 1], [0, 1, 1]], dtype=torch.uint8, device=device)
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                t[mask] = ramp(4, device=device)
            assert len(given) == 1
    finally:
        torch.set_warn_always(always)


def test_masks_of_which_one_has_a_single_place() -> None:
    def program(device: str) -> list[Tensor]:
        written, added = torch.zeros(3, 2, device=device), torch.zeros(5, 2, device=device)
        column = torch.tensor([False, True], device=device)
        rows = torch.ones(3, dtype=torch.bool, device=device)
        written[rows, column] = torch.tensor([1.0, 2.0, 3.0], device=device)
        added[rows.new_ones(5), column] += 1
        return [written, added]

    assert_same(program)
