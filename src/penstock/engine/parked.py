"""What waits for one group at sessions that cannot go on, and which member may take it over.

::

      holder ── how little of it takes room: ``least`` ──╮
                                                         ├─ least <= room ─▶ looked through
      connected member ── how much it takes: ``room`` ───╯

A look at what waits costs something, so what it found is kept: the size of the smallest that
nobody took. Who acknowledges a message, and at each tick all, are asked for their room only;
what waits is looked at again when that is enough for something of it. Sizes are all there is to
know of what lies in the log, its topics nobody sees before it leaves.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.away_members import Member
from penstock.engine.message import Message
from penstock.engine.session import Session

NOTHING: Final = 2**62  # larger than any room


@final
class Parked:
    """What waits for one group.

    Args:
        connected: the members that are, as the group has them.
    """

    def __init__(self, connected: list[Member]) -> None:
        # who holds something, and the size of the smallest of it; 0 = not known
        self.holders: dict[Session, int] = {}
        self.fits = -1  # the largest that may be taken over from the log, in this round
        self._least = NOTHING  # of all of them
        self._for_memory = False  # QoS 0 waits until there is memory for it elsewhere
        self._for_permission = False  # in memory waits what nobody connected may receive
        self._connected = connected

    # -- what waits --------------------------------------------------------------------

    def put(self, session: Session, size_bytes: int) -> None:
        """``session`` holds something of this size."""
        known = self.holders.get(session, NOTHING)
        self.holders[session] = min(known, size_bytes)
        self._least = min(self._least, size_bytes)

    def put_message(self, session: Session, message: Message) -> None:
        """``session`` holds ``message``, which no connected member took."""
        self.put(session, message.size_bytes() if self.may_fit(message) else NOTHING)

    def may_fit(self, message: Message) -> bool:
        """Whether room is all that a connected member needs to take ``message`` over.

        In the log, nobody sees for whom it is.
        """
        if message.offset >= 0:
            return True
        for member in self._connected:
            if member.session.may_receive(message):
                return True
        self._for_permission = True
        return False

    def wait_for_memory(self) -> None:
        """A QoS 0 message stays where it is: there is no memory for it elsewhere."""
        self._for_memory = True

    def ask_again(self) -> None:
        """Who is asked may have other permissions than the last one."""
        if self._for_permission:
            self._for_permission = False
            self._forget()

    def remove(self, session: Session) -> None:
        """``session`` holds nothing any more, or goes on itself."""
        self.holders.pop(session, None)

    # -- who takes it over -------------------------------------------------------------

    def may_go_on(self, member: Member) -> bool:
        """Whether ``member``, which is connected, may take over something."""
        room = room_of(member)
        if room >= self._least:
            return True
        return room >= 0 and self._for_memory and member.session.keeps_qos0(True)

    def goes_on(self) -> bool:
        """Whether any connected member may."""
        for member in self._connected:  # noqa: SIM110 - compiled, a generator is dearer
            if self.may_go_on(member):
                return True
        return False

    def room(self) -> int:
        """The largest that a connected member may take over from the log; -1 if none may."""
        most = -1
        for member in self._connected:
            most = max(most, room_of(member))
        return most

    def begin(self) -> None:
        """A round begins: what waits is handed on as far as there is room."""
        self.fits = self.room()
        if self._for_memory:
            self._for_memory = False
            self._forget()

    def refused(self, size_bytes: int) -> None:
        """Nobody took over so much from the log."""
        self.fits = min(self.room(), size_bytes - 1)

    def end(self) -> None:
        """The round is over."""
        self._least = min(self.holders.values(), default=NOTHING)

    def _forget(self) -> None:
        for session in self.holders:
            self.holders[session] = 0
        self._least = 0 if self.holders else NOTHING


def room_of(member: Member) -> int:
    """The largest that ``member`` may take over from the log; -1 for nothing."""
    session = member.session
    link = session.link
    if link is None or not link.has_room() or member.is_barred():
        return -1
    if member.entry.subscription.qos == 0 and not session.keeps_qos0(True):
        return -1
    return session.room_for_log()
