"""`torch.compile(backend="openxla")`: PyTorch's registration of the backend ends here.

See docs/eager_and_compile.md.
"""

import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._dynamo import trace_rules
from torch.utils import _pytree

from torch_xla import _XLAC
from torch_xla._dynamo import config
from torch_xla._internal.devices import existing_device, type_name
from torch_xla.distributed.spmd.xla_sharding import unwrap_sharded_tensor

__all__ = ["extract_compiled_graph"]

# Shapes and numbers of one graph whose programs are kept.
_MAX_ENTRIES = 128
# Of a tensor that is part of a graph as numbers.
_MOST_NUMBERS = 16
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (.+)')
_graphs_of: Counter[str] = Counter()

# Copies and pickles of tensors are made outside of graphs, as PyTorch's own are.
trace_rules.add("torch_xla._internal.sharing")


def extract_compiled_graph(
    model: fx.GraphModule, args: Sequence[Any], name: str | None = None
) -> Callable[..., Any]:
    """The graph as a function that runs it as one program, at once, without waiting for it.

    It is traced at its first call and again for other shapes and numbers. Parts of the graph that
    PyTorch wants on the CPU are computed on the device, too: such arguments are moved there and
    such results back.
    """
    _XLAC.increment_counter("DynamoExtractCompiledGraph", 1)
    name = name or _name_of(model)
    if _on_cpu(args) or any(_on_cpu(_example(node)) for node in model.graph.nodes):
        return _MovingGraph(model, args, name)
    return _launcher(lambda *values: _Tracer(model).run(*values), name)


def _launcher(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    graph = _XLAC.PureFunction(function, name, _MAX_ENTRIES, False)
    program = _XLAC.CompiledFunction(
        name=name, full_graph=False, max_different_graphs=None, xla_options={}
    )

    def launch(*args: Any) -> Any:
        if config.skip_input_data_check:
            _check_there(name, args)
        # PyTorch's check of custom operators stops at types that it does not know.
        if _XLAC.spmd_enabled():
            args = tuple(map(unwrap_sharded_tensor, args))
        return graph.launch(program, *args)

    return launch


def _check_there(name: str, args: Sequence[Any]) -> None:
    for number, arg in enumerate(args):
        is_tensor = isinstance(arg, torch.Tensor) and arg.device.type == type_name
        if is_tensor and _XLAC.value_state(arg) == "pending":
            raise RuntimeError(
                f"{name}: argument {number} is still to be computed, which "
                "torch_xla._dynamo.config.skip_input_data_check forbids: call torch_xla.sync() "
                "before the compiled function"
            )


class _Tracer(fx.Interpreter):
    """Runs the graph's operations, each as if it stood on the line of the user that it came from,
    and names that line when one fails."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.aten.detach.default:  # a pure function knows views, but not these
            return torch.ops.aten.alias.default(args[0])
        if _is_opaque(target) and not torch.is_grad_enabled():
            schema = target._schema
            return _XLAC.call_opaque(schema.name, schema.overload_name, *args, **kwargs)
        return super().call_function(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        lines = _user_lines(n)
        if not lines:
            return super().run_node(n)
        _XLAC.set_graph_location(*lines[-1])
        try:
            return super().run_node(n)
        finally:
            _XLAC.clear_graph_location()


class _DeviceTracer(_Tracer):
    """The same for a graph made for the CPU, or partly so, with everything on the device."""

    def __init__(
        self, model: fx.GraphModule, device: torch.device, attributes: dict[str, torch.Tensor]
    ) -> None:
        super().__init__(model)
        self._device = device
        self._attributes = attributes

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with self._device:  # for factories that name none
            return super().run(*args, **kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in self._attributes:
            return self._attributes[target]
        value = super().get_attr(target, args, kwargs)
        # Made of numbers here, it is known to be the same at every call: a mask may be one.
        return torch.tensor(value.tolist(), dtype=value.dtype) if _is_cpu_tensor(value) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, *self._moved(args, kwargs))
        # `vmap` makes tensors of numbers, by operators that name no device.
        return _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(self._device), result)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in ("cpu", "item"):  # a number stays what it came as: a tensor of no dimensions
            return args[0]
        return super().call_method(target, *self._moved(args, kwargs))

    def _moved(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        cpu = torch.device("cpu")

        def move(value: Any) -> Any:
            is_cpu = value == "cpu" if isinstance(value, str) else value == cpu
            return self._device if is_cpu else value

        moved: tuple[Any, Any] = _pytree.tree_map_only((torch.device, str), move, (args, kwargs))
        return moved


class _MovingGraph:
    """A graph with tensors on the CPU: arguments are moved to the device, results back."""

    def __init__(self, model: fx.GraphModule, args: Sequence[Any], name: str) -> None:
        devices = [arg.device for arg in args if isinstance(arg, torch.Tensor)]
        known = next((device for device in devices if device.type == type_name), None)
        device = self._device = known or existing_device(None)
        self._back = [_on_cpu(_example(node)) for node in _results_of(model)]
        self._attributes = _cpu_attributes(model)
        names = list(self._attributes)

        def run(*values: Any) -> Any:
            count = len(values) - len(names)
            attributes = dict(zip(names, values[count:], strict=True))
            return _DeviceTracer(model, device, attributes).run(*values[:count])

        self._launch = _launcher(run, name)
        if devices and known is None:
            warnings.warn(
                f"{name}: all its tensors are on the CPU, so each call copies them to "
                f"{device} and the results back. Move the model and its inputs with "
                f".to({type_name!r}) to keep them there.",
                stacklevel=2,
            )

    def __call__(self, *args: Any) -> Any:
        given = [*args, *self._attributes.values()]
        moved = [arg.to(self._device) if _is_cpu_tensor(arg) else arg for arg in given]
        results = self._launch(*moved)
        for arg, copy in zip(given, moved, strict=True):
            if copy is not arg and copy._version > 0:
                with torch.no_grad():
                    arg.copy_(copy)
        move = _ToHost()
        pairs = zip(results, self._back, strict=True)
        return type(results)([move(result) if back else result for result, back in pairs])


class _ToHost:
    """Moves results of one call: those that share memory, or are the same tensor, do so there."""

    def __init__(self) -> None:
        self._tensors: dict[int, torch.Tensor] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = self._moved(tensor)
        return self._tensors[id(tensor)]

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_conj() or tensor.is_neg():
            return tensor.cpu()
        key = tensor.untyped_storage()._cdata
        if key not in self._storages:
            self._storages[key] = tensor.untyped_storage().cpu()  # type: ignore[no-untyped-call]
        place = (tensor.storage_offset(), tensor.size(), tensor.stride())
        return torch.empty(0, dtype=tensor.dtype).set_(self._storages[key], *place)  # type: ignore[call-overload, no-any-return]


def _cpu_attributes(model: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors on the CPU that the graph refers to by name: the step counts of an optimizer.
    Without what the user's code makes of a number or two, which the graph copies."""
    nodes = [node for node in model.graph.nodes if node.op == "get_attr"]
    names = (str(node.target) for node in nodes if not _is_constant(node))
    values = {name: operator.attrgetter(name)(model) for name in names}
    return {name: value for name, value in values.items() if _is_cpu_tensor(value)}


def _is_constant(node: fx.Node) -> bool:
    copies = all(user.target is torch.ops.aten.lift_fresh_copy.default for user in node.users)
    value = _example(node)
    return copies and isinstance(value, torch.Tensor) and value.numel() <= _MOST_NUMBERS


def _is_opaque(target: Any) -> bool:
    """An operator of the user's own whose Python may do anything, at every call."""
    keys = torch._C.DispatchKey
    return (
        isinstance(target, torch._ops.OpOverload)
        and target.namespace not in ("aten", "prims")
        and not target._schema.is_mutable
        and target.has_kernel_for_dispatch_key(keys.CompositeExplicitAutograd)
        and not target.has_kernel_for_dispatch_key(keys.XLA)
    )


def _results_of(model: fx.GraphModule) -> Sequence[Any]:
    results = model.graph.output_node().args[0]
    return results if isinstance(results, (tuple, list)) else [results]


def _example(node: Any) -> Any:
    """What the compiler's front end knows of the node's value."""
    if not isinstance(node, fx.Node):
        return None
    return node.meta.get("val", node.meta.get("example_value"))


def is_of_the_device(model: fx.GraphModule) -> bool:
    """Whether a value of the graph is a tensor of the device."""
    return any(
        isinstance(value, torch.Tensor) and value.device.type == type_name
        for node in model.graph.nodes
        for value in _pytree.tree_leaves(_example(node))
    )


def _on_cpu(example: Any) -> bool:
    return any(_is_cpu_tensor(value) for value in _pytree.tree_leaves(example))


def _is_cpu_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _user_lines(node: fx.Node) -> list[tuple[str, int, str]]:
    """The lines outside of PyTorch that the node comes from, outermost first."""
    frames = _FRAME.findall(node.stack_trace or "")
    own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    return [(file, int(line), function) for file, line, function in own]


def _name_of(model: fx.GraphModule) -> str:
    """After the compiled function; the graphs of one function are numbered. Without the line, so
    that programs on disk are found after an edit elsewhere in the file."""
    lines = next(filter(None, map(_user_lines, model.graph.nodes)), None)
    what = f"({Path(lines[0][0]).stem}.{lines[0][2]})" if lines else ""
    _graphs_of[what] += 1
    number = _graphs_of[what]
    return f"torch.compile{what}" + (f" #{number}" if number > 1 else "")
