"""The outbound half of a session: the in-flight window and the queue that refills it.

::

      deliver ─▶ QoS 0 ───────────────▶ link, at once            (queue while offline)
              ─▶ QoS 1, 2 ─▶ window has room ─▶ link, after commit
                          ─▶ else ─▶ queue ─▶ refill ─▶ window …

Invariants:

1. A QoS 1 or 2 message leaves only after the commit that holds its packet identifier;
   so does PUBREL (``Link.hold``).
2. First in, first out: nothing overtakes the queue but QoS 0 while online.
3. A body that lies in the log may be absent from memory; it is asked for
   (``wanted``) before it is needed and supplied later, and order waits for it.
"""

from __future__ import annotations

from typing import Final

from penstock.engine import drop_counts as reasons_to_drop
from penstock.engine.access import Permissions
from penstock.engine.aliases import OutboundAliases
from penstock.engine.at_limit import WINDOW, WRITE_BUFFER, AtLimit
from penstock.engine.clock import MICROSECONDS, Now
from penstock.engine.drop_counts import Drops
from penstock.engine.effects import Effects, Stored
from penstock.engine.inflight import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    REJECTED,
    RELEASE,
    UNKNOWN,
    VIOLATION,
    InFlight,
    InFlightWindow,
)
from penstock.engine.limits import EngineLimits
from penstock.engine.link import Link
from penstock.engine.message import Delivery, Message, Shared
from penstock.engine.outbound_limits import NOTHING, OutboundLimits
from penstock.engine.queue import PRIORITY_SHIFT, MessageQueue
from penstock.engine.retained_delivery import PORTION, RetainedDelivery
from penstock.engine.stored_queue import StoredLane
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode, encode_ack, encode_publish
from penstock.protocol.kinds import PUBREC, PUBREL, V5, V31
from penstock.protocol.packets import Pubrel

_RETAINED_QUEUED_MAX: Final = 1000  # where the queue has no limit
_BODIES_AT_ONCE_MAX: Final = 256  # asked from the log in one step


class Outbound(Stored):
    """What one client is sent.

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
    ) -> None:
        self.client_id = client_id
        self.stored = stored
        self.link: Link | None = None
        self.permissions: Permissions | None = None  # None = everything
        self.wanted: list[int] = []  # log offsets of bodies needed next
        self.took_shared = False  # may hold what came through a shared subscription
        self._window = InFlightWindow(limits.window(65535))
        self._queue = MessageQueue(limits, stored)
        self._kept = StoredLane(0)
        self._kept_lanes: dict[int, StoredLane] = {}  # of the other priorities
        self._priorities = limits.priorities
        self._effects = effects
        self._limits = limits
        self._drops = drops
        self._changed = False
        self._fetching = False
        self._retained: dict[str, RetainedDelivery] = {}  # not delivered yet, by filter
        self._reached = OutboundLimits(client_id, effects)

    # -- connections -------------------------------------------------------------------

    def resume(self, limits: EngineLimits, receive_maximum: int, now: Now) -> None:
        """A connection was attached: send again, then refill."""
        self._limits = limits
        self._queue.bound(limits)
        self._priorities = limits.priorities
        self._trim()
        self._fetching = False
        self._window.reconnected(limits.window(receive_maximum))
        self.refill(now)

    def rest(self) -> None:
        """The connection is gone; bodies that the log has leave memory."""
        self._fetching = False
        self.wanted = []
        if self.permissions is not None:
            self.permissions.forget_answers()
        if self.stored:
            self._queue.rest_in_log()
            for entry in self._window.entries():
                entry.delivery.rest_in_log()

    # -- sending -----------------------------------------------------------------------

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        at_once: bool,
        now: Now,
    ) -> None:
        """One message for this session, with the QoS its subscription grants.

        Args:
            message: what was published.
            qos: 0..2, the smaller of the published and the granted QoS.
            retain: the RETAIN flag to send.
            subscription_ids: identifiers of the subscriptions that matched.
            at_once: QoS 0 need not wait for the commit of this turn.
            now: when.
        """
        if self.permissions is not None and not self.may_receive(message):
            self._drops.count(reasons_to_drop.NO_PERMISSION, self.client_id, message.topic)
            return
        if qos == 0:
            self._deliver_qos0(message, retain, subscription_ids, None, at_once, now)
            return
        delivery = Delivery(message, message.offset, qos, retain, subscription_ids)
        self._deliver_acknowledged(delivery, message, now)

    def deliver_shared(
        self,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        shared: Shared,
        at_once: bool,
        now: Now,
    ) -> None:
        """One message for this session as a member of a shared subscription."""
        self.took_shared = True
        if qos == 0:
            self._deliver_qos0(message, retain, subscription_ids, shared, at_once, now)
            return
        delivery = Delivery(message, message.offset, qos, retain, subscription_ids)
        delivery.shared = shared
        self._deliver_acknowledged(delivery, message, now)

    def _deliver_qos0(
        self,
        message: Message,
        retain: bool,
        subscription_ids: tuple[int, ...],
        shared: Shared | None,
        at_once: bool,
        now: Now,
    ) -> None:
        link = self.link
        overtakes = self._queue.qos0_count > 0  # [MQTT-4.6.0-6]
        if link is not None and (link.congested or not overtakes):
            self._send_qos0(link, message, retain, subscription_ids, at_once, now)
        elif link is not None or self._limits.mqueue_store_qos0:
            waiting = Delivery(message, message.offset, 0, retain, subscription_ids)
            waiting.shared = shared
            self._enqueue(waiting, message)
            self._reached.watch(self._queue, now)
        else:
            self._lose(reasons_to_drop.QOS0_OFFLINE, message, 0)

    def _deliver_acknowledged(self, delivery: Delivery, message: Message, now: Now) -> None:
        link = self.link
        if link is None:
            self._enqueue(delivery, message)
            self._reached.watch(self._queue, now)
        elif len(self._queue) == 0 and self._window.has_room() and link.has_room():
            if self.stored and message.offset >= 0:
                delivery.sequence = self._lane_kept(self._priority(message)).number()
            self._send_new(link, delivery, message, now)
        else:
            self._enqueue(delivery, message)
            if not link.has_room():
                link.resume_when_room()
            self._reached.watch(self._queue, now)
            if link.congested:
                self._reached.held_up(WRITE_BUFFER, now)
            elif not self._window.has_room():
                self._reached.held_up(WINDOW, now)

    def refill(self, now: Now) -> None:
        """Send what the window has room for: first again, then from the queue, in order."""
        link = self.link
        if link is None or self._fetching:
            return
        if not link.has_room():
            link.resume_when_room()
            if link.congested and len(self._queue) > 0:
                self._reached.held_up(WRITE_BUFFER, now)
            return
        if not self._resend(link, now):
            return
        if self._effects.held_back:
            self._effects.wake_held_back()
        while len(self._queue) > 0:
            head = self._queue.head()
            assert head is not None
            if head.qos > 0 and (not self._window.has_room() or self._effects.store_fails):
                break
            if not link.has_room():
                link.resume_when_room()
                return
            message = head.message
            if message is None:
                self._want(self._queue.without_body(self._bodies_at_once()))
                return
            self._queue.pop()
            self._passed(head)
            if message.expired(now.wall_us):
                self._drops.lose(reasons_to_drop.EXPIRED, self.client_id, head)
            elif head.qos == 0:
                self._send_qos0(link, message, head.retain, head.subscription_ids, False, now)
            else:
                self._send_new(link, head, message, now)
        self._reached.watch(self._queue, now)
        self._reached.held_up(WINDOW if len(self._queue) > 0 else NOTHING, now)
        if self._retained:
            self._go_on_with_retained(link, now)

    def deliver_retained(self, delivery: RetainedDelivery, now: Now) -> None:
        """Deliver what a subscription finds retained, as there is room for it."""
        self.stop_retained(delivery.topic_filter)
        self._retained[delivery.topic_filter] = delivery
        self.refill(now)

    def stop_retained(self, topic_filter: str) -> None:
        """The subscription ended, or is made anew."""
        self._retained.pop(topic_filter, None)

    def _go_on_with_retained(self, link: Link, now: Now) -> None:
        visits_left = PORTION
        while self._retained:
            if not link.has_room():
                link.resume_when_room()
                return
            delivery = next(iter(self._retained.values()))
            if not self._has_place_for_retained(delivery.qos):
                return
            delivery.visits_left = visits_left
            message = delivery.next(now)
            visits_left = delivery.visits_left
            if message is not None:
                qos = min(message.qos, delivery.qos)
                self.deliver(message, qos, True, delivery.subscription_ids, False, now)
            elif delivery.finished:
                del self._retained[delivery.topic_filter]
            else:
                self._effects.resume_later(link.user)
                return

    def _has_place_for_retained(self, qos: int) -> bool:
        """In the window, or, for what a restart must find again, in half of the queue."""
        waiting = len(self._queue)
        if qos == 0:
            return self._queue.qos0_count == 0
        if waiting == 0 and self._window.has_room():
            return True
        return self.stored and not self._queue.is_half_full(_RETAINED_QUEUED_MAX)

    def acknowledge(self, packet_type: int, packet_id: int, reason_code: int, now: Now) -> None:
        """PUBACK, PUBREC or PUBCOMP from the peer.

        Raises:
            RemoteProtocolError: 0x82, an acknowledgement this message does not allow.
        """
        refused = self._window.get(packet_id) if reason_code >= 0x80 else None
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
                link.hold(encode_ack(PUBREL, packet_id, code, link.version))
            return
        self._touch()
        if verdict == RELEASE:
            if link is not None:
                link.hold(encode_ack(PUBREL, packet_id, 0, link.version))
                entry = self._window.get(packet_id)
                if entry is not None:
                    self._sent(link, entry, now)
            return
        if verdict == REJECTED and refused is not None:
            self._drops.lose(reasons_to_drop.REJECTED, self.client_id, refused.delivery)
        self.refill(now)

    def wants(self, asked: list[int]) -> bool:
        """Whether the bodies asked for are still needed."""
        return asked is self.wanted

    def supply(self, asked: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Bodies from the log, by offset, for what ``wanted`` asked for.

        One that was asked for and is missing is gone (retention), and counted. What an
        earlier connection asked for is not taken: ``wanted`` is another list by now.
        """
        if asked is not self.wanted:
            return
        self._fetching = False
        missing = {offset for offset in asked if offset not in bodies}
        for entry in self._window.entries():
            delivery = entry.delivery
            if delivery.message is None and entry.state != AWAIT_PUBCOMP:
                delivery.message = bodies.get(delivery.offset)
                if delivery.offset in missing:
                    self._window.give_up(entry)
                    self._gone()
        self._queue.supply(bodies)
        while True:
            head = self._queue.head()
            if head is None or head.message is not None or head.offset not in missing:
                break
            self._queue.pop()
            self._passed(head)
            self._gone()
        self.refill(now)

    # -- sending again by time (v3.1 §4.1) -----------------------------------------------

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
        for entry in self._window.entries():
            if not entry.sent:
                continue
            if entry.sent_us + interval_us <= now.wall_us and link.has_room():
                if entry.state == AWAIT_PUBCOMP:
                    link.hold(encode(Pubrel(entry.packet_id, dup=True), V31))
                    entry.sent_us = now.wall_us
                elif entry.delivery.message is not None:
                    self._send(link, entry, entry.delivery.message, True, now)
                    entry.sent_us = now.wall_us
            due_us = max(now.wall_us + 1, entry.sent_us + interval_us)
            if next_us == 0 or due_us < next_us:
                next_us = due_us
        if next_us > 0:
            self._effects.timers.wake_at(self, next_us)

    def _sent(self, link: Link, entry: InFlight, now: Now) -> None:
        """A packet of ``entry`` was sent: MQTT 3.1 waits only so long for its answer."""
        if link.version == V31 and self._limits.retry_interval_s > 0:
            entry.sent_us = now.wall_us
            interval_us = int(self._limits.retry_interval_s * MICROSECONDS)
            self._effects.timers.wake_at(self, now.wall_us + interval_us)

    # -- room ----------------------------------------------------------------------------

    def refuses(self, size_bytes: int) -> bool:
        """Whether a message of this size, QoS 1 or 2, must be refused (``reject``)."""
        link = self.link
        if link is not None and len(self._queue) == 0 and self._window.has_room():
            return False
        return self._queue.refuses(size_bytes)

    # -- shared subscriptions (see ``sharing``) ------------------------------------------

    def has_room(self) -> bool:
        """Whether one more message finds a place in the window or in the queue."""
        link = self.link
        if link is not None and not link.has_room():
            return False
        return self._queue.has_room(0) or (
            link is not None and len(self._queue) == 0 and self._window.has_room()
        )

    def shared_waiting(self, in_flight: bool) -> list[Delivery]:
        """What other members of shared subscriptions may take over, oldest first.

        Args:
            in_flight: also QoS 1 messages that are not acknowledged, when the connection is
                gone. Not QoS 2: one that is on its way stays with this session, and is lost
                with it [MQTT-4.8.2-4] [MQTT-4.8.2-5].
        """
        found: list[Delivery] = []
        if in_flight:
            found = [
                entry.delivery
                for entry in self._window.entries()
                if entry.delivery.shared is not None and entry.state == AWAIT_PUBACK
            ]
        found.extend([item for item in self._queue.unpacked() if item.shared is not None])
        return found

    def adopt(self, delivery: Delivery, priority: int = 0) -> None:
        """Take over a delivery whose body lies in the log; the caller calls ``refill``."""
        self.took_shared = True
        self._effects.adopted(delivery.offset)
        self._join(delivery, priority)

    def lose_qos0(self) -> None:
        """The server shuts down: QoS 0 messages that wait for the client are not stored."""
        lost = self._queue.qos0_count
        self._drops.count(reasons_to_drop.QOS0_OFFLINE, self.client_id, "", lost)

    def let_go(self, taken: list[Delivery]) -> None:
        """Others took these over, a part of ``shared_waiting``."""
        gone = set(taken)
        for entry in self._window.entries():
            if entry.delivery in gone:
                self._window.drop(entry.packet_id)
                gone.remove(entry.delivery)
        self._touch()
        head = self._queue.head()
        while head is not None and head in gone:
            gone.remove(head)
            self._passed(self._queue.pop())
            head = self._queue.head()
        if gone:
            self._queue.remove(gone)
            for priority in self._queue.priorities():
                self._lane_kept(priority).renumber(self._queue.lane(priority))

    def may_receive(self, message: Message | None) -> bool:
        """Whether this client may have ``message``; of one whose body is not here, it is unknown
        until it leaves, and asked again then."""
        permissions = self.permissions
        return permissions is None or message is None or permissions.may_receive(message.topic)

    @property
    def window_length(self) -> int:
        """Messages in flight."""
        return len(self._window)

    @property
    def queue_length(self) -> int:
        """Messages waiting."""
        return len(self._queue)

    @property
    def queue_bytes(self) -> int:
        """Of the messages waiting."""
        return self._queue.size_bytes

    @property
    def window_size(self) -> int:
        """Places in the window."""
        return self._window.capacity

    @property
    def queue_length_max(self) -> int:
        """Messages that may wait; 0 = no limit."""
        return self._queue.max_len

    @property
    def queue_bytes_max(self) -> int:
        """Bytes of messages that may wait; 0 = no limit."""
        return self._queue.max_bytes

    def at_limit(self, limit: int) -> AtLimit | None:
        """How often and how long a limit was reached; None while none ever was."""
        return self._reached.use(limit)

    def lowest_offset(self) -> int:
        """The lowest log offset this session still needs, or -1."""
        lowest = self._queue.lowest_offset(self.took_shared)
        for entry in self._window.entries():
            offset = entry.delivery.offset
            if offset >= 0 and entry.state != AWAIT_PUBCOMP and (lowest < 0 or offset < lowest):
                lowest = offset
        return lowest

    # -- inside ------------------------------------------------------------------------

    def _touch(self) -> None:
        """The durable form changed in this turn."""
        if self.stored and not self._changed:
            self._changed = True
            self._effects.changed.append(self)

    def _priority(self, message: Message) -> int:
        return 0 if self._priorities is None else self._priorities.of(message.topic)

    def _enqueue(self, delivery: Delivery, message: Message) -> None:
        """Queue what was published now."""
        delivery.size_bytes = message.size_bytes()
        self._join(delivery, self._priority(message))

    def _join(self, delivery: Delivery, priority: int) -> None:
        """Queue ``delivery``, or drop it or another, as the overflow policy says."""
        if not self._make_room(delivery.qos, delivery.size_bytes, priority):
            self._drops.lose(reasons_to_drop.QUEUE_FULL, self.client_id, delivery)
            return
        if self.stored:
            if delivery.qos > 0 and delivery.offset >= 0:
                lane = self._lane_kept(priority)
                delivery.sequence = lane.number()
                lane.joined(delivery)
                self._touch()
            if self.link is None:
                delivery.rest_in_log()
        self._queue.push(delivery, priority)

    def _make_room(self, qos: int, size_bytes: int, priority: int) -> bool:
        """Whether a new message is queued; what has to go for it is gone then."""
        queue = self._queue
        if queue.has_room(size_bytes):
            return True
        dropped: list[Delivery] = []
        queued = queue.make_room(qos, size_bytes, priority, dropped)
        self._overflowed(dropped)
        return queued

    def _lose(self, reason: int, message: Message, qos: int) -> None:
        """A message is dropped that waited nowhere."""
        self._drops.lose(reason, self.client_id, Delivery(message, message.offset, qos))

    def _trim(self) -> None:
        """Other bounds hold: drop what has no room any more."""
        dropped: list[Delivery] = []
        self._queue.trim(dropped)
        self._overflowed(dropped)

    def _overflowed(self, dropped: list[Delivery]) -> None:
        for delivery in dropped:
            self._passed(delivery)
            self._drops.lose(reasons_to_drop.QUEUE_FULL, self.client_id, delivery)

    def _lane_kept(self, priority: int) -> StoredLane:
        """The durable form of the lane of ``priority``."""
        if priority == 0:
            return self._kept
        lane = self._kept_lanes.get(priority)
        if lane is None:
            lane = StoredLane(priority)
            self._kept_lanes[priority] = lane
        return lane

    def _passed(self, delivery: Delivery) -> None:
        """``delivery`` left the queue."""
        if delivery.sequence > 0:
            self._lane_kept(delivery.sequence >> PRIORITY_SHIFT).passed(delivery.sequence)
            self._touch()

    def _gone(self) -> None:
        self._touch()
        self._drops.count(reasons_to_drop.RETENTION, self.client_id, "")

    def _bodies_at_once(self) -> int:
        """Enough to refill the window twice; ten thousand sessions may ask at the same time."""
        return min(_BODIES_AT_ONCE_MAX, 2 * self._window.capacity)

    def _want(self, offsets: list[int]) -> None:
        """Ask for bodies; the shell reads them once the open batch is committed."""
        self._fetching = True
        self.wanted = offsets
        self._effects.wanting.append((self, offsets))

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
            self._reached.held_up(WRITE_BUFFER, now)
            self._lose(reasons_to_drop.SLOW_CONSUMER, message, 0)
            return
        if not at_once and self._effects.store_fails and link.opened and not link.waits:
            at_once = True
        batch = link.batch_of_qos0(at_once)
        frame = self._frame(link, message, 0, retain, False, 0, subscription_ids, batch, now)
        if frame:
            if at_once:
                link.send_qos0(frame)
            else:
                link.hold_qos0(frame)

    def _send_new(self, link: Link, delivery: Delivery, message: Message, now: Now) -> None:
        self._passed(delivery)
        entry = self._window.add(delivery)
        self._touch()
        if not self._send(link, entry, message, False, now):
            self._window.drop(entry.packet_id)
        elif link.version == V31:
            self._sent(link, entry, now)

    def _send(
        self, link: Link, entry: InFlight, message: Message, duplicate: bool, now: Now
    ) -> bool:
        delivery = entry.delivery
        frame = self._frame(
            link,
            message,
            delivery.qos,
            delivery.retain,
            duplicate,
            entry.packet_id,
            delivery.subscription_ids,
            link.next_batch(),
            now,
        )
        if frame:
            link.hold(frame)
        return len(frame) > 0

    def _frame(
        self,
        link: Link,
        message: Message,
        qos: int,
        retain: bool,
        duplicate: bool,
        packet_id: int,
        subscription_ids: tuple[int, ...],
        batch: int,
        now: Now,
    ) -> bytes:
        """The PUBLISH packet, or nothing if the peer would not accept its size or may not have it.

        Permissions may have changed while the message waited. ``batch`` is that of the link with
        which it will leave; see ``aliases``.
        """
        if self.permissions is not None and not self.may_receive(message):
            self._drops.count(reasons_to_drop.NO_PERMISSION, self.client_id, message.topic)
            return b""
        properties = b""
        if link.version == V5:
            properties = message.properties
            if subscription_ids or message.expires_at_us:
                properties = message.properties_for(now.wall_us, subscription_ids)
            if link.aliases is not None and batch >= 0:
                frame = self._frame_with_alias(
                    link,
                    link.aliases,
                    message,
                    qos,
                    retain,
                    duplicate,
                    packet_id,
                    properties,
                    batch,
                )
                if frame:
                    return frame
        frame = encode_publish(
            message.topic_bytes,
            message.payload,
            qos,
            retain,
            duplicate,
            packet_id,
            link.version,
            properties,
        )
        if 0 < link.max_packet_size_bytes < len(frame):  # [MQTT-3.1.2-24] [MQTT-3.1.2-25]
            self._lose(reasons_to_drop.PACKET_TOO_LARGE, message, qos)
            return b""
        counters = self._effects.counters
        counters.publish_sent += 1
        counters.publish_bytes_sent += len(message.payload)
        return frame

    def _frame_with_alias(
        self,
        link: Link,
        aliases: OutboundAliases,
        message: Message,
        qos: int,
        retain: bool,
        duplicate: bool,
        packet_id: int,
        properties: bytes,
        batch: int,
    ) -> bytes:
        """The PUBLISH packet with a topic alias, or nothing if there is none for it.

        One that the peer would not accept, or that grows too large by it, defines none.
        """
        topic = message.topic
        left = link.sealed - link.releasing
        alias = aliases.known(topic, batch, left)
        defines = len(alias) == 0
        if defines:
            alias = aliases.propose(topic, batch, left)
            if len(alias) == 0:
                return b""
        frame = encode_publish(
            message.topic_bytes if defines else b"",
            message.payload,
            qos,
            retain,
            duplicate,
            packet_id,
            link.version,
            properties + alias,
        )
        if 0 < link.max_packet_size_bytes < len(frame):
            return b""
        if defines:
            aliases.define(topic, batch, left)
        return frame

    def _resend(self, link: Link, now: Now) -> bool:
        """Send again what the last connection left; False when some of it must wait."""
        entry = self._window.next_unsent()
        while entry is not None:
            if not link.has_room():
                link.resume_when_room()
                return False
            if entry.state == AWAIT_PUBCOMP:
                if link.version == V31:  # v3.1 §4.1: each part is sent again with DUP
                    link.hold(encode(Pubrel(entry.packet_id, dup=True), V31))
                else:
                    link.hold(encode_ack(PUBREL, entry.packet_id, 0, link.version))
                self._window.mark_sent(entry)
                self._sent(link, entry, now)
            else:
                message = entry.delivery.message
                if message is None:
                    self._want(self._window.unsent_without_body(self._bodies_at_once()))
                    return False
                if self._send(link, entry, message, True, now):
                    self._window.mark_sent(entry)
                    self._sent(link, entry, now)
                else:
                    self._window.give_up(entry)
                    self._touch()
            entry = self._window.next_unsent()
        return True
