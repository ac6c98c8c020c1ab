"""Metrics, profiling, explanations of compilations, and timelines."""

from torch_xla._internal.submodules import on_first_use
from torch_xla.debug.recompilation import CompileEvent, expect_no_compile, recompiles
from torch_xla.debug.timeline_report import timeline

__all__ = ["CompileEvent", "expect_no_compile", "recompiles", "timeline"]

__getattr__ = on_first_use(__name__)
