"""What goes on when: spans, shares, verdict, trace file, and the page in a real browser."""

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch_xla
import torch_xla.debug as xd
from browser import AVAILABLE, Browser
from torch_xla.debug.timeline_report import (
    _DEVICE_GROUPS,
    _GROUPS,
    GROUPS,
    Span,
    Track,
    chrome_trace,
    host_shares,
    verdict,
)

DEVICE = "xla"


def train(steps: int, batch: int = 16) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.ones(batch, 32).to(DEVICE)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
    loss.item()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> xd.timeline:
    train(1, batch=8)  # the first records import things
    with xd.timeline(tmp_path_factory.mktemp("timeline") / "step") as timeline:
        train(5)
    return timeline


def kinds(report: xd.timeline) -> set[str]:
    return {span.kind for track in report.tracks for span in track.spans}


def test_every_stage_is_recorded(report: xd.timeline) -> None:
    assert kinds(report) >= {"trace", "lower", "compile", "launch", "upload", "download", "device"}
    assert report.tracks[0].name == "main thread"
    (device,) = [track for track in report.tracks if track.device]
    assert device.name == "device xla:0" and len(device.spans) >= 5


def test_spans_know_lines_and_graphs(report: xd.timeline) -> None:
    main = report.tracks[0].spans
    traces = [span for span in main if span.kind == "trace" and not span.name]
    assert all(span.file == __file__ for span in traces)
    assert sum(span.amount for span in traces) > 5 * 4
    launches = [span for span in main if span.kind == "launch"]
    assert sum(span.name.startswith(f"sync at {__file__}:") for span in launches) >= 5
    uploads = [span for span in main if span.kind == "upload"]
    assert any(span.amount == 16 * 32 * 4 for span in uploads)


def test_spans_lie_within_the_recording_and_nest(report: xd.timeline) -> None:
    for track in report.tracks:
        ends: list[int] = []
        for span in sorted(track.spans, key=lambda span: (span.start, -span.end)):
            assert 0 <= span.start <= span.end <= report.duration
            while ends and ends[-1] <= span.start:
                ends.pop()
            assert not ends or span.end <= ends[-1], "a span overlaps another of its thread"
            ends.append(span.end)


def test_compilations_have_reasons(report: xd.timeline) -> None:
    assert report.compilations[0].cause == "shape"
    assert [event.serial for event in report.compilations] == sorted(
        event.serial for event in report.compilations
    )


def test_shares_sum_to_one(report: xd.timeline) -> None:
    assert sum(report.shares.values()) == pytest.approx(1)
    assert report.shares["compiling"] > 0 and report.shares["tracing"] > 0


def test_the_trace_file_is_in_chromes_format(report: xd.timeline) -> None:
    events = json.loads(report.trace.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"main thread", "device xla:0"} <= names
    spans = [event for event in events if event["ph"] == "X"]
    assert all({"ts", "dur", "tid", "pid", "name", "cat"} <= set(span) for span in spans)
    assert any(
        re.fullmatch(r"test_timeline\.py:\d+", span["args"].get("line", "")) for span in spans
    )


def test_nothing_is_recorded_outside(tmp_path: Path) -> None:
    train(1)
    with xd.timeline(tmp_path / "empty.html") as timeline:
        pass
    assert timeline.html == tmp_path / "empty.html" and timeline.trace == tmp_path / "empty.json"
    assert kinds(timeline) == set()
    assert "outside the device" in timeline.verdict


def test_kernels_that_programs_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_XLA_TIERS", "off")
    x = torch.randn(512, 512, device=DEVICE)
    product = torch_xla.compile(lambda: (x @ x).relu())
    product()
    torch_xla.sync(wait=True)
    with xd.timeline(tmp_path / "product") as timeline:
        for _ in range(3):
            product()
        torch_xla.sync(wait=True)
    ((name, nanoseconds, parts),) = timeline.kernels()
    assert name == "aten::mm" and nanoseconds > 0 and parts >= 3
    assert "aten::mm" in timeline.html.read_text()
    assert all(row["name"] != "aten::mm" for row in timeline.graphs())  # it is no graph


def test_one_timeline_at_a_time(tmp_path: Path) -> None:
    with xd.timeline(tmp_path / "outer"):
        with pytest.raises(RuntimeError, match="being recorded already"):
            with xd.timeline(tmp_path / "inner"):
                pass


def test_files_are_written_when_the_step_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="step"), xd.timeline(tmp_path / "failed") as timeline:
        raise ValueError("step")
    assert timeline.html.exists() and timeline.trace.exists()


def span(kind: str, start: int, end: int, line: int = 7) -> Span:
    return Span(
        kind, "step_fn" if kind == "device" else "", "/home/me/train.py", line, start, end, 1
    )


def report_of(main: list[Span], device: list[Span], other: list[Span] = ()) -> xd.timeline:
    report = xd.timeline("unused")
    report.duration = 100
    report.tracks = [
        Track("main thread", False, 0, main),
        Track("other thread", False, 0, list(other)),
        Track("device xla:0", True, 0, device),
    ]
    report.shares = host_shares(report.tracks, 100)
    report.device_shares = {"device xla:0": sum(s.duration for s in device) / 100}
    return report


def test_a_moment_counts_once() -> None:
    # The wait inside the trace is a wait; the other thread counts where the first does nothing.
    main = [span("trace", 0, 40), span("wait", 10, 20), span("compile", 60, 70)]
    shares = report_of(main, [], [span("upload", 30, 65), span("trace", 90, 95)]).shares
    assert shares == {
        "tracing": 0.35,  # 0-10, 20-40, 90-95
        "interpreting": 0.0,
        "compiling": 0.10,
        "launching": 0.0,
        "transfers": 0.20,  # 40-60
        "waiting": 0.10,
        "other": 0.25,
    }


def test_amounts_are_operations_or_bytes() -> None:
    main = [span("trace", 0, 10), span("interpret", 10, 20), span("upload", 20, 30)]
    events = chrome_trace(report_of(main, []))["traceEvents"]
    amounts = [{"operations", "bytes"} & set(e["args"]) for e in events if e["ph"] == "X"]
    assert amounts == [{"operations"}, {"operations"}, {"bytes"}]


def test_lines_count_their_own_time() -> None:
    main = [span("trace", 0, 40), span("compile", 10, 30), span("trace", 50, 55, line=9)]
    report = report_of(main, [])
    assert report.traced_lines() == [("train.py:7", 20, 1), ("train.py:9", 5, 1)]


@pytest.mark.parametrize(
    ("main", "device", "expected"),
    [
        (
            [span("trace", 0, 60), span("trace", 60, 71, line=9)],
            [span("device", 10, 20)],
            r"Your step is bound by tracing: 71 % of wall time\. These lines record longest: "
            r"train\.py:7 \(60 %\), train\.py:9 \(11 %\)\.",
        ),
        (
            [span("trace", 0, 71)],
            [span("device", 5, 95)],
            r"Your step is bound by the device: device xla:0 computes 90 % of the wall time\. "
            r"The longest graphs: step_fn .*",
        ),
        ([span("compile", 0, 80)], [], r"Your step is bound by compiling: 80 % of wall time\. ?"),
        (
            [span("upload", 0, 50)],
            [],
            r"Your step is bound by transfers: 50 % of wall time\. .* train\.py:7 \(50 %\)\.",
        ),
        ([span("wait", 0, 60)], [], r"Your step is bound by waiting for the device: 60 %.*"),
        (
            [span("interpret", 0, 90)],
            [],
            r"Your step is bound by interpreted graphs: 90 % of wall time\. A .*",
        ),
        ([span("trace", 0, 10)], [], r"Your step is bound by work outside the device: 90 %.*"),
    ],
)
def test_verdict(main: list[Span], device: list[Span], expected: str) -> None:
    assert re.fullmatch(expected, verdict(report_of(main, device)))


SLOW_COMPILE = """
import torch, torch_xla
x = torch.ones(64, 64).to("xla")
for i in range(350):
    x = (x @ x).sort(0).values.softmax(1)
torch_xla.sync()
"""


def test_a_long_compilation_says_so(fresh_python: Callable[..., str]) -> None:
    program = "import os; os.dup2(1, 2)\n" + SLOW_COMPILE
    printed = fresh_python(program, TORCH_XLA_PROGRESS="1", TORCH_XLA_CACHE="0")
    assert re.search(r"torch_xla: compiling sync.* for 1\.0 s", printed), printed


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not AVAILABLE:
        pytest.skip("Debian's chromium and chromium-driver are not installed")
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, report: xd.timeline) -> Browser:
    browser.open(report.html)
    return browser


def view(page: Browser) -> tuple[float, float, int]:
    data = page.run("return {...document.getElementById('canvas').dataset}")
    return float(data["from"]), float(data["to"]), int(data["drawn"])


def wait_for_view(page: Browser, before: tuple[float, float, int]) -> tuple[float, float, int]:
    deadline = time.monotonic() + 10
    while (now := view(page)) == before:
        assert time.monotonic() < deadline, "the view did not change"
        time.sleep(0.05)
    return now


def canvas_center(page: Browser) -> tuple[int, int]:
    x, y = page.run(
        "const r = document.getElementById('canvas').getBoundingClientRect();"
        "return [r.x + r.width / 2, r.y + r.height / 2]"
    )
    return int(x), int(y)


def colors_on_canvas(page: Browser) -> int:
    return page.run(
        "const c = document.getElementById('canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const seen = new Set();"
        "for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255)"
        "  seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);"
        "return seen.size"
    )


def test_page_renders(page: Browser, report: xd.timeline) -> None:
    assert page.run("return document.getElementById('verdict').textContent") == report.verdict
    spans = sum(len(track.spans) for track in report.tracks)
    assert view(page) == (0, report.duration, spans)
    assert colors_on_canvas(page) >= 4
    table = page.run("return document.getElementById('compilations').innerText")
    assert report.compilations[0].reason in table
    assert "device xla:0 busy" in page.run("return document.getElementById('legend').innerText")
    assert page.errors() == []


def test_each_share_and_span_has_a_colour(report: xd.timeline) -> None:
    page = report.html.read_text()
    for group in {*GROUPS, *_GROUPS.values(), *_DEVICE_GROUPS.values()}:
        assert re.search(rf"--{group}: #", page), group


def test_page_needs_no_network(report: xd.timeline) -> None:
    assert not re.search(r"https?://|src=|<link", report.html.read_text())


def test_page_zooms_and_pans(page: Browser, report: xd.timeline) -> None:
    whole = view(page)
    x, y = canvas_center(page)
    page.wheel(x, y, -400)
    zoomed = wait_for_view(page, whole)
    assert zoomed[1] - zoomed[0] == pytest.approx(report.duration / 2.718, rel=0.02)
    assert zoomed[0] < report.duration / 2 < zoomed[1]
    page.drag(x, y, x - 100)
    panned = wait_for_view(page, zoomed)
    assert panned[0] > zoomed[0]
    assert panned[1] - panned[0] == pytest.approx(zoomed[1] - zoomed[0])
    page.run("document.getElementById('fit').click()")
    assert wait_for_view(page, panned) == whole
    page.run("document.getElementById('in').click()")
    assert wait_for_view(page, whole)[1] - view(page)[0] == pytest.approx(report.duration / 2)


def test_page_filters(page: Browser, report: xd.timeline) -> None:
    whole = view(page)
    page.run(
        "const box = document.getElementById('filter'); box.value = 'LAUNCH';"
        "box.dispatchEvent(new Event('input'))"
    )
    launches = [s for track in report.tracks for s in track.spans if s.kind == "launch"]
    assert wait_for_view(page, whole)[2] == len(launches)
    lines = page.run("return document.getElementById('lines').innerText")
    assert lines == "Nothing matches the filter."


def test_page_shows_what_is_under_the_pointer(page: Browser) -> None:
    x, y = page.run(
        "const r = document.getElementById('canvas').getBoundingClientRect();"
        "const t = tracks[0], s = t.spans.find(s => s.kind === 'compile');"
        "return [r.x + ((s.start + s.end) / 2 / recording.duration) * r.width,"
        "        r.y + t.top + s.row * ROW + 5]"
    )
    page.hover(int(x), int(y))
    tip = page.wait_for("return document.getElementById('tip').innerText")
    assert tip.startswith("compile: sync at test_timeline.py:")


def test_in_a_notebook_it_is_a_page_within_the_page(report: xd.timeline) -> None:
    (page,) = re.findall(r'^<iframe srcdoc="([^"]*)"', report._repr_html_())
    assert html.unescape(page) == report.html.read_text()
