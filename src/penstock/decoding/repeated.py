"""Limits how much of a message its rows may repeat.

A value beside the rows of a payload (`$.gateway`), the topic, the names of a DataSet's
columns: each is in the message once, and in the result once for each row. A payload of a
megabyte, half of it such a value and half of it rows, would be gigabytes.
"""

from __future__ import annotations

from typing import Final

TIMES_MAX: Final = 64
"""Most repeated bytes of a message, as a multiple of its own length."""

BYTES_ALWAYS: Final = 2**20
"""Repeated bytes that are always allowed: small messages do not matter."""


def exceeds_repetition_limit(repeated_bytes: int, message_bytes: int) -> bool:
    """Return whether its rows may not repeat this number of bytes of a message of this length."""
    return repeated_bytes > max(BYTES_ALWAYS, TIMES_MAX * message_bytes)
