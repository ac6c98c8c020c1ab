"""The functions of the package itself: devices, synchronisation, seeds."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch_xla import _XLAC, runtime
from torch_xla._internal import compiling, rng, step_closures
from torch_xla._internal.devices import device_index, existing_device


def device(index: torch.device | str | int | None = None) -> torch.device:
    """The device `xla:index`, or the current one. A name, "xla:1", says it as well."""
    return existing_device(index)


def devices() -> list[torch.device]:
    """The devices of this process."""
    return [torch.device("xla", index) for index in range(_XLAC.device_count_hint())]


def device_count() -> int:
    """How many devices this process has; in SPMD mode one, which stands for all."""
    return _XLAC.device_count_hint()


def real_devices() -> list[str]:
    """The devices by the name of their hardware: `["CPU:0"]`."""
    kind = runtime.device_type()
    return [f"{kind}:{index}" for index in range(_XLAC.device_count())]


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Compiles and runs what the calling thread has recorded, then the closures added to this step.

    What threads that have ended left is run, too; of what others recorded only what that needs.
    Returns as soon as the programs are launched, unless `wait`. `reset_scope` has no effect.
    """
    _XLAC.sync(wait=wait)
    step_closures.run()


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: Mapping[str, bool | int | float | str] | None = None,
    tiers: str | None = None,
    assume_pure: bool = False,
) -> Any:
    """One program per call of a function or module, or per `with torch_xla.compile():`.

    A decorator with and without parentheses, and a context manager. What is pending runs before;
    inside, operations are recorded, in eager mode too; at the end they run. A region inside a
    region joins it. `full_graph`: whatever would run something earlier raises RuntimeError.
    `max_different_graphs`: more than that many different graphs raise RuntimeError with the
    differences. `custom_compile_options`: XLA's options by name, for these programs. `tiers`:
    whether the first runs are interpreted while the program is compiled in the background, as
    TORCH_XLA_TIERS says for all: "counted", "async", "off" or "never". `assume_pure`: a function is
    also traced once per kind of call (docs/assume_pure.md), so that later calls, whole training
    steps included, run no Python and record nothing.
    """
    compiled = compiling.Compiled(
        name, full_graph, max_different_graphs, custom_compile_options, tiers, assume_pure
    )
    return compiled if f is None else compiled(f)


def set_custom_compile_options(options: Mapping[str, bool | int | float | str]) -> None:
    """XLA's options by name for all programs from now on; those of a `compile` win. `{}` clears
    them."""
    _XLAC.set_default_options(compiling.option_texts(options))


def step() -> Any:
    """A step of its own, as a context manager or a decorator: `compile` for a block."""
    return compile()


def manual_seed(seed: int, device: "torch.device | str | int | None" = None) -> None:
    """Seeds the random numbers of one device, or of all."""
    rng.seed_device(rng.ALL_DEVICES if device is None else device_index(device), seed)


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Runs `fn(ordinal, *args)` for each local device (`xmp.spawn`), with `debug_single_process`
    for one; in a process that torchrun has started, `fn(local ordinal, *args)`."""
    from torch_xla.distributed import xla_multiprocessing

    nprocs = 1 if debug_single_process else None
    xla_multiprocessing.spawn(fn, args=args, nprocs=nprocs, start_method=start_method)
