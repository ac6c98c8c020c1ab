"""Export of torch.export programs as StableHLO, for this package and any other consumer.

    exported = torch.export.export(model, args)
    save_as_stablehlo(exported, "folder")
    StableHLOGraphModule.load("folder")(*args)

Sizes that torch.export left dynamic are dynamic (`?`) in the text; the program is compiled for the
sizes that it is called with.
"""

import os
from typing import Any

import torch
from torch.utils import _pytree

from torch_xla._internal import stablehlo_bundle, stablehlo_bytecode
from torch_xla._internal.devices import existing_device
from torch_xla._internal.stablehlo_bundle import (
    InputLocation,
    StableHLOFunc,
    StableHLOFunctionMeta,
    StableHLOJSONSerializer,
    StableHLOModelBundle,
    VariableSignature,
    VariableType,
    as_tensor,
    stablehlo_obj_hook,
)
from torch_xla._internal.stablehlo_export import (
    StableHLOExportOptions,
    XLAExportInterpreter,
    bundle_of,
)
from torch_xla._internal.stablehlo_sizes import specialised, symbol_values
from torch_xla.experimental.assume_pure import assume_pure

__all__ = [
    "InputLocation",
    "StableHLOExportOptions",
    "StableHLOFunc",
    "StableHLOFunctionMeta",
    "StableHLOGraphModule",
    "StableHLOJSONSerializer",
    "StableHLOModelBundle",
    "VariableSignature",
    "VariableType",
    "XLAExportInterpreter",
    "exported_program_to_stablehlo",
    "save_as_stablehlo",
    "save_torch_model_as_stablehlo",
    "stablehlo_obj_hook",
]

# With so many sizes and functions a module keeps what calls of them have in common. Their programs
# are bounded as all are.
_MOST_CALLS = 256


class StableHLOGraphModule:
    """An exported program that can be called: `module(*args)` runs it on the device. Buffers that
    the program changes (a cache) are kept from call to call, and not written by `save`."""

    def __init__(self, bundle: StableHLOModelBundle) -> None:
        self._bundle = bundle
        self._functions = {function.meta.name: function for function in bundle.stablehlo_funcs}
        self._default_method = bundle.stablehlo_funcs[0].meta.name
        self._moved: dict[tuple[str, Any], torch.Tensor] = {}  # weights on the device
        self._calls: dict[tuple[str, ...], _Call] = {}  # those used last at the end

    def _function(self, name: str | None) -> StableHLOFunc:
        name = name or self._default_method
        if name not in self._functions:
            raise KeyError(f"the program has the functions {', '.join(self._functions)}: no {name}")
        return self._functions[name]

    def evaluate(
        self, method_name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls a function by its name."""
        return self.evaluate_flat(_pytree.tree_leaves((args, kwargs or {})), method_name)

    def argument_count(self, method_name: str | None = None) -> int:
        """How many arguments a function takes, those in dicts and lists counted one by one."""
        locations = self._function(method_name).meta.input_locations
        places = (at.position for at in locations if at.type_ == VariableType.INPUT_ARG)
        return max(places, default=-1) + 1

    def evaluate_flat(self, leaves: list[Any], method_name: str | None = None) -> Any:
        """Calls a function with its arguments in one list."""
        function = self._function(method_name)
        meta = function.meta
        inputs = [
            self._input(location, signature, leaves)
            for location, signature in zip(meta.input_locations, meta.input_signature, strict=True)
        ]
        call = self._call(function, [input_.shape for input_ in inputs])
        returned = call.run(inputs)
        results: Any = returned[: len(returned) - len(meta.changed_buffers)]
        for name, value in zip(meta.changed_buffers, returned[len(results) :], strict=True):
            self._moved[VariableType.PARAMETER.value, name] = value
        return results if call.results is None else _pytree.tree_unflatten(results, call.results)

    def _call(self, function: StableHLOFunc, shapes: list[torch.Size]) -> "_Call":
        """The function for inputs of these shapes."""
        meta, template = function.meta, function.template
        dynamic = meta.dynamic_sizes if template is not None else None
        symbols = {} if dynamic is None else symbol_values(dynamic, shapes)
        key = (meta.name, *map(str, symbols.values()))
        call = self._calls.pop(key, None)
        if call is None:
            text = specialised(template, symbols) if template else function.module_text()
            call = _Call(text, meta.output_pytree_spec)
            while len(self._calls) >= _MOST_CALLS:
                self._calls.pop(next(iter(self._calls)), None)
        self._calls[key] = call
        return call

    def _input(
        self, location: InputLocation, signature: VariableSignature, leaves: list[Any]
    ) -> torch.Tensor:
        device = existing_device(None)
        if location.type_ == VariableType.INPUT_ARG:
            if location.position >= len(leaves):
                raise TypeError(
                    f"the program takes an argument number {location.position}, and was called "
                    f"with {len(leaves)}"
                )
            given = leaves[location.position]
            tensor = given if isinstance(given, torch.Tensor) else torch.as_tensor(given)
            signature.check(tensor, f"argument {location.position} of the program")
            return tensor.detach().to(device)
        if location.type_ == VariableType.PARAMETER:
            key: Any = location.name
            source: Any = self._bundle.state_dict
            if key not in source:
                raise KeyError(f"the program was saved without its weights: there is no '{key}'")
        else:
            key, source = location.position, self._bundle.additional_constants
        place = (location.type_.value, key)
        if place not in self._moved:
            tensor = as_tensor(source[key], signature.dtype)
            signature.check(tensor, f"the program's {location.type_.value} {key}")
            self._moved[place] = tensor.to(device)
        return self._moved[place]

    def get_stablehlo_bytecode(self, method_name: str | None = None) -> bytes:
        """The portable bytecode, which needs the converter in the package `jaxlib`."""
        function = self._function(method_name)
        if function.bytecode is None:
            function.bytecode = stablehlo_bytecode.to_bytecode(function.module_text())
        return function.bytecode

    def get_stablehlo_text(self, method_name: str | None = None) -> str:
        return self._function(method_name).module_text()

    def save(
        self,
        directory_path: "str | os.PathLike[str]",
        options: StableHLOExportOptions | None = None,
    ) -> None:
        """Writes the program into a folder."""
        options = options or StableHLOExportOptions()
        weights = options.weights_format if options.save_weights else None
        stablehlo_bundle.save(self._bundle, directory_path, weights)

    @classmethod
    def load(cls, directory_path: "str | os.PathLike[str]") -> "StableHLOGraphModule":
        """Reads what `save` wrote, here or in PyTorch/XLA."""
        return cls(stablehlo_bundle.load(directory_path))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.evaluate(self._default_method, args, kwargs)


class _Call:
    """What calls of a function have in common. A trace reads its text, once."""

    def __init__(self, text: str, spec: str | None) -> None:
        self._operator: Any = torch.ops.torch_xla.stablehlo.default
        self._text = text
        self._pure = assume_pure(lambda inputs: self._operator(inputs, text))
        self.results = None if spec is None else _pytree.treespec_loads(spec)

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if inputs:
            results: list[torch.Tensor] = self._pure(inputs)
            return results
        # No argument says on which device.
        on_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        made = self._operator.redispatch(on_cpu, [], self._text)
        return [result.to(existing_device(None)) for result in made]


def exported_program_to_stablehlo(
    exported_model: torch.export.ExportedProgram, options: StableHLOExportOptions | None = None
) -> StableHLOGraphModule:
    """The program as StableHLO, with its weights."""
    return StableHLOGraphModule(bundle_of(exported_model, options or StableHLOExportOptions()))


def _run_decompositions(exported_model: torch.export.ExportedProgram) -> Any:
    """The program in PyTorch's core operators: a private name that others' programs use."""
    return exported_model.run_decompositions()


def save_as_stablehlo(
    exported_model: torch.export.ExportedProgram,
    stablehlo_dir: "str | os.PathLike[str]",
    options: StableHLOExportOptions | None = None,
) -> None:
    """Writes the program as StableHLO with its weights into a folder."""
    exported_program_to_stablehlo(exported_model, options).save(stablehlo_dir, options)


def save_torch_model_as_stablehlo(
    torchmodel: torch.nn.Module,
    args: tuple[Any, ...],
    path: "str | os.PathLike[str]",
    options: StableHLOExportOptions | None = None,
) -> None:
    """`torch.export.export(torchmodel, args)`, then `save_as_stablehlo`."""
    save_as_stablehlo(torch.export.export(torchmodel, args), path, options)
