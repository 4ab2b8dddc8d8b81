"""A session inherited from a former program, of which nothing is known here.

It may have QoS 2 messages on the server that were never released; a new message under their packet
identifier would be taken for one of them, and be lost. So all identifiers that will be in use are
released first, a thousand and some (all of them in a session that is stored), and nothing is sent
until the server has answered, or has had the connect timeout for it::

      CONNACK, session present ─▶ PUBREL 1 … n ─▶ PUBCOMP 1 … n ─▶ as always
                                                └─ its time is over ─▲
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.clock import Now
from penstock.engine.keepalive import NO_DEADLINE
from penstock.engine.limits import PACKET_IDENTIFIERS, EngineLimits
from penstock.engine.link import Link
from penstock.engine.session import Session
from penstock.protocol import reasons
from penstock.protocol.encode import encode_ack
from penstock.protocol.kinds import PUBREL

_IDENTIFIERS_TO_ASK_WITH: Final = 1000  # beside the window's


@final
class Inherited:
    """The packet identifiers of a former program that are released on one connection."""

    def __init__(self) -> None:
        self.until_s = NO_DEADLINE  # how long its answers are waited for, on the monotonic clock
        self._unreleased: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Whether the server still has to answer."""
        return len(self._unreleased) > 0

    def release(self, session: Session, link: Link, limits: EngineLimits, now: Now) -> None:
        """Release all that ``session`` will use."""
        last_id = PACKET_IDENTIFIERS
        if not session.stored:
            own = limits.window(PACKET_IDENTIFIERS)
            last_id = min(own + _IDENTIFIERS_TO_ASK_WITH, PACKET_IDENTIFIERS)
        session.inherit(last_id)
        self._unreleased = set(range(1, last_id + 1))
        self.until_s = now.monotonic_s + limits.connect_timeout_s
        for packet_id in range(1, last_id + 1):
            link.hold(encode_ack(PUBREL, packet_id, reasons.SUCCESS, link.version))

    def released(self, packet_id: int) -> bool:
        """PUBCOMP; whether it was the last that was missing."""
        self._unreleased.discard(packet_id)
        return len(self._unreleased) == 0

    def give_up(self) -> None:
        """The server does not answer: it has none of them."""
        self._unreleased = set()
