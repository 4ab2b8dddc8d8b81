"""The transmission of messages to one client: sending, acknowledgements, and sending again.

::

      new message ─▶ joins the window, gets a packet identifier ─▶ link, once its state is on disk
                          │            ▲
                          │            ╰ again: on the next connection [MQTT-4.4.0-1], and after
                          ▼              a timeout in MQTT 3.1 (v3.1 §4.1)
      PUBACK, PUBREC, PUBCOMP (``window``) ─▶ the window has room ─▶ refill

A body that is in the log need not be in memory. It is requested (``requested_offsets``) before its
message is sent, from the window or from the queue, and supplied later; the messages behind it wait.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.congestion import Congestion
from penstock.engine.session.outcome import DeliveryOutcomes
from penstock.engine.session.outlet import Outlet, Passage
from penstock.engine.session.packet_ids import packet_id_of
from penstock.engine.session.poison_message import PoisonMessageDetector
from penstock.engine.session.send_room import SendRoom
from penstock.engine.session.window import REJECTED, RELEASE, UNKNOWN, VIOLATION, InFlightWindow
from penstock.engine.values import drop_reasons
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.event_kinds import ACKNOWLEDGED, COMPLETED, RESENT, SENT
from penstock.engine.values.limit_usage import WRITE_BUFFER, LimitUsage
from penstock.engine.values.limits import (
    FETCHED_BYTES_MAX,
    PACKET_IDENTIFIERS,
    SMALL_BYTES,
)
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.records import AWAIT_PUBCOMP
from penstock.engine.wire.link import Link
from penstock.engine.wire.publish_packet import add_publish
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode, encode_ack
from penstock.protocol.kinds import PUBCOMP, PUBREC, PUBREL, V31
from penstock.protocol.packets import Pubrel

NO_BODIES: Final[list[int]] = []  # the value of ``requested_offsets`` while no body is requested
_BODIES_AT_ONCE_MAX: Final = 256  # requested from the log in one step


@final
class Transmission:
    """Sends the messages of one client through its in-flight window.

    Args:
        backlog: the messages that wait for room in the window.
        context: the parts of the broker that it acts on.
        drops: the counts of dropped messages.
    """

    def __init__(self, backlog: Backlog, context: EngineContext, drops: Drops) -> None:
        self.link: Link | None = None  # None while the client is offline
        self.outlet: Outlet | None = None  # None = every message is sent as it is
        self.outcomes: DeliveryOutcomes | None = None  # is notified of the outcome of each message
        self.poison_detector: PoisonMessageDetector | None = None  # of a bridge
        capacity = backlog.limits.window(PACKET_IDENTIFIERS)
        self.window = InFlightWindow(capacity, backlog.is_stored, backlog.account)
        self.room = SendRoom(self.window, backlog, context)
        self.congestion = Congestion(backlog.client_id, context)
        self.requested_offsets = NO_BODIES  # log offsets of the bodies that were requested last
        self.is_fetching = False  # whether these bodies are being read
        self.has_acknowledged = False  # whether the client acknowledged since the last snapshot
        self.fetching_bytes = 0  # counted in the budget for these bodies
        self._backlog = backlog
        self._context = context
        self._drops = drops

    def may_receive(self, topic: str) -> bool:
        """Return whether this client is permitted to receive messages with this topic."""
        outlet = self.outlet
        return outlet is None or outlet.may_receive(topic)

    def passage(self, outlet: Outlet, message: Message) -> Passage | None:
        """Return how ``message``, which was just published, leaves the session through ``outlet``.

        None if it does not: it is counted as dropped, unless it is none of this session's.
        """
        passage = outlet.passage(message)
        if passage is None and not outlet.is_of_settings:
            self._drop_refused(Delivery(message, message.offset, 0))
        return passage

    def limit_usage(self, limit: int) -> LimitUsage | None:
        """Return the use of ``limit``; None if no limit was reached yet."""
        return self.congestion.usage(limit)

    @property
    def window_size(self) -> int:
        """Return the capacity of the window, in messages."""
        return self.window.capacity

    # -- sending -----------------------------------------------------------------------

    def send_new(
        self,
        link: Link,
        delivery: Delivery,
        message: Message,
        now: Now,
        passage: Passage | None,
    ) -> None:
        """Add ``delivery``, with the body ``message``, to the window, and send it.

        ``passage`` is the answer of the outlet if it was just asked, or None.
        """
        is_lowered = delivery.qos > link.qos_max
        if is_lowered:  # [MQTT-3.2.2-11]
            delivery.qos = link.qos_max
            if delivery.qos == 0:
                ids = delivery.subscription_ids
                self.send_qos0(link, message, delivery.retain, ids, False, now, passage)
                self._report_acknowledged(delivery)
                return
        self.window.add(delivery)
        self._backlog.mark_changed()
        at_once = (
            link.uncommitted_publishes == 0
            and not is_lowered  # the store has it with its former QoS
            and self._may_send_at_once(link, delivery)
        )
        if not self._send(
            link, delivery, message, self._may_have_been_sent(delivery), at_once, now, passage
        ):
            self.window.drop(delivery.packet_id)
            return
        events = self._context.events
        if events is not None:
            events.note_sent(SENT, self._backlog.client_id, delivery, None if at_once else link)
        if link.version == V31:
            self._note_sent(link, delivery, now)
        elif (
            len(message.payload) > SMALL_BYTES
            and self._backlog.is_stored
            and not self._backlog.account.has_room_for_bodies()
        ):
            self.window.evict_to_log(delivery)

    def _may_send_at_once(self, link: Link, delivery: Delivery) -> bool:
        """Return whether ``delivery``, which is in the window, may be sent before the commit."""
        if not link.is_open or not self.may_precede_commit(delivery):
            return False
        return not self._backlog.is_stored or delivery.packet_id == packet_id_of(delivery.sequence)

    def may_precede_commit(self, delivery: Delivery) -> bool:
        """Return whether ``delivery`` may be sent before the next commit.

        It may if the message is on disk and, for a stored session, so is the record that it may
        have been sent: then after a crash it is still in the queue, and sent again as the same
        packet. Three kinds always wait for the commit: QoS 2, for its packet identifier; messages
        of shared subscriptions, which the store has in the queue of the group; and retained
        messages, which must follow their SUBACK. If a commit takes no longer than a turn, all
        messages wait for it.
        """
        context = self._context
        if not context.store_health.waits_for_disk:
            return False
        if delivery.shared_origin is not None or delivery.retain:
            return False
        if not self._backlog.is_stored:
            return 0 <= delivery.offset < context.store_health.durable_log_end
        sequence = delivery.sequence
        if delivery.qos != 1 or sequence == 0:
            return False
        return self._backlog.stored_queue.first.may_send(
            sequence, context.store_health.durable_batch
        )

    def _may_have_been_sent(self, delivery: Delivery) -> bool:
        """Return whether ``delivery`` may have been sent before the program was restarted."""
        if delivery.qos != 1 or delivery.shared_origin is not None or delivery.retain:
            return False
        return 0 < delivery.sequence < self._backlog.stored_queue.first.sent_below

    def _send(
        self,
        link: Link,
        entry: Delivery,
        message: Message,
        duplicate: bool,
        at_once: bool,
        now: Now,
        passage: Passage | None,
    ) -> bool:
        """Send the PUBLISH of ``entry``; return whether it was sent. If not, count it as
        dropped."""
        outgoing = message
        outlet = self.outlet
        if outlet is not None:
            changed = _outgoing(outlet, message, passage, link.version)
            if changed is None:
                self._drop_refused(entry)
                return False
            outgoing = changed
        buffer = link.buffer_for_publish(at_once)
        size_bytes = add_publish(
            buffer,
            link,
            outgoing,
            entry.qos,
            entry.retain and link.retain_available,  # [MQTT-3.2.2-14]
            duplicate,
            entry.packet_id,
            entry.subscription_ids,
            0 if at_once else link.next_batch(),
            now,
        )
        if size_bytes == 0:
            self._drop_too_large(message, entry.qos)
            return False
        link.count_publish_written(buffer, size_bytes)
        link.record_written(buffer, entry.offset)
        if outlet is not None:
            outlet.note_sent()
        return True

    def send_qos0(
        self,
        link: Link,
        message: Message,
        retain: bool,
        subscription_ids: tuple[int, ...],
        at_once: bool,
        now: Now,
        passage: Passage | None,
    ) -> None:
        """Send ``message`` with QoS 0; count it as dropped if the client does not read.

        ``passage`` is the answer of the outlet if it was just asked, or None.
        """
        if link.is_congested:
            self.congestion.set_cause(WRITE_BUFFER, now)
            self._backlog.count_dropped_message(drop_reasons.SLOW_CONSUMER, message, 0)
            return
        outgoing = message
        outlet = self.outlet
        if outlet is not None:
            changed = _outgoing(outlet, message, passage, link.version)
            if changed is None:
                self._drop_refused(Delivery(message, message.offset, 0))
                return
            outgoing = changed
        if (
            not at_once
            and self._context.store_health.is_failing
            and link.is_open
            and not link.has_waiting_packets
        ):
            at_once = True
        batch = -1 if link.aliases is None else link.batch_of_qos0(at_once)
        retain = retain and link.retain_available
        buffer = link.buffer_for_qos0(at_once)
        size_bytes = add_publish(
            buffer, link, outgoing, 0, retain, False, 0, subscription_ids, batch, now
        )
        if size_bytes == 0:
            self._drop_too_large(message, 0)
            return
        if outlet is not None:
            outlet.note_sent()
        link.count_qos0_written(buffer, size_bytes)
        link.record_written(buffer, message.offset)
        events = self._context.events
        if events is not None:
            delivery = Delivery(message, message.offset, 0)
            events.note_sent(SENT, self._backlog.client_id, delivery, None if at_once else link)

    def _drop_too_large(self, message: Message, qos: int) -> None:
        """Count ``message`` as dropped: its packet is too large for the peer."""
        self._backlog.count_dropped_message(drop_reasons.PACKET_TOO_LARGE, message, qos)

    def _drop_refused(self, delivery: Delivery) -> None:
        """Count ``delivery`` as dropped: its message does not pass the outlet."""
        self._drops.count_delivery(drop_reasons.NO_PERMISSION, self._backlog.client_id, delivery)
        self._backlog.note_dropped(delivery)

    def allocate_request_id(self) -> int:
        """Return a packet identifier for SUBSCRIBE or UNSUBSCRIBE, in use until
        ``free_packet_id``; 0 if none is free."""
        return self.window.allocate_request_id()

    def free_packet_id(self, packet_id: int) -> bool:
        """Free the packet identifier of a SUBACK or UNSUBACK; return whether it was in use."""
        if not self.window.is_request_id(packet_id):
            return False
        self.window.free_request_id(packet_id)
        return True

    def acknowledge(self, packet_type: int, packet_id: int, reason_code: int, now: Now) -> bool:
        """Apply a PUBACK, PUBREC or PUBCOMP of the peer to the window.

        Returns:
            Whether the window has room again: the caller calls ``refill``, once for all
            acknowledgements that were received together.

        Raises:
            RemoteProtocolError: 0x82, the message awaits another acknowledgement.
        """
        outcomes = self.outcomes
        events = self._context.events
        needs_entry = reason_code >= 0x80 or outcomes is not None or events is not None
        entry = self.window.get(packet_id) if needs_entry else None
        is_first = entry is not None and entry.state != AWAIT_PUBCOMP
        if events is not None and entry is not None:
            events.has_events(entry)  # needs the topic, before the window releases the body
        verdict = self.window.acknowledge(packet_type, packet_id, reason_code)
        link = self.link
        if verdict == VIOLATION:
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, f"packet identifier {packet_id} awaits another packet"
            )
        if verdict == UNKNOWN:
            if packet_type == PUBREC and reason_code < 0x80 and link is not None:
                # let the peer finish its flow
                code = reasons.PACKET_IDENTIFIER_NOT_FOUND
                link.send_after_commit(encode_ack(PUBREL, packet_id, code, link.version))
            return False
        self._backlog.mark_changed()
        self.has_acknowledged = True
        if link is not None and link.record is not None and self.window.is_first_acknowledgement:
            link.record.acknowledged_runs.note(self.window.acknowledged_offset)
        if events is not None and entry is not None and verdict != REJECTED:
            kind = ACKNOWLEDGED if self.outlet is None else self.outlet.acknowledged_kind
            if is_first:
                events.note_acknowledged(kind, self._backlog.client_id, entry)
            if packet_type == PUBCOMP:
                events.note_acknowledged(COMPLETED, self._backlog.client_id, entry)
        if verdict == RELEASE:
            if link is not None:
                link.send_plain_after_commit(PUBREL, packet_id)
                entry = self.window.get(packet_id)
                if entry is not None:
                    self._note_sent(link, entry, now)
            return False
        if verdict == REJECTED and entry is not None:
            if outcomes is not None:
                outcomes.on_refused(entry, reason_code)
            self._backlog.count_dropped(drop_reasons.REJECTED, entry)
        elif outcomes is not None and entry is not None:
            if packet_type == PUBCOMP:  # 0x92 answers a repeated PUBREL: the message was received
                reason_code = reasons.SUCCESS
            outcomes.on_acknowledged(entry, reason_code)
        elif self.outlet is not None:
            self.outlet.note_acknowledged()
        if self.poison_detector is not None:
            self.window.capacity = self.poison_detector.widen(self.window.capacity)
        return True

    def peer_ended(self) -> None:
        """Note that the peer ended the connection, maybe because of the first message in flight.

        A message at which the peer ended several successive connections is dropped and counted.
        """
        poison_detector = self.poison_detector
        if poison_detector is None:
            return
        waiting = self.window.undelivered_entries()
        first = waiting[0] if waiting and waiting[0].is_sent else None
        if poison_detector.note_end(first) and first is not None:
            self._backlog.count_dropped(drop_reasons.CONNECTION_ENDED, first)
            self.window.give_up(first)
            self._backlog.mark_changed()

    def _report_acknowledged(self, delivery: Delivery) -> None:
        """Report ``delivery`` as acknowledged: it was sent with QoS 0, which has no answer."""
        if self.outcomes is not None:
            self.outcomes.on_acknowledged(delivery, reasons.SUCCESS)

    # -- sending again -----------------------------------------------------------------

    def resend(self, link: Link, now: Now) -> bool:
        """Send unacknowledged messages of earlier connections again; return False if some must
        wait."""
        entry = self.window.next_to_resend()
        while entry is not None:
            if not self.room.has_room_for_next(link, entry.size_bytes):
                return False
            if entry.state == AWAIT_PUBCOMP:
                if link.version == V31:  # v3.1 §4.1: each part is sent again with DUP
                    link.send_after_commit(encode(Pubrel(entry.packet_id, dup=True), V31))
                else:
                    link.send_plain_after_commit(PUBREL, entry.packet_id)
                self.window.mark_sent(entry)
                self._note_sent(link, entry, now)
            else:
                message = entry.message
                if message is None:
                    limit = self.bodies_at_once()
                    unsent = self.window.resend_offsets_without_body(limit)
                    self.request_bodies(unsent, entry.size_bytes)
                    return False
                if self._send_again(link, entry, message, now):
                    self.window.mark_sent(entry)
                    self._note_sent(link, entry, now)
            entry = self.window.next_to_resend()
        return True

    def _send_again(self, link: Link, entry: Delivery, message: Message, now: Now) -> bool:
        """Send the PUBLISH of ``entry`` again; return whether it still awaits an acknowledgement.

        If not, the entry was given up, or was sent with QoS 0 and is complete.
        """
        if entry.qos > link.qos_max:
            if link.qos_max == 0:
                retain, ids = entry.retain, entry.subscription_ids
                self.send_qos0(link, message, retain, ids, False, now, None)
                self.window.drop(entry.packet_id)
                self._backlog.mark_changed()
                self._report_acknowledged(entry)
                return False
            self.window.lower_qos(entry, link.qos_max)
            self._backlog.mark_changed()
        is_new = entry.is_new_to_receiver
        entry.is_new_to_receiver = False
        if self._send(link, entry, message, not is_new, False, now, None):
            if self.outlet is not None:
                self.outlet.note_resent()
            if self._context.events is not None:
                self._context.events.note_sent(RESENT, self._backlog.client_id, entry, link)
            return True
        self.window.give_up(entry)
        self._backlog.mark_changed()
        return False

    def retry(self, now: Now) -> bool:
        """Send messages again, with DUP, that were not acknowledged for ``retry_interval_s``.

        This is for MQTT 3.1 clients only: later versions forbid it [MQTT-4.4.0-1]. Nothing is sent
        to a client that does not read.

        Returns:
            Whether the window has room again.
        """
        link = self.link
        interval_us = int(self._backlog.limits.retry_interval_s * MICROSECONDS)
        if link is None or link.version != V31 or interval_us <= 0:
            return False
        next_us = 0
        freed = False
        for entry in self.window.entries():
            if not entry.is_sent:
                continue
            if entry.sent_us + interval_us <= now.steady_us and link.has_room():
                message = entry.message
                left = message is None or self._send_again(link, entry, message, now)
                if not left and entry.state != AWAIT_PUBCOMP:
                    freed = True
                    continue
                if entry.state == AWAIT_PUBCOMP:
                    link.send_after_commit(encode(Pubrel(entry.packet_id, dup=True), V31))
                entry.sent_us = now.steady_us
            due_us = max(now.steady_us + 1, entry.sent_us + interval_us)
            if next_us == 0 or due_us < next_us:
                next_us = due_us
        if next_us > 0:
            self._retry_at(next_us)
        return freed

    def _note_sent(self, link: Link, entry: Delivery, now: Now) -> None:
        """Note that a packet of ``entry`` is sent now, and set the timer for ``retry`` (MQTT
        3.1)."""
        if link.version == V31 and self._backlog.limits.retry_interval_s > 0:
            entry.sent_us = now.steady_us
            interval_us = int(self._backlog.limits.retry_interval_s * MICROSECONDS)
            self._retry_at(now.steady_us + interval_us)

    def _retry_at(self, due_us: int) -> None:
        """Set the timer of the session, which calls ``retry``."""
        owner = self._backlog.owner
        if owner is not None:
            self._context.timers.wake_at(owner, due_us)

    # -- bodies from the log -----------------------------------------------------------

    def request_bodies(self, offsets: list[int], size_bytes: int) -> None:
        """Request the bodies at these log offsets, which the shell reads after the next commit.

        If too many bytes are being read already, request nothing, and have the client resumed in
        the next tick.

        Args:
            offsets: the log offsets of the bodies.
            size_bytes: the size of the first body.
        """
        owner = self._backlog.owner
        size_bytes = max(size_bytes, FETCHED_BYTES_MAX)
        if owner is None or not self.room.has_room_for_bodies_to_read(self.link, size_bytes):
            return
        self.is_fetching = True
        self.fetching_bytes = size_bytes
        self._backlog.account.count_fetching(size_bytes)
        self.requested_offsets = offsets
        self._context.batch.body_requests.append((owner, offsets))

    def stop_fetching(self) -> None:
        """Return the memory of requested bodies to the budget: they were supplied, or are not
        needed."""
        self.is_fetching = False
        self._backlog.account.count_fetching(-self.fetching_bytes)
        self.fetching_bytes = 0

    def bodies_at_once(self) -> int:
        """Return how many bodies to request at once: twice the window, up to a limit."""
        return min(_BODIES_AT_ONCE_MAX, 2 * self.window.capacity)

    def drop_lost_by_retention(self, deliveries: list[Delivery]) -> None:
        """Count as dropped messages that retention removed from the log before they were sent."""
        if deliveries:
            self._backlog.mark_changed()
            count = len(deliveries)
            self._drops.count_known(
                drop_reasons.RETENTION, self._backlog.client_id, deliveries, count
            )
            if self.outcomes is not None:
                for delivery in deliveries:
                    self.outcomes.on_drop(drop_reasons.RETENTION, self._backlog.client_id, delivery)


def _outgoing(
    outlet: Outlet, message: Message, passage: Passage | None, version: int
) -> Message | None:
    """Return the form in which ``message`` is sent; None if it does not pass ``outlet``.

    ``passage`` is the answer of the outlet if it was just asked, or None.
    """
    if passage is None:
        passage = outlet.passage(message)
    return None if passage is None else outlet.outgoing(message, passage, version)
