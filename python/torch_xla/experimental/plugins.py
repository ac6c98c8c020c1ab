"""PJRT plugins that are told to torch_xla by code, rather than by an entry point or a variable."""

import importlib.metadata
import os
from typing import Any

from torch_xla import _XLAC
from torch_xla._internal import plugins

__all__ = [
    "DevicePlugin",
    "default",
    "register_installed_plugins",
    "register_plugin",
    "use_dynamic_plugins",
    "using_dynamic_plugins",
]


class DevicePlugin:
    """A plugin: where its library is, and how a process is set up for it."""

    def library_path(self) -> str:
        """Path of the PJRT plugin library."""
        raise NotImplementedError(f"{type(self).__name__} must define library_path()")

    def host_index(self) -> int:
        return 0

    def configure_single_process(self) -> None:
        """Called before one process runs alone on one device, for debugging."""
        raise NotImplementedError(f"{type(self).__name__} must define configure_single_process()")

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> None:
        """Called in each of several processes, before its client starts; the default leaves each
        the devices it sees."""

    def physical_chip_count(self) -> int:
        """How many processes of this host may have a device each."""
        return 1

    def client_create_options(self) -> dict[str, Any]:
        return {}

    def requires_xla_coordinator(self) -> bool:
        return False


def use_dynamic_plugins() -> None:
    """Registered plugins are looked for first, before the client starts."""
    if _XLAC.client_started() and not using_dynamic_plugins():
        raise RuntimeError(
            "use_dynamic_plugins: the client has started; call it before the first use of a device"
        )
    os.environ["PJRT_DYNAMIC_PLUGINS"] = "1"


def using_dynamic_plugins() -> bool:
    return os.environ.get("PJRT_DYNAMIC_PLUGINS", "0") == "1" and plugins.device_type() != "CPU"


def default() -> DevicePlugin:
    """The registered plugin of the device type in use."""
    kind = plugins.device_type()
    if kind not in plugins.registered:
        raise KeyError(
            f"no plugin is registered for {kind}: call register_plugin('{kind}', plugin)"
        )
    plugin: DevicePlugin = plugins.registered[kind]
    return plugin


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """From now on `PJRT_DEVICE=name` is this plugin's library, whatever is installed."""
    plugins.registered[name.upper()] = device_plugin


def register_installed_plugins() -> None:
    """Registers the plugins of the entry-point group `torch_xla.plugins`."""
    for entry in importlib.metadata.entry_points(group="torch_xla.plugins"):
        register_plugin(entry.name, entry.load()())
