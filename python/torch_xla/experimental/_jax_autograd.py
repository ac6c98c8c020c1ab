"""JAX functions with gradients, and what 2.9's `assume_pure` is made of. `assume_pure` publishes
them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from torch_xla._internal import jax_interop
from torch_xla.core.xla_builder import call_jax, create_placeholder_tensor


class _JaxCall:
    """A JAX function with everything but its tensors in place: a function of a list of them."""

    def __init__(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        leaves, self._spec = _pytree.tree_flatten((args, kwargs))
        self._fn = fn
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaves[i] for i in self._places]
        self._leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        others = tuple(map(repr, self._leaves))
        self.key = (fn, self._spec, tuple(self._places), others)
        self.out_spec: Any = None

    def flat(self, *values: Any) -> list[Any]:
        leaves = list(self._leaves)
        for place, value in zip(self._places, values, strict=True):
            leaves[place] = value
        args, kwargs = _pytree.tree_unflatten(leaves, self._spec)
        results, self.out_spec = _pytree.tree_flatten(self._fn(*args, **kwargs))
        return results

    def gradients(self, values: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        jax = jax_interop.jax("j2t_autograd")
        kept = [i for i, value in enumerate(values) if _is_float(value)]

        def of_floats(*floats: Any) -> list[Any]:
            given = list(values)
            for place, value in zip(kept, floats, strict=True):
                given[place] = value
            return [result for result in self.flat(*given) if _is_float(result)]

        _, pull_back = jax.vjp(of_floats, *(values[i] for i in kept))
        return list(pull_back(list(cotangents)))


def _is_float(value: Any) -> bool:
    return "float" in str(value.dtype) or "complex" in str(value.dtype)


class _JaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _JaxCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        results = tuple(call_jax(call.flat, tensors, override_hash=(call.key, "forward")))
        ctx.is_float = [_is_float(result) for result in results]
        ctx.mark_non_differentiable(*(r for r in results if not _is_float(r)))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        tensors = ctx.saved_tensors
        given = [g for g, wanted in zip(gradients, ctx.is_float, strict=True) if wanted]
        key = (ctx.call.key, "backward")
        found = iter(call_jax(ctx.call.gradients, (list(tensors), given), override_hash=key))
        return None, *(next(found) if _is_float(tensor) else None for tensor in tensors)


def j2t_autograd(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A JAX function as a function of tensors, with gradients: JAX's, for which the function is
    computed again."""
    jax_interop.jax("j2t_autograd")
    specs: dict[Any, Any] = {}

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        jax_call = _JaxCall(fn, args, kwargs)
        results: Any = _JaxFunction.apply(jax_call, *jax_call.tensors)  # type: ignore
        if jax_call.out_spec is not None:  # it was traced
            specs[jax_call.key] = jax_call.out_spec
        return _pytree.tree_unflatten(list(results), specs[jax_call.key])

    return call


def make_fake_inputs(input: Any) -> Any:
    """A tensor such as `input` of which only the sizes matter; what is no tensor as it is."""
    if not isinstance(input, torch.Tensor):
        return input
    fake = create_placeholder_tensor(input.shape, input.dtype)
    return fake.requires_grad_(input.requires_grad)


def prepare_computation_inputs(
    fn_ctx: Any, flat_fake_inputs: Sequence[Any], flat_inputs: Sequence[Any]
) -> tuple[list[Any], dict[int, Any], dict[int, int]]:
    """What a computation that was recorded with fake inputs is called with.

    `fn_ctx` knows its parameters: `device_parameter_id_tensor_mapping()` gives their tensors by
    number, `tensor_parameter_id(tensor)` the number of a tensor, -1 for none. Returns the
    parameters' values, those among them that are no inputs, and which input each of the others is.
    """
    hoisted = dict(fn_ctx.device_parameter_id_tensor_mapping())
    input_of: dict[int, int] = {}
    for index, fake in enumerate(flat_fake_inputs):
        number = fn_ctx.tensor_parameter_id(fake) if isinstance(fake, torch.Tensor) else -1
        if number != -1:
            input_of[number] = index
            del hoisted[number]
    values = {number: flat_inputs[index] for number, index in input_of.items()} | hoisted
    return [values[number] for number in range(len(values))], hoisted, input_of
