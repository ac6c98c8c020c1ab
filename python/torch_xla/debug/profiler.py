"""Profiles for TensorBoard and Perfetto, and named regions in them.

torch_xla.debug.timeline records the same, and says in words what takes the time. Regions show up in
torch.profiler, too.
"""

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

import torch_xla
from torch_xla import _XLAC, runtime
from torch_xla.debug import _regions

if TYPE_CHECKING:
    from torch_xla.debug._profile import Profile
    from torch_xla.debug._profile_server import ProfilerServer

_P = ParamSpec("_P")
_T = TypeVar("_T")

_profile: "Profile | None" = None
_marks = threading.local()


def start_trace(log_dir: "str | os.PathLike[str]") -> None:
    """Records what threads and devices do until `stop_trace`, for the folder `log_dir`."""
    global _profile
    from torch_xla.debug._profile import Profile

    if _profile is not None:
        raise RuntimeError(
            "Only one profile may be run at a time. start_trace: a trace is being recorded "
            "already; call stop_trace first"
        )
    _profile = Profile(log_dir)


def stop_trace() -> None:
    """Writes the trace to log_dir/plugins/profile/TIME: for TensorBoard with its profile plugin
    (*.xplane.pb), for Perfetto and chrome://tracing (*.trace.json.gz), for a browser (*.html)."""
    global _profile
    if _profile is None:
        raise RuntimeError(
            "No profile started. stop_trace: no trace is being recorded; call start_trace first"
        )
    profile, _profile = _profile, None
    profile.stop()


def start_server(port: int, only_on_master: bool = True) -> "ProfilerServer | None":
    """A server that records on request (`trace`) as long as the returned object lives; with
    `only_on_master` none in other processes than the first."""
    from torch_xla.debug._profile_server import serve

    if only_on_master and runtime.local_ordinal() != 0:
        return None
    return serve(port)


def trace(
    service_addr: str,
    logdir: str,
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,
) -> None:
    """Has the servers at `service_addr` ("host:port", several with commas) record for
    `duration_ms`, and writes what they send to `logdir`, as `stop_trace` does. What fails is tried
    again `num_tracing_attempts` times, every `interval_s`, for `timeout_s`. Levels have no effect.
    """
    from torch_xla.debug._profile_server import request

    stop = time.monotonic() + timeout_s
    for address in service_addr.split(","):
        for attempt in range(max(num_tracing_attempts, 1)):
            try:
                request(address.strip(), logdir, duration_ms, delay_ms)
                break
            except RuntimeError:
                if attempt + 1 >= num_tracing_attempts or time.monotonic() + interval_s > stop:
                    raise
                time.sleep(interval_s)


def trace_detached(*args: Any, **kwargs: Any) -> threading.Thread:
    """`trace` in a thread, which is returned."""
    thread = threading.Thread(target=trace, args=args, kwargs=kwargs, name="torch_xla-trace")
    thread.start()
    return thread


def set_tracer_marked_step(value: bool) -> None:
    """Notes whether a StepTrace ends the step of this thread. `StepTrace` does it."""
    _marks.step = value


def get_tracer_marked_step() -> bool:
    return getattr(_marks, "step", False)


class Trace:
    """A context manager: names the region inside, in profiles and in the compiled program.

    `with Trace("build_input"): ...`
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.kwargs = kwargs
        self._regions: list[tuple[torch.profiler.record_function, int]] = []

    def __enter__(self) -> "Trace":
        arguments = ", ".join(f"{key}={value}" for key, value in self.kwargs.items())
        region = torch.profiler.record_function(self.name, arguments or None)
        self._regions.append((region, _regions.begin()))
        region.__enter__()  # type: ignore[no-untyped-call]
        _XLAC.begin_region(self.name)
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        _XLAC.end_region()
        region, start = self._regions.pop()
        region.__exit__(exc_type, exc_value, traceback)
        _regions.end(self.name, start, self.kwargs)


class StepTrace(Trace):
    """A Trace of one step, which ends with it. `with StepTrace("train", step_num=7): ...`"""

    def __enter__(self) -> "StepTrace":
        set_tracer_marked_step(True)
        super().__enter__()
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            if exc_type is None:
                torch_xla.sync()
        finally:
            super().__exit__(exc_type, exc_value, traceback)
            set_tracer_marked_step(False)


def trace_me(scope: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A decorator: names each call of the function."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def traced(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with Trace(scope):
                return function(*args, **kwargs)

        return traced

    return decorate
