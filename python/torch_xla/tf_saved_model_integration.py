"""Exported programs as TensorFlow's SavedModels, which needs TensorFlow."""

import importlib
import os
import re
from typing import Any

import torch

from torch_xla import stablehlo
from torch_xla.stablehlo import (
    StableHLOExportOptions,
    StableHLOGraphModule,
    VariableSignature,
    VariableType,
)

__all__ = [
    "make_tf_function",
    "save_stablehlo_graph_as_tf",
    "save_torch_module_as_tf_saved_model",
]

# Of tf.raw_ops.XlaCallModule: the first that reads portable artifacts.
_CALL_MODULE_VERSION = 5
_PYTHON_NUMBERS = {"int": "int32", "float": "float32"}


def _tensorflow() -> Any:
    try:
        return importlib.import_module("tensorflow")
    except ImportError:
        raise RuntimeError(
            "a SavedModel is made by TensorFlow, which is not installed: `pip install tensorflow`"
        ) from None


def _variable_name(name: str) -> str:
    """TensorFlow's names begin with a letter or a digit and hold few other characters."""
    plain = re.sub(r"[^\w\-/\\]+", "_", name)
    return f"k{plain}" if plain[0] in "._\\-/" else plain


def _shape(spec: VariableSignature) -> list[int | None]:
    """A shape in TensorFlow's words."""
    return [None if dim in spec.dynamic_dims else size for dim, size in enumerate(spec.shape)]


def _signature(tf: Any, function: Any) -> list[Any]:
    meta = function.meta
    pairs = zip(meta.input_locations, meta.input_signature, strict=True)
    given = [(at.position, spec) for at, spec in pairs if at.type_ == VariableType.INPUT_ARG]
    return [
        tf.TensorSpec(_shape(spec), getattr(tf, _PYTHON_NUMBERS.get(spec.dtype, spec.dtype)))
        for _, spec in sorted(given, key=lambda item: item[0])
    ]


def make_tf_function(stablehlo_program: StableHLOGraphModule, bundle: Any = None) -> Any:
    """The program as a function of TensorFlow's tensors. `bundle`: with other weights than its
    own, for instance tf.Variables."""
    tf = _tensorflow()
    bundle = bundle or stablehlo_program._bundle
    function = stablehlo_program._bundle.stablehlo_funcs[0]
    bytecode = stablehlo_program.get_stablehlo_bytecode()
    outputs = function.meta.output_signature

    def call(*args: Any) -> Any:
        inputs = []
        given = tf.nest.flatten(args)
        for location in function.meta.input_locations:
            if location.type_ == VariableType.PARAMETER:
                inputs.append(bundle.state_dict[location.name])
            elif location.type_ == VariableType.CONSTANT:
                inputs.append(bundle.additional_constants[location.position])
            else:
                inputs.append(given[location.position])
        return tf.raw_ops.XlaCallModule(
            args=inputs,
            version=_CALL_MODULE_VERSION,
            Tout=[getattr(tf, spec.dtype) for spec in outputs],
            Sout=[_shape(spec) for spec in outputs],
            module=bytecode,
            platforms=[],
            function_list=[],
        )

    return call


def save_stablehlo_graph_as_tf(
    stablehlo_program: StableHLOGraphModule,
    path: "str | os.PathLike[str]",
    serving_key: str = "serving_default",
    function_alias: str = "",
) -> None:
    """Writes the program as a SavedModel whose signature `serving_key` is its function."""
    tf = _tensorflow()
    own = stablehlo_program._bundle
    module = tf.Module()
    weights = {
        name: tf.Variable(value, trainable=False, name=_variable_name(name))
        for name, value in own.state_dict.items()
    }
    constants = [tf.Variable(value, trainable=False) for value in own.additional_constants]
    bundle = stablehlo.StableHLOModelBundle(weights, constants, own.stablehlo_funcs)
    signature = _signature(tf, own.stablehlo_funcs[0])
    call = make_tf_function(stablehlo_program, bundle)
    module.f = tf.function(call, input_signature=signature)
    module._variables = [*weights.values(), *constants]
    aliases = {function_alias: module.f} if function_alias else None
    options = tf.saved_model.SaveOptions(function_aliases=aliases)
    signatures = {serving_key: module.f.get_concrete_function(*signature)}
    tf.saved_model.save(module, os.fspath(path), signatures=signatures, options=options)


def save_torch_module_as_tf_saved_model(
    torch_model: torch.nn.Module,
    args: tuple[Any, ...],
    saved_model_dir: "str | os.PathLike[str]",
    dynamic_shapes: Any = None,
    serving_key: str = "serving_default",
    function_alias: str = "",
    options: StableHLOExportOptions | None = None,
) -> None:
    """Exports the module for arguments such as `args`, as a SavedModel. `dynamic_shapes`: those of
    torch.export."""
    _tensorflow()
    program = torch.export.export(torch_model, args, dynamic_shapes=dynamic_shapes)
    exported = stablehlo.exported_program_to_stablehlo(program, options)
    save_stablehlo_graph_as_tf(exported, saved_model_dir, serving_key, function_alias)
