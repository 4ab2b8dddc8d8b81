"""The router: a published message goes to the log, the retained messages and the sessions.

::

      plan ── do all matching queues have room? ─▶ Plan ── a queue refuses ─▶ nothing is changed
         if a queue may refuse (``may_refuse``)       ╰─── none refuses ─╮
      publish ───────────────────────────────────────────────────────────┴─▶ routed

A plan changes nothing, so that a refused message reaches no subscriber. A planned message that is
not refused is queued for every matching session, even if its copies take the memory meanwhile.

A message is logged if it matches a configured stream, or if its QoS is 1 or 2 and a stored session
gets it. Its body is stored once, in the log; queues have offsets.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.engine.batch.blocked_publishers import Blocker
from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.match_cache import Matches
from penstock.engine.routing.shared_subscriptions import SharedSubscriptions
from penstock.engine.routing.trie import SubscriptionTrie
from penstock.engine.session.retained import RetainedDelivery, RetainedMessages
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import RETAINED_FULL, STORE_FAILED
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.options import SharingOptions
from penstock.engine.values.topic_cache import TopicCache
from penstock.engine.values.topics import is_bridge_state, is_shared, is_system_topic, topic_matches
from penstock.engine.work_budget import SENT_BYTES_PER_UNIT

_CACHED_TOPICS_MAX: Final = 10_000

RETAIN_ALWAYS: Final = 0  # [MQTT 5 §3.8.3.1] retain handling
RETAIN_IF_NEW: Final = 1

SYSTEM_TOPICS_MAX: Final = 10_000

LEVEL_WORK: Final = 4  # the work to create or remove a node for a level of a retained topic

LOOKS_PER_UNIT: Final = 8  # queues checked for room that count as one unit of ``work_budget``


@final
class Plan:
    """The decision about one message: which sessions get it, or which full queue refuses it.

    The caller publishes the message at once, because the room may be used up later.

    Args:
        matches: the sessions and groups that get the message.
        blocker: the full queue that refuses the message for all sessions, or None.
    """

    def __init__(self, matches: Matches, blocker: Blocker | None) -> None:
        self.matches = matches
        self.blocker = blocker


@final
class Router:
    """Routes every message of one broker.

    Args:
        context: the parts of the broker that it acts on.
        limits: the limits of the broker.
        stream_filters: topic filters of the configured streams; a message that matches
            one is appended to the log, also at QoS 0.
        drops: the counts of dropped messages, and of messages that could not be retained.
        sharing: the options of shared subscriptions.
    """

    def __init__(
        self,
        context: EngineContext,
        limits: EngineLimits,
        stream_filters: tuple[str, ...],
        drops: Drops,
        sharing: SharingOptions,
    ) -> None:
        self.trie = SubscriptionTrie(context.turn.work_budget)
        self.sharing = SharedSubscriptions(context, drops, sharing)
        self.system = RetainedMessages(SYSTEM_TOPICS_MAX)
        self.own_bridge_states: set[str] = set()  # topics that only this broker's bridges have
        self.subscription_count = 0
        self.shared_subscription_count = 0
        self.retained = RetainedMessages(limits.retained_messages_max, limits.retained_bytes_max)
        self._context = context
        self._drops = drops
        self._stream_filters = stream_filters
        self._stream_cache = TopicCache(_CACHED_TOPICS_MAX)  # 1 = a stream has the topic
        self._work_budget = context.turn.work_budget
        self._blocked_publishers = context.blocked_publishers
        self.may_refuse = limits.rejects  # whether any queue may refuse a message

    def note_limits(self, limits: EngineLimits) -> None:
        """Note that a session uses ``limits``: from now on its queue may refuse messages, if its
        policy is to."""
        self.may_refuse = self.may_refuse or limits.rejects

    def publish(
        self,
        message: Message,
        publisher: Session | None,
        now: Now,
        account: Pool | None = None,
        plan: Plan | None = None,
    ) -> int:
        """Route ``message``; return the number of matching sessions and groups.

        Args:
            message: the published message.
            publisher: the session that published it, for No Local; None for the broker's own
                messages.
            now: the time of the turn.
            account: the account in which the message counts if it is retained; None = the
                publisher's account.
            plan: the decision about the message, from ``plan``; without one, a full queue drops a
                message.
        """
        assert plan is None or plan.blocker is None, "a queue refuses the message for all"
        matches = self.trie.match(message.topic) if plan is None else plan.matches
        append = self._is_in_stream(message.topic)
        if not append and message.qos > 0:
            for match in matches.sessions:
                if match.session.is_stored and match.subscriptions.qos > 0:
                    append = True
                    break
            for group in matches.groups:
                append = append or group.members.stored_qos > 0
        if append and (message.qos > 0 or self._may_append_qos0(message)):
            self._context.batch.append(message)
        events = self._context.events
        event = None if events is None else events.note_received(message)
        if publisher is not None:
            link = publisher.transmission.link
            if link is not None and link.record is not None:
                link.record.received_runs.note(message.offset)
        if message.retain:
            self._work_budget.work_done += LEVEL_WORK * (1 + message.topic.count("/"))
            if account is None and publisher is not None:
                account = publisher.account
            self._retain(message, account)
        at_once = message.qos == 0
        reached: i64 = 0
        planned = plan is not None
        for match in matches.sessions:
            merged = match.own_subscriptions if match.session is publisher else match.subscriptions
            if merged is None:
                continue
            reached += 1
            match.session.outbound.deliver(
                message,
                min(message.qos, merged.qos),
                message.retain and merged.retain_as_published,  # [MQTT-3.3.1-12] [-13]
                merged.subscription_ids,
                at_once,
                now,
                planned,
            )
        for group in matches.groups:
            if group.publish(message, at_once, now, planned):
                reached += 1
        bytes_work: i64 = len(message.payload) // SENT_BYTES_PER_UNIT
        self._work_budget.work_done += reached * (1 + bytes_work) + matches.identifiers
        if event is not None:
            event["sessions"] = reached
        return reached

    def _may_append_qos0(self, message: Message) -> bool:
        """Return whether a QoS 0 message may be appended to the log; count it as dropped if not.

        While the store cannot write, it may be appended only if memory has room.
        """
        if (
            not self._context.store_health.is_failing
            or self._context.store_health.has_room_for_qos0()
        ):
            return True
        self._drops.count(STORE_FAILED, message.client_id, message.topic)
        return False

    def plan(self, message: Message, publisher: Session | None) -> Plan:
        """Return the plan of ``message`` (QoS 1 or 2): its sessions, and a queue that refuses
        it."""
        matches = self.trie.match(message.topic)
        size_bytes = message.size_bytes()
        looked_at = 0
        refused_by: Blocker | None = None
        for match in matches.sessions:
            looked_at += 1
            merged = match.own_subscriptions if match.session is publisher else match.subscriptions
            session = match.session
            if merged is None or merged.qos == 0:
                continue
            if not session.transmission.may_receive(message.topic):
                continue
            if session.refuses(size_bytes):
                refused_by = session
                break
        if refused_by is None:
            for group in matches.groups:
                looked_at += 1 + len(group.members.connected_members)
                if group.refuses_message(message):
                    refused_by = group.queue
                    break
        self._blocked_publishers.work += looked_at
        self._work_budget.work_done += looked_at // LOOKS_PER_UNIT
        return Plan(matches, refused_by)

    def publish_if_room(
        self, message: Message, publisher: Session | None, now: Now
    ) -> Blocker | None:
        """Route ``message``, unless a full queue refuses it; return that queue, or None."""
        if message.qos == 0 or not self.may_refuse:
            self.publish(message, publisher, now)
            return None
        plan = self.plan(message, publisher)
        if plan.blocker is None:
            self.publish(message, publisher, now, None, plan)
        return plan.blocker

    def publish_system(self, topic: str, value: bytes, now: Now) -> bool:
        """Publish ``value`` as the value of a ``$SYS`` topic; return whether the value changed.

        The message is like a retained message of QoS 0, but in memory only: it is neither logged
        nor stored, and not queued for offline clients, for which it would be out of date.
        """
        known = self.system.get(topic)
        if known is not None and known.payload == value:
            return False
        message = Message(topic, value, 0, True, "", now.wall_us, lead_us=now.lead_us)
        self.system.put(message)
        self._deliver_system(message, self.trie.match(topic), now)
        return True

    def is_foreign_bridge_state(self, topic: str) -> bool:
        """Return whether ``topic`` is the connection state of another broker's bridge."""
        return is_bridge_state(topic) and topic not in self.own_bridge_states

    def publish_bridge_state(self, topic: str, value: bytes, now: Now) -> None:
        """Publish the connection state of a foreign bridge; an empty ``value`` removes its topic.

        Like all values of ``$SYS`` it is in memory only. Foreign bridges may use half of the
        ``$SYS`` topics; beyond that, a value is published to current subscribers but not retained.
        """
        if self.system.get(topic) is None and 2 * len(self.system) >= SYSTEM_TOPICS_MAX:
            self.publish_unretained(topic, value, self.trie.match(topic), now)
            return
        self.publish_system(topic, value, now)
        if not value:
            self.system.remove(topic)

    def publish_unretained(self, topic: str, value: bytes, matches: Matches, now: Now) -> None:
        """Publish ``value`` to the subscribers in ``matches``, without retaining it."""
        self._deliver_system(
            Message(topic, value, 0, False, "", now.wall_us, lead_us=now.lead_us), matches, now
        )

    def _deliver_system(self, message: Message, matches: Matches, now: Now) -> None:
        self._work_budget.work_done += len(matches.sessions) + len(matches.groups)
        for match in matches.sessions:
            if match.session.link is not None:
                merged = match.subscriptions
                retain = message.retain and merged.retain_as_published
                match.session.outbound.deliver(
                    message, 0, retain, merged.subscription_ids, True, now
                )
        for group in matches.groups:
            group.publish_system(message, now)

    def subscribe(self, session: Session, entry: SessionSubscription) -> bool:
        """Add a subscription, or replace the one with the same filter; return whether it is new."""
        topic_filter = entry.subscription.topic_filter
        is_new = topic_filter not in session.subscriptions
        session.subscriptions[topic_filter] = entry
        if is_new:
            self._count_subscription(session, topic_filter, 1)
        if is_shared(topic_filter):
            group = self.sharing.join(session, entry)
            if group is not None:
                self.trie.add_group(group)
        else:
            self.trie.add(session, topic_filter, entry)
            if not is_new:
                session.backlog.recheck_blocked_publishers()
        return is_new

    def deliver_retained(
        self, session: Session, entry: SessionSubscription, is_new: bool, now: Now
    ) -> None:
        """Send the retained messages that the Retain Handling of a subscription asks for, after its
        SUBACK.

        A shared subscription gets no retained messages (v5 §4.8.2).
        """
        if is_shared(entry.subscription.topic_filter):
            return
        handling = entry.subscription.retain_handling
        if handling != RETAIN_ALWAYS and not (handling == RETAIN_IF_NEW and is_new):
            return
        ids = (entry.identifier,) if entry.identifier > 0 else ()
        if is_system_topic(entry.subscription.topic_filter):
            found = self.system.match(entry.subscription.topic_filter)
            self._work_budget.work_done += len(self.system)
            for message in found:
                session.outbound.deliver(message, 0, True, ids, False, now)
            return
        if not self.retained.may_match(entry.subscription.topic_filter):
            session.outbound.refill(now)  # as behind the last retained message
            return
        delivery = RetainedDelivery(
            self.retained,
            entry.subscription.topic_filter,
            entry.subscription.qos,
            ids,
            session.client_id if entry.subscription.no_local else None,
            session.is_stored,
            self._context,
        )
        session.outbound.deliver_retained(delivery, now)  # [MQTT-3.3.1-8]

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Remove a subscription; return whether there was one."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        session.outbound.stop_retained(topic_filter)
        self._count_subscription(session, topic_filter, -1)
        if is_shared(topic_filter):
            group = self.sharing.leave(session, topic_filter)
            if group is not None:
                self.trie.remove_group(group)
        else:
            self.trie.remove(session, topic_filter)
            session.backlog.recheck_blocked_publishers()
        return True

    def _count_subscription(self, session: Session, topic_filter: str, step: int) -> None:
        self.subscription_count += step
        session.account.count_subscription(topic_filter, step)
        if is_shared(topic_filter):
            self.shared_subscription_count += step

    def _retain(self, message: Message, account: Pool | None) -> None:
        if not message.payload:
            if self.retained.remove(message.topic):
                self._context.batch.put_retained(message.topic, None)
        elif self.retained.put(message, account):
            self._context.batch.put_retained(message.topic, message)
        else:
            if self.retained.remove(message.topic):  # it is not the last value any more
                self._context.batch.put_retained(message.topic, None)
            self._drops.count(RETAINED_FULL, message.client_id, message.topic)

    def _is_in_stream(self, topic: str) -> bool:
        streamed = self._stream_cache.numbers.get(topic)
        if streamed is None:
            streamed = 0
            for topic_filter in self._stream_filters:
                if topic_matches(topic_filter, topic):
                    streamed = 1
                    break
            self._stream_cache.put(topic, streamed)
        return streamed == 1
