"""Members of one group that are away: which of them has room for a message.

::

      open ── had no room for a message of so many bytes ─▶ full, by that size
       ▲                                                      │
       ╰── gave up a place (``FullMark``), or is asked for ───╯
           less than that, and has room for it

While its client is away a queue only grows, but for what it drops and what others take over:
so who had no room for a message has none for the next of that size, and is not asked. A
message costs the same however many members are away and full.
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
class AwayMembers:
    """Those members of one group that are away."""

    def __init__(self) -> None:
        self.looked_at = 0  # members asked for room
        self._members: list[Member] = []  # this and the next in their order
        self._open: list[Member] = []
        self._full: dict[int, Member] = {}  # by order
        self._by_size: list[tuple[int, int]] = []  # heap of (-full_from, order) of the full
        self._gave_up: list[int] = []  # orders of full ones that have a place again
        self._rejecting = 0

    def add(self, member: Member) -> None:
        """``member`` is away."""
        member.full_from = _NOT_FULL
        member.rejects = member.session.rejects
        self._rejecting += member.rejects
        put_in(self._members, member)
        put_in(self._open, member)

    def remove(self, member: Member) -> bool:
        """``member`` is away no more; whether it was."""
        if not take_out(self._members, member):
            return False
        if self._full.pop(member.order, None) is None:
            take_out(self._open, member)
        self._rejecting -= member.rejects
        return True

    def are_full(self) -> bool:
        """Whether each of them refuses whatever comes."""
        if self._open or self._gave_up or self._rejecting < len(self._members):
            return False
        return not self._by_size or self._by_size[0][0] == 0

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
        members = self._open
        count = len(members)
        first = place(members, start)
        found: Member | None = None
        full: list[Member] = []
        for step in range(count):
            position = first + step
            if position >= count:
                position -= count
            member = members[position]
            session = member.session
            if session is apart_from or not session.may_receive(message):
                continue
            self.looked_at += 1
            before = 0 if taken is None else taken.get(session, 0)
            if session.takes(size_bytes, message is None, before):
                found = member
                break
            if before == 0:
                full.append(member)
        for member in full:
            take_out(members, member)
            self._note_full(member, size_bytes)
        return found or self._with_little_room(message, size_bytes, apart_from, taken)

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
        members = self._members
        count = len(members)
        first = place(members, start)
        refusing: Member | None = None
        never: Member | None = None
        for step in range(count):
            member = members[(first + step) % count]
            session = member.session
            if session is apart_from or not session.may_receive(message):
                continue
            if not member.rejects:
                return member
            if refusing is None:
                self.looked_at += 1
                before = 0 if taken is None else taken.get(session, 0)
                if session.refuses(size_bytes, before):
                    refusing = member
                else:
                    never = never or member
            elif self._rejecting == count:
                break
        return refusing or never

    def _with_little_room(
        self,
        message: Message | None,
        size_bytes: int,
        apart_from: Session | None,
        taken: dict[Session, int] | None,
    ) -> Member | None:
        """One that had no room for a greater message, and has for this."""
        heap = self._by_size
        passed: list[tuple[int, int]] = []
        found: Member | None = None
        while heap and -heap[0][0] > size_bytes:
            size, order = heap[0]
            member = self._full.get(order)
            if member is None or member.full_from != -size:
                heappop(heap)  # out of date
                continue
            session = member.session
            before = 0 if taken is None else taken.get(session, 0)
            if session is not apart_from and session.may_receive(message):
                self.looked_at += 1
                if session.takes(size_bytes, message is None, before):
                    found = member
                    break
                if before == 0:
                    heappop(heap)
                    self._note_full(member, size_bytes)
                    continue
            passed.append(heappop(heap))
        for entry in passed:
            heappush(heap, entry)
        return found

    def _note_full(self, member: Member, size_bytes: int) -> None:
        session = member.session
        if member.order not in self._full:
            self._full[member.order] = member
            session.tell_of_room(FullMark(self._gave_up, member.order))
        # by the number of messages it is full for any
        member.full_from = size_bytes if session.takes(0, True, 0) else 0
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
                put_in(self._open, member)


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
