"""Count the written bytes that the system keeps, because the peer has not taken them yet.

The system takes megabytes from us before our own buffers fill, and lets go of them in large
steps; only both together tell whether a slow peer reads at all.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import Final

_INT_SIZE_BYTES: Final = struct.calcsize("i")


def unacknowledged_bytes(transport: asyncio.Transport | None) -> int:
    """Return how many bytes left ``transport`` and are not acknowledged by the peer's system."""
    if transport is None or sys.platform != "linux":
        return 0
    import fcntl
    import termios

    connection = transport.get_extra_info("socket")
    if connection is None:
        return 0
    try:
        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_INT_SIZE_BYTES))
    except OSError:  # the socket is closed by now
        return 0
    queued: int = struct.unpack("i", answer)[0]
    return queued
