"""Steps that are skipped where gradients overflow, in a traced function.

`torch.amp.GradScaler` reads from the device whether it found an infinity, and steps the optimizer
or not. A trace cannot know: there the optimizer steps, and what it wrote is taken back on the
device where an infinity was found. Fused optimizers look by themselves, and never come here.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.amp import GradScaler

from torch_xla import _XLAC
from torch_xla._internal.symbols import HostScalar, Recorder


@functools.cache
def install(tracing_of_thread: Callable[[], Any]) -> None:
    """Once for all threads: those that trace nothing go on to PyTorch's method."""
    original: Any = GradScaler._maybe_opt_step

    @functools.wraps(original)
    def maybe_step(
        self: GradScaler, optimizer: Any, known: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        tracing = tracing_of_thread()
        if tracing is None:
            return original(self, optimizer, known, *args, **kwargs)
        infinities = torch.stack(list(known["found_inf_per_device"].values()))
        return step_unless(infinities.any(), tracing, optimizer, args, kwargs)

    GradScaler._maybe_opt_step = maybe_step  # type: ignore[method-assign, assignment]


def step_unless(
    skipped: torch.Tensor,
    tracing: Any,
    optimizer: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Steps, and keeps what it changed where `skipped` is false."""
    mark = _XLAC.WriteMark()
    with tracing.of(optimizer).may_be_skipped():
        result = optimizer.step(*args, **kwargs)
    mark.undo_where(skipped)
    return result


class DeviceCounts:
    """Numbers that an optimizer's state keeps, on the device: a step that is skipped leaves them.

    While a step runs, what stands for them has twice the digits, as Python's own numbers have.
    Optimizers that know no counts on the device find numbers in CPU tensors, as ever.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._moved: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._places: list[tuple[dict[str, Any], str, torch.Tensor, bool]] = []

    def move(self, parameter: torch.Tensor, state: dict[str, Any], name: str) -> torch.Tensor:
        """From the host to where the parameter is. Returns what `state` has from then on."""
        number: torch.Tensor = state[name]
        self._moved.append((state, name, number))
        with _XLAC.OutsideOfTraces():
            return number.to(parameter.device)

    def move_back(self) -> None:
        """The trace has failed."""
        for state, name, number in self._moved:
            state[name] = number

    def add(self, state: dict[str, Any], name: str, as_tensor: bool) -> None:
        self._places.append((state, name, state[name], as_tensor))

    def begin(self) -> None:
        for state, name, number, as_tensor in self._places:
            state[name] = number.double() if as_tensor else self._on_host(number)

    def end(self) -> None:
        for state, name, number, _ in self._places:
            now = state[name]
            now = now.symbol if isinstance(now, HostScalar) else now
            if isinstance(now, torch.Tensor):
                number.copy_(now)
            else:
                number.fill_(now)
            state[name] = number

    def _on_host(self, number: torch.Tensor) -> HostScalar:
        stand_in = torch.zeros((), dtype=number.dtype)
        return HostScalar.of(stand_in, self._recorder.computed(number))

    @staticmethod
    def counts(parameter: torch.Tensor, value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.device.type == parameter.device.type
            and value.is_floating_point()
            and value.dim() == 0 < parameter.dim()
        )
