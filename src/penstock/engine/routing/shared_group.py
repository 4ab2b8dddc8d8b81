"""One group of a shared subscription: its members, and which of them takes a message.

A group is the members of one ``$share/{group}/{filter}``, and the queue they take from
(``group_queue``)::

      message ─▶ a member that is connected, reads, may receive it and has room? ─▶ that one
                     ╰ none ─▶ the queue ── a member has room ─▶ the first there that it may have

The strategy is the order in which members are asked. By hash a key has a home among the members,
and only that one is asked; while the home is away, one of those that are connected stands in.
"""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.effects import Effects, GroupSource
from penstock.engine.batch.records import Recovered, SessionRecord
from penstock.engine.clock import Now
from penstock.engine.limits import OUT_OF_DATE_MAX
from penstock.engine.memory.accounts import Account
from penstock.engine.message import Delivery, Label, Message, Shared, label_of
from penstock.engine.options import HASH_CLIENT, HASH_TOPIC, LEAST_INFLIGHT, RANDOM, STICKY
from penstock.engine.reporting import drop_counts as reasons_to_drop
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.reporting.events import MOVED
from penstock.engine.routing.group_queue import FRONT, HOMES, GroupMember, GroupQueue
from penstock.engine.session.outbound import ANY_QOS, NO_ROOM
from penstock.engine.session.queue import PRIORITY_MASK, PRIORITY_SHIFT
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.topic_cache import TopicCache

OFFERED_MAX: Final = 1000  # messages that one ``offer`` hands out; the next tick goes on
_TOPICS_MAX: Final = 1000
_32_BITS: Final = 0xFFFFFFFF


@final
class Xorshift32:
    """A small repeatable generator (xorshift, 32 bits)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _32_BITS or 1

    def below(self, end: int) -> int:
        """Return a number in [0, end): the same until ``throw``."""
        return self._state % end

    def throw(self) -> None:
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
        group: the group that it is in.
    """

    def __init__(
        self, session: Session, entry: SessionSubscription, order: int, group: SharedGroup
    ) -> None:
        self.session = session
        self.entry = entry
        self.order = order
        self.limits = session.limits  # that count in the group's bounds
        self.stored_qos = -1  # that counts in the group's
        self.room = NO_ROOM  # while it looks for what it may take
        self._group = group

    def qos_of(self, qos: int) -> int:
        """Return the QoS with which it gets a message of this one [MQTT-4.8.2-3]."""
        return min(qos, self.entry.subscription.qos)

    def may_take(self, label: Label, qos: int, size_bytes: int) -> bool:
        """Return whether a message that waits is for this member, and has a place there."""
        qos = self.qos_of(qos)
        if self.room != ANY_QOS and qos > 0:
            return False
        if not self.session.outbound.has_memory_to_send(size_bytes, qos, False):
            return False
        if self._group.by_hash:
            return self._group.home_of(label) is self
        return self.session.transmission.may_receive_topic(label.topic)

    def is_for_nobody(self, label: Label) -> bool:
        """Return whether no member may receive the message."""
        return not self._group.may_be_received(label.topic)

    def is_home(self, slot: int) -> bool:
        """Return whether more than the head of this slot's lanes may be for this member."""
        return slot in (0, FRONT) or slot == self._group.slot_of(self)


@final
class SharedGroup(GroupSource):
    """The members of one shared subscription, and their queue.

    Those that are connected stand in a list of their own: a message costs the same however many
    members are away. ``SharedSubscriptions`` says who is connected.

    Args:
        topic_filter: ``$share/{group}/{filter}``.
        strategy: one of ``STRATEGIES``.
        dice: for the random strategy.
        effects: the parts of the broker that it acts on.
        drops: the counts of dropped messages.
        first: the session of its first member: it has the queue's priorities.
        account: the account in which the queue counts.
    """

    def __init__(
        self,
        topic_filter: str,
        strategy: int,
        dice: Xorshift32,
        effects: Effects,
        drops: Drops,
        first: Session,
        account: Account,
    ) -> None:
        self.topic_filter = topic_filter
        self.members: dict[Session, Member] = {}
        self.stored_qos = -1  # the greatest QoS granted to a member whose session is stored
        self.by_hash = strategy in (HASH_CLIENT, HASH_TOPIC)
        self.queue = GroupQueue(topic_filter, self, effects, first.limits, drops, account)
        self._strategy = strategy
        self._dice = dice
        self._effects = effects
        self._drops = drops
        self._stored_by_qos = [0, 0, 0]  # members whose session is stored
        self._joined = 0  # so far
        self._all: list[Member] = []  # this and the next in their order
        self._connected: list[Member] = []
        self._offers = False  # it is about to
        self._next = 0  # order
        self._favourite: Member | None = None
        self._receivable = TopicCache(_TOPICS_MAX)  # 1: some member may receive it

    # -- members -----------------------------------------------------------------------

    def put(self, session: Session, entry: SessionSubscription) -> None:
        """Add a member, or change its options."""
        member = self.members.get(session)
        if member is None:
            if self._joined > 2 * len(self._all) + OUT_OF_DATE_MAX:
                self._renumber()
            member = Member(session, entry, self._joined, self)
            self._joined += 1
            self.members[session] = member
            self._all.append(member)
            self.queue.bounds.count(member.limits, 1)
            if session.link is not None:
                self._connected.append(member)
                self._woke()
            elif not self._connected:
                self.queue.sleep()
        member.entry = entry
        self._count_stored(member, entry.subscription.qos if session.stored else -1)
        self._changed()

    def remove(self, session: Session) -> None:
        """Remove ``session`` from the members; the last one ends the queue."""
        member = self.members.pop(session, None)
        if member is None:
            return
        take_out(self._all, member)
        self._disconnected(member)
        if self._favourite is member:
            self._favourite = None
        self.queue.bounds.count(member.limits, -1)
        self._count_stored(member, -1)
        if self.members:
            self._changed()
        else:
            self.queue.end()

    def member_connected(self, session: Session) -> None:
        """Note that a member is connected, maybe through another listener."""
        member = self.members.get(session)
        if member is None:
            return
        if member.limits is not session.limits:
            self.queue.bounds.count(member.limits, -1)
            member.limits = session.limits
            self.queue.bounds.count(member.limits, 1)
        if not is_in(self._connected, member):
            put_in(self._connected, member)
        self._woke()
        self._changed()

    def member_disconnected(self, session: Session) -> None:
        """Note that a member is connected no more."""
        member = self.members.get(session)
        if member is not None:
            self._disconnected(member)

    def permissions_changed(self) -> None:
        """Forget who may receive what: permissions changed."""
        self._receivable.clear()
        self.queue.recheck_blocked_publishers()

    @property
    def connected_count(self) -> int:
        """Return how many members are connected."""
        return len(self._connected)

    def _disconnected(self, member: Member) -> None:
        if take_out(self._connected, member) and not self._connected:
            self.queue.sleep()

    def _woke(self) -> None:
        if not self.queue.awake:
            self.queue.wake_up()

    def _changed(self) -> None:
        """Check blocked publishers again: members, options or limits changed."""
        self._receivable.clear()
        self.queue.bound_anew()

    def _renumber(self) -> None:
        """Number the members anew, because many left."""
        self._next = place(self._all, self._next)
        for order, member in enumerate(self._all):
            member.order = order
        self._joined = len(self._all)

    def _count_stored(self, member: Member, qos: int) -> None:
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
        if self.stored_qos > 0:
            self.queue.store()

    # -- publishers that wait for room here --------------------------------------------------

    def refuses(self, message: Message) -> bool:
        """Return whether ``message`` (QoS 1 or 2) must be refused: it finds no place anywhere."""
        queue = self.queue
        if not self.members or not queue.is_full(message.size_bytes()):
            return False
        if not self.may_be_received(message.topic):
            return False
        if not queue.has_memory():
            return True
        if self.by_hash and queue.goes_behind(self._slot(label_of(message)), message):
            return True  # the order of a key is kept, also when there is no room
        return self._taker(message) is None

    def has_free_member(self) -> bool:
        """Return whether a connected member has room for any message of QoS 1 or 2."""
        self._effects.blocked_publishers.work += len(self._connected)
        for member in self._connected:
            room = member.session.outbound.room_for_shared(None)
            if room == ANY_QOS or (room != NO_ROOM and member.qos_of(2) == 0):
                return True
        return False

    def watch_links(self) -> None:
        """Have the members that do not read resumed when they read again."""
        self._effects.blocked_publishers.work += len(self._connected)
        for member in self._connected:
            member.session.watch_links()

    # -- messages ----------------------------------------------------------------------

    def publish(self, message: Message, at_once: bool, now: Now, planned: bool) -> bool:
        """Give ``message`` to a member, or queue it; return whether it is for any.

        Args:
            message: the published message.
            at_once: QoS 0 need not wait for the commit of this turn.
            now: when.
            planned: nothing refused it (``Router.plan``), so it has a place.
        """
        if not self.members:
            return False
        queue = self.queue
        slot = self._slot(label_of(message)) if self.by_hash else 0
        goes_behind = queue.goes_behind(slot, message)
        if not goes_behind or not (self.by_hash or queue.has_room(message.size_bytes())):
            member = self._taker(message)
            if member is not None:
                self._give(member, message, at_once, now)
                return True
        if not self.may_be_received(message.topic):
            self._drops.count(reasons_to_drop.NO_PERMISSION, "", message.topic)
            return False
        if message.qos == 0 and not queue.bounds.keeps_qos0:
            reason = reasons_to_drop.SLOW_CONSUMER
            if not self._connected:
                reason = reasons_to_drop.QOS0_OFFLINE
            lost = Delivery(message, message.offset, 0)
            self._drops.drop(reason, self.topic_filter, lost)
            return True
        if queue.put(message, slot, planned):
            self._effects.groups_with_backlog[self.topic_filter] = self
        return True

    def tell(self, message: Message, now: Now) -> None:
        """Give what the broker says of itself (QoS 0) to a connected member; it never waits."""
        if not any(_reads(member.session) for member in self._connected):
            return
        member = self._taker(message)
        if member is not None:
            self._give(member, message, True, now)
        elif self._is_receivable_here(message.topic):  # by one that has no room
            self._drops.count(reasons_to_drop.SLOW_CONSUMER, "", message.topic)
        else:
            self._drops.count(reasons_to_drop.NO_PERMISSION, "", message.topic)

    def precedes(self, rank: int, offset: int) -> bool:
        """Return whether what is first here has a higher rank, or the same and came earlier."""
        if self.queue.queue_length == 0:
            return False
        own_rank, own_offset = self.queue.place_of_first()
        return own_rank > rank or (own_rank == rank and own_offset < offset)

    def give_next_to(self, taker: StoredState, now: Now) -> bool:
        """Give ``taker``, a session, the first message that it may take; return whether it did."""
        assert isinstance(taker, Session)
        member = self.members.get(taker)
        if member is None:
            return False
        queue = self.queue
        room = member.room = taker.outbound.room_for_shared(self)
        if room == NO_ROOM or not queue.has_any(room != ANY_QOS and member.qos_of(2) > 0):
            return False
        delivery = queue.find(member)
        if delivery is None:
            if member.room == ANY_QOS or member.qos_of(2) == 0:
                queue.tell_of_room()
            if queue.queue_length == 0:
                self._effects.groups_with_backlog.pop(self.topic_filter, None)
            return False
        message = delivery.message
        assert message is not None
        if message.expired(now.steady_us):
            queue.take(delivery)
            self._drops.drop(reasons_to_drop.EXPIRED, self.topic_filter, delivery)
        else:
            queue.take(delivery)
            self._hand_over(member, delivery, message, now)
        if queue.queue_length == 0:
            self._effects.groups_with_backlog.pop(self.topic_filter, None)
        elif self.by_hash and queue.found_in != self.slot_of(member):
            self.offer(now)  # what follows there may be for others
        return True

    def offer(self, now: Now) -> None:
        """Hand out what waits to connected members with room, in the order of the strategy."""
        if self._offers:
            return
        self._offers = True
        for _ in range(OFFERED_MAX):
            if self.queue.queue_length == 0 or not self._offer_one(now):
                break
        self._offers = False

    def take_back(self, session: Session, entries: list[Delivery]) -> None:
        """Put ``entries`` of the window of ``session``, which is gone, at the front."""
        queue = self.queue
        for entry in entries:
            shared = entry.shared
            assert shared is not None
            message = entry.message
            back = Delivery(message, entry.offset, shared.qos, shared.retain)
            back.size_bytes = entry.size_bytes if message is None else message.size_bytes()
            priority = entry.sequence >> PRIORITY_SHIFT & PRIORITY_MASK
            if entry.sequence == 0 and message is not None:
                priority = queue.priority_of(message)
            queue.put_back(back, priority)
        session.outbound.remove_in_flight(entries)
        self._effects.groups_with_backlog[self.topic_filter] = self

    def adopt(self, delivery: Delivery, priority: int) -> None:
        """Take over what an earlier store has at a member: its body lies in the log."""
        self.queue.adopt(delivery, priority)
        self._effects.groups_with_backlog[self.topic_filter] = self

    def restore(self, record: SessionRecord, recovered: Recovered) -> None:
        """Take up what the store holds of the queue."""
        number = record.number
        self.queue.restore(
            record,
            recovered.progress.get(number),
            recovered.queues.get(number, []),
            recovered.segments.get(number, []),
        )
        if self.queue.queue_length > 0:
            self._effects.groups_with_backlog[self.topic_filter] = self

    def _offer_one(self, now: Now) -> bool:
        members = self._connected
        count = len(members)
        if self._strategy == LEAST_INFLIGHT:
            for member in sorted(members, key=_load):
                if self.give_next_to(member.session, now):
                    return True
            return False
        first = place(members, self._start())
        for step in range(count):
            if self.give_next_to(members[(first + step) % count].session, now):
                return True
        return False

    def _taker(self, message: Message) -> Member | None:
        """Return the connected member that takes ``message`` at once; None if there is none."""
        if self.by_hash:
            home = self.home_of(label_of(message))
            return home if home is not None and self._can_take(home, message) else None
        best: Member | None = None
        members = self._connected
        count = len(members)
        if self._strategy == LEAST_INFLIGHT:
            for member in members:
                if (best is None or _load(member) < _load(best)) and self._can_take(
                    member, message
                ):
                    best = member
            return best
        first = place(members, self._start())
        for step in range(count):
            position = first + step
            member = members[position if position < count else position - count]
            if self._can_take(member, message):
                return member
        return None

    def _can_take(self, member: Member, message: Message) -> bool:
        session = member.session
        qos = member.qos_of(message.qos)
        room = session.outbound.room_for_shared(None)
        if room == NO_ROOM or (room != ANY_QOS and qos > 0):
            return False
        return session.may_receive(message) and session.outbound.has_memory_to_send(
            message.size_bytes(), qos, True
        )

    def _start(self) -> int:
        """Return the order of the member that is asked first."""
        if self._strategy == RANDOM and self._connected:
            return self._connected[self._dice.below(len(self._connected))].order
        if self._strategy == STICKY and self._favourite is not None:
            return self._favourite.order
        return self._next

    def _took(self, member: Member) -> None:
        """Note that ``member`` was given a message: it may be another's turn."""
        self._next = member.order + 1
        self._favourite = member
        self._dice.throw()

    # -- by hash -------------------------------------------------------------------------

    def _slot(self, label: Label) -> int:
        """Return the slot of the queue where messages with this key wait."""
        return 1 + self._number(label) % len(self._all) % HOMES

    def slot_of(self, member: Member) -> int:
        """Return the slot of what ``member`` is the home of."""
        return 1 + place(self._all, member.order) % HOMES if self.by_hash else 0

    def home_of(self, label: Label) -> Member | None:
        """Return who gets messages with this key: its home, or a connected member in its place.

        It is the first from there on that may receive the topic; None if no connected one may.
        """
        connected = self._connected
        count = len(connected)
        if count == 0:
            return None
        number = self._number(label)
        home = self._all[number % len(self._all)]
        if is_in(connected, home):
            first = place(connected, home.order)
        else:
            first = number // len(self._all) % count
        for step in range(count):
            member = connected[(first + step) % count]
            if member.session.transmission.may_receive_topic(label.topic):
                return member
        return None

    def _number(self, label: Label) -> int:
        if self._strategy == HASH_CLIENT:
            return crc32(label.client_id.encode())
        return crc32(label.topic_bytes)

    # -- who may receive what ------------------------------------------------------------

    def may_be_received(self, topic: str) -> bool:
        """Return whether any member may receive ``topic``."""
        if self._is_receivable_here(topic):
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

    def _is_receivable_here(self, topic: str) -> bool:
        for member in self._connected:
            if member.session.transmission.may_receive_topic(topic):
                return True
        return False

    # -- handing over --------------------------------------------------------------------

    def _give(self, member: Member, message: Message, at_once: bool, now: Now) -> None:
        """Send ``member`` what was published just now."""
        self._took(member)
        shared = Shared(self.topic_filter, message.qos, message.retain)
        if member.session.stored and message.offset < 0 and member.qos_of(message.qos) > 0:
            self._effects.batch.append(message)
        self._send(member, message, message.offset, shared, at_once, now)

    def _hand_over(self, member: Member, delivery: Delivery, message: Message, now: Now) -> None:
        """Send ``member`` a message that waited.

        If it waited in memory only and the member's session is stored, append a copy to the log
        first, even if the log has it for other sessions: retention may remove that row once they
        have the message.
        """
        self._took(member)
        events = self._effects.events
        if events is not None:
            events.tell(MOVED, self.topic_filter, delivery)
        shared = Shared(self.topic_filter, delivery.qos, delivery.retain)
        offset = delivery.offset
        if member.session.stored and delivery.sequence == 0 and member.qos_of(delivery.qos) > 0:
            if message.offset >= 0:
                message = message.for_session()
            self._effects.batch.append(message)
            offset = message.offset
        self._send(member, message, offset, shared, False, now)

    def _send(
        self,
        member: Member,
        message: Message,
        offset: int,
        shared: Shared,
        at_once: bool,
        now: Now,
    ) -> None:
        subscription = member.entry.subscription
        identifier = member.entry.identifier
        member.session.outbound.send_shared(
            message,
            offset,
            min(shared.qos, subscription.qos),
            shared.retain and subscription.retain_as_published,
            (identifier,) if identifier > 0 else (),
            shared,
            at_once,
            now,
        )


def _load(member: Member) -> int:
    return member.session.window_length + member.session.queue_length


def _reads(session: Session) -> bool:
    link = session.link
    return link is not None and link.has_room()


# -- lists of members in their order -----------------------------------------------------


def place(members: list[Member], order: int) -> int:
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


def is_in(members: list[Member], member: Member) -> bool:
    """Return whether ``member`` is in the list."""
    position = place(members, member.order)
    return position < len(members) and members[position] is member


def put_in(members: list[Member], member: Member) -> None:
    """Insert ``member``, which must not be in the list."""
    members.insert(place(members, member.order), member)


def take_out(members: list[Member], member: Member) -> bool:
    """Remove ``member``; return whether it was in the list."""
    if not is_in(members, member):
        return False
    del members[place(members, member.order)]
    return True
