"""When is it tracing, compiling, executing, waiting? Recorded by the core, reported here.

docs/debugging_recompilation.md shows the page that comes out.
"""

import dataclasses
import html
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch_xla import _XLAC
from torch_xla.debug import recompilation
from torch_xla.debug.recompilation import CompileEvent

# What a moment counts as when several things go on: the first of these.
_PRECEDENCE = (
    *("interpret", "compile", "lower", "load", "wait"),
    *("upload", "download", "launch", "trace"),
)
_GROUPS = {
    "interpret": "interpreting",
    "compile": "compiling",
    "lower": "compiling",
    "load": "compiling",
    "wait": "waiting",
    "upload": "transfers",
    "download": "transfers",
    "launch": "launching",
    "trace": "tracing",
}
# What is no time of the host's.
_DEVICE_GROUPS = {"kernel": "device", "device": "device"}
# Kinds whose amount is a number of operations; others' is bytes.
_OF_OPERATIONS = ("trace", "interpret")
OTHER = "other"
GROUPS = ("tracing", "interpreting", "compiling", "launching", "transfers", "waiting", OTHER)

# Above this share of the time a device counts as busy, and is then what bounds the program.
_BUSY = 0.7


@dataclasses.dataclass(frozen=True)
class Span:
    """Something that went on in a thread or on a device."""

    # trace, interpret, lower, compile, load, launch, upload, download, wait, kernel, device
    kind: str
    name: str  # of the graph, or of a kernel's operator; empty where there is none
    file: str  # the Python line; empty when unknown
    line: int
    start: int  # nanoseconds since the recording began
    end: int
    amount: int  # operations that are recorded or interpreted, bytes of a transfer

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def place(self) -> str:
        """`train.py:42`."""
        return f"{os.path.basename(self.file)}:{self.line}" if self.file else ""

    @property
    def label(self) -> str:
        return recompilation.short_name(self.name) or self.kind


@dataclasses.dataclass(frozen=True)
class Track:
    name: str  # of the thread, or "device xla:0"
    device: bool
    dropped: int  # spans beyond a million
    spans: list[Span]


class timeline:
    """Records what every thread and device does inside, and writes it to two files at the end.

        with torch_xla.debug.timeline("step") as timeline:   # step.html and step.json
            for batch in batches:
                train_step(batch)
        print(timeline.verdict)

    `path` is the files' path without a suffix (default: `timeline`). The HTML page opens from disk;
    the JSON file is for chrome://tracing and Perfetto.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        base = Path("timeline" if path is None else path)
        base = base.with_suffix("") if base.suffix in (".html", ".json") else base
        self.html = base.parent / (base.name + ".html")
        self.trace = base.parent / (base.name + ".json")
        self.tracks: list[Track] = []
        self.compilations: list[CompileEvent] = []
        self.duration = 0  # nanoseconds
        self.unix_start = 0.0
        self.shares: dict[str, float] = {}  # of the wall time, by GROUPS
        self.device_shares: dict[str, float] = {}  # busy time of each device
        self.verdict = ""

    def __enter__(self) -> "timeline":
        self.html.parent.mkdir(parents=True, exist_ok=True)
        self._last_compilation = _XLAC.last_compile_serial()
        _XLAC.timeline_start()
        return self

    def __exit__(self, *_: object) -> None:
        recording = _XLAC.timeline_stop()
        self.compilations = recompilation.events(after=self._last_compilation)
        self.duration = recording["duration"]
        self.unix_start = recording["unix_start"]
        self.tracks = [
            Track(t["name"], t["device"], t["dropped"], [Span(*s) for s in t["spans"]])
            for t in recording["tracks"]
        ]
        self.shares = host_shares(self.tracks, self.duration)
        self.device_shares = {
            track.name: _covered(track.spans, self.duration)
            for track in self.tracks
            if track.device
        }
        self.verdict = verdict(self)
        self.trace.write_text(json.dumps(chrome_trace(self)))
        self.html.write_text(html_page(self))

    def _repr_html_(self) -> str:
        """The page in a notebook. Its styles and scripts stay in a frame of their own."""
        page = html.escape(self.html.read_text())
        return f'<iframe srcdoc="{page}" style="width:100%;height:640px;border:0"></iframe>'

    def traced_lines(self) -> list[tuple[str, int, int]]:
        """(line, nanoseconds, operations) of the lines that record, the longest first."""
        return _totals(
            (span.place or "backward pass", own, span.amount)
            for span, own in _own_times(self.tracks)
            if span.kind == "trace" and not span.name
        )

    def transfer_lines(self) -> list[tuple[str, int, int]]:
        """(line, nanoseconds, bytes) of the lines that transfer, the longest first."""
        return _totals(
            (span.place or "unknown line", own, span.amount)
            for span, own in _own_times(self.tracks)
            if span.kind in ("upload", "download")
        )

    def kernels(self) -> list[tuple[str, int, int]]:
        """(operator, nanoseconds on all threads, calls) of the kernels that programs call, the
        longest first. A call that is divided counts once for each part."""
        return _totals(
            (span.name, span.duration, 1)
            for track in self.tracks
            for span in track.spans
            if span.kind == "kernel"
        )

    def graphs(self) -> list[dict[str, Any]]:
        """Totals of each graph: runs, and nanoseconds on the device, launching, compiling."""
        table: dict[str, dict[str, Any]] = {}
        columns = {"device": "device", "interpret": "device", "launch": "launch"}
        columns |= {"wait": "", "kernel": ""}
        for track in self.tracks:
            for span in track.spans:
                column = columns.get(span.kind, "compile")
                if not span.name or not column or span.kind == "trace":
                    continue
                row = table.setdefault(
                    span.name,
                    {"name": span.label, "runs": 0, "device": 0, "launch": 0, "compile": 0},
                )
                row[column] += span.duration
                row["runs"] += span.kind in ("launch", "interpret")
        return sorted(table.values(), key=lambda row: -(row["device"] + row["compile"]))


def host_shares(tracks: list[Track], duration: int) -> dict[str, float]:
    """How the wall time divides. A moment belongs to what the first thread does then; where that
    does nothing of ours, to what any other thread does; else to `other`."""
    boundaries: list[tuple[int, int, int]] = []  # (time, +1 or -1, rank)
    for index, track in enumerate(track for track in tracks if not track.device):
        for span in track.spans:
            if span.kind == "kernel":  # the program's time, not the host's
                continue
            rank = _PRECEDENCE.index(span.kind) + (len(_PRECEDENCE) if index > 0 else 0)
            boundaries += [(span.start, 1, rank), (span.end, -1, rank)]
    boundaries.sort()
    totals: Counter[str] = Counter()
    active = [0] * (2 * len(_PRECEDENCE))
    previous = 0
    for time, change, rank in boundaries:
        current = next((i for i, count in enumerate(active) if count), None)
        if current is not None:
            totals[_GROUPS[_PRECEDENCE[current % len(_PRECEDENCE)]]] += time - previous
        active[rank] += change
        previous = time
    totals[OTHER] = max(duration - sum(totals.values()), 0)
    return {group: totals[group] / max(duration, 1) for group in GROUPS}


def verdict(report: timeline) -> str:
    """What bounds the recorded program, in plain words, and where to look."""
    shares = report.shares
    busy, share = max(
        ((name, share) for name, share in report.device_shares.items()),
        key=lambda pair: pair[1],
        default=("", 0.0),
    )
    top = max(shares, key=lambda group: shares[group])
    if top != "compiling" and share >= _BUSY:
        return (
            f"Your step is bound by the device: {busy} computes {_percent(share)} of the wall "
            f"time. {_longest_graphs(report)}"
        )
    wall = f"{_percent(shares[top])} of wall time"
    if top == "tracing":
        lines = _list_shares(report.traced_lines(), report.duration)
        return f"Your step is bound by tracing: {wall}. These lines record longest: {lines}."
    if top == "compiling":
        return f"Your step is bound by compiling: {wall}. {_compilations(report.compilations)}"
    if top == "transfers":
        lines = _list_shares(report.transfer_lines(), report.duration)
        return f"Your step is bound by transfers: {wall}. These lines transfer longest: {lines}."
    if top == "waiting":
        return f"Your step is bound by waiting for the device: {wall}. {_longest_graphs(report)}"
    if top == "interpreting":
        return (
            f"Your step is bound by interpreted graphs: {wall}. A graph's first runs are, and "
            "small graphs for good: record after more steps to see its program (TORCH_XLA_TIERS). "
            f"{_longest_graphs(report)}"
        )
    if top == "launching":
        return f"Your step is bound by launching: {wall}. {_longest_graphs(report)}"
    return (
        f"Your step is bound by work outside the device: {wall} is spent in code that neither "
        "records nor runs anything there (data loading, Python, other libraries)."
    )


def chrome_trace(report: timeline) -> dict[str, Any]:
    """The trace event format, which chrome://tracing and Perfetto read. Times in microseconds."""
    events: list[dict[str, Any]] = []
    for tid, track in enumerate(report.tracks):
        name = {"name": track.name}
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": name})
        for span in track.spans:
            arguments: dict[str, Any] = {"line": span.place, "graph": span.name}
            arguments["operations" if span.kind in _OF_OPERATIONS else "bytes"] = span.amount
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": tid,
                    "cat": span.kind,
                    "name": span.label,
                    "ts": span.start / 1000,
                    "dur": span.duration / 1000,
                    "args": {key: value for key, value in arguments.items() if value},
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def html_page(report: timeline) -> str:
    """The page: its template with the recording in it. `<` is escaped for the script element."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    tracks = [
        {
            "name": track.name,
            "dropped": track.dropped,
            "spans": [
                (text(s.kind), text(s.label), text(s.place), s.start, s.end, s.amount)
                for s in track.spans
            ],
        }
        for track in report.tracks
    ]
    compilations = [
        {
            **dataclasses.asdict(event),
            "name": recompilation.short_name(event.name),
            "place": event.location,
            "at": (event.time - report.unix_start) * 1e9,
        }
        for event in report.compilations
    ]
    data = {
        "duration": report.duration,
        "verdict": report.verdict,
        "shares": report.shares,
        "devices": report.device_shares,
        "groups": _GROUPS | _DEVICE_GROUPS,
        "of_operations": _OF_OPERATIONS,
        "tracks": tracks,
        "texts": list(texts),
        "compilations": compilations,
        "graphs": report.graphs(),
        "lines": report.traced_lines()[:200],
        "kernels": report.kernels()[:200],
    }
    template = Path(__file__).with_name("timeline_report.html").read_text()
    return template.replace("/*RECORDING*/ null", json.dumps(data).replace("<", "\\u003c"))


def _own_times(tracks: Iterable[Track]) -> Iterable[tuple[Span, int]]:
    """Each span with its time outside the spans within it."""
    for track in tracks:
        spans = sorted(track.spans, key=lambda span: (span.start, -span.end))
        own = [span.duration for span in spans]
        enclosing: list[int] = []
        for index, span in enumerate(spans):
            while enclosing and spans[enclosing[-1]].end <= span.start:
                enclosing.pop()
            if enclosing:
                own[enclosing[-1]] -= span.duration
            enclosing.append(index)
        yield from zip(spans, own, strict=True)


def _totals(rows: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    times: dict[str, int] = defaultdict(int)
    amounts: dict[str, int] = defaultdict(int)
    for key, time, amount in rows:
        times[key] += time
        amounts[key] += amount
    return sorted(((key, times[key], amounts[key]) for key in times), key=lambda row: -row[1])


def _covered(spans: list[Span], duration: int) -> float:
    """The share of the time in which at least one of the spans is on."""
    total = reached = 0
    for span in sorted(spans, key=lambda span: span.start):
        total += max(span.end - max(span.start, reached), 0)
        reached = max(reached, span.end)
    return total / max(duration, 1)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _list_shares(rows: list[tuple[str, int, int]], duration: int) -> str:
    shown = [f"{line} ({_percent(time / max(duration, 1))})" for line, time, _ in rows[:3]]
    return ", ".join(shown) or "none"


def _longest_graphs(report: timeline) -> str:
    graphs = sorted(report.graphs(), key=lambda row: -row["device"])[:3]
    shown = [f"{row['name']} ({row['runs']} runs, {row['device'] / 1e6:.0f} ms)" for row in graphs]
    return f"The longest graphs: {', '.join(shown)}." if shown else ""


def _compilations(events: list[CompileEvent]) -> str:
    if not events:
        return ""
    if len(events) == 1:
        return f"One compilation: {events[0].reason}."
    cause, count = Counter(event.cause for event in events).most_common(1)[0]
    latest = next(event for event in reversed(events) if event.cause == cause)
    return (
        f"{len(events)} compilations, most often because of: {cause} ({count}). "
        f"The last of these: {latest.reason}."
    )
