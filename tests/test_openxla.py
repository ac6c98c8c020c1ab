"""torch.compile(backend="openxla"): inference and functions. CPU PyTorch says what is right."""

import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_xla
from process import output_of
from torch import Tensor, nn
from torch_xla.experimental import eager_mode_context
from torch_xla.experimental.assume_pure import assume_pure
from work import Work

Function = Callable[..., Any]


@pytest.fixture(params=[True, False], ids=["eager", "lazy"])
def mode(request: pytest.FixtureRequest) -> Iterator[bool]:
    torch_xla.sync(wait=True)
    torch._dynamo.reset()
    with eager_mode_context(request.param):
        yield request.param


@pytest.fixture
def fresh() -> None:
    torch_xla.sync(wait=True)
    torch._dynamo.reset()


def openxla(function: Function, **options: Any) -> Function:
    return torch.compile(function, backend="openxla", **options)


def work_of(function: Callable[[], object]) -> Work:
    before = Work.so_far()
    result = function()  # its results live until the work is counted
    work = Work.so_far().since(before)
    del result
    return work


def pending() -> int:
    return torch_xla._XLAC.pending_node_count(0)


def on_device(*values: Any) -> list[Any]:
    return [value.to("xla") if isinstance(value, Tensor) else value for value in values]


def check(function: Function, *args: Any, **options: Any) -> Function:
    """The compiled function returns on `xla` what the plain one does on the CPU, and changes its
    arguments as that does."""
    expected_args = copy.deepcopy(args)
    actual_args = on_device(*args)
    expected = function(*expected_args)
    compiled = openxla(function, **options)
    actual = compiled(*actual_args)
    torch.testing.assert_close(
        to_cpu((actual, actual_args)), to_cpu((expected, list(expected_args)))
    )
    return compiled


def to_cpu(values: Any) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, lambda t: t.detach().cpu(), values)


def test_a_graph_is_one_program_that_runs_at_once(mode: bool) -> None:
    compiled = check(lambda x, y: torch.relu(x @ y) * 2, torch.randn(4, 5), torch.randn(5, 6))
    x, y = on_device(torch.randn(4, 5), torch.randn(5, 6))
    torch_xla.sync()
    work = work_of(lambda: compiled(x, y))
    assert (work.executions, work.compilations) == (1, 0)
    assert pending() == 0


def test_what_is_pending_stays_out_of_the_program(fresh: None) -> None:
    compiled = openxla(lambda x: x * 2 + 1)
    x = torch.ones(3, device="xla")
    for power in range(3):
        for _ in range(power):
            x = x * 3  # recorded before
        y = compiled(x) - 1  # recorded after
        assert pending() == 1
        expected = torch.full((3,), 2.0 * 3 ** sum(range(power + 1)))
        torch.testing.assert_close(y.cpu(), expected)
    assert work_of(lambda: compiled(x)).compilations == 0


@pytest.mark.parametrize("dynamic", [None, False])
def test_one_program_per_shape(mode: bool, dynamic: bool | None) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval()
    device_model = copy.deepcopy(model).to("xla")
    compiled = openxla(device_model, dynamic=dynamic)
    with torch.no_grad():
        for size in (2, 3, 5, 7, 2, 3, 5, 7):
            x = torch.randn(size, 6)
            torch.testing.assert_close(compiled(x.to("xla")).cpu(), model(x))
        batches = [torch.randn(size, 6).to("xla") for size in (2, 3, 5, 7)]
        torch_xla.sync()
        work = work_of(lambda: [compiled(x) for x in batches])
    assert (work.executions, work.compilations) == (4, 0)


def test_dynamic_shapes_are_programs_of_their_own(mode: bool) -> None:
    def scaled(x: Tensor) -> Tensor:
        return x.reshape(-1, 2).sum(0) * x.shape[0]

    compiled = openxla(scaled, dynamic=True)
    for rows in (4, 6, 10):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x.to("xla")).cpu(), scaled(x))


def test_attention_over_dynamic_shapes(mode: bool) -> None:
    def attention(x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    compiled = openxla(attention, dynamic=True)
    for length in (4, 6, 9):
        x = torch.randn(1, 2, length, 8)
        torch.testing.assert_close(compiled(x.to("xla")).cpu(), attention(x))


def test_numbers_that_change(mode: bool) -> None:
    compiled = openxla(lambda x, by: x * by + 1)
    x = torch.arange(4.0)
    for by in (0.5, 1.5, 2.5, 3.5, 4.5):
        torch.testing.assert_close(compiled(x.to("xla"), by).cpu(), x * by + 1)
    x = x.to("xla")
    torch_xla.sync()
    assert work_of(lambda: [compiled(x, by / 8) for by in range(41, 47, 2)]).compilations == 0


def test_integers_that_change(mode: bool) -> None:
    compiled = openxla(lambda x, by: x * by + x.new_ones(by).sum())
    for by in (1, 2, 3, 4):
        x = torch.arange(4)
        torch.testing.assert_close(compiled(x.to("xla"), by).cpu(), x * by + by)


def test_outputs_of_all_kinds(mode: bool) -> None:
    def mixed(x: Tensor, n: int) -> Any:
        return {"none": None, "number": n + 1, "x": x, "list": [x + 1, (x * 2).t()], "view": x[1:]}

    check(mixed, torch.randn(3, 4), 5)


def test_an_output_that_is_an_input_is_that_tensor(mode: bool) -> None:
    x = torch.ones(3, 4, device="xla")
    same, view, other = openxla(lambda x: (x, x[1], x + 1))(x)
    assert same is x
    x.add_(1)
    torch.testing.assert_close(view.cpu(), torch.full((4,), 2.0))
    torch.testing.assert_close(other.cpu(), torch.full((3, 4), 2.0))


def test_inputs_changed_in_place(mode: bool) -> None:
    def change(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        y[:, 1] = 7
        return x + y

    compiled = check(change, torch.randn(3, 4), torch.randn(3, 4))
    x, y = torch.ones(3, 4, device="xla"), torch.zeros(3, 4, device="xla")
    for _ in range(3):
        compiled(x, y)
    torch.testing.assert_close(x.cpu(), torch.full((3, 4), 8.0))


def test_inputs_that_share_memory(mode: bool) -> None:
    def change(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x.sum() + y.sum()

    compiled = openxla(change)
    for _ in range(2):
        base, device_base = torch.ones(4, 4), torch.ones(4, 4, device="xla")
        expected = change(base[:2], base.view(16)[6:12])
        actual = compiled(device_base[:2], device_base.view(16)[6:12])
        torch.testing.assert_close(actual.cpu(), expected)
        torch.testing.assert_close(device_base.cpu(), base)


def test_an_empty_graph(mode: bool) -> None:
    check(lambda x: (), torch.ones(2))
    check(lambda x: x.shape[0] + 1, torch.ones(2))
    assert openxla(lambda: torch.ones(3, device="xla"))().sum().item() == 3


def test_integer_and_boolean_inputs(mode: bool) -> None:
    table = torch.randn(7, 3)
    index, mask = torch.tensor([1, 5, 5]), torch.tensor([True, False, True])
    check(lambda t, i, m: t[i] * m[:, None], table, index, mask)


def test_graph_breaks(mode: bool) -> None:
    def breaks(x: Tensor) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        y = y + 1
        if y.sum().item() > 0:  # read on the host
            return y * 3
        return y - 3

    for sign in (1, -1):
        check(breaks, sign * torch.ones(3))


def test_fullgraph_refuses_a_break(mode: bool) -> None:
    def reads(x: Tensor) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(torch._dynamo.exc.Unsupported):
        openxla(reads, fullgraph=True)(torch.ones(2, device="xla"))
    check(lambda x: x.sin() + 1, torch.ones(2), fullgraph=True)


def test_random_numbers_differ_and_follow_the_seed(mode: bool) -> None:
    drop = openxla(lambda x: nn.functional.dropout(x, 0.5))
    x = torch.ones(64, device="xla")

    def draws() -> list[Tensor]:
        torch.manual_seed(3)
        return [drop(x).cpu() for _ in range(3)]

    first, again = draws(), draws()
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])
    torch.testing.assert_close(first, again)
    assert set(first[0].tolist()) == {0.0, 2.0}


def test_batch_norm_in_training(mode: bool) -> None:
    norm = nn.BatchNorm2d(3)
    device_norm = copy.deepcopy(norm).to("xla")
    compiled = openxla(device_norm)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 3, 5, 5)
            torch.testing.assert_close(compiled(x.to("xla")).cpu(), norm(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(to_cpu(device_norm.state_dict()), norm.state_dict())


def test_a_copy_inside_the_function() -> None:
    def program(x: Tensor) -> Tensor:
        first, second = copy.deepcopy([x.detach(), (x * 2).detach()])
        return first + second + x

    x = torch.ones(3)
    torch._dynamo.reset()
    assert torch.equal(openxla(program)(x.to("xla")).cpu(), program(x))


def test_buffers_changed_in_place(mode: bool) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("history", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.history[1:] = self.history[:-1].clone()
            self.history[0] = x.sum()
            return x * self.count

    model, device_model = Counter(), Counter().to("xla")
    compiled = openxla(device_model)
    for step in range(4):
        x = torch.full((2,), float(step))
        torch.testing.assert_close(compiled(x.to("xla")).cpu(), model(x))
    torch.testing.assert_close(to_cpu(device_model.state_dict()), model.state_dict())


def test_inside_torch_xla_compile_it_joins_the_region(mode: bool) -> None:
    inner = openxla(lambda x: x * 2)
    x = torch.ones(3, device="xla")
    inner(x)
    whole = torch_xla.compile(lambda x: inner(x + 1) - 1)
    whole(x)
    work = work_of(lambda: whole(x))
    assert (work.executions, work.compilations) == (1, 0)
    torch.testing.assert_close(whole(x).cpu(), torch.full((3,), 3.0))


def test_assume_pure_inside_and_outside(mode: bool) -> None:
    @assume_pure
    def double(x: Tensor) -> Tensor:
        return x * 2

    x = torch.randn(3)
    actual = openxla(lambda x: double(x).sin() + double(x))(x.to("xla"))
    torch.testing.assert_close(actual.cpu(), (x * 2).sin() + x * 2)
    compiled = openxla(lambda x: x + 1)
    x = torch.ones(3, device="xla")
    compiled(x)
    outer = assume_pure(lambda x: compiled(x) * 2)
    torch.testing.assert_close(outer(x).cpu(), torch.full((3,), 4.0))


def test_reset_starts_over(mode: bool) -> None:
    compiled = openxla(lambda x: x * 5)
    x = torch.ones(3, device="xla")
    for _ in range(2):
        torch.testing.assert_close(compiled(x).cpu(), torch.full((3,), 5.0))
        torch._dynamo.reset()


def test_threads(mode: bool) -> None:
    compiled = openxla(lambda x, w: torch.tanh(x @ w).sum(1))
    failures: list[BaseException] = []

    def work(size: int) -> None:
        try:
            generator = torch.Generator().manual_seed(size)
            for _ in range(5):
                x = torch.randn(size, 4, generator=generator)
                w = torch.randn(4, 6, generator=generator)
                actual = compiled(x.to("xla"), w.to("xla")) + 1
                torch.testing.assert_close(actual.cpu(), torch.tanh(x @ w).sum(1) + 1)
        except BaseException as error:  # the thread's own, told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(size,)) for size in (2, 3, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_shape_error_names_the_line(mode: bool) -> None:
    def wrong(x: Tensor) -> Tensor:
        return x @ x  # the line

    with pytest.raises(Exception, match=r"return x @ x"):
        openxla(wrong)(torch.ones(2, 3, device="xla"))


@torch.library.custom_op("test_openxla::checked", mutates_args=())
def checked(x: Tensor) -> Tensor:
    if x.sum() > 5:
        raise ValueError("more than five")
    return x * 2


@checked.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.mark.host_only("programs call no kernels of this process elsewhere")
def test_custom_operators_run_at_every_call(mode: bool) -> None:
    compiled = check(lambda x: checked(x) + 1, torch.ones(3))
    with pytest.raises(ValueError, match="more than five"):
        compiled(torch.full((3,), 4.0, device="xla")).cpu()
    x = torch.ones(3, device="xla")
    torch.testing.assert_close(compiled(x).cpu(), torch.full((3,), 3.0))


def test_the_backend_without_aot_autograd(mode: bool) -> None:
    linear = nn.Linear(4, 3)
    device_linear = copy.deepcopy(linear).to("xla")
    compiled = torch.compile(device_linear, backend="openxla_eval")
    x = torch.randn(5, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x.to("xla")).cpu(), linear(x))
        x = x.to("xla")
        torch_xla.sync()
        assert work_of(lambda: compiled(x)).executions == 1


def test_numbers_that_change_without_aot_autograd(mode: bool) -> None:
    compiled = torch.compile(lambda x, k: x * k + 1, backend="openxla_eval")
    x = torch.ones(3, device="xla")
    for number in (1.5, 2.5, 4.0):
        assert compiled(x, number).tolist() == [number + 1] * 3
    total = torch.compile(lambda x: x * x.sum().item(), backend="openxla_eval")
    assert [total(x * k).tolist() for k in (1, 2)] == [[3.0] * 3, [12.0] * 3]


def test_a_data_dependent_shape_warns_of_nothing(mode: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert openxla(lambda x: x[x > 0] + 1)(torch.ones(3, device="xla")).tolist() == [2.0] * 3


@pytest.mark.host_only("what a trace knows is computed in the host's memory")
@pytest.mark.parametrize("mask", [[False], [True], [False, True], [True, True]], ids=str)
def test_masks_of_the_host_that_are_part_of_a_graph(mask: list[bool]) -> None:
    """PyTorch knows what one of a single element chooses, and leaves it in the graph."""

    def change(x: Tensor) -> tuple[Tensor, Tensor]:
        chosen = x[torch.tensor(mask)] * 3
        x = x.clone()
        x[torch.tensor(mask)] += torch.tensor(2.0)
        return chosen, x

    x = torch.arange(1.0, len(mask) + 1)
    compiled = torch.compile(change, backend="openxla")
    for _ in range(2):
        for got, wanted in zip(compiled(x.to("xla")), change(x), strict=True):
            assert got.tolist() == wanted.tolist()
        x += 1


def test_a_model_on_the_cpu_stays_there(mode: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    plain = copy.deepcopy(model)
    compiled = openxla(model)
    x = torch.randn(5, 4)
    with torch.no_grad():
        with pytest.warns(UserWarning, match="all its tensors are on the CPU"):
            actual = compiled(x)
        assert actual.device.type == "cpu"
        torch.testing.assert_close(actual, plain(x))
        torch.testing.assert_close(model.state_dict(), plain.state_dict())
        assert work_of(lambda: compiled(x)).executions == 1


def test_a_graph_on_both_devices(mode: bool) -> None:
    def both(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        scale.add_(1)
        return x * scale, torch.arange(3) * scale

    x, scale, device_scale = torch.randn(4), torch.tensor(2.0), torch.tensor(2.0)
    expected = both(x, scale)
    compiled = openxla(both)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = compiled(x.to("xla"), device_scale)
    assert [value.device.type for value in actual] == ["xla", "cpu"]
    torch.testing.assert_close(to_cpu(actual), expected)
    torch.testing.assert_close(device_scale, scale)


@pytest.mark.parametrize("device", ["xla", "cpu"])
def test_results_that_are_one_tensor_stay_one(fresh: None, device: str) -> None:
    """The graph ends where a result is resized: what comes after changes all its names."""

    def renamed(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = x.clone()
        same, view = made.type_as(x), made.view(-1)
        made.resize_(2, 3).fill_(4)
        return made, same, view

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made, same, view = openxla(renamed)(torch.ones(1, 6, device=device))
    assert same is made and made.shape == (2, 3)
    assert view.tolist() == [4] * 6


def test_options_of_other_backends_are_ignored(mode: bool) -> None:
    check(lambda x: x + 1, torch.ones(2), mode="default")
    check(lambda x: x + 2, torch.ones(2), options={"trace.enabled": True})


def test_it_is_the_default_on_the_device(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile` without a backend; elsewhere it stays PyTorch's own compiler."""
    from torch._inductor import compile_fx

    def only_elsewhere(graph: Any, inputs: Any, **_: Any) -> Any:
        assert all(value.device.type == "cpu" for value in inputs)
        calls.append(graph)
        return graph.forward

    calls: list[Any] = []
    monkeypatch.setattr(compile_fx, "compile_fx", only_elsewhere)
    compiled = torch.compile(lambda x: x.sin() + 1)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x.to("xla")).cpu(), x.sin() + 1)
    assert not calls
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    assert len(calls) == 1
    made_inside = torch.compile(lambda: torch.arange(3, device="xla") * 2, mode="reduce-overhead")
    assert made_inside().tolist() == [0, 2, 4]
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)).to("xla")
    torch.compile(model)(x.to("xla")).sum().backward()
    assert model[0].weight.grad is not None and len(calls) == 1


def test_numbers_that_vmap_keeps_for_the_backward(fresh: None) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: row * 2 + row.sum())(x)

    leaves = [torch.ones(2, 3, device=device, requires_grad=True) for device in ("cpu", "xla")]
    for leaf, call in zip(leaves, (function, openxla(function)), strict=True):
        call(leaf).square().sum().backward()
    torch.testing.assert_close(leaves[1].grad.cpu(), leaves[0].grad)


def test_parts_of_complex_inputs(fresh: None) -> None:
    def parts(x: Tensor) -> tuple[Tensor, ...]:
        written = x.conj()
        written.imag.add_(1)
        return x.imag, (x * 2).imag, x.conj().real, written

    check(parts, torch.tensor([1 + 2j, 3 - 4j]))


def test_arguments_that_are_no_tensors_in_a_fresh_process() -> None:
    output_of(
        """
        parts = [torch.ones(n, 4) for n in (2, 3, 1)]
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged, device="xla")
        padded = torch.compile(lambda t: torch.nested.to_padded_tensor(t * 2, padding=0.0))(jagged)
        assert padded.shape == (3, 3, 4) and padded.sum().item() == 48
        """
    )
