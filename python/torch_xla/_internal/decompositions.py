"""Operators in terms of others, for platforms where no CPU kernel can run inside a program."""

import functools
from typing import Any

import torch

from torch_xla._internal import frames


@functools.cache
def table() -> dict[Any, Any]:
    from torch._decomp import decomposition_table

    from torch_xla._internal import (  # noqa: F401  (they add to the table)
        composed,
        dense_decompositions,
        jacobi,
        polynomial_decompositions,
        scaling_decompositions,
        shape_decompositions,
        special_decompositions,
    )

    return {**decomposition_table, **composed.TABLE}


def decompose(name: str, overload: str, arguments: tuple[Any, ...]) -> Any:
    """The operator's results; None when there is no decomposition of it, NotImplemented when there
    is none of this call."""
    packet = getattr(getattr(torch.ops, name.partition("::")[0]), name.partition("::")[2])
    operator = getattr(packet, overload or "default")
    function = table().get(operator)
    if function is None:
        return None
    positional, keywords = [], {}
    for argument, value in zip(operator._schema.arguments, arguments, strict=True):
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            positional.append(value)
    with torch.no_grad():
        return function(*positional, **keywords)


# The core calls it, also while dynamo watches every frame: this one is not the user's.
frames.hide(decompose, with_what_it_calls=True)
