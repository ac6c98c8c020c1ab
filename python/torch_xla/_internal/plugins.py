"""Finds the PJRT plugin library of a device type. Asked once, when the client starts.

Only file names are looked at: a plugin's own Python package is imported last, and only for plugins
of the `torch_xla.plugins` group, which say where their library is.
"""

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_NATIVE_GROUP = "torch_xla.plugins"
_FOREIGN_GROUPS = ("jax_plugins", "xla_plugins")
_FOREIGN_NAMESPACE = "jax_plugins"

# Words in a plugin's name that mark its device type.
_WORDS = {
    "CUDA": ("cuda", "nvidia"),
    "TPU": ("tpu",),
    "ROCM": ("rocm", "amd"),
    "XPU": ("xpu", "intel", "oneapi"),
    "NEURON": ("neuron",),
    "CPU": ("cpu",),
}
_ALIASES = {"GPU": "CUDA", "": "CPU"}

# By device type: what torch_xla.experimental.plugins.register_plugin was given.
registered: dict[str, Any] = {}


def device_type() -> str:
    """The device type in use: PJRT_DEVICE, else CPU."""
    return _canonical(os.environ.get("PJRT_DEVICE", ""))


def find(requested: str) -> str:
    """Path of the plugin library for the device type `requested`."""
    kind = _canonical(requested)
    library = _library(kind)
    if library is None:
        raise RuntimeError(
            f"No PjRtPlugin registered for: {kind}. Make sure the environment variable PJRT_DEVICE "
            "is set to a correct device name. Install the plugin (for CUDA: `pip install "
            "jax-cuda13-pjrt`, for TPU: `pip install libtpu`), name its library in "
            "TORCH_XLA_PLUGIN_PATH, or set PJRT_DEVICE=CPU."
        )
    return library


def _canonical(name: str) -> str:
    name = name.strip().upper()
    return _ALIASES.get(name, name)


def _library(kind: str) -> str | None:
    if kind in registered:
        return str(registered[kind].library_path())
    for candidate in (_native(kind), _packaged(kind), _foreign(kind)):
        if candidate is not None:
            return candidate
    return None


def _native(kind: str) -> str | None:
    for entry in importlib.metadata.entry_points(group=_NATIVE_GROUP):
        if _matches(kind, entry.name):
            plugin = entry.load()
            return str(plugin().library_path())
    return None


def _packaged(kind: str) -> str | None:
    """Libraries that come in a package of their own, without an entry point."""
    if kind == "CPU":
        return _file_of("fastatomstruct_xla_cpu", "libpjrt_cpu.so")
    if kind == "TPU":
        return _file_of("libtpu", "libtpu.so")
    return None


def _file_of(package: str, name: str) -> str | None:
    for folder in _folders(package):
        if (folder / name).is_file():
            return str(folder / name)
    return None


def _foreign(kind: str) -> str | None:
    """Plugins made for JAX: a package that holds one shared library."""
    for package in _foreign_packages():
        if not _matches(kind, package.rpartition(".")[2]):
            continue
        for folder in _folders(package):
            libraries = sorted(folder.glob("*.so"), key=_plugin_likeness)
            if libraries:
                return str(libraries[-1])
    return None


def _foreign_packages() -> Iterable[str]:
    for group in _FOREIGN_GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            yield entry.module if entry.module else entry.name
    for root in _folders(_FOREIGN_NAMESPACE):
        for folder in sorted(root.iterdir()):
            if folder.is_dir() and not folder.name.startswith("_"):
                yield f"{_FOREIGN_NAMESPACE}.{folder.name}"


def _plugin_likeness(library: Path) -> tuple[bool, int]:
    """Orders a package's libraries: the plugin is named so, and is the largest."""
    name = library.name.lower()
    return ("pjrt" in name or "plugin" in name, library.stat().st_size)


def _folders(package: str) -> list[Path]:
    """Where a package lies. Imports nothing but the parents of a dotted name."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return []
    if spec is None or spec.submodule_search_locations is None:
        return []
    return [Path(location) for location in spec.submodule_search_locations]


def _matches(kind: str, name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in _WORDS.get(kind, (kind.lower(),)))
