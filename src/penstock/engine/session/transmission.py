"""What is on its way to one client: sent, acknowledged, sent again.

::

      first sending ─▶ window takes it, packet identifier ─▶ link, once all it needs is on disk
                          │            ▲
                          │            ╰ again: on the next connection [MQTT-4.4.0-1], and by
                          ▼              time in MQTT 3.1 (v3.1 §4.1)
      PUBACK, PUBREC, PUBCOMP (``window``) ─▶ a place is free ─▶ refill

A body that lies in the log may be absent from memory. It is asked for (``wanted``) before it
is needed, in the window as in the queue, and supplied later; order waits for it.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.batch.effects import Effects
from penstock.engine.clock import MICROSECONDS, Now
from penstock.engine.limits import (
    FETCHED_BYTES_MAX,
    LARGE_BYTES,
    PACKET_IDENTIFIERS,
    SMALL_BYTES,
    EngineLimits,
)
from penstock.engine.memory.accounts import Account
from penstock.engine.memory.limit_usage import WRITE_BUFFER
from penstock.engine.message import Delivery, Message
from penstock.engine.mount_point import sees
from penstock.engine.reporting import drop_counts as reasons_to_drop
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.reporting.events import ACKNOWLEDGED, BRIDGED, COMPLETED, RESENT, SENT
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.outcome import DeliveryOutcomes
from penstock.engine.session.packet_ids import packet_id_of
from penstock.engine.session.poison_message import PoisonMessageDetector
from penstock.engine.session.window import (
    AWAIT_PUBCOMP,
    REJECTED,
    RELEASE,
    UNKNOWN,
    VIOLATION,
    InFlightWindow,
)
from penstock.engine.wire.link import Link
from penstock.engine.wire.publish_packet import add_publish
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode, encode_ack
from penstock.protocol.kinds import PUBCOMP, PUBREC, PUBREL, V31
from penstock.protocol.packets import Pubrel

_BODIES_AT_ONCE_MAX: Final = 256  # asked from the log in one step


class Transmission(Backlog):
    """The window of one client at work: messages sent, acknowledged and sent again.

    Args:
        client_id: the client identifier.
        stored: whether it outlives its connection.
        effects: where what it does is collected.
        limits: bounds.
        drops: where dropped messages are counted.
    """

    def __init__(
        self,
        client_id: str,
        stored: bool,
        effects: Effects,
        limits: EngineLimits,
        drops: Drops,
        account: Account | None = None,
    ) -> None:
        super().__init__(client_id, stored, effects, limits, drops, account)
        self.wanted: list[int] = []  # log offsets of bodies needed next
        self.sender: DeliveryOutcomes | None = None  # told what became of each message
        self._window = InFlightWindow(limits.window(PACKET_IDENTIFIERS), stored, self.account)
        self.stumbling: PoisonMessageDetector | None = None  # of a bridge
        self._fetching = False
        self._fetching_bytes = 0
        self._acknowledges = False  # has done so since the last snapshot

    def refill(self, now: Now) -> None:
        """There may be room in the window: see ``Outbound.refill``."""

    @property
    def window_length(self) -> int:
        """Messages in flight."""
        return len(self._window)

    @property
    def window_size(self) -> int:
        """Places in the window."""
        return self._window.capacity

    # -- sending -----------------------------------------------------------------------

    def _send_new(self, link: Link, delivery: Delivery, message: Message, now: Now) -> None:
        is_lowered = delivery.qos > link.qos_max
        if is_lowered:  # [MQTT-3.2.2-11]
            delivery.qos = link.qos_max
            if delivery.qos == 0:
                ids = delivery.subscription_ids
                self._send_qos0(link, message, delivery.retain, ids, False, now)
                self._acknowledged(delivery)
                return
        self._window.add(delivery)
        self._touch()
        at_once = (
            link.unreleased_publishes == 0
            and not is_lowered  # the queue has it with its own QoS
            and self._leaves_at_once(link, delivery)
        )
        if not self._send(link, delivery, message, self._may_have_left(delivery), at_once, now):
            self._window.drop(delivery.packet_id)
            return
        events = self._effects.events
        if events is not None:
            events.sent(SENT, self.client_id, delivery, None if at_once else link)
        if link.version == V31:
            self._sent(link, delivery, now)
        elif (
            len(message.payload) > SMALL_BYTES
            and self.stored
            and not self.account.has_room_for_bodies()
        ):
            self._window.evict_to_log(delivery)

    def _leaves_at_once(self, link: Link, delivery: Delivery) -> bool:
        """Whether ``delivery``, which is in the window, need not wait for a commit."""
        if not link.opened or not self._is_on_disk(delivery):
            return False
        return not self.stored or delivery.packet_id == packet_id_of(delivery.sequence)

    def _is_on_disk(self, delivery: Delivery) -> bool:
        """Whether all that sending ``delivery`` promises is, where that takes time.

        For a session that is not stored that is the message. Of another one it is also that it
        may have been sent: after a crash it is found in the queue, and sent again as the same
        packet. At QoS 2 the receiver must hear the same packet identifier, so that it waits for
        the commit. So does what came through a shared subscription: it is the group's, as the
        store has it; and what was retained, which is to come behind its SUBACK.
        """
        effects = self._effects
        if not effects.store.waits_for_disk:
            return False
        if delivery.shared is not None or delivery.retain:
            return False
        if not self.stored:
            return 0 <= delivery.offset < effects.store.durable_end
        sequence = delivery.sequence
        if delivery.qos != 1 or sequence == 0:
            return False
        return self._stored_queue.first.may_leave(sequence, effects.store.durable)

    def _may_have_left(self, delivery: Delivery) -> bool:
        """Whether an earlier start of this program may have sent it."""
        if delivery.qos != 1 or delivery.shared is not None or delivery.retain:
            return False
        return 0 < delivery.sequence < self._stored_queue.first.sent_below

    def _send(
        self,
        link: Link,
        entry: Delivery,
        message: Message,
        duplicate: bool,
        at_once: bool,
        now: Now,
    ) -> bool:
        """Send ``entry``; whether it left."""
        if self.permissions is not None and not self._may_have(entry, message):
            return False
        place = link.place_of_publish(at_once)
        size_bytes = add_publish(
            place,
            link,
            self.forwarding,
            message,
            entry.qos,
            entry.retain and link.retain_available,  # [MQTT-3.2.2-14]
            duplicate,
            entry.packet_id,
            entry.subscription_ids,
            0 if at_once else link.next_batch(),
            now,
        )
        if size_bytes == 0:
            self._unsent(link, message, entry.qos)
            return False
        link.wrote_publish(place, size_bytes)
        return True

    def _may_have(self, delivery: Delivery, message: Message) -> bool:
        """Whether the client may have what waited: that may have changed meanwhile. If not, it is
        counted."""
        if self.may_receive(message):
            return True
        self._drops.refuse(reasons_to_drop.NO_PERMISSION, self.client_id, delivery)
        self._dropped(delivery)
        return False

    def _send_qos0(
        self,
        link: Link,
        message: Message,
        retain: bool,
        subscription_ids: tuple[int, ...],
        at_once: bool,
        now: Now,
    ) -> None:
        if link.congested:
            self._congestion.by(WRITE_BUFFER, now)
            self._lose(reasons_to_drop.SLOW_CONSUMER, message, 0)
            return
        if not at_once and self._effects.store.fails and link.opened and not link.waits:
            at_once = True
        batch = -1 if link.aliases is None else link.batch_of_qos0(at_once)
        retain = retain and link.retain_available
        ids = subscription_ids
        place = link.place_of_qos0(at_once)
        size_bytes = add_publish(
            place, link, self.forwarding, message, 0, retain, False, 0, ids, batch, now
        )
        if size_bytes == 0:
            self._unsent(link, message, 0)
            return
        link.wrote_qos0(place, size_bytes)
        events = self._effects.events
        if events is not None:
            delivery = Delivery(message, message.offset, 0)
            events.sent(SENT, self.client_id, delivery, None if at_once else link)

    def _unsent(self, link: Link, message: Message, qos: int) -> None:
        """Count ``message``, of which there is no packet for this peer."""
        if sees(message.topic, link.mount_point):
            self._lose(reasons_to_drop.PACKET_TOO_LARGE, message, qos)
        else:
            refused = Delivery(message, message.offset, qos)
            self._drops.refuse(reasons_to_drop.NO_PERMISSION, self.client_id, refused)

    def reserve_packet_id(self) -> int:
        """A packet identifier for SUBSCRIBE or UNSUBSCRIBE, until ``answered``; 0: none is free."""
        return self._window.reserve()

    def answered(self, packet_id: int) -> bool:
        """SUBACK or UNSUBACK; whether anything waited for it."""
        if not self._window.is_reserved(packet_id):
            return False
        self._window.let_go_of_reserved(packet_id)
        return True

    def acknowledge(self, packet_type: int, packet_id: int, reason_code: int, now: Now) -> bool:
        """PUBACK, PUBREC or PUBCOMP from the peer.

        Returns:
            Whether a place is free: ``refill`` is due, once for all that came together.

        Raises:
            RemoteProtocolError: 0x82, an acknowledgement this message does not allow.
        """
        sender = self.sender
        events = self._effects.events
        wanted = reason_code >= 0x80 or sender is not None or events is not None
        entry = self._window.get(packet_id) if wanted else None
        is_first = entry is not None and entry.state != AWAIT_PUBCOMP
        if events is not None and entry is not None:
            events.follows(entry)  # before the window lets go of its body
        verdict = self._window.acknowledge(packet_type, packet_id, reason_code)
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
        self._touch()
        self._acknowledges = True
        if events is not None and entry is not None and verdict != REJECTED:
            kind = ACKNOWLEDGED if self.forwarding is None else BRIDGED
            if is_first:
                events.answered(kind, self.client_id, entry)
            if packet_type == PUBCOMP:
                events.answered(COMPLETED, self.client_id, entry)
        if verdict == RELEASE:
            if link is not None:
                link.send_plain_after_commit(PUBREL, packet_id)
                entry = self._window.get(packet_id)
                if entry is not None:
                    self._sent(link, entry, now)
            return False
        if verdict == REJECTED and entry is not None:
            if sender is not None:
                sender.refused(entry, reason_code)
            self._drops.lose(reasons_to_drop.REJECTED, self.client_id, entry)
        elif sender is not None and entry is not None:
            if packet_type == PUBCOMP:  # 0x92 where PUBREL came before: it is there all the same
                reason_code = reasons.SUCCESS
            sender.acknowledged(entry, reason_code)
        elif self.forwarding is not None:
            self.forwarding.acknowledged += 1
        if self.stumbling is not None:
            self._window.capacity = self.stumbling.widen(self._window.capacity)
        return True

    def peer_ended(self) -> None:
        """The peer ended the connection: perhaps at a message that it will not take.

        One at which it ends every connection is dropped, counted, and leaves a dead letter.
        """
        stumbling = self.stumbling
        if stumbling is None:
            return
        waiting = self._window.undelivered()
        first = waiting[0] if waiting and waiting[0].sent else None
        if stumbling.ended_at(first) and first is not None:
            self._drops.lose(reasons_to_drop.ENDED_AT, self.client_id, first)
            self._window.give_up(first)
            self._touch()

    def _acknowledged(self, delivery: Delivery) -> None:
        """Nothing more will be heard of ``delivery``, which was sent."""
        if self.sender is not None:
            self.sender.acknowledged(delivery, reasons.SUCCESS)

    # -- sending again -----------------------------------------------------------------

    def _resend(self, link: Link, now: Now) -> bool:
        """Send again what the last connection left; False when some of it must wait."""
        entry = self._window.next_unsent()
        while entry is not None:
            if self._must_wait_for_room(link, entry.size_bytes):
                return False
            if entry.state == AWAIT_PUBCOMP:
                if link.version == V31:  # v3.1 §4.1: each part is sent again with DUP
                    link.send_after_commit(encode(Pubrel(entry.packet_id, dup=True), V31))
                else:
                    link.send_plain_after_commit(PUBREL, entry.packet_id)
                self._window.mark_sent(entry)
                self._sent(link, entry, now)
            else:
                message = entry.message
                if message is None:
                    limit = self._bodies_at_once()
                    unsent = self._window.unsent_without_body(limit)
                    self._want(unsent, entry.size_bytes)
                    return False
                if self._send_again(link, entry, message, now):
                    self._window.mark_sent(entry)
                    self._sent(link, entry, now)
            entry = self._window.next_unsent()
        return True

    def _send_again(self, link: Link, entry: Delivery, message: Message, now: Now) -> bool:
        """Send the PUBLISH of ``entry`` once more; whether it left. If not, it is given up."""
        if entry.qos > link.qos_max:
            if link.qos_max == 0:
                retain, ids = entry.retain, entry.subscription_ids
                self._send_qos0(link, message, retain, ids, False, now)
                self._window.drop(entry.packet_id)
                self._touch()
                self._acknowledged(entry)
                return False
            self._window.lower(entry, link.qos_max)
            self._touch()
        is_new = entry.is_new
        entry.is_new = False
        if self._send(link, entry, message, not is_new, False, now):
            if self.forwarding is not None:
                self.forwarding.resent += 1
            if self._effects.events is not None:
                self._effects.events.sent(RESENT, self.client_id, entry, link)
            return True
        self._window.give_up(entry)
        self._touch()
        return False

    def retry(self, now: Now) -> None:
        """Send again, with DUP, what was not acknowledged for ``retry_interval_s``.

        MQTT 3.1 only: later versions forbid it [MQTT-4.4.0-1]. A client that does not read
        gets nothing more.
        """
        link = self.link
        interval_us = int(self._limits.retry_interval_s * MICROSECONDS)
        if link is None or link.version != V31 or interval_us <= 0:
            return
        next_us = 0
        freed = False
        for entry in self._window.entries():
            if not entry.sent:
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
            self._effects.timers.wake_at(self, next_us)
        if freed:
            self.refill(now)

    def _sent(self, link: Link, entry: Delivery, now: Now) -> None:
        """A packet of ``entry`` was sent: MQTT 3.1 waits only so long for its answer."""
        if link.version == V31 and self._limits.retry_interval_s > 0:
            entry.sent_us = now.steady_us
            interval_us = int(self._limits.retry_interval_s * MICROSECONDS)
            self._effects.timers.wake_at(self, now.steady_us + interval_us)

    # -- bodies from the log -----------------------------------------------------------

    def wants(self, asked: list[int]) -> bool:
        """Return whether the bodies asked for are still needed."""
        return asked is self.wanted

    def supply(self, asked: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Bodies from the log, by offset, for what ``wanted`` asked for.

        One that was asked for and is missing is gone (retention), and counted. What an
        earlier connection asked for is not taken: ``wanted`` is another list by now.
        """
        if asked is not self.wanted:
            return
        self._stop_fetching()
        missing = {offset for offset in asked if offset not in bodies}
        gone = self._window.supply(bodies, missing)
        self._queue.supply(bodies)
        while True:
            head = self._queue.head()
            if head is None or head.message is not None or head.offset not in missing:
                break
            self._queue.pop()
            self._passed(head)
            gone.append(head)
        waiting = self._queue.first_qos0()
        while waiting is not None and waiting.message is None and waiting.offset in missing:
            self._queue.take_qos0()
            gone.append(waiting)
            waiting = self._queue.first_qos0()
        self._gone(gone)
        self.refill(now)
        if self.stored and not self.account.has_room_for_bodies():
            self._queue.evict_to_log()

    def _want(self, offsets: list[int], size_bytes: int) -> None:
        """Ask for bodies, the first of which has this size; the shell reads them once the open
        batch is committed. While too much is being read already, ask again a little later."""
        link = self.link
        size_bytes = max(size_bytes, FETCHED_BYTES_MAX)
        if not self.account.budget.may_fetch(size_bytes):
            if link is not None and link.user is not None:
                self._effects.turn.resume_in_tick(link.user)
            return
        self._fetching = True
        self._fetching_bytes = size_bytes
        self.account.budget.fetching_bytes += size_bytes
        self.wanted = offsets
        self._effects.batch.body_requests.append((self, offsets))

    def _stop_fetching(self) -> None:
        """What was asked for is here, or not needed any more."""
        self._fetching = False
        self.account.budget.fetching_bytes -= self._fetching_bytes
        self._fetching_bytes = 0

    def _must_wait_for_room(self, link: Link, size_bytes: int) -> bool:
        """Whether a message of this size may not be sent now; then it is tried again."""
        if link.has_room() and (size_bytes < LARGE_BYTES or link.has_room_for(size_bytes)):
            return False
        link.resume_when_room()
        if link.user is not None and not link.is_full() and not link.congested:
            self._effects.turn.resume_in_tick(link.user)  # it is others who have no room
        return True

    def _bodies_at_once(self) -> int:
        """Enough to refill the window twice; ten thousand sessions may ask at the same time."""
        return min(_BODIES_AT_ONCE_MAX, 2 * self._window.capacity)

    def _gone(self, deliveries: list[Delivery]) -> None:
        """The log has lost these before they could be sent: they leave nothing to an heir."""
        if deliveries:
            self._touch()
            count = len(deliveries)
            self._drops.count_known(reasons_to_drop.RETENTION, self.client_id, deliveries, count)
            if self.sender is not None:
                for delivery in deliveries:
                    self.sender.inherit(reasons_to_drop.RETENTION, self.client_id, delivery)
