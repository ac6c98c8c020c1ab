"""Interfaces that may change."""
