"""The members of a shared subscription: their connections, turns and permissions.

::

      all, in the order they joined:    a   b   c   d   e     by hash, a key's home is one of these
      connected, in the same order:     a       c       e     the strategy says where asking begins

By hash a key has a home among all members, and only that one is asked; while the home is away, one
of those that are connected stands in.
"""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from penstock.engine.limits import OUT_OF_DATE_MAX
from penstock.engine.message import Label
from penstock.engine.options import HASH_CLIENT, HASH_TOPIC, RANDOM, STICKY
from penstock.engine.routing.group_queue import FRONT, HASH_SLOTS, GroupMember
from penstock.engine.session.outbound import ANY_QOS, NO_ROOM
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.topic_cache import TopicCache

_TOPICS_MAX: Final = 1000
_32_BITS: Final = 0xFFFFFFFF


@final
class Xorshift32:
    """A small repeatable generator (xorshift, 32 bits)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _32_BITS or 1

    def below(self, end: int) -> int:
        """Return a number in [0, end): the same until ``advance``."""
        return self._state % end

    def advance(self) -> None:
        """Advance to the next number."""
        state = self._state
        state ^= state << 13 & _32_BITS
        state ^= state >> 17
        state ^= state << 5 & _32_BITS
        self._state = state


@final
class Member(GroupMember):
    """A member: its session, and its options.

    Args:
        session: the member's session.
        entry: its subscription.
        order: members are numbered in the order they joined.
        members: all members of its group.
    """

    def __init__(
        self, session: Session, entry: SessionSubscription, order: int, members: GroupMembers
    ) -> None:
        self.session = session
        self.entry = entry
        self.order = order
        self.limits = session.limits  # as they are counted in the bounds of the group's queue
        self.stored_qos = -1  # as it is counted in ``GroupMembers``; -1 = its session is not stored
        self.room = NO_ROOM  # what it has room for, while the queue is searched for it
        self._members = members

    def qos_of(self, qos: int) -> int:
        """Return the QoS at which it gets a message of QoS ``qos`` [MQTT-4.8.2-3]."""
        return min(qos, self.entry.subscription.qos)

    def may_take(self, label: Label, qos: int, size_bytes: int) -> bool:
        """Return whether this member may receive a queued message, and has room for it."""
        qos = self.qos_of(qos)
        if self.room != ANY_QOS and qos > 0:
            return False
        if not self.session.outbound.has_memory_to_send(size_bytes, qos, False):
            return False
        if self._members.by_hash:
            return self._members.home_of(label) is self
        return self.session.transmission.may_receive_topic(label.topic)

    def is_for_nobody(self, label: Label) -> bool:
        """Return whether no member may receive the message."""
        return not self._members.may_be_received(label.topic)

    def may_scan_lane(self, slot: int) -> bool:
        """Return whether to search this slot's lanes beyond their heads for this member."""
        return slot in (0, FRONT) or slot == self._members.slot_of(self)


@final
class GroupMembers:
    """The members of one shared subscription.

    Those that are connected stand in a list of their own: a message costs the same however many
    members are away.

    Args:
        strategy: one of ``STRATEGIES``.
        random: the generator of the random strategy.
    """

    def __init__(self, strategy: int, random: Xorshift32) -> None:
        self.strategy = strategy
        self.by_hash = strategy in (HASH_CLIENT, HASH_TOPIC)
        self.by_session: dict[Session, Member] = {}
        self.connected: list[Member] = []  # this and the next in the order they joined
        self.stored_qos = -1  # the greatest QoS granted to a member whose session is stored
        self._all: list[Member] = []
        self._random = random
        self._stored_by_qos = [0, 0, 0]  # members whose session is stored
        self._joined = 0  # so far
        self._next = 0  # the order of whose turn it is
        self._last: Member | None = None  # that took a message
        self._receivable = TopicCache(_TOPICS_MAX)  # 1: some member may receive it

    # -- who they are --------------------------------------------------------------------

    def join(self, session: Session, entry: SessionSubscription) -> Member:
        """Add a member, connected or not, and return it."""
        if self._joined > 2 * len(self._all) + OUT_OF_DATE_MAX:
            self._renumber()
        member = Member(session, entry, self._joined, self)
        self._joined += 1
        self.by_session[session] = member
        self._all.append(member)
        if session.link is not None:
            self.connected.append(member)
        return member

    def leave(self, session: Session) -> Member | None:
        """Remove ``session`` from the members; return its member, or None if it had none."""
        member = self.by_session.pop(session, None)
        if member is not None:
            _remove(self._all, member)
            self.disconnect(member)
            if self._last is member:
                self._last = None
            self.count_stored(member, -1)
        return member

    def connect(self, member: Member) -> None:
        """Count ``member`` among the connected ones."""
        if not _contains(self.connected, member):
            self.connected.insert(_position(self.connected, member.order), member)

    def disconnect(self, member: Member) -> bool:
        """Count ``member`` among the connected ones no more; return whether it was one of them."""
        return _remove(self.connected, member)

    def count_stored(self, member: Member, qos: int) -> None:
        """Count the QoS granted to ``member`` if its session is stored; -1 = it is not."""
        by_qos = self._stored_by_qos
        if member.stored_qos >= 0:
            by_qos[member.stored_qos] -= 1
        member.stored_qos = qos
        if qos >= 0:
            by_qos[qos] += 1
        self.stored_qos = -1
        for granted, count in enumerate(by_qos):
            if count > 0:
                self.stored_qos = granted

    def _renumber(self) -> None:
        """Number the members anew, because many left."""
        self._next = _position(self._all, self._next)
        for order, member in enumerate(self._all):
            member.order = order
        self._joined = len(self._all)

    # -- whose turn it is ----------------------------------------------------------------

    def first_asked(self) -> int:
        """Return the position, among the connected members, of the one that is asked first.

        It may be ``len(self.connected)``: then asking begins at 0.
        """
        order = self._next
        if self.strategy == RANDOM and self.connected:
            order = self.connected[self._random.below(len(self.connected))].order
        elif self.strategy == STICKY and self._last is not None:
            order = self._last.order
        return _position(self.connected, order)

    def took(self, member: Member) -> None:
        """Note that ``member`` got a message, so that the strategy may ask another one first."""
        self._next = member.order + 1
        self._last = member
        self._random.advance()

    # -- by hash -------------------------------------------------------------------------

    def slot_for(self, label: Label) -> int:
        """Return the slot of the queue where messages with this key wait."""
        return 1 + self._hash(label) % len(self._all) % HASH_SLOTS if self.by_hash else 0

    def slot_of(self, member: Member) -> int:
        """Return the hash slot that is assigned to ``member``; 0 without hashing."""
        return 1 + _position(self._all, member.order) % HASH_SLOTS if self.by_hash else 0

    def home_of(self, label: Label) -> Member | None:
        """Return the member that gets messages with this key; None if no connected one may.

        It is the key's home if that is connected. While the home is not connected, the hash chooses
        a connected member instead. One that may not receive the topic is skipped for the next.
        """
        connected = self.connected
        count = len(connected)
        if count == 0:
            return None
        number = self._hash(label)
        home = self._all[number % len(self._all)]
        if _contains(connected, home):
            first = _position(connected, home.order)
        else:
            first = number // len(self._all) % count
        for step in range(count):
            member = connected[(first + step) % count]
            if member.session.transmission.may_receive_topic(label.topic):
                return member
        return None

    def _hash(self, label: Label) -> int:
        if self.strategy == HASH_CLIENT:
            return crc32(label.client_id.encode())
        return crc32(label.topic_bytes)

    # -- who may receive what --------------------------------------------------------------

    def forget_permissions(self) -> None:
        """Clear the cached permissions: members or permissions changed."""
        self._receivable.clear()

    def may_be_received(self, topic: str) -> bool:
        """Return whether any member may receive ``topic``, connected or not."""
        if self.may_be_received_now(topic):
            return True
        known = self._receivable.known.get(topic)
        if known is None:
            known = 0
            for member in self._all:
                if member.session.transmission.may_receive_topic(topic):
                    known = 1
                    break
            self._receivable.put(topic, known)
        return known == 1

    def may_be_received_now(self, topic: str) -> bool:
        """Return whether any connected member may receive ``topic``."""
        for member in self.connected:
            if member.session.transmission.may_receive_topic(topic):
                return True
        return False


# -- lists of members in their order -----------------------------------------------------


def _position(members: list[Member], order: int) -> int:
    """Return the position of the first member that is not before ``order``."""
    low = 0
    high = len(members)
    while low < high:
        middle = (low + high) // 2
        if members[middle].order < order:
            low = middle + 1
        else:
            high = middle
    return low


def _contains(members: list[Member], member: Member) -> bool:
    position = _position(members, member.order)
    return position < len(members) and members[position] is member


def _remove(members: list[Member], member: Member) -> bool:
    """Remove ``member``; return whether it was in the list."""
    if not _contains(members, member):
        return False
    del members[_position(members, member.order)]
    return True
