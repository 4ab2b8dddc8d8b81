"""One group of a shared subscription: its members, and which of them gets a message.

A group is the members of one ``$share/{group}/{filter}``. Who is chosen::

      connected, reads, with room ── by the group's strategy ───────▶ that one
      none of them ── away, its session kept, its queue with room ──▶ the first of these
      none of those ── connected, does not read, its queue with room ▶ the first of these
      none of those either ─────────────────────────────────────────▶ whose queue's overflow
                                                                      policy decides: one that
                                                                      makes room or drops, else
                                                                      one that refuses, else one
                                                                      it never has room in
"""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from penstock.engine.away_members import AwayMembers, Member, place, put_in, take_out
from penstock.engine.effects import Effects
from penstock.engine.limits import OUT_OF_DATE_MAX
from penstock.engine.message import Message
from penstock.engine.options import HASH_CLIENT, HASH_TOPIC, LEAST_INFLIGHT, RANDOM, STICKY
from penstock.engine.parked import Parked
from penstock.engine.room_line import RoomLine
from penstock.engine.session import Session, SessionSubscription

_32_BITS: Final = 0xFFFFFFFF


@final
class Dice:
    """A small repeatable generator (xorshift, 32 bits)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _32_BITS or 1

    def below(self, end: int) -> int:
        """A number in [0, end): the same until ``throw``."""
        return self._state % end

    def throw(self) -> None:
        """Throw it once."""
        state = self._state
        state ^= state << 13 & _32_BITS
        state ^= state >> 17
        state ^= state << 5 & _32_BITS
        self._state = state


@final
class ShareGroup:
    """The members of one shared subscription.

    Those that are connected stand in a list of their own, and so do those away that may have
    room: a message costs the same however many members are away. ``Sharing`` says who came and
    who left.

    Args:
        topic_filter: ``$share/{group}/{filter}``.
        strategy: one of ``STRATEGIES``.
        dice: for the random strategy.
    """

    def __init__(self, topic_filter: str, strategy: int, dice: Dice) -> None:
        self.topic_filter = topic_filter
        self.members: dict[Session, Member] = {}
        self.stored_qos = -1  # the greatest QoS granted to a member whose session is stored
        self._stored_by_qos = [0, 0, 0]  # members whose session is stored
        self._strategy = strategy
        self._dice = dice
        self._joined = 0  # so far
        self._all: list[Member] = []  # this and the next in their order
        self._connected: list[Member] = []
        self.away = AwayMembers()
        self.parked = Parked(self._connected)  # what members may get of others
        self._next = 0  # order
        self._favourite: Member | None = None
        self._room_line: RoomLine | None = None  # publishers that wait for room here

    # -- members -----------------------------------------------------------------------

    def put(self, session: Session, entry: SessionSubscription) -> None:
        """Add a member, or change its options."""
        self._another_question()
        member = self.members.get(session)
        if member is not None:
            self._count_stored(member, -1)
            member.entry = entry
            self._count_stored(member, 1)
            return
        if self._joined > 2 * len(self._all) + OUT_OF_DATE_MAX:
            self._renumber()
        member = Member(session, entry, self._joined)
        self._joined += 1
        self.members[session] = member
        self._all.append(member)
        if session.link is None:
            self.away.add(member)
        else:
            self._connected.append(member)
        self._count_stored(member, 1)

    def remove(self, session: Session) -> None:
        """``session`` is no member any more."""
        member = self.members.pop(session, None)
        if member is None:
            return
        self._another_question()
        take_out(self._all, member)
        take_out(self._connected, member)
        self.away.remove(member)
        if self._favourite is member:
            self._favourite = None
        self._count_stored(member, -1)

    def came(self, session: Session) -> None:
        """A member is connected."""
        member = self.members.get(session)
        if member is not None and self.away.remove(member):
            put_in(self._connected, member)

    def left(self, session: Session) -> None:
        """A member is connected no more."""
        member = self.members.get(session)
        if member is not None and take_out(self._connected, member):
            self.away.add(member)

    def bar(self, session: Session) -> None:
        """What was in the log was not for ``session``: it is not asked to take more from there."""
        member = self.members.get(session)
        if member is not None:
            member.barred_by = session.permissions

    def can_go_on(self) -> bool:
        """Whether a connected member has room."""
        for member in self._connected:  # noqa: SIM110 - compiled, a generator is dearer
            if member.session.is_ready():
                return True
        return False

    def _renumber(self) -> None:
        """Many left: their numbers are used again."""
        self._next = place(self._all, self._next)
        for order, member in enumerate(self._all):
            member.order = order
        self._joined = len(self._all)
        self.away.renumber()

    # -- publishers that wait for room here --------------------------------------------------

    @property
    def connected_count(self) -> int:
        """Members that are connected."""
        return len(self._connected)

    def is_full(self, size_bytes: int) -> bool:
        """Whether every member refuses a message of this size; of those away, any message."""
        for member in self._connected:
            if member.entry.subscription.qos == 0 or not member.session.refuses(size_bytes, 0):
                return False
        return bool(self._all) and self._stored_by_qos[0] == 0 and self.away.are_full()

    def line_for_room(self, effects: Effects) -> RoomLine:
        """Where they wait; who looks for room asks whether the members read."""
        if self._room_line is None:
            self._room_line = GroupLine(self, effects)
        for member in self._connected:
            link = member.session.link
            if link is not None and not link.has_room():
                link.resume_when_room()
        if self.may_lack_memory():
            self._room_line.tell_in_tick()
        return self._room_line

    def may_lack_memory(self) -> bool:
        """Whether it may be for want of memory that a member refuses."""
        for member in self._connected:
            if not member.session.has_memory():
                return True
        return len(self._connected) < len(self._all) and not self.away.are_full()

    def _another_question(self) -> None:
        if self._room_line is not None:
            self._room_line.tell_all()

    def may_be_received(self, message: Message) -> bool:
        """Whether a connected member may receive ``message``."""
        for member in self._connected:  # noqa: SIM110 - compiled, a generator is dearer
            if member.session.may_receive(message):
                return True
        return False

    # -- messages ----------------------------------------------------------------------

    def choose(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        connected: bool,
        taken: dict[Session, int] | None,
        qos: int = 2,
    ) -> Member | None:
        """The member that gets ``message``; None if none of them may have it.

        Whoever asks again is told the same, until one ``took`` something.

        Args:
            message: what is to be delivered; None when its body is not in memory.
            size_bytes: what it occupies.
            apart_from: a session that must not get it.
            connected: only a connected member with room will do.
            taken: places that other copies of the same message take first, by session.
            qos: of what a connected member is to take over from another.
        """
        if not self._all:
            return None
        if self._strategy == LEAST_INFLIGHT:
            chosen = self._least_loaded(message, size_bytes, apart_from, connected, taken, qos)
            if chosen is not None:
                return chosen
        members = self._connected
        count = len(members)
        start = self._start(message)
        first = place(members, start)
        slow: Member | None = None
        over: Member | None = None
        full: Member | None = None
        never: Member | None = None
        for step in range(count):
            position = first + step
            if position >= count:
                position -= count
            member = members[position]
            session = member.session
            link = session.link
            if session is apart_from or link is None or not session.may_receive(message):
                continue
            if connected and member.is_kept_from(message, qos):
                continue
            before = 0 if taken is None else taken.get(session, 0)
            if session.takes(size_bytes, message is None, before):
                if link.has_room():
                    return member
                slow = slow or member
            elif not session.rejects:
                over = over or member
            elif session.refuses(size_bytes, before):
                full = full or member
            else:
                never = never or member
        if connected:
            return None
        away = self.away.with_room(message, size_bytes, apart_from, taken, start)
        if away is not None or slow is not None or over is not None:
            return away or slow or over
        other = self.away.without_room(message, size_bytes, apart_from, taken, start)
        if other is not None and not other.rejects:
            return other
        return full or other or never

    def refuses(self, member: Member, size_bytes: int, before: int) -> bool:
        """Whether the ``member`` it chose refuses, after so many other copies."""
        return member.entry.subscription.qos > 0 and member.session.refuses(size_bytes, before)

    def took(self, member: Member) -> None:
        """``member`` is given a message: it may be another's turn."""
        link = member.session.link
        if link is not None and link.has_room():
            self._next = member.order + 1
            self._favourite = member
        self._dice.throw()

    def _start(self, message: Message | None) -> int:
        """Where to begin looking for a member that can take a message: an order.

        By hash, whoever is away has a place too: it gets its own again when it is back.
        Meanwhile that goes to all who are connected.
        """
        strategy = self._strategy
        number = -1
        if strategy == RANDOM:
            members = self._connected or self._all
            return members[self._dice.below(len(members))].order
        if message is not None:
            if strategy == HASH_CLIENT:
                number = crc32(message.client_id.encode())
            elif strategy == HASH_TOPIC:
                number = crc32(message.topic_bytes)
        if number >= 0:
            home = self._all[number % len(self._all)]
            if home.session.link is None and self._connected:
                home = self._connected[number // len(self._all) % len(self._connected)]
            return home.order
        if strategy == STICKY and self._favourite is not None:
            return self._favourite.order
        return self._next

    def _least_loaded(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        connected: bool,
        taken: dict[Session, int] | None,
        qos: int,
    ) -> Member | None:
        best: Member | None = None
        lowest = 0
        for member in self._connected:
            session = member.session
            link = session.link
            if session is apart_from or link is None or not link.has_room():
                continue
            before = 0 if taken is None else taken.get(session, 0)
            if not session.takes(size_bytes, message is None, before):
                continue
            if not session.may_receive(message):
                continue
            if connected and member.is_kept_from(message, qos):
                continue
            load = session.window_length + session.queue_length
            if best is None or load < lowest:
                best = member
                lowest = load
        return best

    def _count_stored(self, member: Member, step: int) -> None:
        """One more member (``step`` 1) or one less (-1)."""
        if not member.session.stored:
            return
        self._stored_by_qos[member.entry.subscription.qos] += step
        self.stored_qos = -1
        for qos, count in enumerate(self._stored_by_qos):
            if count > 0:
                self.stored_qos = qos


@final
class GroupLine(RoomLine):
    """Publishers that wait for room in one group.

    Args:
        group: which.
        effects: where members find it when they have room.
    """

    def __init__(self, group: ShareGroup, effects: Effects) -> None:
        super().__init__(effects.told_lines)
        self._group = group
        self._lines = effects.group_lines

    def is_full(self, size_bytes: int) -> bool:
        """Whether none of the members takes so much."""
        if not self._group.is_full(size_bytes):
            return False
        if self._group.may_lack_memory():
            self.tell_in_tick()
        return True

    def weight(self) -> int:
        """The members that are asked whether it is."""
        return 1 + self._group.connected_count

    def changed(self) -> None:
        """Somebody came or left."""
        if self.length > 0:
            self._lines[self._group.topic_filter] = self
        else:
            self._lines.pop(self._group.topic_filter, None)
