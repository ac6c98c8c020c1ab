"""Makes PyTorch know the device, once, when torch_xla is imported."""

import atexit
import contextlib
import copyreg
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_xla import _XLAC
from torch_xla._internal import (
    backward,
    decompositions,
    device_module,
    higher_order,
    hints,
    host_collectives,
    kernel_settings,
    late_compiler,
    libraries,
    optimizers,
    plugins,
    pytree_nodes,
    script_modules,
    sharing,
    torch_compile,
)
from torch_xla._internal.devices import device_index, type_name

_PROCESS = os.getpid()
_DROPPED_VARIABLES = ("XLA_USE_BF16", "XLA_USE_F16", "XLA_DOWNCAST_BF16")


@functools.cache
def install() -> None:
    """Once, also when the package is reloaded."""
    _XLAC.set_warning_handler(_warn)
    _XLAC.set_plugin_finder(plugins.find)
    _XLAC.record_locations()
    torch._register_device_module(type_name, device_module)  # type: ignore[no-untyped-call]
    _XLAC.set_decomposer(decompositions.decompose)
    hints.install()
    backward.install()
    late_compiler.install()
    _keep_parameters_when_moving()
    script_modules.load_on_device()
    sharing.install()
    _seed_with_torch()
    _fork_with_torch()
    optimizers.install()
    kernel_settings.install()
    pytree_nodes.install()
    _number_fake_devices()
    higher_order.install()
    torch_compile.install()
    libraries.install()
    torch.Tensor.xla = _tensor_xla  # type: ignore[attr-defined]
    torch.nn.Module.xla = _module_xla  # type: ignore[attr-defined]
    _know_types_by_name()
    _explain_where_2_9_does()
    _register_backend()
    host_collectives.install()
    _warn_about_variables()
    atexit.register(_land)


def _register_backend() -> None:
    """torch.distributed knows "xla" and "xla://"; what does the work is imported on first use."""
    if not torch.distributed.is_available():
        return

    def create(*arguments: Any, **keywords: Any) -> Any:
        from torch_xla.distributed import xla_backend

        return xla_backend.create(*arguments, **keywords)

    def meet(*arguments: Any, **keywords: Any) -> Any:
        from torch_xla.distributed import xla_backend

        return xla_backend.meet(*arguments, **keywords)

    distributed: Any = torch.distributed
    if not hasattr(distributed.Backend, type_name.upper()):  # importlib.reload(torch_xla)
        distributed.Backend.register_backend(type_name, create, devices=type_name)
        for scheme in ("xla", "pjrt"):
            distributed.register_rendezvous_handler(scheme, meet)


def _land() -> None:
    """Brings what still runs to its end while the interpreter and the plugin are whole.

    PyTorch's autograd thread drops gradients that Python has seen a moment after
    `torch.autograd.grad` has returned, and would abort the process if the interpreter were already
    finalizing then, or, where that thread has only just started, would wait ten seconds for it; a
    plugin that still computes would find its own constants destroyed.
    """
    if os.getpid() != _PROCESS:
        return
    _XLAC.drain_autograd_threads()
    if _XLAC.client_started():
        # A program that failed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            _XLAC.wait_device_ops()


def _tensor_xla(
    self: torch.Tensor,
    device: "torch.device | str | int | None" = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """`tensor.to("xla")`, as `tensor.cuda()` is `tensor.to("cuda")`."""
    target = torch.device(type_name, device_index(device))
    return self.to(target, non_blocking=non_blocking, memory_format=memory_format)


def _module_xla(
    self: torch.nn.Module, device: "torch.device | str | int | None" = None
) -> torch.nn.Module:
    """`module.to("xla")`."""
    return self.to(torch.device(type_name, device_index(device)))


def _know_types_by_name() -> None:
    """`a.type(b.type())`: PyTorch writes "torch.xla.FloatTensor", and reads such names of some
    devices only."""
    original: Callable[..., Any] = torch.Tensor.type

    @functools.wraps(original)
    def type_of(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(dtype, str) or not dtype.startswith(f"torch.{type_name}."):
            return original(self, dtype, *args, **kwargs)
        name = dtype.removeprefix(f"torch.{type_name}.")
        try:
            wanted = original(torch.empty(0, device="cpu"), f"torch.{name}").dtype
        except ValueError:
            raise ValueError(f"invalid type: '{dtype}'") from None
        device = self.device if self.device.type == type_name else type_name
        return self.to(device, wanted, *args, **kwargs)

    torch.Tensor.type = type_of  # type: ignore[assignment, method-assign]


def _keep_parameters_when_moving() -> None:
    """Moving a module to or from the device keeps its Parameter objects, so that ties and
    optimizers made before stay valid. PyTorch's switch for that is global and would change modules
    of other devices too (an LSTM could no longer load its state): it is on during the move only."""
    original: Callable[..., torch.nn.Module] = torch.nn.Module._apply

    def moves(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        parameter = next(module.parameters(), None)
        if parameter is None:
            return False
        if parameter.device.type == type_name:
            return True
        probe = fn(torch.empty(0, dtype=parameter.dtype, device=parameter.device))
        return isinstance(probe, torch.Tensor) and probe.device.type == type_name

    def to_plain(fn: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
        """PyTorch exchanges with a parameter of the result: it makes none of one without sizes."""
        result = fn(tensor)
        return result.data if torch.nn.parameter.is_lazy(result) else result

    @functools.wraps(original)
    def _apply(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
        if isinstance(self, torch.jit.ScriptModule):
            # Its parameters are in C++, which an exchange of Python's would not reach.
            if script_modules.crosses(self, fn):
                script_modules.convert(self, fn)
                return self
            with _exchange_parameters(False):
                return original(self, fn, recurse)
        if torch.__future__.get_swap_module_params_on_conversion() or not moves(self, fn):
            return original(self, fn, recurse)
        checked, torch.utils.swap_tensors = torch.utils.swap_tensors, _swap_tensors
        try:
            with _exchange_parameters(True):
                return original(self, functools.partial(to_plain, fn), recurse)
        finally:
            torch.utils.swap_tensors = checked

    torch.nn.Module._apply = _apply  # type: ignore[method-assign, assignment]


@contextlib.contextmanager
def _exchange_parameters(switch: bool) -> Iterator[None]:
    """PyTorch's switch for moving modules, meanwhile."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(switch)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _has_torch_function(tensor: torch.Tensor) -> bool:
    has: bool = torch.overrides.has_torch_function_unary(tensor)  # type: ignore[no-untyped-call]
    return has and not torch.nn.parameter.is_lazy(tensor)


def _swap_tensors(first: torch.Tensor, second: torch.Tensor) -> None:
    """Exchanges what two Python objects are. Unlike PyTorch's own, it does not mind that a result
    of the module is still alive: the result's graph keeps the former parameter; nor a profile of
    the memory. As where PyTorch exchanges the data only, a parameter keeps its class, its
    attributes and its hooks, but for subclasses that say themselves what they become."""
    names = list[str]()
    if any(map(is_traceable_wrapper_subclass, (first, second))):  # they are made of attributes
        slots = copyreg._slotnames(type(first))  # type: ignore[attr-defined]
        names = ["__class__", "__dict__", *(name for name in slots if hasattr(first, name))]
    elif _has_torch_function(first):
        names = ["__class__"]
    for name in names:
        mine, its = getattr(first, name), getattr(second, name)
        setattr(first, name, its)
        setattr(second, name, mine)
    _XLAC.swap_tensor_impls(first, second)
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        registered = getattr(first, hooks)  # of the object; what it has become calls none yet
        if registered is not None:
            setattr(first, hooks, registered)


def _warn(message: str) -> None:
    """Attributes the core's warnings to the user's line, which is outside both packages."""
    frame, level = sys._getframe(), 1  # autograd's threads have no frame below
    while frame.f_back is not None and _is_library_frame(frame.f_globals.get("__name__", "")):
        level += "importlib._bootstrap" not in frame.f_code.co_filename  # `warnings` skips them
        frame = frame.f_back
    warnings.warn(message, stacklevel=level)


def _is_library_frame(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "torch_xla", "_torch_xla_autoload", "importlib")


def _seed_with_torch() -> None:
    """`torch.manual_seed` and `torch.seed` call this hook for devices outside PyTorch."""
    original: Callable[[int], None] = torch.random._seed_custom_device

    @functools.wraps(original)
    def seed_custom_device(seed: int) -> None:
        original(seed)
        if not device_module._is_in_bad_fork():
            device_module.manual_seed_all(seed)

    torch.random._seed_custom_device = seed_custom_device


def _fork_with_torch() -> None:
    """`torch.random.fork_rng()`, which asks for the accelerator, keeps the device's numbers as well
    in programs that use it by name, where it is not the accelerator."""
    original: Callable[..., Any] = torch.random.fork_rng

    @functools.wraps(original)
    @contextlib.contextmanager
    def fork_rng(
        devices: Any = None, *arguments: Any, device_type: str | None = None, **options: Any
    ) -> Iterator[None]:
        with contextlib.ExitStack() as forks:
            if devices is None and device_type is None and device_module.is_initialized():
                ours = range(device_module.device_count())
                forks.enter_context(original(ours, *arguments, device_type=type_name, **options))
            forks.enter_context(original(devices, *arguments, device_type=device_type, **options))
            yield

    torch.random.fork_rng = fork_rng


def _number_fake_devices() -> None:
    """PyTorch lists the devices whose fake tensors have an index when none was said."""
    original: Callable[[str], bool] = fake_tensor._is_indexed_device_type

    @functools.wraps(original)
    def is_indexed(device_type: str) -> bool:
        return device_type == type_name or original(device_type)

    fake_tensor._is_indexed_device_type = is_indexed  # type: ignore[assignment]


def _explain_where_2_9_does() -> None:
    """PT_XLA_DEBUG asks why something is compiled; that is TORCH_XLA_EXPLAIN here."""
    asked = [os.environ.get(name, "0") for name in ("PT_XLA_DEBUG", "PT_XLA_DEBUG_LEVEL")]
    if any(value.lower() not in ("", "0", "false") for value in asked):
        os.environ.setdefault("TORCH_XLA_EXPLAIN", "1")


def _warn_about_variables() -> None:
    for problem in _XLAC.environment_problems():
        _warn(problem)
    for name in _DROPPED_VARIABLES:
        if os.environ.get(name, "0").lower() not in ("", "0", "false"):
            _warn(
                f"{name} is set but has no effect: tensors keep the dtype they are made with. Use "
                "`torch.autocast('xla', dtype=torch.bfloat16)` for mixed precision, or "
                "`model.to(torch.bfloat16)`."
            )
