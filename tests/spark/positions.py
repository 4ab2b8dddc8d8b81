"""Positions of queries, compared without the marks of their histories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def unmarked(position: Mapping[str, Any] | None) -> dict[str, Any]:
    """A position as Spark keeps it, of one log or of several, without marks."""
    assert position is not None
    return {
        name: unmarked(value) if isinstance(value, Mapping) else value
        for name, value in position.items()
        if name != "mark"
    }
