"""One group of a shared subscription: its members, and which of them gets a message.

A group is the members of one ``$share/{group}/{filter}``. Who is chosen::

      connected, reads, with room ── by the group's strategy ───────▶ that one
      none of them ── away, its session kept, its queue with room ──▶ the first of these
      none of those ── connected, does not read, its queue with room ▶ the first of these
      none of those either ─────────────────────────────────────────▶ whose queue's overflow
                                                                      policy decides, if it can
                                                                      be one that does not refuse
"""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from penstock.engine.message import Message
from penstock.engine.options import HASH_CLIENT, HASH_TOPIC, LEAST_INFLIGHT, RANDOM, STICKY
from penstock.engine.session import Session, SessionSubscription

_32_BITS: Final = 0xFFFFFFFF


@final
class Member:
    """One session in a group, with its own subscription's options."""

    def __init__(self, session: Session, entry: SessionSubscription) -> None:
        self.session = session
        self.entry = entry


@final
class Dice:
    """A small repeatable generator (xorshift, 32 bits)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _32_BITS or 1

    def below(self, end: int) -> int:
        """A number in [0, end)."""
        state = self._state
        state ^= state << 13 & _32_BITS
        state ^= state >> 17
        state ^= state << 5 & _32_BITS
        self._state = state
        return state % end


@final
class ShareGroup:
    """The members of one shared subscription.

    Args:
        topic_filter: ``$share/{group}/{filter}``.
        strategy: one of ``STRATEGIES``.
        dice: for the random strategy.
    """

    def __init__(self, topic_filter: str, strategy: int, dice: Dice) -> None:
        self.topic_filter = topic_filter
        self.members: list[Member] = []
        self.stored_qos = -1  # the greatest QoS granted to a member whose session is stored
        self.parked: dict[Session, None] = {}  # sessions away that hold what members may get
        self._strategy = strategy
        self._dice = dice
        self._next = 0
        self._favourite: Session | None = None

    def put(self, session: Session, entry: SessionSubscription) -> None:
        """Add a member, or change its options."""
        for member in self.members:
            if member.session is session:
                member.entry = entry
                break
        else:
            self.members.append(Member(session, entry))
        self._note_stored()

    def remove(self, session: Session) -> None:
        """``session`` is no member any more."""
        for position, member in enumerate(self.members):
            if member.session is session:
                del self.members[position]
                if position < self._next:
                    self._next -= 1
                break
        if self._favourite is session:
            self._favourite = None
        self._note_stored()

    def can_go_on(self) -> bool:
        """Whether a connected member has room."""
        return any(member.session.is_ready() for member in self.members)

    def choose(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        connected: bool,
        taken: dict[Session, int] | None,
    ) -> Member | None:
        """The member that gets ``message``; None if none of them may have it.

        Args:
            message: what is to be delivered; None when its body is not in memory.
            size_bytes: what it occupies.
            apart_from: a session that must not get it.
            connected: only a connected member with room will do.
            taken: places that other copies of the same message take first, by session.
        """
        members = self.members
        count = len(members)
        if count == 0:
            return None
        if self._strategy == LEAST_INFLIGHT:
            chosen = self._least_loaded(message, size_bytes, apart_from, taken)
            if chosen is not None:
                return chosen
        start = self._start(message, count)
        away: Member | None = None
        slow: Member | None = None
        over: Member | None = None
        over_away: Member | None = None
        full: Member | None = None
        for step in range(count):
            position = start + step
            if position >= count:
                position -= count
            member = members[position]
            session = member.session
            if session is apart_from or not session.may_receive(message):
                continue
            link = session.link
            before = 0 if taken is None else taken.get(session, 0)
            if session.takes(size_bytes, message is None, before):
                if link is None:
                    away = away or member
                elif link.has_room():
                    self._chose(session, position)
                    return member
                else:
                    slow = slow or member
            elif session.refuses(size_bytes, before):
                full = full or member
            elif link is not None:
                over = over or member
            else:
                over_away = over_away or member
        return None if connected else away or slow or over or over_away or full

    def _start(self, message: Message | None, count: int) -> int:
        """Where to begin looking for a member that can take a message."""
        strategy = self._strategy
        if strategy == RANDOM:
            return self._dice.below(count)
        if strategy == HASH_CLIENT and message is not None:
            return crc32(message.client_id.encode()) % count
        if strategy == HASH_TOPIC and message is not None:
            return crc32(message.topic_bytes) % count
        if strategy == STICKY and self._favourite is not None:
            for position, member in enumerate(self.members):
                if member.session is self._favourite:
                    return position
        return self._next if self._next < count else 0

    def _chose(self, session: Session, position: int) -> None:
        self._next = position + 1
        if self._strategy == STICKY:
            self._favourite = session

    def _least_loaded(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        taken: dict[Session, int] | None,
    ) -> Member | None:
        best: Member | None = None
        lowest = 0
        for member in self.members:
            session = member.session
            link = session.link
            if session is apart_from or link is None or not link.has_room():
                continue
            before = 0 if taken is None else taken.get(session, 0)
            if not session.takes(size_bytes, message is None, before):
                continue
            if not session.may_receive(message):
                continue
            load = session.window_length + session.queue_length
            if best is None or load < lowest:
                best = member
                lowest = load
        return best

    def _note_stored(self) -> None:
        self.stored_qos = -1
        for member in self.members:
            if member.session.stored:
                self.stored_qos = max(self.stored_qos, member.entry.subscription.qos)
