"""`fn.lower(*args)` and `.compile()`: what a call computes, in the manner of JAX's stages."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from torch_xla import _XLAC
from torch_xla._internal import costs


class Lowered:
    """One kind of call of a function as StableHLO. Nothing has been run."""

    def __init__(
        self, function: Callable[..., Any], core: "_XLAC.PureFunction", args: Any, kwargs: Any
    ) -> None:
        self._function = function
        self._kind = _kind(args, kwargs)
        self._call = core.lower(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Lowered {self._call.name}>"

    def as_text(self, dialect: str | None = None, debug_info: bool = False) -> str:
        """The module: it takes the tensors among the arguments that are read, then whatever else
        the function reads, and gives its results, then whatever it writes. `debug_info`: with the
        user's lines."""
        if dialect not in (None, "stablehlo"):
            raise ValueError(f"as_text(dialect={dialect!r}): there is 'stablehlo' only")
        return self._call.text(debug_info)

    def compile(self) -> "Compiled":
        """The module's program. A compiler's error is raised here."""
        return Compiled(self._function, self._kind, self._call)


class Compiled:
    """The program of a `Lowered`. On the CPU, calls of the function also run kernels of PyTorch's
    inside their programs; this one is StableHLO alone, so that its costs are the computation's."""

    def __init__(self, function: Callable[..., Any], kind: Any, call: "_XLAC.LoweredCall") -> None:
        self._function = function
        self._kind = kind
        self._name = call.name
        self._text = call.text(False)
        self._program = call.compile()

    def __repr__(self) -> str:
        return f"<Compiled {self._name}>"

    def as_text(self) -> str:
        """XLA's HLO after its optimisations."""
        return self._program.optimized_hlo()

    def cost_analysis(self) -> dict[str, float]:
        """Estimates, by XLA's names: `flops`, `bytes accessed`, `transcendentals`, and what else
        the plugin says. One that says nothing (XLA's for the CPU) has these three from us."""
        try:
            return self._program.costs()
        except RuntimeError:
            return costs.estimate(self._text, self.as_text())

    def memory_analysis(self) -> "_XLAC.MemoryUse":
        """Bytes of arguments, results, those that share memory, and temporaries."""
        return self._program.memory()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, whose arguments must be of the kind that was lowered."""
        if (given := _kind(args, kwargs)) != self._kind:
            raise TypeError(
                f"{self._name} was lowered for a call with {self._kind[0]}, and is called with "
                f"{given[0]}: lower it for these, too"
            )
        return self._function(*args, **kwargs)


def _kind(args: Any, kwargs: Any) -> tuple[list[Any], Any]:
    leaves, structure = _pytree.tree_flatten((args, kwargs))
    kinds = [
        f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        if isinstance(leaf, torch.Tensor)
        else leaf
        for leaf in leaves
    ]
    return kinds, structure
