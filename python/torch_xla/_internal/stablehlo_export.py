"""A torch.export program -> a StableHLO bundle: its graph is recorded, not run, and lowered."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree

from torch_xla import _XLAC
from torch_xla._internal.devices import existing_device
from torch_xla._internal.dynamic_inputs import DynamicInputs
from torch_xla._internal.stablehlo_bundle import (
    WEIGHTS_FORMATS,
    InputLocation,
    StableHLOFunc,
    StableHLOFunctionMeta,
    StableHLOModelBundle,
    VariableSignature,
    as_array,
)
from torch_xla._internal.stablehlo_sizes import (
    DynamicSizes,
    Samples,
    SizesError,
    symbol_values,
    template_of,
    value_of,
)
from torch_xla.experimental.eager import eager_mode_context
from torch_xla.experimental.stablehlo_custom_call import (
    extract_custom_call_outputs_shape_dtype,
    stablehlo_custom_call,
)

_VERSION = "1.0.0"


@dataclass
class StableHLOExportOptions:
    """How a program is exported.

    `override_tracing_arguments`, `override_tracing_kwargs`: instead of the program's examples.
    `save_weights`: parameters are saved with the functions, as `weights_format` says: "npy", a file
    each as in PyTorch/XLA, or "safetensors"; `export_weights`: they are kept at all.
    `custom_ops_allowed_in_graph`: namespaces of operators that become `stablehlo.custom_call`s for
    whoever runs the program; without it an operator that needs a kernel of this process is
    decomposed, or refused. `include_human_readable_text`: text beside the bytecode; there is always
    text where no bytecode can be made. Constants are always inlined, and each operation has the
    name of its module and line, so that `inline_all_constant` and `export_node_metadata` have no
    effect.
    """

    include_human_readable_text: bool = True
    override_tracing_arguments: tuple[Any, ...] | None = None
    override_tracing_kwargs: Mapping[str, Any] | None = None
    save_weights: bool = True
    inline_all_constant: bool = True
    export_weights: bool = True
    custom_ops_allowed_in_graph: set[str] = field(default_factory=set)
    export_node_metadata: bool = False
    weights_format: str = "npy"

    def __post_init__(self) -> None:
        if self.weights_format not in WEIGHTS_FORMATS:
            raise ValueError(
                f"weights_format: expected one of {WEIGHTS_FORMATS}, got {self.weights_format!r}"
            )


class XLAExportInterpreter(fx.Interpreter):
    """Runs a graph on the device: what it makes or moves elsewhere is made there."""

    def __init__(
        self,
        module: fx.GraphModule,
        device: torch.device,
        custom_ops_allowed_in_graph: set[str] | None = None,
        gm_serializer: Any = None,
    ) -> None:
        super().__init__(module)
        self._device = device
        self._allowed = custom_ops_allowed_in_graph or set()

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self._device}
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return value.to(self._device) if isinstance(value, torch.Tensor) else value

    def run_node(self, n: fx.Node) -> Any:
        namespace = getattr(n.target, "namespace", None)
        if n.op != "call_function" or namespace not in self._allowed:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        shapes, dtypes = extract_custom_call_outputs_shape_dtype(n)
        results = stablehlo_custom_call(tensors, str(n.target), shapes, dtypes)
        several = isinstance(n.meta["val"], (tuple, list))
        return results if several or not isinstance(results, (tuple, list)) else results[0]


@dataclass
class _Recorded:
    text: str
    captured: list[torch.Tensor]
    host_operators: list[str]
    results: list[torch.Tensor]  # then what becomes of the changed buffers
    changed: list[str]
    template: str | None = None
    sizes: DynamicSizes | None = None


@torch.no_grad()
def bundle_of(program: Any, options: StableHLOExportOptions) -> StableHLOModelBundle:
    """The program as a bundle with one function, "forward"."""
    args, kwargs = _examples(program, options)
    lowered = program.run_decompositions({})  # no changes in place any more
    values = lowered._graph_module_flat_inputs(args, kwargs)
    with eager_mode_context(False):
        inputs = [_moved(value) for value in values]
        dynamic = DynamicInputs.of(lowered)
        if dynamic.ranges:
            recorded = _record_sizes(lowered, inputs, dynamic, options)
        else:
            recorded = _record(lowered, inputs, options)
    if recorded.host_operators:
        raise RuntimeError(
            "this program cannot be exported: "
            f"{', '.join(recorded.host_operators)} can only run in this process, as a kernel of "
            "PyTorch's. Replace it, or name its namespace in "
            "StableHLOExportOptions.custom_ops_allowed_in_graph"
        )
    return _bundle(lowered, values, recorded, options)


def _examples(program: Any, options: StableHLOExportOptions) -> tuple[Any, dict[str, Any]]:
    if options.override_tracing_arguments is not None:
        return options.override_tracing_arguments, dict(options.override_tracing_kwargs or {})
    if program.example_inputs is None:
        raise ValueError(
            "the exported program has no example inputs: set "
            "StableHLOExportOptions.override_tracing_arguments"
        )
    args, kwargs = program.example_inputs
    return args, dict(kwargs)


def _moved(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().contiguous().to(existing_device(None), copy=True)


def _record(program: Any, inputs: list[Any], options: StableHLOExportOptions) -> _Recorded:
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    allowed = options.custom_ops_allowed_in_graph
    interpreter = XLAExportInterpreter(program.graph_module, existing_device(None), allowed)
    with _XLAC.ExportScope(tensors):
        returned = interpreter.run(*inputs, enable_io_processing=False)
    specs = program.graph_signature.output_specs
    results, changes = [], {}
    for value, spec in zip(returned, specs, strict=True):
        if spec.kind == OutputKind.USER_OUTPUT:
            results.append(value)
        elif spec.kind == OutputKind.BUFFER_MUTATION:
            changes[spec.target] = value
    for result in results:
        if not isinstance(result, torch.Tensor):
            raise TypeError(
                f"an exported program returns tensors, and this one returns {result!r}: leave "
                "it out of what the module's forward returns"
            )
    returned = [*results, *changes.values()]
    dense = [r.clone(memory_format=torch.contiguous_format) for r in returned]
    text, captured, operators = _XLAC.export_graph(dense, tensors, "forward")
    return _Recorded(text, captured, operators, dense, list(changes))


def _record_sizes(
    program: Any, inputs: list[Any], dynamic: DynamicInputs, options: StableHLOExportOptions
) -> _Recorded:
    """The program for each sample of its dynamic sizes, and what is the same in all of them."""
    samples = Samples(dynamic.ranges)
    try:
        sizes = dynamic.sizes(samples)
        recorded = [
            _record(program, dynamic.resized(inputs, symbols), options)
            for symbols in samples.values()
        ]
        first = recorded[0]
        if first.host_operators:
            return first
        for other in recorded[1:]:
            if not _are_equal(first.captured, other.captured):
                raise SizesError("a tensor that it keeps", samples.symbols)
        first.template = template_of([each.text for each in recorded], samples)
        shapes = ([result.shape for result in each.results] for each in recorded)
        outputs = [samples.shape(each) for each in zip(*shapes, strict=True)]
    except SizesError as error:
        raise RuntimeError(
            f"this program cannot be exported for any size of {dynamic.named(error.symbols)}, "
            f"because more than sizes depends on it: {error}. Leave this dimension out of "
            "torch.export's dynamic_shapes. Where sizes are divided, make it a multiple "
            "(2 * torch.export.Dim(...)); divide by a size instead of multiplying with 1 / size"
        ) from None
    sizes += [list(value.shape) for value in first.captured]
    first.sizes = DynamicSizes(dynamic.ranges, sizes, outputs)
    return first


def _are_equal(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> bool:
    return len(xs) == len(ys) and all(map(torch.equal, xs, ys))


def _signature(tensor: torch.Tensor) -> VariableSignature:
    return VariableSignature(list(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _mark_dynamic(
    inputs: list[VariableSignature], outputs: list[VariableSignature], sizes: DynamicSizes
) -> None:
    """Says which sizes are dynamic, and for outputs those of the example's."""
    symbols = symbol_values(sizes, [signature.shape for signature in inputs])
    signatures = zip(inputs + outputs, sizes.inputs + sizes.outputs, strict=True)
    for signature, wanted in signatures:
        signature.shape = [value_of(size, symbols) for size in wanted]
        signature.dynamic_dims = [dim for dim, size in enumerate(wanted) if isinstance(size, str)]


def _bundle(
    program: Any, values: Any, recorded: _Recorded, options: StableHLOExportOptions
) -> StableHLOModelBundle:
    locations, signatures, state = [], [], {}
    position = -1
    for value, spec in zip(values, program.graph_signature.input_specs, strict=True):
        is_argument = spec.kind == InputKind.USER_INPUT
        position += is_argument
        if not isinstance(value, torch.Tensor):
            continue
        signatures.append(_signature(value))
        if is_argument:
            locations.append(InputLocation.input_arg(position))
        else:
            locations.append(InputLocation.parameter(spec.target))
            state[spec.target] = as_array(value)
    for number, value in enumerate(recorded.captured):
        locations.append(InputLocation.constant(number))
        signatures.append(_signature(value))
    results = [_signature(result) for result in recorded.results]
    if recorded.sizes is not None:
        _mark_dynamic(signatures, results, recorded.sizes)
    spec = program.call_spec
    meta = StableHLOFunctionMeta(
        name="forward",
        stablehlo_version=_VERSION,
        input_signature=signatures,
        output_signature=results,
        input_locations=locations,
        unused_inputs=[],
        input_pytree_spec=_pytree.treespec_dumps(spec.in_spec),
        output_pytree_spec=_pytree.treespec_dumps(spec.out_spec),
        changed_buffers=recorded.changed,
        dynamic_sizes=recorded.sizes,
    )
    function = StableHLOFunc(
        meta, None, recorded.text if recorded.sizes is None else None, recorded.template
    )
    with contextlib.suppress(SizesError):  # which is raised for whoever asks for the text
        function.add_portable_forms(options.include_human_readable_text)
    constants = [as_array(value) for value in recorded.captured]
    return StableHLOModelBundle(state if options.export_weights else {}, constants, [function])
