"""Saved metrics, graphs and tensors, and comparisons of them."""

import pytest
import torch
import torch_xla.debug.metrics as met
from torch_xla.debug import (
    frame_parser_util,
    graph_saver,
    metrics_compare_utils,
    metrics_saver,
    model_comparator,
)


def test_metrics_saved_to_a_file(tmp_path, monkeypatch, capsys):
    (torch.ones(3, device="xla") * 2).sum().item()
    path = tmp_path / "metrics.txt"
    metrics_saver.save_metrics(str(path))
    metrics_saver.save_metrics(str(path))
    assert path.read_text().count("[MetricsData; step=") == 2 and "Metric:" in path.read_text()
    monkeypatch.setenv("XLA_METRICS_FILE", "STDOUT")
    metrics_saver.save_metrics()
    assert "[MetricsData" in capsys.readouterr().out


@pytest.mark.lazy_only
def test_metrics_compared_with_earlier_ones():
    met.clear_all()
    reports = []
    for _ in range(3):
        (torch.ones(3, device="xla") * 2).sum().item()
        reports.append(met.metrics_report())
    points = metrics_compare_utils.get_data_points_from_metrics_reports(reports)
    assert points["ExecuteTime__TotalSamples"] == [1.0, 2.0, 3.0]
    assert points["CachedCompile__Value"][-1] >= 1
    parsed = metrics_compare_utils.parse_metrics_report(reports[0])
    assert 0 < parsed["ExecuteTime__Accumulator_sec"] < 60
    assert parsed["InboundData__Accumulator_mb"] == pytest.approx(4e-6)
    value, text = metrics_compare_utils.parse_metrics_report(reports[0], dehumanize=False)[
        "InboundData__Accumulator_mb"
    ]
    assert text == "4.00B" and value == pytest.approx(4e-6)
    assert metrics_compare_utils.compare_metrics(points, reports[1]) == ""
    config = {"base_expression": "v < 0", "ExecuteTime__TotalSamples_expression": "True"}
    found = metrics_compare_utils.compare_metrics(points, reports[1], config)
    assert "ExecuteTime__Accumulator_sec failed its expression check" in found
    assert "ExecuteTime__TotalSamples " not in found
    new = metrics_compare_utils.compare_metrics({}, "Counter: aten::new\n  Value: 3\n")
    assert new == "Found new aten counter: aten::new__Value: 3\n"


def test_graphs_saved(tmp_path, monkeypatch):
    x = torch.ones(3, device="xla").cos()
    graph_saver.save_tensors_graph(str(tmp_path), "step", [x])
    monkeypatch.setenv("SAVE_GRAPH_FMT", "stablehlo")
    graph_saver.save_tensors_graph(str(tmp_path), "step", [x])
    texts = {path.suffix: path.read_text() for path in tmp_path.iterdir()}
    assert "aten::cos" in texts[".text"] and "stablehlo.cosine" in texts[".stablehlo"]
    assert sorted(path.name.split("-")[-1] for path in tmp_path.iterdir())[0].startswith("0.")
    monkeypatch.setenv("SAVE_GRAPH_FMT", "dot")
    with pytest.raises(RuntimeError, match="SAVE_GRAPH_FMT is one of"):
        graph_saver.save_tensors_graph(str(tmp_path), "step", [x])


def test_two_runs_compared(tmp_path):
    for run, factor in (("one", 1.0), ("two", 1.5)):
        model_comparator.configure(str(tmp_path / run))
        for step in range(2):
            x = torch.ones(2, device="xla") * (1 if step == 0 else factor)
            assert model_comparator.save("layer", x, step) is x
        model_comparator.save(None, x)
    model_comparator.configure(None)
    folders = [str(tmp_path / run) for run in ("one", "two")]
    report = model_comparator.compare(*folders)
    assert 'Changes in saved tensor "layer" with id=0 at step-1' in report
    assert "step-0" not in report and "[0]: 1.0 vs. 1.5" in report
    assert model_comparator.compare(folders[0], folders[0]) == ""
    paths = [f"{folder}/step-1/layer.0" for folder in folders]
    assert model_comparator.tensor_file_compare(*paths, rtol=1.0) == ""
    assert model_comparator.tensor_file_compare(*paths) != ""
    shapes = model_comparator.compare_tensors(torch.ones(2), torch.ones(3))
    assert shapes == "Tensors have different shape: [2] vs. [3]\n"
    many = model_comparator.compare_tensors(torch.ones(9), torch.zeros(9), max_diffs=2)
    assert many.count("error=1.0") == 2 and "7 more differences" in many


def test_frames_of_stack_traces(tmp_path, monkeypatch):
    trace = (
        "[TAG aten::foo From Thread 7]\nPython Frames:\n  step (train.py:3)\nC++ Frames:\n"
        "  at::foo (x.cpp:1)\n*** End stack trace ***\n\n"
    )
    path = tmp_path / "frames"
    path.write_text(trace * 2)
    frames = frame_parser_util.parse_frames(trace.splitlines(keepends=True) * 2)
    assert list(frames.values()) == [2]
    assert "train.py:3" in next(iter(frames)) and "x.cpp" not in next(iter(frames))
    tag = frame_parser_util.parse_frame_content("[TAG aten::foo From Thread 7]")
    assert tag == 'Unlowered Op: "aten::foo"\n'
    report = tmp_path / "report"
    monkeypatch.setenv("PT_XLA_DEBUG_FILE", str(report))
    frame_parser_util.process_frames(str(path))
    frame_parser_util.create_report({"x": 1})
    assert "FRAME (count=2)" in report.read_text()
