"""What was compiled, when, and why. docs/debugging_recompilation.md shows how to read it."""

import contextlib
import dataclasses
import html
import os
import sys
from collections.abc import Iterator

from torch_xla import _XLAC


@dataclasses.dataclass(frozen=True)
class CompileEvent:
    """One graph that had no program: compiled at once, or after some interpreted runs."""

    serial: int  # 1 for the first of the process
    time: float  # when it was met, in Unix seconds
    name: str  # of the graph or function: "step_fn", "sync at train.py:42"
    file: str  # the line that triggered it; empty when unknown
    line: int
    compiled: bool  # False: its operations run one by one, so far
    interpreted: int  # runs before its program was used
    seconds: float  # lowering and compiling, or loading from disk
    operations: int  # in the graph
    from_disk: bool  # loaded from the disk cache instead of compiled
    compilation: int  # the how-manieth of this name
    cause: str  # a word to count by: "first", "shape", "new operation"
    reason: str  # what changed, compared with the nearest graph compiled before
    advice: str  # what to do about it; may be empty

    @property
    def location(self) -> str:
        """`train.py:42`."""
        return f"{os.path.basename(self.file)}:{self.line}" if self.file else "<unknown>"

    def __str__(self) -> str:
        verb = "loaded" if self.from_disk else "compiled" if self.compiled else "interpreted"
        advice = f". Advice: {self.advice}" if self.advice else ""
        return (
            f"{verb} {self.name} ({self.operations} operations, {self.seconds:.2f} s, triggered "
            f"at {self.location}): {self.reason}{advice}"
        )


class CompileEvents(list[CompileEvent]):
    """Events, oldest first; in notebooks, a table."""

    def _repr_html_(self) -> str:
        columns = ("#", "graph", "nth", "operations", "seconds", "why", "advice")
        rows = [
            (
                event.serial,
                short_name(event.name),
                event.compilation,
                event.operations,
                f"{event.seconds:.3f}{' from disk' if event.from_disk else ''}",
                event.reason,
                event.advice,
            )
            for event in self
        ]
        head = "".join(f"<th>{column}</th>" for column in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>"
            for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def events(after: int = 0) -> CompileEvents:
    """The compilations after the one with this serial number, oldest first."""
    return CompileEvents(CompileEvent(**event) for event in _XLAC.compile_events(after))


def table(events: list[CompileEvent]) -> str:
    """The events as text, one line each, with their reasons."""
    if not events:
        return "Nothing has been compiled."
    names = {event.name: short_name(event.name) for event in events}
    width = max(len("graph"), *map(len, names.values()))
    lines = [f"{'#':>4}  {'graph':<{width}}  {'nth':>3}  {'ops':>6}  {'seconds':>8}  why"]
    for event in events:
        seconds = f"{event.seconds:.3f}" + ("*" if event.from_disk else " ")
        lines.append(
            f"{event.serial:>4}  {names[event.name]:<{width}}  {event.compilation:>3}  "
            f"{event.operations:>6}  {seconds:>8}  {event.reason}"
        )
    if any(event.from_disk for event in events):
        lines.append("* loaded from disk")
    return "\n".join(lines)


def recompiles(show: bool = True) -> CompileEvents:
    """Every compilation of this process (the latest 4096), oldest first, printed as a table.
    `show=False` in a notebook, where the result is a table itself."""
    found = events()
    if show:
        sys.stdout.write(table(found) + "\n")
    return found


@contextlib.contextmanager
def expect_no_compile() -> Iterator[None]:
    """Raises RuntimeError at its end, with the explanations, if anything compiled inside.

    Counts the compilations of all threads. Loading a program from disk counts too: whether it is
    there must not decide a test.
    """
    before = _XLAC.last_compile_serial()
    yield
    unexpected = events(after=before)
    if unexpected:
        listed = "\n".join(f"  {event}" for event in unexpected)
        raise RuntimeError(
            f"{len(unexpected)} unexpected compilation(s) inside expect_no_compile():\n{listed}"
        )


def short_name(name: str) -> str:
    """Without folders: `sync at train.py:42`."""
    start, separator, path = name.rpartition(" at ")
    return start + separator + os.path.basename(path) if separator else name
