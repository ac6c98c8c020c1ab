"""Programs that did not ask for the device do not get it: being installed changes nothing.

Libraries use `torch_xla` wherever it can be imported. Here the device has to be asked for: by
PJRT_DEVICE, which names the platform, or by importing `torch_xla`. Without that, accelerate and
transformers are imported as with their switch USE_TORCH_XLA=0, unless the user has set it;
PyTorch's amp for CUDA takes no notice of this package; `torch.accelerator` is as without it
(record/accelerator.cpp); and Lightning, which asks `torch_xla._internal.tpu`, finds no device on
the CPU platform.

Accelerate knows a process's number on its host for TPUs only, and prints nothing without it: it is
told the number.
"""

import contextlib
import functools
import importlib.abc
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FrameType, ModuleType
from typing import Any

import torch

_SWITCH = "USE_TORCH_XLA"

# The modules that read the switch, once, when they are imported.
_READERS = ("accelerate.utils.imports", "transformers.utils.import_utils")

# The module that numbers the processes.
_COUNTER = "accelerate.state"


def asked_for() -> bool:
    """Whether the user wants programs that choose a device by themselves to choose this one."""
    return bool(os.environ.get("PJRT_DEVICE")) or _is_named_by_the_program()


def _is_named_by_the_program() -> bool:
    """Whether a file of the user's that is just running or being imported imports `torch_xla`, be
    it further down: imports are often sorted by name."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        names = (name.partition(".")[0] for name in frame.f_code.co_names)
        if not _is_installed(frame) and "torch_xla" in names:
            return True
        frame = frame.f_back
    return False


def _is_installed(frame: FrameType) -> bool:
    """Libraries' own imports, and ours wherever the package lies, say nothing of the user."""
    path, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
    return "-packages" in path or module.partition(".")[0] == "torch_xla"


def install() -> None:
    sys.meta_path.insert(0, _Finder())
    already = sys.modules.get("transformers.utils.import_utils")  # it comes before PyTorch
    if already is not None and _SWITCH not in os.environ and not asked_for():
        already.USE_TORCH_XLA = "0"  # type: ignore[attr-defined]
    for module in (torch.cuda.amp, torch.cuda.amp.common):
        module.amp_definitely_not_available = (  # type: ignore[attr-defined]
            _amp_definitely_not_available
        )


def _amp_definitely_not_available() -> bool:
    return not (torch.cuda.is_available() or asked_for())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as anybody would. Readers of the switch are to read what the user meant."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in (*_READERS, _COUNTER):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            loader = _CounterLoader if name == _COUNTER else _ReaderLoader
            spec.loader = loader(spec.loader.name, spec.loader.path)
        return spec


class _ReaderLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        with _switch_as_meant():
            super().exec_module(module)


class _CounterLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        initialize = module.PartialState.__init__

        @functools.wraps(initialize)
        def initialize_and_count(state: Any, *arguments: Any, **options: Any) -> None:
            initialize(state, *arguments, **options)
            if getattr(state, "backend", None) == "xla" and state.local_process_index < 0:
                from torch_xla import runtime

                state.local_process_index = runtime.local_ordinal()

        module.PartialState.__init__ = initialize_and_count  # type: ignore[attr-defined]


@contextlib.contextmanager
def _switch_as_meant() -> Iterator[None]:
    """Only while a module is imported: a child process may be asked for something else."""
    if _SWITCH in os.environ or asked_for():
        yield
        return
    os.environ[_SWITCH] = "0"
    try:
        yield
    finally:
        del os.environ[_SWITCH]
