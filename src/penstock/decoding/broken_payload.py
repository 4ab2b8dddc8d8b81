"""The exception for a payload that cannot be read."""

from __future__ import annotations


class BrokenPayload(Exception):
    """Raised when a payload cannot be read; the message of the exception is one sentence."""
