"""Optimizers, schedules' buffers and scalers while a function that trains is traced: as they were
before, and their numbers as symbols (`symbols.py`). What calls do with them is in `replay.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer

from torch_xla import _XLAC
from torch_xla._internal.skipped_steps import DeviceCounts
from torch_xla._internal.symbols import HostScalar, Leaf, Number, Recorder, Symbol

# What a scaler computes with besides its tensors.
_OF_SCALERS = ("_growth_factor", "_backoff_factor", "_growth_interval", "_enabled")


# Kept by schedulers, and read by them alone.
_NOT_READ = ("params", "param_names", "initial_lr")


class RunAsItIs(Exception):
    """The function cannot be traced in this call: run it undecorated."""


class TakenForOne(RunAsItIs):
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


class TensorState(Leaf):
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


class Changing:
    """A number that an optimizer reads, and may change."""

    def __init__(self, leaf: Leaf, symbol: Symbol) -> None:
        self.leaf = leaf
        self.before = symbol
        self.now: Any = symbol


class Scaler:
    """A scaler during a trace: what it notes of its optimizers between two updates."""

    def __init__(self, scaler: GradScaler) -> None:
        self._scaler = scaler
        self._notes = scaler._per_optimizer_states
        self._before = {key: dict(note) for key, note in self._notes.items()}
        self.constants = vars(scaler), {name: vars(scaler)[name] for name in _OF_SCALERS}

    def restore(self) -> None:
        self._notes.clear()
        self._notes.update(self._before)
        self._scaler._per_optimizer_states = self._notes


class Buffer:
    """A number that a module keeps in a CPU tensor (how many models were averaged)."""

    def __init__(self, table: dict[str, Any], name: str, recorder: Recorder) -> None:
        self._table, self._name, self._tensor = table, name, table[name]
        leaf = TensorState([self._tensor])
        self.number = Changing(leaf, recorder.leaf(leaf, self._tensor.item()))

    def put_in(self) -> None:
        self._table[self._name] = HostScalar.of(self._tensor, self.number.before)

    def take_out(self) -> None:
        now = self._table[self._name]
        if isinstance(now, HostScalar):
            self.number.now = now.symbol
        self._table[self._name] = self._tensor


class Watched:
    """An optimizer during a trace: as it was before, and its numbers as symbols."""

    def __init__(self, optimizer: Optimizer, recorder: Recorder, apart: bool) -> None:
        self.optimizer = optimizer
        self.groups = [dict(group) for group in optimizer.param_groups]
        self.constants: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.numbers: list[Changing] = []
        self.stepped = False
        self.born = False
        self.counts = DeviceCounts(recorder)
        self._may_be_skipped = False
        self._recorder = recorder
        self._apart = apart
        self._before = {p: dict(state) for p, state in optimizer.state.items()}
        # What stands in their place while a step runs.
        self._in_groups: list[dict[str, Any]] = []
        self._in_states: list[tuple[dict[str, Any], str, Changing, HostScalar | None]] = []

    @contextlib.contextmanager
    def may_be_skipped(self) -> Iterator[None]:
        """A step whose writes will be taken back where the device says so: what it counts must be
        among them."""
        if self.stepped and not self._may_be_skipped:
            raise RuntimeError(
                f"a pure function steps {type(self.optimizer).__name__} first without and then "
                "with a GradScaler: make these two functions"
            )
        self._may_be_skipped = True
        before = {id(x): x.now for x in self.numbers}
        yield
        for number in self.numbers:
            if number.now is not before.get(id(number), number.before):
                raise RuntimeError(
                    f"{type(self.optimizer).__name__} counts its steps in Python, where a pure "
                    "function cannot know which of them GradScaler skips: keep the count in a "
                    "tensor (torch.tensor(0.0)), or step outside of the function"
                )

    def begin_step(self) -> None:
        if not self.stepped:
            self.stepped = True
            self._read_states()
            self._read_groups()
        for group, symbols in zip(self.optimizer.param_groups, self._in_groups, strict=True):
            group.update(
                {key: x.now if isinstance(x, Changing) else x for key, x in symbols.items()}
            )
        for state, name, number, stand_in in self._in_states:
            if stand_in is None:
                state[name] = number.now
            else:
                stand_in.symbol = number.now
                state[name] = stand_in
        self.counts.begin()

    def end_step(self) -> None:
        self.counts.end()
        self._learn_groups()
        self._learn_states()
        self.born = self.born or self._has_new_state()
        self._put_back()

    def check_groups(self) -> None:
        for group, before in zip(self.optimizer.param_groups, self.groups, strict=True):
            key = first_change(group, before)
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

    def _number(self, leaf: Leaf, value: Number) -> Changing:
        number = Changing(leaf, self._recorder.leaf(leaf, value))
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
            if group.get("fused") and isinstance(symbols.get("lr"), Changing):
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
        on_device = {
            p
            for group in self.optimizer.param_groups
            if "capturable" in group
            for p in group["params"]
        }
        for parameter, state in self.optimizer.state.items():
            for name, value in list(state.items()) if isinstance(state, dict) else ():
                number = number_in(value)
                if self._may_be_skipped and isinstance(value, torch.Tensor):
                    if number is not None:
                        before = self._before[parameter]
                        value = before[name] = self.counts.move(parameter, before, name)
                        state[name] = value
                        number = None
                    if self.counts.counts(parameter, value):
                        self.counts.add(state, name, parameter in on_device)
                if number is not None:
                    kind = value.dtype if isinstance(value, torch.Tensor) else type(value)
                    apart = len(alike) if self._apart else 0
                    alike.setdefault((name, kind, number, apart), []).append((state, name, value))
        for (name, _, number, _), places in alike.items():
            values = [value for _, _, value in places]
            leaf: Leaf = (
                TensorState(values)
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
                if isinstance(known, Changing):
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
                raise TakenForOne
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


def first_change(group: dict[str, Any], before: dict[str, Any]) -> str | None:
    """The first key of a parameter group that has another value now."""
    for key, value in before.items():
        now = group.get(key)
        if now is not value and (type(now) is not type(value) or now != value):
            return key
    return None


def number_in(value: Any) -> Number | None:
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.dim() == 0 and not value.is_complex():
            number: Number = value.item()
            return number
        return None
    return value if type(value) in (int, float) else None
