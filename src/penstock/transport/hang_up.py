"""Tells whether a peer has closed a connection whose reading is paused.

::

      ESTABLISHED ── FIN ──▶ FINISHED   the peer sends no more; its last bytes may be unread
           ╰────── RST, or a timeout of the system ──▶ BROKEN   the peer receives nothing either

While reading is paused the event loop does not watch the socket and does not report the close, so
the code that paused reading must poll.
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
    """Return ``ESTABLISHED``, ``FINISHED`` or ``BROKEN``, without reading from the socket.

    A transport that is None or closed counts as ESTABLISHED: its close was reported already.
    """
    if transport is None:
        return ESTABLISHED
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return ESTABLISHED
    poll = select.poll()
    poll.register(connection.fileno(), _FINISHED)
    events = poll.poll(0)
    if not events:
        return ESTABLISHED
    return BROKEN if events[0][1] & _BROKEN else FINISHED
