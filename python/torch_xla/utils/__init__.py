"""Helpers around training programs."""
