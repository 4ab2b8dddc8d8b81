"""The members of a shared subscription: which are connected, and which is tried first.

::

      all, in the order they joined:    a   b   c   d   e     a hash strategy assigns a home
      connected, in the same order:     a       c       e     the strategy selects the first

With a hash strategy each key has a *home*, one of all members, which gets its messages; while the
home is not connected, the hash assigns one of the connected members instead.
"""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from penstock.engine.session.send_room import ANY_QOS, NO_ROOM
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values.limits import OUT_OF_DATE_MAX
from penstock.engine.values.message import RoutingKey
from penstock.engine.values.options import HASH_CLIENT, HASH_TOPIC, RANDOM, STICKY
from penstock.engine.values.topic_cache import TopicCache

FRONT: Final = 127  # the slot of returned messages, which come before all others
HASH_SLOTS: Final = 126  # slots of the hash strategies, from 1 on

_TOPICS_MAX: Final = 1000
_32_BITS: Final = 0xFFFFFFFF


@final
class Xorshift32:
    """A small pseudo-random generator (xorshift, 32 bits), repeatable by its seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _32_BITS or 1

    def below(self, end: int) -> int:
        """Return a number in [0, end), which stays the same until ``advance``."""
        return self._state % end

    def advance(self) -> None:
        """Advance to the next number."""
        state = self._state
        state ^= state << 13 & _32_BITS
        state ^= state >> 17
        state ^= state << 5 & _32_BITS
        self._state = state


@final
class Member:
    """One member of a shared subscription.

    Args:
        session: the member's session.
        entry: its subscription.
        order: its number; members are numbered in the order in which they joined.
        members: all members of its group.
    """

    def __init__(
        self, session: Session, entry: SessionSubscription, order: int, members: GroupMembers
    ) -> None:
        self.session = session
        self.entry = entry
        self.order = order
        self.limits = session.limits  # those counted in the bounds of the group's queue
        self.stored_qos = -1  # granted QoS counted in ``GroupMembers``; -1 = session not stored
        self.room = NO_ROOM  # ``Outbound.room_for_shared``, while the queue is searched for it
        self._members = members

    def qos_of(self, qos: int) -> int:
        """Return the QoS at which the member gets a message of QoS ``qos`` [MQTT-4.8.2-3]."""
        return min(qos, self.entry.subscription.qos)

    def may_take(self, routing_key: RoutingKey, qos: int, size_bytes: int) -> bool:
        """Return whether this member may receive a queued message and has room for it."""
        session = self.session
        qos = self.qos_of(qos)
        if self.room != ANY_QOS and qos > 0:
            return False
        if not session.transmission.room.has_room_for_group_message(
            session.link, size_bytes, qos, False
        ):
            return False
        if self._members.is_hashing:
            return self._members.home_of(routing_key) is self
        return session.transmission.may_receive(routing_key.topic)

    def is_for_nobody(self, routing_key: RoutingKey) -> bool:
        """Return whether no member may receive the message."""
        return not self._members.may_be_received(routing_key.topic)

    def may_scan_lane(self, slot: int) -> bool:
        """Return whether to search this slot's lanes beyond their heads for this member."""
        return slot in (0, FRONT) or slot == self._members.slot_of(self)


@final
class GroupMembers:
    """The members of one shared subscription.

    Connected members have a list of their own, so that the cost of a message does not depend on the
    number of members that are not connected.

    Args:
        strategy: one of ``STRATEGIES``.
        random: the generator of the random strategy.
    """

    def __init__(self, strategy: int, random: Xorshift32) -> None:
        self.strategy = strategy
        self.is_hashing = strategy in (HASH_CLIENT, HASH_TOPIC)
        self.by_session: dict[Session, Member] = {}
        self.connected_members: list[Member] = []  # the connected members, in the order they joined
        self.stored_qos = -1  # the greatest QoS granted to a member whose session is stored
        self._all_members: list[Member] = []  # all members, in the order they joined
        self._random = random
        self._stored_by_qos = [0, 0, 0]  # number of members with a stored session, by granted QoS
        self._joined = 0  # the number of the next member that joins
        self._next_tried = 0  # number of the member that is tried next (round robin)
        self._last_taker: Member | None = None  # the member that got the last message
        self._receivable = TopicCache(_TOPICS_MAX)  # 1 = some member may receive the topic

    # -- joining, leaving, connections -----------------------------------------------------

    def join(self, session: Session, entry: SessionSubscription) -> Member:
        """Add ``session`` as a member, connected or not; return the member."""
        if self._joined > 2 * len(self._all_members) + OUT_OF_DATE_MAX:
            self._renumber()
        member = Member(session, entry, self._joined, self)
        self._joined += 1
        self.by_session[session] = member
        self._all_members.append(member)
        if session.link is not None:
            self.connected_members.append(member)
        return member

    def leave(self, session: Session) -> Member | None:
        """Remove ``session`` from the members; return the member, None if it was not one."""
        member = self.by_session.pop(session, None)
        if member is not None:
            _remove(self._all_members, member)
            self.disconnect(member)
            if self._last_taker is member:
                self._last_taker = None
            self.count_stored(member, -1)
        return member

    def connect(self, member: Member) -> None:
        """Add ``member`` to the connected members."""
        if not _contains(self.connected_members, member):
            self.connected_members.insert(_position(self.connected_members, member.order), member)

    def disconnect(self, member: Member) -> bool:
        """Remove ``member`` from the connected members; return whether it was one of them."""
        return _remove(self.connected_members, member)

    def count_stored(self, member: Member, qos: int) -> None:
        """Set the granted QoS of ``member``, whose session is stored; -1 = it is not stored."""
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
        """Renumber the members from 0 on, because many left."""
        self._next_tried = _position(self._all_members, self._next_tried)
        for order, member in enumerate(self._all_members):
            member.order = order
        self._joined = len(self._all_members)

    # -- which member is next --------------------------------------------------------------

    def first_index(self) -> int:
        """Return the index in ``connected_members`` of the member that is tried first.

        It may be ``len(self.connected_members)``, which stands for 0.
        """
        order = self._next_tried
        if self.strategy == RANDOM and self.connected_members:
            order = self.connected_members[self._random.below(len(self.connected_members))].order
        elif self.strategy == STICKY and self._last_taker is not None:
            order = self._last_taker.order
        return _position(self.connected_members, order)

    def note_taken(self, member: Member) -> None:
        """Note that ``member`` got a message, so that the strategy may select another one next."""
        self._next_tried = member.order + 1
        self._last_taker = member
        self._random.advance()

    # -- hash strategies -------------------------------------------------------------------

    def slot_for(self, routing_key: RoutingKey) -> int:
        """Return the slot of the queue in which messages with this key wait; 0 without hashing."""
        return (
            1 + self._hash(routing_key) % len(self._all_members) % HASH_SLOTS
            if self.is_hashing
            else 0
        )

    def slot_of(self, member: Member) -> int:
        """Return the hash slot that is assigned to ``member``; 0 without hashing."""
        return 1 + _position(self._all_members, member.order) % HASH_SLOTS if self.is_hashing else 0

    def home_of(self, routing_key: RoutingKey) -> Member | None:
        """Return the member that gets messages with this key; None if no connected member may
        receive them.

        It is the home of the key, or while that is not connected, a connected member selected by
        the hash. If it may not receive the topic, the next member that may is returned.
        """
        connected = self.connected_members
        count = len(connected)
        if count == 0:
            return None
        number = self._hash(routing_key)
        home = self._all_members[number % len(self._all_members)]
        if _contains(connected, home):
            first = _position(connected, home.order)
        else:
            first = number // len(self._all_members) % count
        for step in range(count):
            member = connected[(first + step) % count]
            if member.session.transmission.may_receive(routing_key.topic):
                return member
        return None

    def _hash(self, routing_key: RoutingKey) -> int:
        if self.strategy == HASH_CLIENT:
            return crc32(routing_key.client_id.encode())
        return crc32(routing_key.topic_bytes)

    # -- permissions -----------------------------------------------------------------------

    def forget_permissions(self) -> None:
        """Clear the cached permissions: members or permissions changed."""
        self._receivable.clear()

    def may_be_received(self, topic: str) -> bool:
        """Return whether any member may receive ``topic``, connected or not."""
        if self.may_be_received_now(topic):
            return True
        known = self._receivable.numbers.get(topic)
        if known is None:
            known = 0
            for member in self._all_members:
                if member.session.transmission.may_receive(topic):
                    known = 1
                    break
            self._receivable.put(topic, known)
        return known == 1

    def may_be_received_now(self, topic: str) -> bool:
        """Return whether any connected member may receive ``topic``."""
        for member in self.connected_members:
            if member.session.transmission.may_receive(topic):
                return True
        return False


# -- lists of members by their numbers ---------------------------------------------------


def _position(members: list[Member], order: int) -> int:
    """Return the index of the first member whose number is ``order`` or greater."""
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
