"""All shared subscriptions: of each message one member of a group gets a copy (v5 §4.8.2).

::

      message ─▶ trie ─▶ group ─▶ a member with room, or the group's queue (``shared_group``)
                                      │                   ▲
                                      │ connection lost   │ QoS 1 without PUBACK: to the front
                                      ╰───────────────────╯

QoS 2 in flight stays with its member: it is completed when that is back [MQTT-4.8.2-4], and
nobody else gets it [MQTT-4.8.2-5]. A PUBACK or PUBREC of 0x80 or above ends a message for the
whole group [MQTT-4.8.2-6].
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import final
from zlib import crc32

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.effects import Effects, MemberConnections
from penstock.engine.batch.records import GROUP_KEY_PREFIX, Recovered, SessionRecord
from penstock.engine.clock import Now
from penstock.engine.message import Delivery
from penstock.engine.options import SharingOptions
from penstock.engine.reporting import drop_counts as reasons_to_drop
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.group_members import Xorshift32
from penstock.engine.routing.shared_group import SharedGroup
from penstock.engine.session.queue import PRIORITY_SHIFT
from penstock.engine.session.session import LegacyRun, Session, SessionSubscription
from penstock.engine.topics import share_name


@final
class SharedSubscriptions(MemberConnections):
    """All shared subscriptions of one broker.

    Args:
        effects: the parts of the broker that they act on.
        drops: the counts of dropped messages.
        options: how they are handed out.
    """

    def __init__(self, effects: Effects, drops: Drops, options: SharingOptions) -> None:
        self.options = options
        self.groups: dict[str, SharedGroup] = {}  # by $share/{group}/{filter}
        self.shutting_down = False  # all members go: nothing is handed from one to the next
        self._recovered: Recovered | None = None  # while a start takes up what the store holds
        self._records: dict[str, SessionRecord] = {}  # likewise, of groups not taken up yet
        self._effects = effects
        effects.member_connections = self
        self._drops = drops

    # -- members -----------------------------------------------------------------------

    def join(self, session: Session, entry: SessionSubscription) -> SharedGroup | None:
        """Make ``session`` a member; return the group if it is new."""
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
                account = self._effects.accounts.with_key(record.account)
            group = SharedGroup(
                topic_filter, strategy, random, self._effects, self._drops, session, account
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
        """Remove ``session`` from a group; return the group if it was its last member.

        What it has in flight it may still acknowledge.
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
        self._effects.groups_with_backlog.pop(topic_filter, None)
        return group

    def member_connected(self, session: StoredState, now: Now) -> None:
        """Let ``session``, which is connected now, take what waits."""
        assert isinstance(session, Session)
        if session.outbound.shared_filters is None:
            return
        for topic_filter in session.outbound.shared_filters:
            self.groups[topic_filter].member_connected(session)
        if self._effects.groups_with_backlog:
            session.refill(now)

    def member_disconnected(self, session: StoredState, now: Now) -> None:
        """Take back what a member whose connection is gone has in flight at QoS 1."""
        assert isinstance(session, Session)
        if session.outbound.shared_filters is not None:
            for topic_filter in session.outbound.shared_filters:
                self.groups[topic_filter].member_disconnected(session)
        self._take_back(session, now)

    def _take_back(self, session: Session, now: Now) -> None:
        by_group: dict[str, list[Delivery]] = {}
        for entry in session.outbound.shared_in_flight():
            assert entry.shared is not None
            by_group.setdefault(entry.shared.topic_filter, []).append(entry)
        for topic_filter, entries in by_group.items():
            group = self.groups.get(topic_filter)
            if group is not None:
                group.take_back(session, entries)
                if not self.shutting_down:
                    group.offer(now)

    def permissions_changed(self) -> None:
        """Forget who may receive what: permissions changed."""
        for group in self.groups.values():
            group.permissions_changed()

    def tick(self, now: Now) -> None:
        """Offer what waits to members that have room for another reason than an acknowledgement:
        memory, permissions, or who the members are."""
        if not self.shutting_down:
            for group in self._feeding():
                group.offer(now)

    @property
    def waiting_count(self) -> int:
        """Return how many messages wait in the queues of all groups."""
        return sum([group.queue.queue_length for group in self._feeding()])

    def count_qos0_dropped(self) -> None:
        """Drop the QoS 0 messages that wait: the server shuts down, and they are not stored."""
        for group in self.groups.values():
            group.queue.backlog.count_qos0_dropped()

    def _feeding(self) -> list[SharedGroup]:
        """Return the groups in whose queues something waits."""
        return [self.groups[topic_filter] for topic_filter in self._effects.groups_with_backlog]

    # -- after a start -----------------------------------------------------------------

    def begin_to_recover(self, recovered: Recovered, records: list[SessionRecord]) -> None:
        """Let each group take up the queue that the store holds of it; the members join next."""
        self._recovered = recovered
        self._records = {record.client_id[len(GROUP_KEY_PREFIX) :]: record for record in records}

    def recover(self, sessions: list[Session]) -> None:
        """Let go of groups without members, and move what waits at ``sessions``.

        All members joined. An earlier store has it there. What is moved is stored at its new place,
        and gone from the old one, with the first commit.
        """
        for topic_filter, record in self._records.items():  # no member's session is kept
            if self._recovered is not None:
                waiting = _waiting(record.number, self._recovered)
                self._drops.count(reasons_to_drop.SESSION_ENDED, topic_filter, "", waiting)
            self._effects.batch.end_session(record.client_id, record.number)
        self._recovered = None
        self._records = {}
        self._move_legacy([run for session in sessions for run in session.legacy_runs()])
        for session in sessions:
            session.drop_legacy_runs()

    def _move_legacy(self, runs: list[LegacyRun]) -> None:
        """Move what waited at members to their groups, in the order of the log."""
        heads: list[tuple[int, int]] = []
        for place, run in enumerate(runs):
            if run.advance():
                heads.append((run.offset, place))
        heapify(heads)
        while heads:
            _, place = heappop(heads)
            run = runs[place]
            delivery = run.delivery()
            shared = delivery.shared
            assert shared is not None
            group = self.groups.get(shared.topic_filter)
            if group is None:
                run.session.keep_legacy(delivery)
            else:
                moved = Delivery(None, delivery.offset, shared.qos, shared.retain)
                moved.size_bytes = delivery.size_bytes
                group.adopt(moved, run.priority)
                run.moved.add(delivery.sequence)
            if run.advance():
                heappush(heads, (run.offset, place))


def _waiting(number: int, recovered: Recovered) -> int:
    """Return how many messages the store holds of the queue with this number."""
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
