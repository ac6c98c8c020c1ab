"""The metrics users know by name."""

import pytest
import torch
import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp

DEVICE = "xla"


@pytest.fixture(autouse=True)
def cleared():
    torch_xla.sync(wait=True)
    met.clear_all()


def compute() -> float:
    """A program that no other test has: its constant is in the text."""
    return (torch.full((7, 11), 0.123, device=DEVICE).cos() * 3).sum().item()


def test_work_is_counted():
    compute()
    assert met.metric_data("ExecuteTime")[0] == 1
    assert met.metric_data("TransferFromDeviceTime")[0] == 1
    assert met.counter_value("CreateXlaTensor") > 0
    assert met.counter_value("xla::cos") == 1
    assert {"ExecuteTime", "TransferFromDeviceTime"} <= set(met.metric_names())
    assert "xla::cos" in met.counter_names()


def test_upload_is_counted():
    torch.arange(5.0).to(DEVICE)
    torch_xla.sync(wait=True)
    assert met.metric_data("TransferToDeviceTime")[0] >= 1


def test_second_run_of_a_program_is_found():
    compute()
    met.clear_all()
    compute()
    assert met.counter_value("CachedCompile") == 1
    assert met.counter_value("UncachedCompile") is None
    assert met.metric_data("CompileTime") is None


def test_samples_are_times():
    compute()
    count, total, samples = met.metric_data("ExecuteTime")
    assert count == len(samples) == 1
    assert samples[0][1] == total > 0


def test_unknown_names_have_no_value():
    assert met.counter_value("NoSuchCounter") is None
    assert met.metric_data("NoSuchMetric") is None


def test_clearing():
    compute()
    met.clear_counters()
    assert "xla::cos" not in met.counter_names() and "ExecuteTime" in met.metric_names()
    met.clear_metrics()
    assert "ExecuteTime" not in met.metric_names()


def test_reports():
    compute()
    report = met.metrics_report()
    assert "Metric: ExecuteTime" in report and "Counter: xla::cos" in report
    short = met.short_metrics_report()
    assert "ExecuteTime" in short and len(short) < len(report)
    chosen = met.short_metrics_report(counter_names=["xla::cos"], metric_names=["ExecuteTime"])
    assert "xla::cos" in chosen and "ExecuteTime" in chosen and "CreateXlaTensor" not in chosen


def test_fallbacks_are_listed():
    matrix = torch.eye(3, device=DEVICE)
    torch.linalg.eig(matrix)[0].cpu()
    assert any("eig" in name for name in met.executed_fallback_ops())
    met.clear_all()
    compute()
    assert not any("eig" in name for name in met.executed_fallback_ops())


def test_regions_reach_the_profiler():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with xp.StepTrace("train_step", step_num=3), xp.Trace("inner"):
            torch.ones(2, device=DEVICE) + 1

        @xp.trace_me("decorated")
        def function(x):
            return x + 1

        assert function(1) == 2
    names = {event.name for event in profile.events()}
    assert {"train_step", "inner", "decorated"} <= names


def test_step_trace_ends_the_step():
    with xp.StepTrace("train_step", step_num=0):
        tensor = torch.ones(2, device=DEVICE).cos()
    assert met.metric_data("ExecuteTime")[0] == 1
    del tensor
