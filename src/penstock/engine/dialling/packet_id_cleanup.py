"""The cleanup of a session of an earlier program, whose packet identifiers in use are not known.

The server may have QoS 2 messages of that program that were never released; it would take a new
message with one of their packet identifiers for a repeat, and the message would be lost. So PUBREL
is sent for all identifiers that this program will use, about a thousand (all 65,535 for a stored
session), and no message is sent until the server has sent all PUBCOMPs, or the connect timeout has
passed::

      CONNACK, session present ─▶ PUBREL 1 … n ─▶ PUBCOMP 1 … n ─▶ the session is attached
                                                └─ timeout ────────▲

A Penstock server tells which messages it has not released (``connection_names``): of those, the
ones that this side does not know are released in the same way.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.session.session import Session
from penstock.engine.values.clock import NO_DEADLINE, Now
from penstock.engine.values.limits import PACKET_IDENTIFIERS, EngineLimits
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode_ack
from penstock.protocol.kinds import PUBREL

_REQUEST_IDS: Final = 1000  # for SUBSCRIBE and UNSUBSCRIBE, beside those of the window


@final
class PacketIdCleanup:
    """The packet identifiers of an earlier program that are released on one connection."""

    def __init__(self) -> None:
        self.until_s = NO_DEADLINE  # when to stop waiting for PUBCOMP, monotonic seconds
        self._awaited_pubcomps: set[int] = set()

    @property
    def is_waiting(self) -> bool:
        """Return whether PUBCOMPs of the server are still awaited."""
        return len(self._awaited_pubcomps) > 0

    def release_all(self, session: Session, link: Link, limits: EngineLimits, now: Now) -> None:
        """Send PUBREL for all packet identifiers that ``session`` will use."""
        last_id = PACKET_IDENTIFIERS
        if not session.is_stored:
            own = limits.window(PACKET_IDENTIFIERS)
            last_id = min(own + _REQUEST_IDS, PACKET_IDENTIFIERS)
        session.transmission.window.limit_packet_ids(last_id)
        self.release(list(range(1, last_id + 1)), link, limits, now)

    def release(self, packet_ids: list[int], link: Link, limits: EngineLimits, now: Now) -> None:
        """Send PUBREL for ``packet_ids``."""
        self._awaited_pubcomps = set(packet_ids)
        self.until_s = now.monotonic_s + limits.connect_timeout_s
        for packet_id in packet_ids:
            link.send_after_commit(encode_ack(PUBREL, packet_id, reasons.SUCCESS, link.version))

    def handle_pubcomp(self, packet_id: int) -> bool:
        """Handle a PUBCOMP; return whether it was the last awaited one."""
        self._awaited_pubcomps.discard(packet_id)
        return len(self._awaited_pubcomps) == 0

    def give_up(self) -> None:
        """Stop waiting for PUBCOMPs: the server did not send them in time."""
        self._awaited_pubcomps = set()
