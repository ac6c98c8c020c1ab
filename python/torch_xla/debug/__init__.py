"""Metrics, profiling, and explanations of compilations."""

from torch_xla.debug.recompilation import CompileEvent, expect_no_compile, recompiles

__all__ = ["CompileEvent", "expect_no_compile", "recompiles"]
