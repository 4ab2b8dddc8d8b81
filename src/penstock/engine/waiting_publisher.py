"""A publisher whose next message finds no room: where it waits, and for what.

::

      refused by a queue or a group ─▶ its line (``room_line``) ── room there ─▶ goes on
      the store cannot write ────────▶ the store's line ────────── it can ─────▶ goes on
"""

from __future__ import annotations

from typing import final

from penstock.engine.effects import Effects
from penstock.engine.link import Link, Resumable
from penstock.engine.message import Message
from penstock.engine.room_line import Waiting
from penstock.engine.router import Router
from penstock.engine.session import Session


@final
class WaitingPublisher(Waiting):
    """The client of one connection, as far as it waits.

    Args:
        router: refuses.
        effects: has the store's line.
        link: of the connection, whose user goes on.
    """

    def __init__(self, router: Router, effects: Effects, link: Link) -> None:
        super().__init__()
        self._router = router
        self._effects = effects
        self._link = link
        self._message: Message | None = None  # that was refused; None when it was by the store
        self._session: Session | None = None
        self._waits = False  # found since ``begin``

    def wait_for_room(self, message: Message, session: Session) -> None:
        """The router has just refused ``message`` of ``session``."""
        self._message = message
        self._session = session
        self._waits = True
        self.size_bytes = message.size_bytes()
        self.wait_in(self._router.lines_for_room())

    def wait_for_store(self) -> None:
        """It cannot write now."""
        self._message = None
        self._waits = True
        self.size_bytes = 0
        self.wait_in([self._effects.store_line])

    def begin(self) -> None:
        """It tries again."""
        self._waits = False

    def tried(self) -> None:
        """It did; unless it found again that it must wait, it does not."""
        if not self._waits:
            self.stop()

    def stop(self) -> None:
        """It waits for nothing."""
        self._message = None
        self._session = None
        if self.lines:
            self.wait_in([])

    def is_refused(self) -> bool:
        """Whether its message still is; it waits where it is refused first."""
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
        """The connection, while there is one."""
        return self._link.user
