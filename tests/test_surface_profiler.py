"""Profiles: their files can be read, regions and steps are in them, servers answer."""

import gzip
import json
import socket
from pathlib import Path

import pytest
import torch
import torch_xla.debug.profiler as xp


def steps() -> None:
    for step in range(3):
        with xp.StepTrace("train", step_num=step):
            with xp.Trace("forward"):
                x = torch.ones(5, device="xla") * step
            (x + 1).sum()
    xp.trace_me("decorated")(lambda: x.sum().item())()


def only_file(folder: Path, suffix: str) -> Path:
    found = list((folder / "plugins" / "profile").glob(f"*/*{suffix}"))
    assert len(found) == 1, found
    return found[0]


def events(folder: Path) -> list[dict]:
    with gzip.open(only_file(folder, ".trace.json.gz"), "rt") as file:
        return json.load(file)["traceEvents"]


def fields(message: bytes) -> list[tuple[int, object]]:
    """The fields of a protocol buffer, one level deep."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            size = varint()
            found.append((key >> 3, message[at : at + size]))
            at += size
    return found


def test_a_trace_shows_regions_and_programs(tmp_path):
    xp.start_trace(tmp_path)
    with pytest.raises(RuntimeError, match="recorded already"):
        xp.start_trace(tmp_path)
    steps()
    xp.stop_trace()
    with pytest.raises(RuntimeError, match="no trace is being recorded"):
        xp.stop_trace()
    found = events(tmp_path)
    regions = [e for e in found if e.get("cat") == "region"]
    names = [e["name"] for e in regions]
    assert names.count("train") == names.count("forward") == 3 and "decorated" in names
    assert [e["args"]["step_num"] for e in regions if e["name"] == "train"] == ["0", "1", "2"]
    assert {"trace", "launch"} & {e.get("cat") for e in found}
    assert all(e["dur"] >= 0 for e in found if e["ph"] == "X")


def test_the_plugin_of_tensorboard_opens_a_trace(tmp_path):
    converter = pytest.importorskip("xprof.convert.raw_to_tool_data")
    xp.start_trace(tmp_path)
    steps()
    xp.stop_trace()
    planes = [str(only_file(tmp_path, ".xplane.pb"))]
    shown = json.loads(converter.xspace_to_tool_data(planes, "trace_viewer", {})[0])
    assert [e["name"] for e in shown["traceEvents"] if e.get("ph") == "X"].count("train") == 3
    for page in ("overview_page", "framework_op_stats"):
        assert json.loads(converter.xspace_to_tool_data(planes, page, {})[0])


def test_tensorboard_reads_planes(tmp_path):
    xp.start_trace(tmp_path)
    steps()
    xp.stop_trace()
    space = fields(only_file(tmp_path, ".xplane.pb").read_bytes())
    planes = [fields(value) for number, value in space if number == 1]
    names = [dict(plane)[2].decode() for plane in planes]
    assert names[0] == "/host:CPU" and any(name.startswith("/device:CPU") for name in names)
    host = planes[0]
    metadata = [dict(fields(value)) for number, value in host if number == 4]
    known = {entry[1]: dict(fields(entry[2]))[2].decode() for entry in metadata}
    assert "train" in known.values() and "forward" in known.values()
    lines = [fields(value) for number, value in host if number == 3]
    recorded = [fields(value) for line in lines for number, value in line if number == 4]
    assert {dict(event)[1] for event in recorded} <= set(known)


def test_what_a_plugin_records_is_in_the_profile(tmp_path, fresh_python):
    program = """
import torch, torch_xla, torch_xla.debug.profiler as xp
for folder in ("first", "second"):
    xp.start_trace(folder)
    (torch.ones(5, device="xla") + 1).sum().item()
    xp.stop_trace()
profile = torch_xla._XLAC.start_device_profile()
profile.stop()
try:
    profile.stop()
except RuntimeError as error:
    print(error)
"""
    program = f"import os; os.chdir({str(tmp_path)!r})" + program
    printed = fresh_python(program, PJRT_DEVICE="FOREIGN")
    assert printed.startswith("stopping a profile: it was not started [plugin ")
    for folder in ("first", "second"):
        space = fields(only_file(tmp_path / folder, ".xplane.pb").read_bytes())
        names = [dict(fields(plane))[2].decode() for number, plane in space if number == 1]
        assert names[0] == "/host:CPU" and names[-1] == "/device:FOREIGN:0"


def test_profiles_on_request(tmp_path):
    server = xp.start_server(0)
    address = f"localhost:{server.port}"
    thread = xp.trace_detached(address, str(tmp_path / "detached"), duration_ms=50)
    thread.join(60)
    assert events(tmp_path / "detached") is not None
    xp.trace(address, str(tmp_path / "asked"), duration_ms=10)
    assert only_file(tmp_path / "asked", ".html").stat().st_size > 0
    assert xp.start_server(server.port) is server
    xp.start_trace(tmp_path / "own")
    with pytest.raises(RuntimeError, match="the profiler server at"):
        xp.trace(address, str(tmp_path / "busy"), duration_ms=10, num_tracing_attempts=1)
    xp.stop_trace()
    server.close()
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
        free.listen()
        with pytest.raises(RuntimeError, match="no profiler server can listen"):
            xp.start_server(port)
    with pytest.raises(RuntimeError, match="no profiler server answers"):
        xp.trace(f"localhost:{port}", str(tmp_path), num_tracing_attempts=1)


def test_a_process_ends_while_its_server_runs(fresh_python):
    program = (
        "import torch_xla.debug.profiler as xp; kept = [xp.start_server(0)]; kept.append(kept)"
    )
    assert fresh_python(program) == ""


def test_marks_of_steps():
    assert not xp.get_tracer_marked_step()
    with xp.StepTrace("step"):
        assert xp.get_tracer_marked_step()
    assert not xp.get_tracer_marked_step()
    xp.set_tracer_marked_step(True)
    assert xp.get_tracer_marked_step()
    xp.set_tracer_marked_step(False)
