"""Members of one group that are away: which of them has room for a message.

::

      open ── had no room for a message of so many bytes ─▶ full, by that size
       ▲                                                      │
       ╰── gave up a place (``FullMark``), or is asked for ───╯
           less than that, and has room for it

While its client is away a queue only grows, but for what it drops and what others take over:
so who had no room for a message has none for the next of that size, and is not asked. Nor is
who may not receive a topic for the next message with that. A message costs the same however
many members are away and full.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from penstock.engine.access import Permissions
from penstock.engine.full_mark import FullMark
from penstock.engine.limits import OUT_OF_DATE_MAX
from penstock.engine.message import Message
from penstock.engine.session import Session, SessionSubscription

_NOT_FULL: Final = 2**62
_TOPICS_MAX: Final = 256  # of those that a member may not receive, what is known is kept


@final
class Member:
    """One session in a group, with its own subscription's options.

    Args:
        session: whose.
        entry: its subscription.
        order: ascends with joining, in one group.
    """

    def __init__(self, session: Session, entry: SessionSubscription, order: int) -> None:
        self.session = session
        self.entry = entry
        self.order = order
        self.full_from = _NOT_FULL  # size of the smallest message it had no room for
        self.rejects = False  # its queue does, while it is away
        self.barred_by: Permissions | None = None  # kept it from what came from the log

    def is_barred(self) -> bool:
        """Whether it was handed what it may not receive, and its permissions are the same."""
        return self.barred_by is not None and self.barred_by is self.session.permissions

    def is_kept_from(self, message: Message | None, qos: int) -> bool:
        """Whether it must not take over what waits elsewhere: it may be barred from the log, or
        there is no memory for it here."""
        if message is None and self.is_barred():
            return True
        if qos > 0 and self.entry.subscription.qos > 0:
            return False
        return not self.session.keeps_qos0(message is None)


@final
class _Known:
    """What is known of messages with one topic. Bytes are by a member's order.

    Args:
        asks: 1 = not full, as far as is known.
        overs: 1 = its queue does not reject.
    """

    def __init__(self, asks: bytearray, overs: bytearray) -> None:
        self.asks = asks  # without those that may not receive it, as far as is known
        self.overs = overs  # likewise
        self.unseen: list[Member] | None = None  # not asked for ``largest``; None = all
        self.largest: Member | None = None  # of those that reject, the one larger ones fit in
        self.little: Member | None = None  # a full one that had room for little
        self.little_from = _NOT_FULL  # no full one has room for so much


@final
class AwayMembers:
    """Those members of one group that are away."""

    def __init__(self) -> None:
        self.looked_at = 0  # members asked for room, or whether they may receive
        self._members: list[Member] = []  # in their order
        self._by_order: dict[int, Member] = {}
        self._full: dict[int, Member] = {}  # by order
        self._by_size: list[tuple[int, int]] = []  # heap of (-full_from, order) of the full
        self._gave_up: list[int] = []  # orders of full ones that have a place again
        self._rejecting = 0
        self._all = _Known(bytearray(), bytearray())  # whoever may receive it
        self._topics: dict[str, _Known] = {}  # those that somebody may not receive

    def add(self, member: Member) -> None:
        """``member`` is away."""
        member.full_from = _NOT_FULL
        member.rejects = member.session.rejects
        self._rejecting += member.rejects
        put_in(self._members, member)
        self._by_order[member.order] = member
        for known in self._every():
            missing = member.order + 1 - len(known.asks)
            if missing > 0:
                known.asks.extend(bytes(missing))
                known.overs.extend(bytes(missing))
            known.asks[member.order] = 1
            known.overs[member.order] = not member.rejects
            if known.unseen is not None:
                known.unseen.append(member)

    def remove(self, member: Member) -> bool:
        """``member`` is away no more; whether it was."""
        if not take_out(self._members, member):
            return False
        del self._by_order[member.order]
        self._full.pop(member.order, None)
        self._rejecting -= member.rejects
        for known in self._every():
            known.asks[member.order] = 0
            known.overs[member.order] = 0
            if known.largest is member:
                known.largest = None
                known.unseen = None
            elif known.unseen:
                known.unseen = [other for other in known.unseen if other is not member]
        return True

    def are_full(self) -> bool:
        """Whether each of them refuses whatever comes."""
        if self._gave_up or self._rejecting < len(self._members):
            return False
        if len(self._full) < len(self._members):
            return False
        return not self._by_size or self._by_size[0][0] == 0

    def permissions_changed(self) -> None:
        """Who may receive what is not known any more."""
        self._topics.clear()

    def renumber(self) -> None:
        """Their orders are others, and ascend as before."""
        members = self._members
        self._members = []
        self._by_order = {}
        self._full = {}
        self._by_size = []
        self._gave_up = []  # earlier marks have the list before
        self._rejecting = 0
        self._all = _Known(bytearray(), bytearray())
        self._topics.clear()
        for member in members:
            self.add(member)

    # -- who has room --------------------------------------------------------------------

    def with_room(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        taken: dict[Session, int] | None,
        start: int,
    ) -> Member | None:
        """The first from ``start`` on with room for ``message``; see ``ShareGroup.choose``."""
        if self._gave_up:
            self._open_again()
        known = self._known(message)
        order = first_from(known.asks, start, -1)
        asked = 0
        end = len(known.asks)
        while order >= 0 and asked < end:
            asked += 1
            member = self._by_order[order]
            session = member.session
            if session is not apart_from:
                self.looked_at += 1
                before = 0 if taken is None else taken.get(session, 0)
                if not session.may_receive(message):
                    known = self._barred(known, message, member)
                elif session.takes(size_bytes, message is None, before):
                    return member
                elif before == 0:
                    self._note_full(member, size_bytes)
            order = first_from(known.asks, start, order)
        return self._with_little_room(known, message, size_bytes, apart_from, taken)

    def without_room(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        taken: dict[Session, int] | None,
        start: int,
    ) -> Member | None:
        """None has room: the first whose queue does not reject, else one whose queue refuses
        this message, else one where it never has room."""
        known = self._known(message)
        order = first_from(known.overs, start, -1)
        while order >= 0:
            member = self._by_order[order]
            if member.session is not apart_from:
                if member.session.may_receive(message):
                    return member
                self.looked_at += 1
                known = self._barred(known, message, member)
            order = first_from(known.overs, start, order)
        largest = self._largest(known, message)
        if largest is not None and (
            largest.session is apart_from or (taken is not None and largest.session in taken)
        ):
            return self._refusing(message, size_bytes, apart_from, taken)
        return largest

    def _largest(self, known: _Known, message: Message | None) -> Member | None:
        """Of those that reject, the one that larger messages fit in than in any other."""
        unseen = known.unseen
        if unseen is None:
            unseen = self._members
            known.largest = None
        known.unseen = []
        everybody = known is self._all
        for member in unseen:
            if member.rejects:
                self.looked_at += 1
                if everybody or member.session.may_receive(message):
                    largest = known.largest
                    if largest is None or _capacity(member) > _capacity(largest):
                        known.largest = member
        largest = known.largest
        if everybody and largest is not None and not largest.session.may_receive(message):
            return self._largest(self._barred(known, message, largest), message)
        return largest

    def _refusing(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        taken: dict[Session, int] | None,
    ) -> Member | None:
        """One that refuses, else one that it never fits in: all are asked."""
        never: Member | None = None
        for member in self._members:
            session = member.session
            if session is not apart_from and session.may_receive(message):
                self.looked_at += 1
                before = 0 if taken is None else taken.get(session, 0)
                if session.refuses(size_bytes, before):
                    return member
                never = never or member
        return never

    def _with_little_room(
        self,
        known: _Known,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        taken: dict[Session, int] | None,
    ) -> Member | None:
        """One that had no room for a greater message, and has for this."""
        if size_bytes >= known.little_from:
            return None
        heap = self._by_size
        passed: list[tuple[int, int]] = []
        found = self._again_with_little_room(known, message, size_bytes, apart_from, taken)
        skipped = found is not None
        while found is None and heap and -heap[0][0] > size_bytes:
            size, order = heap[0]
            member = self._full.get(order)
            if member is None or member.full_from != -size:
                heappop(heap)  # out of date
                continue
            session = member.session
            before = 0 if taken is None else taken.get(session, 0)
            self.looked_at += 1
            if session is apart_from:
                skipped = True
            elif not session.may_receive(message):
                known = self._barred(known, message, member)
            elif session.takes(size_bytes, message is None, before):
                found = known.little = member
                break
            elif before > 0:
                skipped = True
            else:
                heappop(heap)
                self._note_full(member, size_bytes)
                continue
            passed.append(heappop(heap))
        for entry in passed:
            heappush(heap, entry)
        if found is None and not skipped:
            known.little_from = size_bytes
        return found

    def _again_with_little_room(
        self,
        known: _Known,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        taken: dict[Session, int] | None,
    ) -> Member | None:
        """The one that had some before, if it has."""
        member = known.little
        if member is None or self._full.get(member.order) is not member:
            return None
        session = member.session
        if session is apart_from or not session.may_receive(message):
            return None
        self.looked_at += 1
        before = 0 if taken is None else taken.get(session, 0)
        if member.full_from > size_bytes and session.takes(size_bytes, message is None, before):
            return member
        return None

    def _note_full(self, member: Member, size_bytes: int) -> None:
        session = member.session
        is_new = member.order not in self._full
        if is_new:
            self._full[member.order] = member
            session.tell_of_room(FullMark(self._gave_up, member.order))
        # by the number of messages it is full for any
        member.full_from = size_bytes if session.takes(0, True, 0) else 0
        if is_new:
            for known in self._every():
                known.asks[member.order] = 0
                if member.full_from > 0:
                    known.little_from = _NOT_FULL
        heap = self._by_size
        heappush(heap, (-member.full_from, member.order))
        if len(heap) > 2 * len(self._full) + OUT_OF_DATE_MAX:
            heap[:] = [(-full.full_from, full.order) for full in self._full.values()]
            heapify(heap)

    def _open_again(self) -> None:
        orders = self._gave_up[:]
        self._gave_up.clear()  # the marks hold this list
        for order in orders:
            member = self._full.pop(order, None)
            if member is not None:
                member.full_from = _NOT_FULL
                for known in self._every():
                    known.asks[order] = 1

    # -- what is known -------------------------------------------------------------------

    def _every(self) -> list[_Known]:
        return [self._all, *self._topics.values()]

    def _known(self, message: Message | None) -> _Known:
        known = None if message is None else self._topics.get(message.topic)
        return known or self._all

    def _barred(self, known: _Known, message: Message | None, member: Member) -> _Known:
        """``member`` may not receive ``message``, nor others with its topic."""
        if known is self._all and message is not None:
            topics = self._topics
            if len(topics) >= _TOPICS_MAX:
                for oldest in topics:
                    del topics[oldest]
                    break
            known = _Known(known.asks[:], known.overs[:])
            topics[message.topic] = known
        known.asks[member.order] = 0
        known.overs[member.order] = 0
        return known


def first_from(flags: bytearray, start: int, after: int) -> int:
    """The first order from ``start`` on, and then from 0, that is set, and after another of
    these (-1 = none); -1 if there is none."""
    if after < 0 or after >= start:
        found = flags.find(1, max(start, after + 1))
        if found >= 0:
            return found
        after = -1
    return flags.find(1, after + 1, start)


def _capacity(member: Member) -> int:
    """The largest message that ever fits in its queue."""
    return member.session.queue_bytes_max or _NOT_FULL


# -- lists of members in their order -----------------------------------------------------


def place(members: list[Member], order: int) -> int:
    """The position of the first member that is not before ``order``."""
    low = 0
    high = len(members)
    while low < high:
        middle = (low + high) // 2
        if members[middle].order < order:
            low = middle + 1
        else:
            high = middle
    return low


def put_in(members: list[Member], member: Member) -> None:
    """Insert ``member``, who is not in there."""
    members.insert(place(members, member.order), member)


def take_out(members: list[Member], member: Member) -> bool:
    """Remove ``member``; whether it was in there."""
    position = place(members, member.order)
    if position == len(members) or members[position] is not member:
        return False
    del members[position]
    return True
