"""PyTorch's operators on functions, on the device: `torch.cond`, `while_loop`, `scan` and `map`,
and what runs a random operator of a compiled model's checkpointed region twice, with its numbers.

PyTorch traces the functions (`torch.compile`) and hands over graphs of them, which stay the same
from call to call. `associative_scan` is a composition of other operators and needs nothing here.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch._prims import rng_prims
from torch.utils._python_dispatch import _get_current_dispatch_mode

from torch_xla._internal import control_flow, device_module
from torch_xla._internal.devices import type_name

Graph = Callable[..., Any]


def install() -> None:
    """Registers them, below autograd and in its place: the core knows the gradients."""
    for op, kernel in (
        (cond_op, _cond),
        (while_loop_op, _while_loop),
        (scan_op, _scan),
        (map_impl, _map),
    ):
        op.py_impl(DispatchKey.XLA)(kernel)
        op.py_impl(DispatchKey.AutogradXLA)(_with_autograd(op, kernel))
    _select_backend(rng_prims.run_and_save_rng_state, _run_and_save_rng_state)
    _select_backend(rng_prims.run_with_rng_state, _run_with_rng_state)


def _with_autograd(op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if _get_current_dispatch_mode() is not None:  # which must see the operator
            return op.py_kernels[DispatchKey.Autograd](*args, **kwargs)
        return kernel(*args, **kwargs)

    return run


def _cond(predicate: Tensor, true_fn: Graph, false_fn: Graph, operands: Sequence[Any]) -> Any:
    if predicate.device.type != type_name:
        return true_fn(*operands) if predicate else false_fn(*operands)
    return control_flow.cond(predicate, true_fn, false_fn, operands, pure=True)


def _while_loop(
    cond_fn: Graph,
    body_fn: Graph,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any],
    *,
    mutated_arg_indices: str = "",
) -> Any:
    device = next(x.device for x in (*carried_inputs, *additional_inputs) if isinstance(x, Tensor))
    # A number that changes from iteration to iteration is a tensor.
    carried = [
        x if isinstance(x, Tensor) else torch.tensor(x, device=device) for x in carried_inputs
    ]
    return control_flow.while_loop(cond_fn, body_fn, carried, additional_inputs, pure=True)


def _scan(
    combine_fn: Graph,
    init: Sequence[Tensor],
    xs: Sequence[Tensor],
    additional_inputs: Sequence[Any],
) -> Any:
    def step(graph: Graph, carry: tuple[Tensor, ...], x: tuple[Tensor, ...], *same: Any) -> Any:
        results = tuple(graph(*carry, *x, *same))
        return results[: len(carry)], results[len(carry) :]

    called = _called(combine_fn, "scan", step)
    carry, ys = control_flow.scan(called, tuple(init), tuple(xs), additional_inputs, pure=True)
    return (*carry, *ys)


def _map(f: Graph, xs: Sequence[Tensor], pos_args: Sequence[Any]) -> Any:
    def step(graph: Graph, carry: tuple[()], x: tuple[Tensor, ...], *same: Any) -> Any:
        return carry, graph(*x, *same)

    return control_flow.scan(_called(f, "map", step), (), tuple(xs), pos_args, pure=True)[1]


# Graphs as the functions that loops take, which live as long as they do.
_steps: "weakref.WeakKeyDictionary[Graph, dict[str, Graph]]" = weakref.WeakKeyDictionary()


def _called(graph: Graph, how: str, step: Callable[..., Any]) -> Graph:
    steps = _steps.setdefault(graph, {})
    if how not in steps:
        alive = weakref.ref(graph)
        steps[how] = lambda *args: step(alive(), *args)
    return steps[how]


def _select_backend(op: Any, kernel: Callable[..., Any]) -> None:
    """PyTorch's own choice knows a fixed list of devices."""
    others = op.py_kernels[DispatchKey.BackendSelect]

    def run(*args: Any, **kwargs: Any) -> Any:
        here = rng_prims.get_device(args, kwargs) == type_name  # type: ignore[no-untyped-call]
        return (kernel if here else others)(*args, **kwargs)

    op.py_kernels[DispatchKey.BackendSelect] = run


def _run_and_save_rng_state(op: Graph, *args: Any, **kwargs: Any) -> Any:
    return device_module.get_rng_state(), op(*args, **kwargs)


def _run_with_rng_state(rng_state: Tensor, op: Graph, *args: Any, **kwargs: Any) -> Any:
    behind = device_module.get_rng_state()
    device_module.set_rng_state(rng_state)
    try:
        return op(*args, **kwargs)
    finally:
        device_module.set_rng_state(behind)
