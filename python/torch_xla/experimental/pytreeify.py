"""Autograd functions over nested data: dicts, lists and tuples of tensors."""

from typing import Any, TypeVar

import torch
from torch.utils import _pytree

_Function = TypeVar("_Function", bound=type[torch.autograd.Function])


def pytreeify(cls: _Function) -> _Function:
    """A decorator of a torch.autograd.Function: what `forward` takes and returns may be nested, and
    `backward` gets and returns gradients in the same structures."""
    if not (isinstance(cls, type) and issubclass(cls, torch.autograd.Function)):
        raise TypeError(f"pytreeify decorates a torch.autograd.Function, got {cls!r}")
    inner: Any = cls
    given_forward, given_backward, given_apply = inner.forward, inner.backward, inner.apply

    def forward(ctx: Any, structure: Any, results: list[Any], *leaves: Any) -> tuple[Any, ...]:
        output = given_forward(ctx, *_pytree.tree_unflatten(leaves, structure))
        flat, ctx._structure_of_output = _pytree.tree_flatten(output)
        ctx._structure_of_input = structure
        results.append(ctx._structure_of_output)
        return tuple(flat)

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        nested = _pytree.tree_unflatten(gradients, ctx._structure_of_output)
        returned = given_backward(ctx, *(nested if isinstance(nested, tuple) else (nested,)))
        returned = returned if isinstance(returned, tuple) else (returned,)
        flat, structure = _pytree.tree_flatten(returned)
        if structure != ctx._structure_of_input:
            raise RuntimeError(
                f"{cls.__name__}.backward returned gradients in the structure {structure}, which "
                f"is not that of forward's arguments, {ctx._structure_of_input}"
            )
        return None, None, *flat

    def apply(*args: Any) -> Any:
        leaves, structure = _pytree.tree_flatten(args)
        results: list[Any] = []
        flat = given_apply(structure, results, *leaves)
        return _pytree.tree_unflatten(flat, results[0])

    inner.forward, inner.backward = staticmethod(forward), staticmethod(backward)
    inner.apply = staticmethod(apply)
    return cls
