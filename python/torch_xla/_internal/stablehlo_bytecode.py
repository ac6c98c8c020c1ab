"""StableHLO in other forms: portable bytecode and HLO. Text is all that torch_xla needs; what
converts it is part of the package `jaxlib`, where it is installed."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def _converter() -> Iterator[tuple[Any, Any, Any]]:
    try:
        from jaxlib.mlir import ir, passmanager
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, stablehlo
    except ImportError:
        raise RuntimeError(
            "portable bytecode is made by a converter of the package jaxlib, which is not "
            "installed: `pip install jaxlib`, or use the text (get_stablehlo, the .mlir files)"
        ) from None
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        for dialect in (stablehlo, chlo):
            dialect.register_dialect(context)
        context.load_all_available_dialects()
        yield ir, passmanager, stablehlo


def available() -> bool:
    """Whether there is a converter."""
    try:
        with _converter():
            return True
    except RuntimeError:
        return False


def to_bytecode(text: str) -> bytes:
    """A portable artifact for the oldest consumers that the converter knows."""
    with _converter() as (ir, passmanager, stablehlo):
        module = ir.Module.parse(text)
        stablehlo.register_stablehlo_passes()

        def run(*passes: str) -> None:
            pipeline = f"builtin.module(func.func({','.join(passes)}))"
            passmanager.PassManager.parse(pipeline).run(module.operation)

        run("chlo-legalize-to-stablehlo")
        if "?" in text:
            # What that made of dynamic sizes are no operations of StableHLO, and no integers.
            run("shape-legalize-to-stablehlo")
            module = ir.Module.parse(str(module).replace("xindex>", "xi32>"))
            run("canonicalize")
        version = stablehlo.get_minimum_version()
        silence = ir.Context.current.attach_diagnostic_handler(lambda _: True)
        try:
            artifact: bytes = stablehlo.serialize_portable_artifact(module, version)
        except Exception:  # an operation that they did not have
            silence.detach()
            version = stablehlo.get_current_version()
            artifact = stablehlo.serialize_portable_artifact(module, version)
        return artifact


def to_text(bytecode: bytes) -> str:
    """The text of a portable artifact."""
    with _converter() as (_, _, stablehlo):
        from jaxlib.mlir import ir

        return str(stablehlo.deserialize_portable_artifact(ir.Context.current, bytecode))


def hlo_module(text: str) -> Any:
    """XLA's own form of the text before any optimisation, or None without the package."""
    try:
        _jax: Any = importlib.import_module("jaxlib._jax")
    except ImportError:
        return None
    computation = _jax.mlir.mlir_module_to_xla_computation(
        text, use_tuple_args=False, return_tuple=True
    )
    return computation.get_hlo_module()
