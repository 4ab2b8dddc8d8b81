"""What waits for one group at sessions that cannot go on, and which member may take it over.

::

      holder ── how little of it takes room: ``least`` ──╮
                                                         ├─ least <= room ─▶ looked through
      connected member ── how much it takes: ``room`` ───╯  (``holding``)

A look at what waits costs something, so what it found is kept: the size of the smallest that
nobody took. Who acknowledges a message, and at each tick all, are asked for their room only;
what waits is looked at again when that is enough for something of it. Sizes are all there is to
know of what lies in the log, its topics nobody sees before it leaves. What lies in memory is known
apart: a member that is barred from the log may have that, and a window takes it.
"""

from __future__ import annotations

from typing import final

from penstock.engine.away_members import Member
from penstock.engine.holding import NOTHING, Holding, Least
from penstock.engine.message import SMALLEST_MESSAGE_BYTES, Message
from penstock.engine.queue import NO_BOUND
from penstock.engine.session import Session


@final
class Parked:
    """What waits for one group.

    Args:
        connected: the members that are, as the group has them.
    """

    def __init__(self, connected: list[Member]) -> None:
        self.holders: dict[Session, Holding] = {}
        self.fits = -1  # the largest that may be taken over from the log, in this round
        self.fits_in_memory = -1  # likewise, with its body
        self._least = Least()  # of all of them
        self._for_memory = False  # QoS 0 waits until there is memory for it elsewhere
        self._for_permission = False  # in memory waits what nobody connected may receive
        self._connected = connected

    # -- what waits --------------------------------------------------------------------

    def put(self, session: Session, least: Least) -> None:
        """``session`` holds this."""
        held = self.holders.get(session)
        if held is None:
            held = self.holders[session] = Holding()
        held.put(least)
        self._least.lower(least)

    def put_unknown(self, session: Session) -> Holding:
        """``session`` may hold anything."""
        held = self.holders[session] = Holding()
        held.forget()
        self._least = Least(0, 0)
        return held

    def put_message(self, session: Session, message: Message) -> None:
        """``session``, which is away, holds ``message``, which no connected member took."""
        least = Least()
        if message.offset >= 0:
            least.in_log = message.size_bytes()
        else:
            self.stays(message, True, least)
        self.put(session, least)

    def stays(self, message: Message, rests: bool, least: Least) -> None:
        """Nobody took ``message``, which is in memory: room is what it waits for, if a connected
        member may receive it, or if it ``rests`` in the log, where nobody sees for whom it is."""
        size_bytes = message.size_bytes()
        in_log = rests and message.offset >= 0
        if in_log:
            least.in_log = min(least.in_log, size_bytes)
        for member in self._connected:
            if member.session.may_receive(message):
                least.in_memory = min(least.in_memory, size_bytes)
                return
        if not in_log:
            self._for_permission = True

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
        least = self._least
        if room >= least.in_log or room_in_memory(member) >= least.in_memory:
            return True
        return room >= 0 and self._for_memory and member.session.keeps_qos0(True)

    def goes_on(self) -> bool:
        """Whether any connected member may."""
        for member in self._connected:  # noqa: SIM110 - compiled, a generator is dearer
            if self.may_go_on(member):
                return True
        return False

    def begin(self) -> None:
        """A round begins: what waits is handed on as far as there is room."""
        self.fits = NOTHING
        self.ask_for_room()
        if self._for_memory and self._connected and self._connected[0].session.keeps_qos0(True):
            self._for_memory = False
            self._forget()

    def is_worth(self, held: Holding) -> bool:
        """Whether there is room for something of this."""
        least = held.least
        return least.in_log <= self.fits or least.in_memory <= self.fits_in_memory

    def has_room(self) -> bool:
        """Whether there is any for a message."""
        return max(self.fits, self.fits_in_memory) >= SMALLEST_MESSAGE_BYTES

    def ask_for_room(self) -> None:
        """How much the connected members take may be less than before."""
        fits = fits_in_memory = -1
        for member in self._connected:
            fits = max(fits, room_of(member))
            fits_in_memory = max(fits_in_memory, room_in_memory(member))
        self.fits = min(self.fits, fits)
        self.fits_in_memory = fits_in_memory

    def refused(self, size_bytes: int) -> None:
        """Nobody took over so much from the log."""
        self.ask_for_room()
        self.fits = min(self.fits, size_bytes - 1)

    def end(self) -> None:
        """The round is over."""
        self._least = Least()
        for held in self.holders.values():
            self._least.lower(held.least)

    def _forget(self) -> None:
        for held in self.holders.values():
            held.forget()
        if self.holders:
            self._least = Least(0, 0)


def room_of(member: Member) -> int:
    """The largest that ``member`` may take over from the log; -1 for nothing."""
    session = member.session
    link = session.link
    if link is None or not link.has_room() or member.is_barred():
        return -1
    if member.entry.subscription.qos == 0 and not session.keeps_qos0(True):
        return -1
    return session.room_for_log()


def room_in_memory(member: Member) -> int:
    """The largest that ``member`` may take over with its body; -1 for nothing."""
    session = member.session
    link = session.link
    if link is None or not link.has_room():
        return -1
    if member.entry.subscription.qos == 0 and not session.keeps_qos0(False):
        return -1
    return NO_BOUND if session.has_place(NO_BOUND, 0) else session.room_for_log()
