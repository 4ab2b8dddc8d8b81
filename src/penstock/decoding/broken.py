"""The exception for a payload that cannot be read."""

from __future__ import annotations


class Broken(Exception):
    """Raised when a payload cannot be read; its text is a sentence."""
