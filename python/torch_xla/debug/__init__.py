"""Metrics and profiling."""
