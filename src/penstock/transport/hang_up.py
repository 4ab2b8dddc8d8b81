"""The end of a connection: whether the peer has closed it, and how we close our half.

::

      ESTABLISHED ── FIN ──▶ FINISHED   the peer sends no more; its last bytes may be unread
           ╰────── RST, or a timeout of the system ──▶ BROKEN   the peer receives nothing either

While reading is paused the event loop does not watch the socket and does not report the close, so
the code that paused reading must poll. A peer that has just reset the connection is met by whoever
writes or closes before the event loop has reported it.
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


def send_end(transport: asyncio.Transport) -> None:
    """Send the end of the stream after what was written; read on. A closed transport stays so.

    Without a peer that could receive it (``BROKEN``) the transport is aborted, and its protocol
    told that the connection is lost: asyncio's own loop raises ``ENOTCONN`` then, uvloop does not.
    """
    if transport.is_closing():
        return
    try:
        transport.write_eof()
    except OSError:
        transport.abort()
