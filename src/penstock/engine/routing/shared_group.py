"""One shared subscription: which member takes a message, and which messages wait for a member.

A group is the members of one ``$share/{group}/{filter}`` (``group_members``), and their common
queue (``group_queue``)::

      message ─▶ a connected member that may receive it, and has room? ─▶ sent to that member
                     ╰ none ─▶ the queue ── a member has room ─▶ its first message for that member

The strategy is the order in which members are tried; a hash strategy tries a single member.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.engine_context import EngineContext, GroupSource
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.group_members import GroupMembers, Member, Xorshift32
from penstock.engine.routing.group_queue import GroupQueue
from penstock.engine.session.send_room import ANY_QOS, NO_ROOM
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values import drop_reasons
from penstock.engine.values.clock import Now
from penstock.engine.values.event_kinds import MOVED
from penstock.engine.values.message import Delivery, Message, SharedOrigin, routing_key_of
from penstock.engine.values.options import LEAST_INFLIGHT
from penstock.engine.values.priorities import PRIORITY_MASK, PRIORITY_SHIFT
from penstock.engine.values.records import RecoveredState, SessionRecord

OFFERED_MAX: Final = 1000  # messages that one ``offer`` sends; the next tick continues


@final
class SharedGroup(GroupSource):
    """One shared subscription: its members, and their queue.

    ``SharedSubscriptions`` notifies it of members that connect or disconnect.

    Args:
        topic_filter: ``$share/{group}/{filter}``.
        strategy: one of ``STRATEGIES``.
        random: the generator of the random strategy.
        context: the parts of the broker that it acts on.
        drops: the counts of dropped messages.
        first: the session of its first member, whose limits have the priorities of topics.
        account: the account in which the queue counts.
    """

    def __init__(
        self,
        topic_filter: str,
        strategy: int,
        random: Xorshift32,
        context: EngineContext,
        drops: Drops,
        first: Session,
        account: Pool,
    ) -> None:
        self.topic_filter = topic_filter
        self.members = GroupMembers(strategy, random)
        self.queue = GroupQueue(topic_filter, self, context, first.limits, drops, account)
        self._context = context
        self._drops = drops
        self._is_offering = False  # whether ``offer`` is running

    # -- members -----------------------------------------------------------------------

    def put(self, session: Session, entry: SessionSubscription) -> None:
        """Add a member, or change its options."""
        member = self.members.by_session.get(session)
        if member is None:
            member = self.members.join(session, entry)
            self.queue.bounds.count(member.limits, 1)
            self._update_online()
        member.entry = entry
        self.members.count_stored(member, entry.subscription.qos if session.is_stored else -1)
        if self.members.stored_qos > 0:
            self.queue.store()
        self._members_changed()

    def remove(self, session: Session) -> None:
        """Remove ``session`` from the members; the last one ends the queue."""
        member = self.members.leave(session)
        if member is None:
            return
        self._update_online()
        self.queue.bounds.count(member.limits, -1)
        if self.has_members:
            self._members_changed()
        else:
            self.queue.end()

    def member_connected(self, session: Session) -> None:
        """Note that the member with ``session`` is connected, maybe through another listener."""
        member = self.members.by_session.get(session)
        if member is None:
            return
        if member.limits is not session.limits:
            self.queue.bounds.count(member.limits, -1)
            member.limits = session.limits
            self.queue.bounds.count(member.limits, 1)
        self.members.connect(member)
        self._update_online()
        self._members_changed()

    def member_disconnected(self, session: Session) -> None:
        """Note that the member with ``session`` is disconnected."""
        member = self.members.by_session.get(session)
        if member is not None:
            self.members.disconnect(member)
            self._update_online()

    def permissions_changed(self) -> None:
        """Clear cached permissions, which changed, and check blocked publishers again."""
        self.members.forget_permissions()
        self.queue.recheck_blocked_publishers()

    @property
    def has_members(self) -> bool:
        """Return whether the group has members, connected or not."""
        return len(self.members.by_session) > 0

    def _update_online(self) -> None:
        """Take the queue online if a member is connected, else offline."""
        is_needed = len(self.members.connected_members) > 0
        if is_needed and not self.queue.is_online:
            self.queue.go_online()
        elif not is_needed and self.queue.is_online:
            self.queue.go_offline()

    def _members_changed(self) -> None:
        """Apply changed members, options or limits, and check blocked publishers again."""
        self.members.forget_permissions()
        self.queue.update_bounds()

    # -- blocked publishers ------------------------------------------------------------------

    def refuses_message(self, message: Message) -> bool:
        """Return whether ``message`` (QoS 1 or 2) must be refused: neither the queue nor a member
        has room."""
        queue = self.queue
        if not self.has_members or not queue.is_full(message.size_bytes()):
            return False
        if not self.members.may_be_received(message.topic):
            return False
        if not queue.has_memory():
            return True
        members = self.members
        if members.is_hashing and queue.must_queue(
            members.slot_for(routing_key_of(message)), message
        ):
            return True  # a member with room must not get it before earlier messages of its key
        return self._taker(message) is None

    def has_free_member(self) -> bool:
        """Return whether a connected member has room for any message of QoS 1 or 2."""
        self._context.blocked_publishers.work += len(self.members.connected_members)
        for member in self.members.connected_members:
            room = member.session.outbound.room_for_shared(None)
            if room == ANY_QOS or (room != NO_ROOM and member.qos_of(2) == 0):
                return True
        return False

    def watch_links(self) -> None:
        """Have the members without room in their links resumed when there is room again."""
        self._context.blocked_publishers.work += len(self.members.connected_members)
        for member in self.members.connected_members:
            member.session.watch_links()

    # -- messages ----------------------------------------------------------------------

    def publish(self, message: Message, at_once: bool, now: Now, is_planned: bool) -> bool:
        """Send ``message`` to a member, queue or drop it; return False if no member may receive it.

        Args:
            message: the published message.
            at_once: whether QoS 0 need not wait for the commit of this turn.
            now: the time of the turn.
            is_planned: whether ``Router.plan`` accepted the message, so that it must be queued.
        """
        if not self.has_members:
            return False
        queue = self.queue
        by_hash = self.members.is_hashing
        slot = self.members.slot_for(routing_key_of(message)) if by_hash else 0
        goes_behind = queue.must_queue(slot, message)
        if not goes_behind or not (by_hash or queue.has_room(message.size_bytes())):
            member = self._taker(message)
            if member is not None:
                self._give(member, message, at_once, now)
                return True
        if not self.members.may_be_received(message.topic):
            denied = drop_reasons.NO_PERMISSION
            self._drops.count(denied, self.topic_filter, message.topic, 1, True)
            return False
        if message.qos == 0 and not queue.bounds.keeps_qos0:
            reason = drop_reasons.SLOW_CONSUMER
            if not self.members.connected_members:
                reason = drop_reasons.QOS0_OFFLINE
            lost = Delivery(message, message.offset, 0)
            self._drops.drop(reason, self.topic_filter, lost, True)
            return True
        if queue.put(message, slot, is_planned):
            self._context.groups_with_backlog[self.topic_filter] = self
        return True

    def publish_system(self, message: Message, now: Now) -> None:
        """Send a ``$SYS`` message (QoS 0) to a connected member; it is never queued."""
        if not any(_reads(member.session) for member in self.members.connected_members):
            return
        member = self._taker(message)
        if member is not None:
            self._give(member, message, True, now)
        elif self.members.may_be_received_now(message.topic):  # but no such member has room
            self._drops.count(drop_reasons.SLOW_CONSUMER, "", message.topic)
        else:
            self._drops.count(drop_reasons.NO_PERMISSION, "", message.topic)

    def precedes(self, rank: int, offset: int) -> bool:
        """Return whether the first message of the queue comes before a message with this rank and
        log offset."""
        if self.queue.queue_length == 0:
            return False
        own_rank, own_offset = self.queue.rank_and_offset_of_first()
        return own_rank > rank or (own_rank == rank and own_offset < offset)

    def give_next_to(self, taker: StoredState, now: Now) -> bool:
        """Send ``taker``, a session, the first message that it may take; return whether there was
        one."""
        assert isinstance(taker, Session)
        member = self.members.by_session.get(taker)
        if member is None:
            return False
        queue = self.queue
        room = member.room = taker.outbound.room_for_shared(self)
        if room == NO_ROOM or not queue.has_any(room != ANY_QOS and member.qos_of(2) > 0):
            return False
        delivery = queue.find(member)
        if delivery is None:
            if member.room == ANY_QOS or member.qos_of(2) == 0:
                queue.wake_blocked_publishers()
            if queue.queue_length == 0:
                self._context.groups_with_backlog.pop(self.topic_filter, None)
            return False
        message = delivery.message
        assert message is not None
        if message.is_expired(now.steady_us):
            queue.take(delivery)
            self._drops.drop(drop_reasons.EXPIRED, self.topic_filter, delivery, True)
        else:
            queue.take(delivery)
            self._hand_over(member, delivery, message, now)
        if queue.queue_length == 0:
            self._context.groups_with_backlog.pop(self.topic_filter, None)
        elif self.members.is_hashing and queue.found_slot != self.members.slot_of(member):
            self.offer(now)  # the next messages of that slot may be for other members
        return True

    def offer(self, now: Now) -> None:
        """Send queued messages to connected members with room, in the order of the strategy."""
        if self._is_offering:
            return
        self._is_offering = True
        for _ in range(OFFERED_MAX):
            if self.queue.queue_length == 0 or not self._offer_one(now):
                break
        self._is_offering = False

    def take_back(self, session: Session, entries: list[Delivery]) -> None:
        """Queue ``entries``, which were in flight when ``session`` disconnected, at the front."""
        queue = self.queue
        for entry in entries:
            shared = entry.shared_origin
            assert shared is not None
            message = entry.message
            back = Delivery(message, entry.offset, shared.qos, shared.retain)
            back.size_bytes = entry.size_bytes if message is None else message.size_bytes()
            priority = entry.sequence >> PRIORITY_SHIFT & PRIORITY_MASK
            if entry.sequence == 0 and message is not None:
                priority = queue.priority_of(message)
            queue.put_back(back, priority)
        session.outbound.remove_in_flight(entries)
        self._context.groups_with_backlog[self.topic_filter] = self

    def restore(self, record: SessionRecord, recovered: RecoveredState) -> None:
        """Restore the queue from the store."""
        number = record.number
        self.queue.restore(
            record,
            recovered.progress.get(number),
            recovered.queues.get(number, []),
            recovered.segments.get(number, []),
        )
        if self.queue.queue_length > 0:
            self._context.groups_with_backlog[self.topic_filter] = self

    def _offer_one(self, now: Now) -> bool:
        members = self.members.connected_members
        count = len(members)
        if self.members.strategy == LEAST_INFLIGHT:
            for member in sorted(members, key=_load):
                if self.give_next_to(member.session, now):
                    return True
            return False
        first = self.members.first_index()
        for step in range(count):
            if self.give_next_to(members[(first + step) % count].session, now):
                return True
        return False

    def _taker(self, message: Message) -> Member | None:
        """Return the connected member that gets ``message`` at once; None if there is none."""
        if self.members.is_hashing:
            home = self.members.home_of(routing_key_of(message))
            return home if home is not None and self._can_take(home, message) else None
        best: Member | None = None
        members = self.members.connected_members
        count = len(members)
        if self.members.strategy == LEAST_INFLIGHT:
            for member in members:
                if (best is None or _load(member) < _load(best)) and self._can_take(
                    member, message
                ):
                    best = member
            return best
        first = self.members.first_index()
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
        if not session.transmission.may_receive(message.topic):
            return False
        return session.transmission.room.has_room_for_group_message(
            session.link, message.size_bytes(), qos, True
        )

    # -- handing over --------------------------------------------------------------------

    def _give(self, member: Member, message: Message, at_once: bool, now: Now) -> None:
        """Send ``member`` a message that was just published."""
        self.members.note_taken(member)
        shared = SharedOrigin(self.topic_filter, message.qos, message.retain)
        if member.session.is_stored and message.offset < 0 and member.qos_of(message.qos) > 0:
            self._context.batch.append(message)
        self._send(member, message, message.offset, shared, at_once, now)

    def _hand_over(self, member: Member, delivery: Delivery, message: Message, now: Now) -> None:
        """Send ``member`` a message from the queue.

        If the message waited in memory only and the member's session is stored, a copy is appended
        to the log, even if the log has the message for other sessions: retention may remove that
        row once these sessions have the message.
        """
        self.members.note_taken(member)
        events = self._context.events
        if events is not None:
            events.note_delivery(MOVED, self.topic_filter, delivery)
        shared = SharedOrigin(self.topic_filter, delivery.qos, delivery.retain)
        offset = delivery.offset
        if member.session.is_stored and delivery.sequence == 0 and member.qos_of(delivery.qos) > 0:
            if message.offset >= 0:
                message = message.copy_for_session()
            self._context.batch.append(message)
            offset = message.offset
        self._send(member, message, offset, shared, False, now)

    def _send(
        self,
        member: Member,
        message: Message,
        offset: int,
        shared: SharedOrigin,
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
