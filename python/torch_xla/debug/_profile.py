"""One profile: the timeline of the core with the regions that users named, and its files.

`LOGDIR/plugins/profile/TIME/` holds, for each host, HOST.xplane.pb (TensorBoard),
HOST.trace.json.gz (TensorBoard, Perfetto, chrome://tracing) and HOST.html (a timeline).
"""

import gzip
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from torch_xla import _XLAC, runtime
from torch_xla.debug import _regions, _xplane
from torch_xla.debug.timeline_report import chrome_trace, timeline

_REGIONS_PROCESS = 2


class Profile:
    """Recorded from its making to `stop`."""

    def __init__(self, log_dir: "str | os.PathLike[str]") -> None:
        self._folder = Path(log_dir) / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        host = socket.gethostname()
        self._host = host if runtime.world_size() == 1 else f"{host}_{runtime.global_ordinal()}"
        self._timeline = timeline(self._folder / f"{self._host}.html")
        self._timeline.__enter__()
        self._devices = _XLAC.start_device_profile()  # None: the plugin records nothing itself
        self._start = time.monotonic_ns()
        _regions.start_recording()

    def stop(self) -> Path:
        """Writes the files; returns their folder."""
        regions = _regions.stop_recording()
        devices = b"" if self._devices is None else self._devices.stop()
        self._timeline.__exit__(None, None, None)
        self._timeline.trace.unlink()
        trace = chrome_trace(self._timeline)
        trace["traceEvents"] += self._region_events(regions)
        with gzip.open(self._folder / f"{self._host}.trace.json.gz", "wt") as file:
            json.dump(trace, file)
        planes = self._planes(regions)
        space = _xplane.xspace(planes, int(self._timeline.unix_start * 1e9), self._host)
        # Messages in a row are one message with the planes of both.
        (self._folder / f"{self._host}.xplane.pb").write_bytes(space + devices)
        return self._folder

    def _region_events(self, regions: list[Any]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "torch_xla"}},
            {
                "ph": "M",
                "pid": _REGIONS_PROCESS,
                "name": "process_name",
                "args": {"name": "regions (torch_xla.debug.profiler.Trace)"},
            },
        ]
        threads: dict[str, int] = {}
        for thread, name, start, end, arguments in regions:
            number = threads.setdefault(thread, len(threads))
            events.append(
                {
                    "ph": "X",
                    "pid": _REGIONS_PROCESS,
                    "tid": number,
                    "cat": "region",
                    "name": name,
                    "ts": (start - self._start) / 1000,
                    "dur": (end - start) / 1000,
                    "args": {key: str(value) for key, value in arguments.items()},
                }
            )
        for thread, number in threads.items():
            label = {"name": thread}
            event = {"ph": "M", "pid": _REGIONS_PROCESS, "tid": number, "name": "thread_name"}
            events.append({**event, "args": label})
        return events

    def _planes(self, regions: list[Any]) -> list[tuple[str, list[_xplane.Line]]]:
        host: list[_xplane.Line] = []
        planes: list[tuple[str, list[_xplane.Line]]] = []
        for track in self._timeline.tracks:
            events = [_xplane.Event(s.label, s.start, s.duration) for s in track.spans]
            line = _xplane.Line(track.name, events)
            if track.device:
                kind = f"/device:{runtime.device_type()}:{len(planes)}"
                planes.append((kind, [_xplane.Line("XLA Modules", events)]))
            else:
                host.append(line)
        by_thread: dict[str, list[_xplane.Event]] = {}
        for thread, name, start, end, _ in regions:
            event = _xplane.Event(name, max(start - self._start, 0), end - start)
            by_thread.setdefault(thread, []).append(event)
        host += [_xplane.Line(f"{name}: regions", events) for name, events in by_thread.items()]
        return [("/host:CPU", host), *planes]
