"""Finds out whether a peer hung up while its socket is not read: the loop does not report that.

::

      ESTABLISHED ── FIN ──▶ FINISHED   it sends no more; what it sent before is still to be read
           ╰────── RST, or the system gave it up ──▶ BROKEN   nothing reaches it either

A loop that does not read a socket does not watch it, so whoever paused reading must ask.
"""

from __future__ import annotations

import asyncio
import select
from typing import Final

ESTABLISHED: Final = 0
FINISHED: Final = 1
BROKEN: Final = 2

_FINISHED: Final[int] = getattr(select, "POLLRDHUP", 0)  # Linux only
_BROKEN: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


def peer_state(transport: asyncio.Transport | None) -> int:
    """Return ``ESTABLISHED``, ``FINISHED`` or ``BROKEN``, without reading anything."""
    if transport is None:
        return ESTABLISHED  # its user was told
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return ESTABLISHED
    poll = select.poll()
    poll.register(connection.fileno(), _FINISHED)
    events = poll.poll(0)
    if not events:
        return ESTABLISHED
    return BROKEN if events[0][1] & _BROKEN else FINISHED
