"""All shared subscriptions: one member of each group gets a copy of a message (v5 §4.8.2).

::

      message ─▶ trie ─▶ group ─▶ a member with room, or the group's queue (``shared_group``)
                                      │                   ▲
                                      │ connection lost   │ QoS 1 without PUBACK: to the front
                                      ╰───────────────────╯

QoS 2 in flight stays with its member: it is completed when the member is connected again
[MQTT-4.8.2-4], and no other member gets it [MQTT-4.8.2-5]. A PUBACK or PUBREC of 0x80 or above
ends a message for the whole group [MQTT-4.8.2-6].
"""

from __future__ import annotations

from typing import final
from zlib import crc32

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.engine_context import EngineContext, MemberConnections
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.group_members import Xorshift32
from penstock.engine.routing.shared_group import SharedGroup
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values import drop_reasons
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Delivery
from penstock.engine.values.options import SharingOptions
from penstock.engine.values.priorities import PRIORITY_SHIFT
from penstock.engine.values.records import GROUP_KEY_PREFIX, RecoveredState, SessionRecord
from penstock.engine.values.topics import share_name


@final
class SharedSubscriptions(MemberConnections):
    """All shared subscriptions of one broker.

    Args:
        context: the parts of the broker that they act on.
        drops: the counts of dropped messages.
        options: the strategies, and whether shared subscriptions are available.
    """

    def __init__(self, context: EngineContext, drops: Drops, options: SharingOptions) -> None:
        self.options = options
        self.groups: dict[str, SharedGroup] = {}  # by $share/{group}/{filter}
        self.shutting_down = False  # all members disconnect: no message is sent to another member
        self._recovered: RecoveredState | None = None  # while queues are restored from the store
        self._records: dict[str, SessionRecord] = {}  # of groups that are not restored yet
        self._context = context
        context.member_connections = self
        drops.group_drops.owners = self.groups
        self._drops = drops

    # -- members -----------------------------------------------------------------------

    def join(self, session: Session, entry: SessionSubscription) -> SharedGroup | None:
        """Add ``session`` to the group of its subscription; return the group if it is new, else
        None."""
        topic_filter = entry.subscription.topic_filter
        group = self.groups.get(topic_filter)
        is_new = group is None
        if group is None:
            options = self.options
            strategy = options.by_group.get(share_name(topic_filter), options.strategy)
            random = Xorshift32(options.seed ^ crc32(topic_filter.encode()))
            record = self._records.pop(topic_filter, None)
            account = session.account
            if record is not None:
                account = self._context.accounts.account_with_key(record.account)
            group = SharedGroup(
                topic_filter, strategy, random, self._context, self._drops, session, account
            )
            self.groups[topic_filter] = group
            if record is not None and self._recovered is not None:
                group.restore(record, self._recovered)
        group.put(session, entry)
        if session.outbound.shared_filters is None:
            session.outbound.shared_filters = {}
        session.outbound.shared_filters[topic_filter] = None
        return group if is_new else None

    def leave(self, session: Session, topic_filter: str) -> SharedGroup | None:
        """Remove ``session`` from a group; return the group if that was its last member, else None.

        The session may still acknowledge the messages that it has in flight.
        """
        group = self.groups.get(topic_filter)
        if group is None:
            return None
        if session.outbound.shared_filters is not None:
            session.outbound.shared_filters.pop(topic_filter, None)
        group.remove(session)
        if group.has_members:
            return None
        del self.groups[topic_filter]
        self._drops.group_drops.forget(topic_filter)
        self._context.groups_with_backlog.pop(topic_filter, None)
        return group

    def member_connected(self, session: StoredState, now: Now) -> None:
        """Let ``session``, which is connected now, take messages from its groups."""
        assert isinstance(session, Session)
        if session.outbound.shared_filters is None:
            return
        for topic_filter in session.outbound.shared_filters:
            self.groups[topic_filter].member_connected(session)
        if self._context.groups_with_backlog:
            session.outbound.refill(now)

    def member_disconnected(self, session: StoredState, now: Now) -> None:
        """Take back the QoS 1 messages in flight of a member whose connection ended."""
        assert isinstance(session, Session)
        if session.outbound.shared_filters is not None:
            for topic_filter in session.outbound.shared_filters:
                self.groups[topic_filter].member_disconnected(session)
        self._take_back(session, now)

    def _take_back(self, session: Session, now: Now) -> None:
        by_group: dict[str, list[Delivery]] = {}
        for entry in session.outbound.shared_in_flight():
            assert entry.shared_origin is not None
            by_group.setdefault(entry.shared_origin.topic_filter, []).append(entry)
        for topic_filter, entries in by_group.items():
            group = self.groups.get(topic_filter)
            if group is not None:
                group.take_back(session, entries)
                if not self.shutting_down:
                    group.offer(now)

    def permissions_changed(self) -> None:
        """Clear the cached permissions of all groups, and check blocked publishers again."""
        for group in self.groups.values():
            group.permissions_changed()

    def tick(self, now: Now) -> None:
        """Send queued messages to members that have room now.

        An acknowledgement does that at once; memory that is free again, other permissions and new
        members do it with the next tick.
        """
        if not self.shutting_down:
            for group in self._groups_with_backlog():
                group.offer(now)

    @property
    def waiting_count(self) -> int:
        """Return how many messages wait in the queues of all groups."""
        return sum([group.queue.queue_length for group in self._groups_with_backlog()])

    def count_qos0_dropped(self) -> None:
        """Count the queued QoS 0 messages as dropped: the server shuts down and does not store
        them."""
        for group in self.groups.values():
            group.queue.backlog.count_qos0_dropped()

    def _groups_with_backlog(self) -> list[SharedGroup]:
        """Return the groups with messages in their queues."""
        return [self.groups[topic_filter] for topic_filter in self._context.groups_with_backlog]

    # -- after a start -----------------------------------------------------------------

    def begin_to_recover(self, recovered: RecoveredState, records: list[SessionRecord]) -> None:
        """Prepare to restore the queue of each group when its first member joins."""
        self._recovered = recovered
        self._records = {record.client_id[len(GROUP_KEY_PREFIX) :]: record for record in records}

    def end_recovery(self) -> None:
        """Drop the queues of groups without members: all subscriptions are restored."""
        for topic_filter, record in self._records.items():  # no session of a member is stored
            if self._recovered is not None:
                waiting = _count_waiting(record.number, self._recovered)
                reason = drop_reasons.SESSION_ENDED
                self._drops.count(reason, topic_filter, "", waiting, True)
            self._context.batch.end_session(record.client_id, record.number)
        self._recovered = None
        self._records = {}


def _count_waiting(number: int, recovered: RecoveredState) -> int:
    """Return the number of messages that the store has in the queue with this number."""
    heads: dict[int, int] = {}
    progress = recovered.progress.get(number)
    if progress is not None:
        heads = {lane: head for lane, head, _ in progress.lanes}
        heads[0] = progress.queue_head
    count = 0
    for run in recovered.queues.get(number, []):
        head = heads.get(run.first >> PRIORITY_SHIFT, 0)
        count += max(0, min(len(run), run.end - head))
    return count
