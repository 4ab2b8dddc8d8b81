"""Bridges for the tests that mark themselves with ``bridge``."""

from tests.support.bridged import line, lines, start

__all__ = ["line", "lines", "start"]
