"""What is raised for a payload that cannot be read."""

from __future__ import annotations


class Broken(Exception):
    """A payload cannot be read; its text is a sentence."""
