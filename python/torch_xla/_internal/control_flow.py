"""Branches and loops that are part of the program: pytrees in, pytrees out.

The names of PyTorch (`torch.cond`, ...) and of `torch_xla.experimental` end here; the core runs
functions over flat lists of tensors. See docs/control_flow.md.
"""

import dataclasses
import weakref
from collections.abc import Callable, Iterable
from typing import Any, cast

from torch import Tensor
from torch.utils import _pytree

from torch_xla import _XLAC

__all__ = ["cond", "scan", "while_loop"]


@dataclasses.dataclass(frozen=True)
class Structure:
    """A pytree but for its tensors."""

    spec: _pytree.TreeSpec
    leaves: tuple[Any, ...]  # None in the place of a tensor
    types: tuple[type, ...]  # Tensor there; 1, 1.0 and True are different

    def filled(self, tensors: Iterable[Tensor]) -> Any:
        """The tree with these tensors."""
        rest = iter(tensors)
        leaves = [
            next(rest) if kind is Tensor else leaf
            for leaf, kind in zip(self.leaves, self.types, strict=True)
        ]
        return _pytree.tree_unflatten(leaves, self.spec)

    def __str__(self) -> str:
        names = [
            "Tensor" if kind is Tensor else repr(leaf)
            for leaf, kind in zip(self.leaves, self.types, strict=True)
        ]
        return repr(_pytree.tree_unflatten([_Name(name) for name in names], self.spec))


class _Name(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def take_apart(tree: Any) -> tuple[list[Tensor], Structure]:
    """The tensors of a tree, and all the rest of it."""
    leaves, spec = _pytree.tree_flatten(tree)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    places = tuple(None if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    types = tuple(Tensor if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves)
    return tensors, Structure(spec, places, types)


@dataclasses.dataclass(frozen=True)
class _Carried:
    """What a loop body returns, as what it was given to carry."""

    structure: Structure
    slices: bool  # it returns a pair: that, and a slice of the results

    def __call__(self, result: Any) -> Any:
        if self.slices:
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(
                    "the function of a scan must return a pair, the next carry and a slice of the "
                    f"results (which may be None), not {_kind_of(result)}"
                )
            return self._checked(result[0]), result[1]
        if not isinstance(result, (tuple, list)):
            raise TypeError(
                "the body of a while_loop must return a tuple of what it was given to carry, not "
                f"{_kind_of(result)}"
            )
        return self._checked(tuple(result))

    def _checked(self, carry: Any) -> Any:
        found = take_apart(carry)[1]
        if found != self.structure:
            raise TypeError(
                f"the body of a loop returns {found} to carry on, where it was given "
                f"{self.structure}: the structure must stay the same"
            )
        return carry


def _kind_of(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, (tuple, list)) else ""
    return f"a {type(value).__name__}{size}"


# The traces of functions that stay the same from call to call, by what they are called with.
known: "weakref.WeakKeyDictionary[Any, dict[Any, Any]]" = weakref.WeakKeyDictionary()


def _flat(
    fn: Callable[..., Any],
    arguments: Structure,
    pure: bool,
    check: Callable[[Any], Any] = lambda result: result,
    carried: int = 0,
) -> Any:
    """`fn(*arguments)` as the core calls it. If it is pure, its traces are kept for other calls."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    if not pure:
        return _XLAC.FlatFunction(
            lambda *tensors: take_apart(check(fn(*arguments.filled(tensors)))), name, carried
        )
    function = weakref.ref(fn)

    def run(*tensors: Tensor) -> tuple[list[Tensor], Structure]:
        alive = cast(Callable[..., Any], function())  # whoever calls it holds it
        return take_apart(check(alive(*arguments.filled(tensors))))

    traces = known.setdefault(fn, {})
    key = (arguments, check)
    if key not in traces:
        traces[key] = _XLAC.FlatFunction(run, name, carried)
    return traces[key]


def cond(
    predicate: Tensor,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Iterable[Any],
    *,
    pure: bool = False,
) -> Any:
    """`true_fn(*operands)` where the predicate is true, else `false_fn(*operands)`."""
    tensors, structure = take_apart(tuple(operands))
    results, taken, otherwise = _XLAC.cond(
        predicate, _flat(true_fn, structure, pure), _flat(false_fn, structure, pure), tensors
    )
    if taken != otherwise:
        raise TypeError(
            f"the branches of cond return {taken} and {otherwise}: the structures must be the same"
        )
    return taken.filled(results)


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried: Iterable[Any],
    same: Iterable[Any] = (),
    *,
    pure: bool = False,
) -> Any:
    """`carried = body_fn(*carried, *same)` as long as `cond_fn(*carried, *same)` is true."""
    carried, same = tuple(carried), tuple(same)
    init, carry = take_apart(carried)
    _, structure = take_apart((*carried, *same))

    results, _ = _XLAC.while_loop(
        _flat(cond_fn, structure, pure),
        _flat(body_fn, structure, pure, _Carried(carry, slices=False)),
        init,
        take_apart(same)[0],
    )
    return carry.filled(results)


def scan(
    fn: Callable[..., Any],
    init: Any,
    xs: Any,
    same: Iterable[Any] = (),
    *,
    length: int | None = None,
    reverse: bool = False,
    pure: bool = False,
) -> tuple[Any, Any]:
    """`carry, y = fn(carry, x, *same)` for each slice `x` of `xs`; the last carry and all `y`."""
    same = tuple(same)
    carried, carry = take_apart(init)
    stacks, _ = take_apart(xs)
    _, structure = take_apart((init, xs, *same))
    if length is None:
        if not stacks or stacks[0].dim() == 0:
            raise ValueError("scan needs a tensor with a first dimension to go over")
        length = stacks[0].shape[0]
    results, found = _XLAC.scan(
        _flat(fn, structure, pure, _Carried(carry, slices=True), len(carried)),
        carried,
        stacks,
        take_apart(same)[0],
        length,
        reverse,
    )
    last, ys = found.filled(results)
    return last, ys
