"""Writes XSpace messages (xplane.proto of the XLA profiler), which TensorBoard's profile plugin
reads. Protocol buffers are simple enough to be written by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    name: str
    start: int  # nanoseconds since the profile began
    duration: int


@dataclass(frozen=True)
class Line:
    name: str
    events: Sequence[Event]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _event(event: Event, metadata: int) -> bytes:
    picoseconds = _number(2, event.start * 1000) + _number(3, event.duration * 1000)
    return _message(4, _number(1, metadata) + picoseconds)


def _plane(number: int, name: str, lines: Sequence[Line], unix_start_ns: int) -> bytes:
    metadata: dict[str, int] = {}
    content = _number(1, number) + _text(2, name)
    for i, line in enumerate(lines, 1):
        events = b"".join(
            _event(event, metadata.setdefault(event.name, len(metadata) + 1))
            for event in line.events
        )
        head = _number(1, i) + _text(2, line.name) + _number(3, unix_start_ns)
        content += _message(3, head + events)
    for event_name, i in metadata.items():
        value = _number(1, i) + _text(2, event_name)
        content += _message(4, _number(1, i) + _message(2, value))
    return _message(1, content)


def xspace(
    planes: Iterable[tuple[str, Sequence[Line]]], unix_start_ns: int, hostname: str
) -> bytes:
    """An XSpace of these planes ("/host:CPU", "/device:...")."""
    parts = [
        _plane(number, name, lines, unix_start_ns) for number, (name, lines) in enumerate(planes, 1)
    ]
    return b"".join(parts) + _text(4, hostname)
