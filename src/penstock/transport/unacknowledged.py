"""Counts the bytes in the system's send buffer, which the peer has not acknowledged yet.

The system takes megabytes from us before our own buffers fill, and frees them in large steps; only
both together show whether a slow peer reads at all.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import Final

_INT_SIZE_BYTES: Final = struct.calcsize("i")


def unacknowledged_bytes(transport: asyncio.Transport | None) -> int:
    """Return the number of bytes that ``transport`` has sent and the peer's system has not
    acknowledged; 0 where that is not known (only Linux tells it)."""
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
