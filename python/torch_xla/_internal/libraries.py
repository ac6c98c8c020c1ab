"""Programs that did not ask for the device do not get it: being installed changes nothing.

Libraries use `torch_xla` wherever it can be imported. Here the device has to be asked for: by
PJRT_DEVICE, which names the platform, or by importing `torch_xla`. Without that, accelerate and
transformers are imported as with their switch USE_TORCH_XLA=0, unless the user has set it;
diffusers does not see this package; PyTorch's amp for CUDA takes no notice of it;
`torch.accelerator` is as without it (record/accelerator.cpp); and Lightning, which asks
`torch_xla._internal.tpu`, finds no device on the CPU platform.

Some modules are corrected once they are imported. Accelerate knows a process's number on its host
for TPUs only, and prints nothing without it; it gathers no Python objects where the device is XLA;
there it looks for a model's parameters by name, which `torch.compile` changes. PyTorch's
FlexAttention lists the devices it takes, and its attention over jagged tensors is composed of what
this device has not; what it distributes over a mesh is for several processes (`device_meshes`); its
counter of operations knows none of ours. Transformers does not know when we trace. Diffusers leaves
timesteps on the host, and has layers that take them there. Streaming data sets make a tensor on
the default device that their workers share. Versions of these libraries without what is corrected
stay as they are.
"""

import contextlib
import functools
import importlib.abc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FrameType, FunctionType, ModuleType
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._internal import device_meshes, flop_formulas, jagged_attention, world
from torch_xla._internal.devices import type_name

_SWITCH = "USE_TORCH_XLA"
# Libraries that import us where they can: they ask for nothing, also from a checkout of theirs.
_ASKERS = (
    "accelerate",
    "diffusers",
    "lightning",
    "lightning_fabric",
    "pytorch_lightning",
    "transformers",
)
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep

# The modules that read the switch, once, when they are imported.
_READERS = ("accelerate.utils.imports", "transformers.utils.import_utils")


def asked_for() -> bool:
    """Whether the user wants programs that choose a device by themselves to choose this one."""
    return bool(os.environ.get("PJRT_DEVICE", "").strip()) or _is_named_by_the_program()


def switched_off() -> bool:
    return os.environ.get(_SWITCH, "1").upper() in ("0", "OFF", "NO", "FALSE")


def wanted() -> bool:
    """Whether libraries are to find the device."""
    return asked_for() and not switched_off()


def _is_named_by_the_program() -> bool:
    """Whether a file of the user's imports `torch_xla`. In one that is just being imported, that
    may be further down: imports are often sorted by name."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not _is_installed(frame.f_code.co_filename, frame.f_globals.get("__name__", "")):
            names = (name.partition(".")[0] for name in frame.f_code.co_names)
            if "torch_xla" in names or _knows_us(frame.f_globals):
                return True
        frame = frame.f_back
    return _is_known_to_a_file(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _is_known_to_a_file(modules: int) -> bool:
    """Whether any that has been imported did. Looked for again when there are other modules."""
    return any(
        isinstance(path := getattr(module, "__file__", None), str)
        and not _is_installed(path, name)
        and _knows_us(vars(module))
        for name, module in list(sys.modules.items())
    )


def _knows_us(names: dict[str, Any]) -> bool:
    """Whether something of ours was imported under any name."""
    for value in list(names.values()):
        if isinstance(value, ModuleType | FunctionType | type):
            module = value.__name__ if isinstance(value, ModuleType) else value.__module__
            if isinstance(module, str) and module.partition(".")[0] == "torch_xla":
                return True
    return False


def _is_installed(path: str, module: str) -> bool:
    """Libraries' own imports, and ours wherever the package lies, say nothing of the user."""
    return (
        "-packages" in path
        or path.startswith(_STANDARD_LIBRARY)
        or module.partition(".")[0] in ("torch", "torch_xla", "_torch_xla_autoload", *_ASKERS)
    )


def install() -> None:
    sys.meta_path.insert(0, _Finder())
    device_meshes.install()
    already = sys.modules.get("transformers.utils.import_utils")  # it comes before PyTorch
    if already is not None:
        _correct(already)
        if _SWITCH not in os.environ and not asked_for():
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
        if name not in _READERS and name not in _CORRECTIONS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        with _switch_as_meant() if module.__name__ in _READERS else contextlib.nullcontext():
            super().exec_module(module)
        _correct(module)


def _correct(module: Any) -> None:
    if module.__name__ in _CORRECTIONS:
        with contextlib.suppress(AttributeError):  # an older version, or a newer one
            _CORRECTIONS[module.__name__](module)


def _number_processes(module: Any) -> None:
    initialize = module.PartialState.__init__

    @functools.wraps(initialize)
    def initialize_and_number(state: Any, *arguments: Any, **options: Any) -> None:
        initialize(state, *arguments, **options)
        if getattr(state, "backend", None) == type_name and state.local_process_index < 0:
            state.local_process_index = world.local_rank()

    module.PartialState.__init__ = initialize_and_number


def _gather_objects(module: Any) -> None:
    gather = module.gather_object

    @functools.wraps(gather)
    def gather_ours(object: Any) -> Any:
        if getattr(module.PartialState(), "backend", None) != type_name:
            return gather(object)
        if world.size() == 1:
            return object
        from torch_xla.core import xla_model

        return xla_model.mesh_reduce(
            "accelerate.gather_object", object, lambda parts: [x for part in parts for x in part]
        )

    module.gather_object = gather_ours


def _name_compiled_parameters(module: Any) -> None:
    named_parameters = module.Accelerator._get_named_parameters

    @functools.wraps(named_parameters)
    def named_as_before(accelerator: Any, *arguments: Any, **options: Any) -> Any:
        found = named_parameters(accelerator, *arguments, **options)
        if getattr(accelerator.state, "backend", None) != type_name or not isinstance(found, dict):
            return found
        return {name.replace("_orig_mod.", ""): value for name, value in found.items()}

    module.Accelerator._get_named_parameters = named_as_before


def _allow_flex_attention(module: Any) -> None:
    validate = module._validate_device

    @functools.wraps(validate)
    def validate_elsewhere(query: torch.Tensor, *others: torch.Tensor) -> None:
        if query.device.type != type_name:
            validate(query, *others)

    module._validate_device = validate_elsewhere


def _know_our_traces(module: Any) -> None:
    """Where a graph is traced, transformers asks no mask whether it masks anything."""
    is_tracing = module.is_tracing

    @functools.wraps(is_tracing)
    def is_tracing_ours(tensor: Any = None) -> bool:
        return _XLAC.is_tracing() or is_tracing(tensor)

    for name, user in list(sys.modules.items()):
        if name.startswith("transformers.") and vars(user).get("is_tracing") is is_tracing:
            user.is_tracing = is_tracing_ours  # type: ignore[attr-defined]
    module.is_tracing = is_tracing_ours


def _be_seen_if_asked_for(module: Any) -> None:
    """Diffusers has no switch; for CUDA, too, it would leave timesteps on the host."""
    if not wanted():
        sys.modules["diffusers.utils.import_utils"]._torch_xla_available = False  # type: ignore[attr-defined]


def _take_timesteps_of_the_host(module: Any) -> None:
    forward = module.TimestepEmbedding.forward

    @functools.wraps(forward)
    def forward_on_device(layer: Any, sample: torch.Tensor, *others: Any, **options: Any) -> Any:
        device = layer.linear_1.weight.device
        return forward(
            layer, sample.to(device) if device.type == type_name else sample, *others, **options
        )

    module.TimestepEmbedding.forward = forward_on_device


def _count_epochs_on_the_host(module: Any) -> None:
    """Workers of a streaming data set share its epoch; the default device's memory they cannot."""
    share = module._maybe_share_with_torch_persistent_workers

    @functools.wraps(share)
    def share_on_host(value: int | torch.Tensor) -> torch.Tensor:
        with torch.device("cpu"):
            shared: torch.Tensor = share(value)
            return shared

    module._maybe_share_with_torch_persistent_workers = share_on_host


# What modules are corrected by once they are imported.
_CORRECTIONS: dict[str, Callable[[Any], None]] = {
    "accelerate.accelerator": _name_compiled_parameters,
    "accelerate.state": _number_processes,
    "accelerate.utils.operations": _gather_objects,
    "datasets.iterable_dataset": _count_epochs_on_the_host,
    "diffusers.models.embeddings": _take_timesteps_of_the_host,
    "diffusers.configuration_utils": _be_seen_if_asked_for,
    "torch.distributed.tensor._api": device_meshes.correct_dtensor,
    "torch.nested._internal.ops": jagged_attention.correct,
    "torch.nn.attention.flex_attention": _allow_flex_attention,
    "torch.utils.flop_counter": flop_formulas.register,
    "transformers.utils.import_utils": _know_our_traces,
}


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
