"""Tests; only `tests.support` is imported by others."""
