"""Operators on tensors made of functions that build computations (torch_xla.core.xla_builder)."""

import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

from torch_xla.core import xla_builder as xb


class Op:
    """An operator: `opfn(*ops, **kwargs)` builds what it computes, once for each kind of call."""

    def __init__(self, name: str, opfn: Callable[..., xb.Op]) -> None:
        self._name = name
        self._opfn = opfn
        self._lock = threading.Lock()
        self._functions: dict[bytes, Callable[..., Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result for xla tensors, or a list of several. Keyword arguments are numbers and
        other plain values for `opfn`."""
        shapes = xb.tensor_shape(args)
        key = pickle.dumps([[shape.shape for shape in shapes], sorted(kwargs.items())])
        with self._lock:
            function = self._functions.get(key)
            if function is None:
                computation = xb.create_computation(self._name, self._opfn, shapes, **kwargs)
                if os.environ.get("XLA_OP_PRINT_COMPUTATIONS", "0") == "1":
                    print(xb.get_computation_hlo(computation), file=sys.stderr)
                function = xb.xla_computation_as_func(computation, self._name)
                self._functions[key] = function
        results = function(args)
        return results[0] if len(results) == 1 else results


def register(name: str, opfn: Callable[..., xb.Op]) -> Op:
    """The operator that `opfn` builds.

    def slice_and_add(a, b, dimno=0):
        first = a.slice_in_dim(start_index=0, limit_index=1, dimno=dimno)
        return first + b.slice_in_dim(start_index=1, limit_index=2, dimno=dimno)

    SLICE_AND_ADD = register("slice_and_add", slice_and_add)
    z = SLICE_AND_ADD(x, y, dimno=0)
    """
    return Op(name, opfn)
