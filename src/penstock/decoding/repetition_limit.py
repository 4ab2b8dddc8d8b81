"""Limits how much of a message its rows may repeat.

The topic, a value beside the rows of a payload (`$.gateway`) and the names of a DataSet's columns
are in the message once, and in the result once for each row. A payload of a megabyte, half of it
such a value and half of it rows, would become gigabytes.
"""

from __future__ import annotations

from typing import Final

TIMES_MAX: Final = 64
"""Most repeated bytes of a message, as a multiple of its own length."""

ALLOWED_BYTES_MIN: Final = 2**20
"""Repeated bytes of a message that are allowed whatever its length."""


def exceeds_repetition_limit(repeated_bytes: int, message_bytes: int) -> bool:
    """Return whether rows would repeat more bytes of a message than its length allows.

    Args:
        repeated_bytes: the bytes of the repeated values in all rows of the message.
        message_bytes: the length of the message.
    """
    return repeated_bytes > max(ALLOWED_BYTES_MIN, TIMES_MAX * message_bytes)
