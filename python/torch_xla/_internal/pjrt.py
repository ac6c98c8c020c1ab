"""2.9's functions that run something in every process, with the results of all: its tests use them.

On the CPU platform as many processes as CPU_NUM_DEVICES says, of one device each; elsewhere this
one.
"""

import contextlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from torch_xla import runtime
from torch_xla.distributed import xla_multiprocessing
from torch_xla.utils.utils import get_free_tcp_ports

R = TypeVar("R")


def _call(ordinal: int, count: int, port: int, fn: Callable[..., R], args: Any, kwargs: Any) -> R:
    result: R
    found: list[R] = []
    run = xla_multiprocessing._run_on_one_device
    run(ordinal, count, port, lambda _: found.append(fn(*args, **kwargs)), ())
    (result,) = found
    return result


def run_multiprocess(
    fn: Callable[..., R], *args: Any, start_method: str = "spawn", **kwargs: Any
) -> dict[int, R]:
    """`fn(*args, **kwargs)` in each process; the results by ordinal."""
    count = xla_multiprocessing.process_count()
    port = get_free_tcp_ports()[0]
    context = multiprocessing.get_context(start_method)
    with contextlib.ExitStack() as processes:
        executors = [ProcessPoolExecutor(1, context) for _ in range(count)]
        calls = [
            processes.enter_context(executor).submit(_call, ordinal, count, port, fn, args, kwargs)
            for ordinal, executor in enumerate(executors)
        ]
        return {ordinal: call.result() for ordinal, call in enumerate(calls)}


def spawn(
    fn: Callable[..., Any],
    nprocs: int | None = None,
    start_method: str = "spawn",
    args: tuple[Any, ...] = (),
) -> None:
    """`xmp.spawn` in all processes."""
    xla_multiprocessing.spawn(fn, args, nprocs=nprocs, start_method=start_method)


def spawn_threads(fn: Callable[..., R], args: tuple[Any, ...] = ()) -> dict[int, R]:
    """`fn(ordinal, *args)` in this process, which drives all its devices."""
    return {runtime.global_ordinal(): fn(runtime.global_ordinal(), *args)}
