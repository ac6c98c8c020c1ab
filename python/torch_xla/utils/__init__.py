"""Helpers around training programs."""

from torch_xla._internal.submodules import on_first_use

__getattr__ = on_first_use(__name__)
