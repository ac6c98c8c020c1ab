"""Compares a metrics report with those of earlier runs."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_METRIC = re.compile(
    r"Metric: (\S+)\s+TotalSamples: (\d+)\s+Accumulator: (\S+)(?:(?!Metric:|Counter:)[\s\S])*?"
    r"Percentiles: ([^\n]+)"
)
_PERCENTILE = re.compile(r"(\d+)%=(\S+?)(?:;|$)")
_COUNTER = re.compile(r"Counter: (\S+)\s+Value: (\d+)")
_PART = re.compile(r"([\d.]+)(d|h|ms|us|ns|m|s|PB|TB|GB|MB|KB|B)")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MEGABYTES = {"PB": 1e9, "TB": 1e6, "GB": 1e3, "MB": 1.0, "KB": 1e-3, "B": 1e-6}
_DEFAULT = {"base_expression": "v <= v_mean + (v_stddev * 2.0)"}


def _number(text: str) -> tuple[float, str]:
    """The value in seconds or megabytes, and which of them."""
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        try:
            return float(text), ""
        except ValueError:
            raise ValueError(f"a metrics report has no value such as '{text}'") from None
    table, unit = (_SECONDS, "sec") if parts[0][1] in _SECONDS else (_MEGABYTES, "mb")
    return sum(float(value) * table[name] for value, name in parts), unit


def parse_metrics_report(report: str, dehumanize: bool = True) -> dict[str, Any]:
    """The values of a report: {"CompileTime__Accumulator_sec": 0.5, "CachedCompile__Value": 3}.
    Without `dehumanize`, metrics come as (value, text)."""
    points: dict[str, Any] = {}
    for name, samples, accumulator, percentiles in _METRIC.findall(report):
        values = {"TotalSamples": samples, "Accumulator": accumulator}
        values |= {f"Percentile_{p}": text for p, text in _PERCENTILE.findall(percentiles)}
        for part, text in values.items():
            value, unit = _number(text)
            key = f"{name}__{part}" + (f"_{unit}" if unit else "")
            points[key] = value if dehumanize else (value, text)
    points |= {f"{name}__Value": int(value) for name, value in _COUNTER.findall(report)}
    return points


def get_data_points_from_metrics_reports(metrics_reports: Sequence[str]) -> dict[str, list[Any]]:
    """Each value of several reports, in their order; None where a report lacks it."""
    parsed = [parse_metrics_report(report) for report in metrics_reports]
    names = sorted({name for report in parsed for name in report})
    return {name: [report.get(name) for report in parsed] for name in names}


def compare_metrics(
    data_points: Mapping[str, Sequence[float | None]],
    metrics_report: str,
    config: Mapping[str, str] | None = None,
) -> str:
    """A line for each value of `metrics_report` that fails its check against those of earlier runs
    (`get_data_points_from_metrics_reports`), and for each operator that newly runs on the CPU.

    A check is a Python expression of v, v_mean and v_stddev, `config[NAME_expression]` or
    `config["base_expression"]`: use only those you trust.
    """
    checks = _DEFAULT if config is None else config
    lines = []
    for name, value in sorted(parse_metrics_report(metrics_report).items()):
        known = [point for point in data_points.get(name, ()) if point is not None]
        if not known:
            if name.startswith("aten::"):
                lines.append(f"Found new aten counter: {name}: {value}\n")
            continue
        mean, deviation = statistics.mean(known), statistics.pstdev(known)
        check = checks.get(f"{name}_expression") or checks["base_expression"]
        if not eval(check, None, {"v": value, "v_mean": mean, "v_stddev": deviation}):
            lines.append(
                f"{name} failed its expression check. Expression: {check}.  Mean: {mean}.  "
                f"Stddev: {deviation}.  Actual Value: {value}\n"
            )
    return "".join(lines)
