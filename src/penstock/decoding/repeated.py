"""How much of a message its rows may repeat.

A value that stands beside the rows of a payload (`$.gateway`), the topic, the names of a DataSet's
columns: each is in the message once and in what becomes of it once for each row. A payload of a
megabyte, half of it such a value and half of it rows, would be gigabytes.
"""

from __future__ import annotations

from typing import Final

TIMES_MAX: Final = 64
"""Times its own length that a message may have of what is repeated."""

BYTES_ALWAYS: Final = 2**20
"""What is always allowed, in bytes: small messages need not count."""


def is_too_much(repeated_bytes: int, message_bytes: int) -> bool:
    """Whether a message of this length may not have so many bytes repeated."""
    return repeated_bytes > max(BYTES_ALWAYS, TIMES_MAX * message_bytes)
