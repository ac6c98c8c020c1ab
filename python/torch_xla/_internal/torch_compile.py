"""What `torch.compile` does for other accelerators by their names, it does for this device."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_xla._internal.devices import type_name


def install() -> None:
    _compile_by_default()
    for wrapper in (torch._TorchCompileWrapper, torch._TorchCompileInductorWrapper):
        _call_first(wrapper, _count_steps_on_device)


def _compile_by_default() -> None:
    """`torch.compile` without a backend means `openxla` for graphs with tensors of the device, for
    which PyTorch's own compiler has no code."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    @functools.wraps(original)
    def compile_graph(self: Any, graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        from torch_xla.core.dynamo_bridge import is_of_the_device

        if is_of_the_device(graph):
            return torch._dynamo.lookup_backend("openxla")(graph, inputs)
        return original(self, graph, inputs, **options)

    wrapper.__call__ = compile_graph


def _call_first(wrapper: Any, prepare: Callable[[], None]) -> None:
    """TorchDynamo takes long to import: what changes it waits until somebody compiles."""
    original = wrapper.__init__

    @functools.wraps(original)
    def create(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        prepare()

    wrapper.__init__ = create


@functools.cache
def _count_steps_on_device() -> None:
    """An optimizer whose step is compiled from the first on becomes `capturable`, as with CUDA's
    parameters: it keeps its counts beside them."""
    from torch._dynamo.variables.optimizer import OptimizerVariable

    original = OptimizerVariable._set_capturable

    @functools.wraps(original)
    def set_capturable(self: Any, tx: Any) -> None:
        for group in self.value.param_groups:
            if "capturable" in group and all(
                parameter.device.type == type_name and parameter not in self.value.state
                for parameter in group["params"]
            ):
                group["capturable"] = True
        original(self, tx)

    OptimizerVariable._set_capturable = set_capturable  # type: ignore[method-assign]
