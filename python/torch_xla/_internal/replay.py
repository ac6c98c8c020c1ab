"""What a call of a traced training step does on the host.

While a function that trains is traced, the optimizers it steps compute with symbols
(`symbols.py`) in place of their hyperparameters and step counts. What Python changes meanwhile is
undone after the trace; each call then finds these numbers anew, gives the computation those it
needs, and writes back what changes: step counts, and the schedules that the function advances.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torch_xla import _XLAC
from torch_xla._internal import closures, skipped_steps
from torch_xla._internal.symbols import Leaf, Number, Recorder
from torch_xla._internal.watched import (
    Buffer,
    RunAsItIs,
    Scaler,
    TakenForOne,
    Watched,
    first_change,
    number_in,
)


class Replay:
    """The host's part of one trace."""

    def __init__(
        self,
        leaves: list[Leaf],
        numbers: Callable[[list[Number]], Any],
        writes: list[Leaf],
        constants: list[tuple[dict[str, Any], dict[str, Any]]],
        counts: list[tuple[Optimizer, int]],
        afterwards: list[Callable[[], Any]],
    ) -> None:
        self._leaves = leaves
        self._numbers = numbers
        self._writes = writes
        self._constants = constants
        self._counts = counts
        self._afterwards = afterwards
        self._results: list[Number] = []

    def begin(self) -> list[float] | None:
        """The numbers for the computation; None if this trace does not hold for the call."""
        if any(len(optimizer.param_groups) != count for optimizer, count in self._counts):
            return None
        for group, constants in self._constants:
            if first_change(group, constants) is not None:
                return None
        leaves = []
        for leaf in self._leaves:
            value = leaf.read()
            if value is None:
                return None
            leaves.append(value)
        found = self._numbers(leaves)
        if found is None:
            return None
        given, self._results = found
        return [float(number) for number in given]

    def end(self) -> None:
        """After the call."""
        for leaf, value in zip(self._writes, self._results, strict=True):
            leaf.write(value)
        for effect in self._afterwards:
            effect()


class Tracing:
    """Learns a function's effects on the host while it runs, and undoes them."""

    _of_thread = threading.local()
    _running: list[Tracing] = []  # of all threads

    @classmethod
    def active(cls) -> Tracing | None:
        """The calling thread's."""
        return getattr(cls._of_thread, "tracing", None)

    @classmethod
    def of_step(cls, optimizer: Optimizer) -> Tracing | None:
        """Which trace a step belongs to: this thread's, or, on autograd's threads, the one that
        knows the optimizer. Other threads' steps are none of its business."""
        known = (x for x in tuple(cls._running) if id(optimizer) in x._optimizers)
        return cls.active() or next(known, None)

    def __init__(self, found: list[Any], apart: bool) -> None:
        self.recorder = Recorder()
        self.apart = apart  # no two step counts are taken for one
        self._optimizers = {
            id(x): Watched(x, self.recorder, apart) for x in found if isinstance(x, Optimizer)
        }
        self._schedulers = [x for x in found if isinstance(x, (LRScheduler, ReduceLROnPlateau))]
        self._buffers = [
            Buffer(module._buffers, name, self.recorder)
            for root in found
            if isinstance(root, nn.Module)
            for module in root.modules()
            for name, value in module._buffers.items()
            if isinstance(value, torch.Tensor) and number_in(value) is not None
        ]
        self._scalers = [Scaler(x) for x in found if isinstance(x, GradScaler)]
        self._afterwards: list[Callable[[], Any]] = []
        self._in_step: tuple[Optimizer, bool] | None = None  # and whether it has a closure
        _XLAC.watch_gradients(list(_parameters(found)))

    def of(self, optimizer: Optimizer) -> Watched:
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = Watched(optimizer, self.recorder, self.apart)
        return self._optimizers[id(optimizer)]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        _watch_steps()
        for scheduler in self._schedulers:
            vars(scheduler)["step"] = self._scheduler_step(scheduler)
        for buffer in self._buffers:
            buffer.put_in()
        Tracing._of_thread.tracing = self
        Tracing._running.append(self)
        try:
            yield
            for watched in self._optimizers.values():
                watched.check_groups()
        except BaseException:
            for watched in self._optimizers.values():
                watched.counts.move_back()
            for scaler in self._scalers:
                scaler.restore()
            raise
        finally:
            Tracing._of_thread.tracing = None
            Tracing._running.remove(self)
            for scheduler in self._schedulers:
                vars(scheduler).pop("step", None)
            for buffer in self._buffers:
                buffer.take_out()
            for watched in self._optimizers.values():
                watched.restore()

    def replay(self) -> Replay | None:
        """What calls have to do; None if nothing."""
        stepped = [watched for watched in self._optimizers.values() if watched.stepped]
        if any(watched.born for watched in stepped):
            raise RunAsItIs
        numbers = [x for watched in stepped for x in watched.numbers]
        numbers += [buffer.number for buffer in self._buffers]
        changed = [x for x in numbers if x.now is not x.before]
        if not stepped and not self._afterwards and not changed and self.recorder.is_idle():
            return None
        return Replay(
            self.recorder.leaves,
            self.recorder.function([x.now for x in changed]),
            [x.leaf for x in changed],
            [pair for watched in stepped for pair in watched.constants]
            + [scaler.constants for scaler in self._scalers],
            [(watched.optimizer, len(watched.groups)) for watched in stepped],
            self._afterwards,
        )

    def before_step(self, optimizer: Optimizer, arguments: Iterable[Any]) -> None:
        self._in_step = (optimizer, any(callable(x) and x is not optimizer for x in arguments))
        if self._afterwards:
            raise RuntimeError(
                "a pure function advances a learning rate schedule before the optimizer's step: "
                "call scheduler.step() after optimizer.step(), or outside of the function"
            )
        self.of(optimizer).begin_step()

    def after_step(self, optimizer: Optimizer) -> None:
        self.of(optimizer).end_step()
        self._in_step = None

    def explain(self, error: RuntimeError) -> RuntimeError:
        """The refusal of what an optimizer does in its step, with what to do."""
        if self._in_step is None or "cannot be traced" not in str(error):
            return error
        optimizer, has_closure = self._in_step
        instead = (
            "Trace its closure in place of the step: optimizer.step(assume_pure(closure)), with "
            "zero_grad() and backward() in the closure"
            if has_closure
            else "Step outside of the function"
        )
        name = type(optimizer).__name__
        return RuntimeError(f"{error}. {name}.step() decides in Python by such values. {instead}")

    def _scheduler_step(self, scheduler: Any) -> Callable[..., None]:
        def step(*args: Any, **kwargs: Any) -> None:
            if any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values())):
                raise RuntimeError(
                    f"{type(scheduler).__name__}.step() is given a tensor, whose value a pure "
                    "function cannot read: advance this schedule outside of the function"
                )
            self._afterwards.append(lambda: scheduler.step(*args, **kwargs))

        return step


@functools.cache
def _watch_steps() -> None:
    """Once for all: other threads' steps go through PyTorch's table of hooks meanwhile."""
    skipped_steps.install(Tracing.active)

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if tracing := Tracing.of_step(optimizer):
            tracing.before_step(optimizer, (*args, *kwargs.values()))

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if tracing := Tracing.of_step(optimizer):
            tracing.after_step(optimizer)

    optimizers.register_optimizer_step_pre_hook(before)
    optimizers.register_optimizer_step_post_hook(after)


def _parameters(found: list[Any]) -> Iterator[torch.Tensor]:
    for value in found:
        if isinstance(value, nn.Module):
            yield from value.parameters()
        elif isinstance(value, Optimizer):
            for group in value.param_groups:
                yield from group["params"]


class Traces:
    """Runs one pure function while it is traced."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._known: WeakSet[Optimizer] = WeakSet()
        self._apart = False

    def run(
        self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Replay | None]:
        """Calls `target`, with what its calls will have to do on the host. Raises RunAsItIs where
        its optimizers have yet to make their state: in the first call they see."""
        found = closures.objects(self._function, args, kwargs)
        trained = [x for x in found if isinstance(x, Optimizer)]
        new = [x for x in trained if x not in self._known]
        self._known.update(new)
        if new or (trained and Tracing.active() is not None):
            raise RunAsItIs
        if Tracing.active() is not None:
            return target(*args, **kwargs), None
        tracing = Tracing(found, self._apart)
        try:
            with tracing.running():
                result = target(*args, **kwargs)
        except TakenForOne:
            self._apart = True
            raise
        except RuntimeError as error:
            explained = tracing.explain(error)
            if explained is error:
                raise
            raise explained from error
        return result, tracing.replay()
