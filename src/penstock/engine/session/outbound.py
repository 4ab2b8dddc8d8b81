"""The outbound half of a session: a message is sent, or queued until ``refill`` sends it.

::

      deliver ─▶ QoS 0 ───────────────▶ link, at once            (queue while offline)
              ─▶ QoS 1, 2 ─▶ window has room ─▶ link, once its state is on disk
                          ─▶ else ─▶ queue ─▶ refill ─▶ window …

Invariants:

1. A stored session sends a QoS 2 message, and PUBREL, only after the commit of its packet
   identifier. It sends a QoS 1 message only once the message is on disk, and a record that the
   message may have been sent (``stored_queue``). Other sessions send a message once it is on disk.
2. First in, first out for each topic and QoS [MQTT-4.6.0-5]: QoS 0 may overtake messages that
   wait for the window; no other message overtakes the queue.
3. A body that is in the log need not be in memory; it is requested (``requested_offsets``) before
   its message is sent, and supplied later, and the messages behind it wait.

The window is in ``transmission``, the queue in ``backlog``; ``send_room`` answers whether there is
room.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext, GroupSource
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.congestion import NOTHING
from penstock.engine.session.outlet import Passage
from penstock.engine.session.retained import PORTION, RetainedDelivery
from penstock.engine.session.send_room import NO_ROOM
from penstock.engine.session.transmission import NO_BODIES, Transmission
from penstock.engine.values import drop_reasons
from penstock.engine.values.clock import Now
from penstock.engine.values.event_kinds import MOVED
from penstock.engine.values.limit_usage import WINDOW, WRITE_BUFFER
from penstock.engine.values.limits import LARGE_BYTES, EngineLimits
from penstock.engine.values.message import Delivery, Message, SharedOrigin
from penstock.engine.values.priorities import SLOT_SHIFT
from penstock.engine.wire.link import Link

SHARED_SLOT: Final = 1  # the slot in sequence numbers of messages of shared subscriptions


@final
class Outbound:
    """The messages for one client: sent, or queued until the window has room.

    Args:
        backlog: the queued messages.
        transmission: the messages in flight.
        context: the parts of the broker that it acts on.
    """

    def __init__(
        self, backlog: Backlog, transmission: Transmission, context: EngineContext
    ) -> None:
        self.max_age_us = 0  # of the client library: older messages have expired; 0 = no limit
        self.shared_filters: dict[str, None] | None = None  # filters of its shared subscriptions
        self._backlog = backlog
        self._transmission = transmission
        self._window = transmission.window
        self._room = transmission.room
        self._queue = backlog.queue
        self._context = context
        self._retained_deliveries: dict[str, RetainedDelivery] | None = (
            None  # retained messages that are not delivered yet, by topic filter
        )

    # -- connections -------------------------------------------------------------------

    def resume(self, limits: EngineLimits, receive_maximum: int, now: Now) -> None:
        """Send the messages in flight again, then refill: a connection was attached."""
        self._queue.client_connected()
        self._backlog.set_limits(limits)
        self._transmission.stop_fetching()
        capacity = limits.window(receive_maximum)
        if self._transmission.poison_detector is not None:
            capacity = self._transmission.poison_detector.begin_connection(capacity)
        self._window.begin_connection(capacity)
        self._backlog.recheck_blocked_publishers()
        self.refill(now)

    def on_disconnect(self) -> None:
        """Release message bodies that are in the log, and pack the queue: the connection ended."""
        self._transmission.stop_fetching()
        self._transmission.requested_offsets = NO_BODIES
        self._window.on_disconnect()
        outlet = self._transmission.outlet
        if outlet is not None and outlet.permissions is not None:
            outlet.permissions.clear_cache()
        if self._backlog.is_stored:
            self._queue.client_disconnected()
            self._window.release_bodies()

    # -- sending -----------------------------------------------------------------------

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        at_once: bool,
        now: Now,
        is_planned: bool = False,
    ) -> None:
        """Send, queue or drop one message for this session.

        Args:
            message: the published message.
            qos: 0..2, the smaller of the published and the granted QoS.
            retain: the RETAIN flag to send.
            subscription_ids: identifiers of the subscriptions that matched.
            at_once: whether QoS 0 need not wait for the commit of this turn.
            now: the time of the turn.
            is_planned: whether ``Router.plan`` accepted the message, so that it must be queued.
        """
        transmission = self._transmission
        passage: Passage | None = None
        outlet = transmission.outlet
        if outlet is not None:
            passage = transmission.passage(outlet, message)
            if passage is None:
                return
            qos = min(qos, passage.qos_max)
            retain = retain and passage.keeps_retain
        if qos == 0:
            self._deliver_qos0(message, retain, subscription_ids, at_once, now, passage)
            return
        delivery = Delivery(message, message.offset, qos, retain, subscription_ids)
        self._deliver_acknowledged(delivery, message, is_planned, now, passage)

    def _deliver_qos0(
        self,
        message: Message,
        retain: bool,
        subscription_ids: tuple[int, ...],
        at_once: bool,
        now: Now,
        passage: Passage | None,
    ) -> None:
        link = self._transmission.link
        would_overtake = self._queue.qos0_count > 0  # [MQTT-4.6.0-6]
        if link is not None and (
            link.is_congested
            or (
                not would_overtake
                and (
                    len(message.payload) < LARGE_BYTES
                    or self._room.has_room_for_qos0(link, message.size_bytes())
                )
            )
        ):
            self._transmission.send_qos0(
                link, message, retain, subscription_ids, at_once, now, passage
            )
        elif link is not None or self._backlog.limits.mqueue_store_qos0:
            waiting = Delivery(message, message.offset, 0, retain, subscription_ids)
            self._backlog.enqueue(waiting, message, False)
            self._transmission.congestion.update_queue_full(self._queue, now)
        else:
            self._backlog.count_dropped_message(drop_reasons.QOS0_OFFLINE, message, 0)

    def _deliver_acknowledged(
        self,
        delivery: Delivery,
        message: Message,
        is_planned: bool,
        now: Now,
        passage: Passage | None,
    ) -> None:
        transmission = self._transmission
        backlog = self._backlog
        link = transmission.link
        if link is None:
            backlog.enqueue(delivery, message, is_planned)
            transmission.congestion.update_queue_full(self._queue, now)
        elif self._room.has_room_for_new(link, message):
            if backlog.is_stored and message.offset >= 0:
                delivery.sequence = backlog.stored_queue.lane(
                    backlog.priority_of(message)
                ).next_sequence_number()
                backlog.note_dequeued(delivery)
            transmission.send_new(link, delivery, message, now, passage)
        else:
            backlog.enqueue(delivery, message, is_planned)
            cause = self._room.wait_for_room(link, delivery.size_bytes)
            transmission.congestion.update_queue_full(self._queue, now)
            if cause != NOTHING:
                transmission.congestion.set_cause(cause, now)

    def refill(self, now: Now) -> None:
        """Fill the window: send unacknowledged messages again, then queued messages.

        Messages of the session's queue and of its groups' queues are sent in the order of their
        priority, then of their log offset.
        """
        transmission = self._transmission
        backlog = self._backlog
        link = transmission.link
        backlog.wake_blocked_publishers()
        if link is None or transmission.is_fetching:
            return
        room = self._room
        if not room.has_room_for_packet(link):
            if link.is_congested and len(self._queue) > 0:
                transmission.congestion.set_cause(WRITE_BUFFER, now)
            return
        if not transmission.resend(link, now):
            return
        queue = self._queue
        groups_with_backlog = self._groups_with_backlog()
        head = queue.head()
        while True:
            if groups_with_backlog and self._take_from_group(groups_with_backlog, head, now):
                continue
            if head is None:
                break
            if head.qos > 0 and not room.has_room_for_flight():
                if queue.qos0_count > 0 and not self._send_qos0_past_window(link, now):
                    return
                while self._take_from_group(groups_with_backlog, None, now):
                    pass  # QoS 0
                break
            if not room.has_room_for_next(link, head.size_bytes):
                return
            message = head.message
            if message is None:
                offsets = queue.offsets_without_body(transmission.bodies_at_once())
                transmission.request_bodies(offsets, head.size_bytes)
                return
            if (
                link.has_only_sealed_publishes()
                and link.is_open
                and transmission.may_precede_commit(head)
            ):
                link.resume_when_room()  # then it can be sent at once
                return
            queue.pop()
            backlog.note_dequeued(head)
            if self._is_expired(message, now):
                self._backlog.count_dropped(drop_reasons.EXPIRED, head)
            elif head.qos == 0:
                self._send_waiting_qos0(link, head, message, now)
            else:
                transmission.send_new(link, head, message, now, None)
            head = queue.head()
        transmission.congestion.update_queue_full(self._queue, now)
        transmission.congestion.set_cause(WINDOW if len(self._queue) > 0 else NOTHING, now)
        if self._retained_deliveries is not None:
            self._continue_retained(link, now)

    def drop_expired_before(self, offset: int, now: Now) -> None:
        """Drop messages from the head of the queue, up to the first that is neither expired nor
        below ``offset`` in the log.

        A message without a body in memory counts as not expired. Messages in flight stay.
        """
        head = self._queue.head()
        while head is not None:
            is_late = head.message is not None and self._is_expired(head.message, now)
            if not is_late and not 0 <= head.offset < offset:
                return
            self._queue.pop()
            self._backlog.note_dropped(head)
            self._backlog.count_dropped(drop_reasons.EXPIRED, head)
            head = self._queue.head()

    def _is_expired(self, message: Message, now: Now) -> bool:
        """Return whether ``message`` expired, or is older than ``max_age_us``."""
        if 0 < self.max_age_us <= now.steady_us - message.steady_us:
            return True
        return message.expires_at_us > 0 and message.is_expired(now.steady_us)

    def _send_qos0_past_window(self, link: Link, now: Now) -> bool:
        """Send the queued QoS 0 messages although the window is full; return whether all were sent.

        The window limits QoS 1 and 2 only [MQTT 5 §4.9], and the order need be kept only among
        messages of the same QoS [MQTT-4.6.0-5].
        """
        queue = self._queue
        delivery = queue.first_qos0()
        while delivery is not None:
            if not self._room.has_room_for_next(link, delivery.size_bytes):
                return False
            message = delivery.message
            if message is None:
                offsets = queue.qos0_offsets_without_body(self._transmission.bodies_at_once())
                self._transmission.request_bodies(offsets, delivery.size_bytes)
                return False
            queue.take_qos0()
            if self._is_expired(message, now):
                self._backlog.count_dropped(drop_reasons.EXPIRED, delivery)
            else:
                self._send_waiting_qos0(link, delivery, message, now)
            delivery = queue.first_qos0()
        return True

    def _send_waiting_qos0(
        self, link: Link, delivery: Delivery, message: Message, now: Now
    ) -> None:
        ids = delivery.subscription_ids
        self._transmission.send_qos0(link, message, delivery.retain, ids, False, now, None)

    def deliver_retained(self, delivery: RetainedDelivery, now: Now) -> None:
        """Deliver the retained messages for a subscription, now and as room becomes free."""
        self.stop_retained(delivery.topic_filter)
        if self._retained_deliveries is None:
            self._retained_deliveries = {}
        self._retained_deliveries[delivery.topic_filter] = delivery
        self.refill(now)

    def stop_retained(self, topic_filter: str) -> None:
        """Stop delivering retained messages for a subscription that ended or was replaced."""
        if self._retained_deliveries is not None:
            self._retained_deliveries.pop(topic_filter, None)

    def _continue_retained(self, link: Link, now: Now) -> None:
        visits_left = PORTION
        while self._retained_deliveries:
            if not self._room.has_room_for_packet(link):
                return
            delivery = next(iter(self._retained_deliveries.values()))
            if not self._room.has_room_for_retained(delivery.qos):
                return
            delivery.visits_left = visits_left
            message = delivery.next(now)
            visits_left = delivery.visits_left
            if message is not None:
                qos = min(message.qos, delivery.qos)
                self.deliver(message, qos, True, delivery.subscription_ids, False, now)
            elif delivery.is_finished:
                del self._retained_deliveries[delivery.topic_filter]
            else:
                self._context.turn.waiting.until_turn(link.resumable)
                return
        self._retained_deliveries = None

    # -- bodies from the log -------------------------------------------------------------

    def supply(self, offsets: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Take the requested bodies, by log offset, and refill the window.

        A message whose body is missing was removed by retention, and is counted as dropped. Bodies
        that were requested on an earlier connection are ignored: ``offsets`` is not the list
        ``requested_offsets`` then.
        """
        transmission = self._transmission
        backlog = self._backlog
        queue = self._queue
        if offsets is not transmission.requested_offsets:
            return
        transmission.stop_fetching()
        missing = {offset for offset in offsets if offset not in bodies}
        gone = self._window.supply(bodies, missing)
        queue.supply(bodies)
        while True:
            head = queue.head()
            if head is None or head.message is not None or head.offset not in missing:
                break
            queue.pop()
            backlog.note_dequeued(head)
            gone.append(head)
        waiting = queue.first_qos0()
        while waiting is not None and waiting.message is None and waiting.offset in missing:
            queue.take_qos0()
            gone.append(waiting)
            waiting = queue.first_qos0()
        transmission.drop_lost_by_retention(gone)
        self.refill(now)
        if backlog.is_stored and not backlog.account.has_room_for_bodies():
            queue.evict_to_log()

    # -- shared subscriptions (see ``shared_group``) --------------------------------------

    def room_for_shared(self, group: GroupSource | None) -> int:
        """Return the room for messages of a group: ``NO_ROOM``, ``ONLY_QOS_0`` or ``ANY_QOS``.

        Args:
            group: the group whose queued messages are to be sent; None for a new message.
        """
        link = self._transmission.link
        if link is None or self._transmission.is_fetching:
            return NO_ROOM
        is_next = len(self._queue) == 0 or (group is not None and self._is_group_first(group))
        return self._room.has_room_for_group(link, is_next)

    def send_shared(
        self,
        message: Message,
        offset: int,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        shared: SharedOrigin,
        at_once: bool,
        now: Now,
    ) -> None:
        """Send a message of a group, for which there must be room; ``offset`` is its log offset.

        Its sequence number is of the lane ``SHARED_SLOT``, in which no delivery ever waits.
        """
        transmission = self._transmission
        link = transmission.link
        assert link is not None
        passage: Passage | None = None
        outlet = transmission.outlet
        if outlet is not None:
            passage = transmission.passage(outlet, message)
            if passage is None:
                return
            qos = min(qos, passage.qos_max)
        if qos == 0:
            transmission.send_qos0(link, message, retain, subscription_ids, at_once, now, passage)
            return
        delivery = Delivery(message, offset, qos, retain, subscription_ids)
        delivery.shared_origin = shared
        delivery.size_bytes = message.size_bytes()
        if self._backlog.is_stored and offset >= 0:
            number = SHARED_SLOT << SLOT_SHIFT | self._backlog.priority_of(message)
            delivery.sequence = self._backlog.stored_queue.lane(number).next_sequence_number()
            self._backlog.note_dequeued(delivery)
        transmission.send_new(link, delivery, message, now, passage)

    def _groups_with_backlog(self) -> list[GroupSource]:
        """Return the groups of this session whose queues have messages."""
        groups_with_backlog = self._context.groups_with_backlog
        filters = self.shared_filters
        if not groups_with_backlog or filters is None:
            return []
        if len(groups_with_backlog) < len(filters):
            return [group for name, group in groups_with_backlog.items() if name in filters]
        return [groups_with_backlog[name] for name in filters if name in groups_with_backlog]

    def _take_from_group(
        self, groups_with_backlog: list[GroupSource], head: Delivery | None, now: Now
    ) -> bool:
        """Send one message of a group that comes before ``head``; return whether there was one.

        A group without such a message for this session is removed from ``groups_with_backlog``.
        """
        owner = self._backlog.owner
        if owner is None:
            return False
        place = 0
        while place < len(groups_with_backlog):
            group = groups_with_backlog[place]
            if head is not None and not self._is_group_first(group):
                place += 1
                continue
            del groups_with_backlog[place]
            if group.give_next_to(owner, now):
                groups_with_backlog.append(group)  # behind the other groups, which are next
                return True
        return False

    def _is_group_first(self, group: GroupSource) -> bool:
        """Return whether the next message of ``group`` comes before all of this queue."""
        head = self._queue.head()
        return head is None or group.precedes(self._queue.rank_of_head(), head.offset)

    def shared_in_flight(self) -> list[Delivery]:
        """Return the QoS 1 deliveries of shared subscriptions in flight, the oldest first; they are
        returned to their groups when the connection is lost."""
        return self._window.shared_in_flight()

    def remove_in_flight(self, taken: list[Delivery]) -> None:
        """Remove the deliveries ``taken``, which groups took back, from the window."""
        events = self._context.events
        if events is not None:
            for delivery in taken:
                events.note_delivery(MOVED, self._backlog.client_id, delivery)
        self._window.remove_in_flight(set(taken))
        self._backlog.mark_changed()
        self._backlog.wake_blocked_publishers()

    # -- lag ---------------------------------------------------------------------------

    def oldest(self) -> Delivery | None:
        """Return the oldest delivery that the peer has not acknowledged by PUBACK or PUBREC; None
        if there is none.

        The delivery is left in place, and its body may be in the log only. Deliveries that are not
        in the log count as the oldest.
        """
        waiting = self._queue.oldest()
        in_flight = self._window.undelivered_entries()
        if in_flight and (waiting is None or in_flight[0].offset < waiting.offset):
            return in_flight[0]
        return waiting

    # -- retention ---------------------------------------------------------------------

    def lowest_offset(self) -> int:
        """Return the lowest log offset that this session still needs, or -1."""
        waiting = self._queue.lowest_offset(False)
        sent = self._window.lowest_offset()
        return waiting if sent < 0 or 0 <= waiting < sent else sent
