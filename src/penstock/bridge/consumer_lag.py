"""The lag of a peer: the age of the oldest message that the peer has not acknowledged.

::

      oldest of window and queue ─ body in memory ─▶ its age
                                 ╰ in the log only ─▶ requested ─▶ known at a later call

While a peer is offline the oldest message stays the same, so that its body is read only once.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.api import BodyRequester, EngineContext, Session
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.message import NOT_IN_LOG, Message

UNKNOWN: Final = -1.0


@final
class ConsumerLag(BodyRequester):
    """The lag of one session's peer.

    Args:
        session: the session with the peer.
        context: its batch requests bodies from the log.
    """

    def __init__(self, session: Session, context: EngineContext) -> None:
        self._session = session
        self._context = context
        self._offset = NOT_IN_LOG  # offset of the message whose age is known
        self._since_us = 0
        self._requested_offsets: list[int] = []

    def seconds(self, now: Now) -> float:
        """Return the age of the oldest message in seconds of the steady clock; 0 if there is none.

        Return ``UNKNOWN`` while its body must be read from the log, which needs the end of the
        turn.
        """
        oldest = self._session.outbound.oldest()
        if oldest is None:
            return 0.0
        if oldest.message is not None:
            self._offset = oldest.offset
            self._since_us = oldest.message.steady_us
        elif oldest.offset != self._offset:
            if self._requested_offsets != [oldest.offset]:
                self._requested_offsets = [oldest.offset]
                self._context.batch.body_requests.append((self, self._requested_offsets))
            return UNKNOWN
        return max(0, now.steady_us - self._since_us) / MICROSECONDS

    def purpose(self) -> str:
        """Return what the bodies are for, as words for a log line."""
        return f"the lag of client {self._session.client_id}"

    def needs_bodies(self, offsets: list[int]) -> bool:
        """Return whether ``offsets`` is the latest request of this object."""
        return offsets is self._requested_offsets

    def supply(self, offsets: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Take the time of the requested message.

        If retention has removed the message, the age stays unknown.
        """
        del now
        if not self.needs_bodies(offsets):
            return
        for offset, message in bodies.items():
            self._offset = offset
            self._since_us = message.steady_us
