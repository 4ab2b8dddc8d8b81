"""A publisher whose next message finds no room: the line in which it waits.

::

      refused by a queue or a group ─▶ its line (``blocked_publishers``) ── room there ─▶ goes on
      the store cannot write ────────▶ the store's line ────────── it can ─────▶ goes on
"""

from __future__ import annotations

from typing import final

from penstock.engine.batch.blocked_publishers import Waiting
from penstock.engine.batch.effects import Effects
from penstock.engine.message import Message
from penstock.engine.routing.router import Router
from penstock.engine.session.session import Session
from penstock.engine.wire.link import Link, Resumable


@final
class WaitingPublisher(Waiting):
    """The client of one connection while it is blocked.

    Args:
        router: decides whether its message is refused.
        effects: has the line of those that wait for the store.
        link: the connection's link, whose user is resumed.
    """

    def __init__(self, router: Router, effects: Effects, link: Link) -> None:
        super().__init__()
        self._router = router
        self._effects = effects
        self._link = link
        self._message: Message | None = None  # the refused one; None when it waits for the store
        self._session: Session | None = None
        self._waits = False  # it was refused again since ``begin``

    def wait_for_room(self, message: Message, session: Session) -> None:
        """Wait for room for ``message`` of ``session``, which the router has just refused."""
        self._message = message
        self._session = session
        self._waits = True
        self.size_bytes = message.size_bytes()
        self.wait_in(self._router.lines_for_room())

    def wait_for_store(self) -> None:
        """Wait until the store can write."""
        self._message = None
        self._waits = True
        self.size_bytes = 0
        self.wait_in([self._effects.store_line])

    def begin(self) -> None:
        """Begin another attempt."""
        self._waits = False

    def tried(self) -> None:
        """End the attempt: stop waiting, unless it was refused again."""
        if not self._waits:
            self.stop()

    def stop(self) -> None:
        """Leave all lines."""
        self._message = None
        self._session = None
        if self.lines:
            self.wait_in([])

    def is_refused(self) -> bool:
        """Return whether its message is still refused; if so, it waits in the line where that
        is."""
        message = self._message
        session = self._session
        if message is None or session is None:
            return False
        before = self._router.looked_at
        is_refused = self._router.refuses(message, session)
        self.looked_at = self._router.looked_at - before
        if not is_refused:
            return False
        self.wait_in(self._router.lines_for_room())
        return True

    def user(self) -> Resumable | None:
        """Return the connection, or None when it ended."""
        return self._link.user
