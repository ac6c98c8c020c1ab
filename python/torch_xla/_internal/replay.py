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
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torch_xla import _XLAC
from torch_xla._internal import closures
from torch_xla._internal.symbols import HostScalar, Leaf, Number, Recorder, Symbol

# Kept by schedulers, and read by them alone.
_NOT_READ = ("params", "param_names", "initial_lr")


class RunAsItIs(Exception):
    """The function cannot be traced in this call: run it undecorated."""


class _TakenForOne(RunAsItIs):
    """Step counts that were equal have parted: some parameters had no gradient."""


class _Hyperparameter(Leaf):
    """`group[key]`, or an element of that tuple."""

    def __init__(self, group: dict[str, Any], key: str, element: int | None = None) -> None:
        self._group, self._key, self._element = group, key, element
        self._type = type(self._find())

    def _find(self) -> Any:
        value = self._group.get(self._key)
        if self._element is None or not isinstance(value, (list, tuple)):
            return value
        return value[self._element] if self._element < len(value) else None

    def read(self) -> Number | None:
        value = self._find()
        return value if type(value) is self._type else None

    def write(self, value: Number) -> None:
        self._group[self._key] = value


class _TensorState(Leaf):
    """CPU tensors of one number each, the same in all."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._scalars = _XLAC.HostScalars(tensors)

    def read(self) -> Number | None:
        value: Number | None = self._scalars.read()
        return value

    def write(self, value: Number) -> None:
        self._scalars.write(value)


class _NumberState(Leaf):
    """Python numbers in dictionaries, the same in all."""

    def __init__(self, states: list[dict[str, Any]], key: str) -> None:
        self._states, self._key = states, key
        self._type = type(states[0][key])

    def read(self) -> Number | None:
        first = self._states[0].get(self._key)
        same = all(state.get(self._key) == first for state in self._states)
        return first if same and type(first) is self._type else None

    def write(self, value: Number) -> None:
        for state in self._states:
            state[self._key] = self._type(value)


class _Changing:
    """A number that an optimizer reads, and may change."""

    def __init__(self, leaf: Leaf, symbol: Symbol) -> None:
        self.leaf = leaf
        self.before = symbol
        self.now: Any = symbol


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
            if _first_change(group, constants) is not None:
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
        self._optimizers = {id(x): _Watched(x, self) for x in found if isinstance(x, Optimizer)}
        self._schedulers = [x for x in found if isinstance(x, (LRScheduler, ReduceLROnPlateau))]
        self._buffers = [
            _Buffer(module._buffers, name, self.recorder)
            for root in found
            if isinstance(root, nn.Module)
            for module in root.modules()
            for name, value in module._buffers.items()
            if isinstance(value, torch.Tensor) and _number_in(value) is not None
        ]
        self._afterwards: list[Callable[[], Any]] = []
        _XLAC.watch_gradients(list(_parameters(found)))

    def of(self, optimizer: Optimizer) -> _Watched:
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = _Watched(optimizer, self)
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
            [pair for watched in stepped for pair in watched.constants],
            [(watched.optimizer, len(watched.groups)) for watched in stepped],
            self._afterwards,
        )

    def before_step(self, optimizer: Optimizer) -> None:
        if self._afterwards:
            raise RuntimeError(
                "a pure function advances a learning rate schedule before the optimizer's step: "
                "call scheduler.step() after optimizer.step(), or outside of the function"
            )
        self.of(optimizer).begin_step()

    def after_step(self, optimizer: Optimizer) -> None:
        self.of(optimizer).end_step()

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

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if tracing := Tracing.of_step(optimizer):
            tracing.before_step(optimizer)

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if tracing := Tracing.of_step(optimizer):
            tracing.after_step(optimizer)

    optimizers.register_optimizer_step_pre_hook(before)
    optimizers.register_optimizer_step_post_hook(after)


class _Buffer:
    """A number that a module keeps in a CPU tensor (how many models were averaged)."""

    def __init__(self, table: dict[str, Any], name: str, recorder: Recorder) -> None:
        self._table, self._name, self._tensor = table, name, table[name]
        leaf = _TensorState([self._tensor])
        self.number = _Changing(leaf, recorder.leaf(leaf, self._tensor.item()))

    def put_in(self) -> None:
        self._table[self._name] = HostScalar.of(self._tensor, self.number.before)

    def take_out(self) -> None:
        now = self._table[self._name]
        if isinstance(now, HostScalar):
            self.number.now = now.symbol
        self._table[self._name] = self._tensor


class _Watched:
    """An optimizer during a trace: as it was before, and its numbers as symbols."""

    def __init__(self, optimizer: Optimizer, tracing: Tracing) -> None:
        self.optimizer = optimizer
        self.groups = [dict(group) for group in optimizer.param_groups]
        self.constants: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.numbers: list[_Changing] = []
        self.stepped = False
        self.born = False
        self._tracing = tracing
        self._before = {p: dict(state) for p, state in optimizer.state.items()}
        # What stands in their place while a step runs.
        self._in_groups: list[dict[str, Any]] = []
        self._in_states: list[tuple[dict[str, Any], str, _Changing, HostScalar | None]] = []

    def begin_step(self) -> None:
        if not self.stepped:
            self.stepped = True
            self._read_groups()
            self._read_states()
        for group, symbols in zip(self.optimizer.param_groups, self._in_groups, strict=True):
            group.update(
                {key: x.now if isinstance(x, _Changing) else x for key, x in symbols.items()}
            )
        for state, name, number, stand_in in self._in_states:
            if stand_in is None:
                state[name] = number.now
            else:
                stand_in.symbol = number.now
                state[name] = stand_in

    def end_step(self) -> None:
        self._learn_groups()
        self._learn_states()
        self.born = self.born or self._has_new_state()
        self._put_back()

    def check_groups(self) -> None:
        for group, before in zip(self.optimizer.param_groups, self.groups, strict=True):
            key = _first_change(group, before)
            if key is not None:
                raise RuntimeError(
                    f"a pure function changes {key!r} of a parameter group of "
                    f"{type(self.optimizer).__name__}, which its calls could not repeat: do it "
                    "outside of the function (a schedule that the function reaches by a name is "
                    "advanced by each call)"
                )

    def restore(self) -> None:
        state = self.optimizer.state
        for parameter in [p for p in state if p not in self._before]:
            del state[parameter]
        for parameter, before in self._before.items():
            state[parameter].clear()
            state[parameter].update(before)
        for group, before in zip(self.optimizer.param_groups, self.groups, strict=False):
            group.clear()
            group.update(before)

    def _put_back(self) -> None:
        for group, before in zip(self.optimizer.param_groups, self.groups, strict=True):
            group.update(before)
        for parameter, before in self._before.items():
            self.optimizer.state[parameter].update(before)

    def _number(self, leaf: Leaf, value: Number) -> _Changing:
        number = _Changing(leaf, self._tracing.recorder.leaf(leaf, value))
        self.numbers.append(number)
        return number

    def _read_groups(self) -> None:
        for group in self.optimizer.param_groups:
            symbols: dict[str, Any] = {}
            constants: dict[str, Any] = {}
            for key, value in group.items():
                if key in _NOT_READ:
                    continue
                if type(value) in (int, float):
                    symbols[key] = self._number(_Hyperparameter(group, key), value)
                elif isinstance(value, (list, tuple)) and any(type(x) is float for x in value):
                    symbols[key] = type(value)(
                        self._number(_Hyperparameter(group, key, i), x).before
                        if type(x) is float
                        else x
                        for i, x in enumerate(value)
                    )
                else:
                    constants[key] = value
            if group.get("capturable") is False and self._counts_on_device(group):
                symbols["capturable"] = True
                del constants["capturable"]
            if group.get("fused") and isinstance(symbols.get("lr"), _Changing):
                device = group["params"][0].device
                lr = symbols["lr"].before
                symbols["lr"] = torch.full((), lr, dtype=torch.float32, device=device)
            self._in_groups.append(symbols)
            self.constants.append((group, constants))

    def _counts_on_device(self, group: dict[str, Any]) -> bool:
        """Such an optimizer can compute with its step counts there, too."""
        counts = [self.optimizer.state.get(p, {}).get("step") for p in group["params"]]
        return any(isinstance(n, torch.Tensor) and n.device.type == "xla" for n in counts)

    def _read_states(self) -> None:
        """Numbers that are equal now are one, as long as they stay equal."""
        alike: dict[Any, list[tuple[dict[str, Any], str, Any]]] = {}
        for state in self.optimizer.state.values():
            for name, value in state.items() if isinstance(state, dict) else ():
                number = _number_in(value)
                if number is not None:
                    kind = value.dtype if isinstance(value, torch.Tensor) else type(value)
                    apart = len(alike) if self._tracing.apart else 0
                    alike.setdefault((name, kind, number, apart), []).append((state, name, value))
        for (name, _, number, _), places in alike.items():
            values = [value for _, _, value in places]
            leaf: Leaf = (
                _TensorState(values)
                if isinstance(values[0], torch.Tensor)
                else _NumberState([state for state, _, _ in places], name)
            )
            changing = self._number(leaf, number)
            for state, _, value in places:
                is_tensor = isinstance(value, torch.Tensor)
                stand_in = HostScalar.of(value, changing.before) if is_tensor else None
                self._in_states.append((state, name, changing, stand_in))

    def _learn_groups(self) -> None:
        for group, symbols, (_, constants) in zip(
            self.optimizer.param_groups, self._in_groups, self.constants, strict=True
        ):
            for key, known in {**symbols, **constants}.items():
                now = group.get(key)
                if isinstance(known, _Changing):
                    known.now = now
                elif now is not known:
                    raise RuntimeError(
                        f"{type(self.optimizer).__name__}.step() changes {key!r} of its parameter "
                        "group, which a pure function cannot repeat: keep it as a number"
                    )

    def _learn_states(self) -> None:
        now: dict[int, Any] = {}
        for state, name, number, _ in self._in_states:
            value = state[name]
            value = value.symbol if isinstance(value, HostScalar) else value
            if now.setdefault(id(number), value) is not value:
                raise _TakenForOne
            number.now = value

    def _has_new_state(self) -> bool:
        """Was state made that the optimizer did not have? Replaced state could not be kept."""
        for parameter, state in self.optimizer.state.items():
            before = self._before.get(parameter)
            if before is None:
                return True
            for name, value in state.items():
                known = before.get(name)
                if known is None and value is not None:
                    return True
                replaced = value is not known and isinstance(value, torch.Tensor)
                if replaced and not isinstance(value, HostScalar):
                    raise RuntimeError(
                        f"{type(self.optimizer).__name__} replaces its state {name!r} by a new "
                        "tensor at each step, which a pure function cannot repeat: change it in "
                        "place (copy_())"
                    )
        return False


def _first_change(group: dict[str, Any], before: dict[str, Any]) -> str | None:
    """The first key of a parameter group that has another value now."""
    for key, value in before.items():
        now = group.get(key)
        if now is not value and (type(now) is not type(value) or now != value):
            return key
    return None


def _number_in(value: Any) -> Number | None:
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.dim() == 0 and not value.is_complex():
            number: Number = value.item()
            return number
        return None
    return value if type(value) in (int, float) else None


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
        except _TakenForOne:
            self._apart = True
            raise
        return result, tracing.replay()
