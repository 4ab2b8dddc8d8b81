"""A session: the state of one client identifier, whichever side of the link it is on.

Broker, client library and bridge use this one class::

      Session ─┬─ outbound ────── sends or queues each message; refills the window
               │     │ │
               │     │ ▼
               ├─ transmission ── the in-flight window: sends, handles acknowledgements, resends
               │     │ │ │
               │     │ │ ▼
               │     │ │ send_room  whether there is room for a message to the client
               │     ▼ ▼ ▼
               ├─ backlog ─────── the message queue: queues and drops messages
               ├─ inbound ─────── QoS 2 messages not yet released: packet identifiers, for MQTT 3.1
               │                  the messages too (``AwaitingRelease``)
               ╰─ subscriptions, expiry, durable form

Each part uses the parts below it. Only the backlog has a reference to the session, to mark it as
changed, until the session ends.

A session writes packets to the ``Link`` of its connection, if it has one. A packet that promises
something is sent only after the commit that stores it (``Link.send_after_commit``).
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.awaiting_release import UnreleasedMessage
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.congestion import NOTHING
from penstock.engine.session.inbound import Inbound
from penstock.engine.session.outbound import Outbound
from penstock.engine.session.outlet import Outlet
from penstock.engine.session.transmission import NO_BODIES, Transmission
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Authorize, Permissions
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Delivery, Message, SharedOrigin
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.priorities import PRIORITY_SHIFT
from penstock.engine.values.records import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    SessionState,
    WindowEntry,
)
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.packets import Publish, Subscription


@mypyc_attr(acyclic=True)
@final
class SessionSubscription:
    """One subscription, with its subscription identifier (0 = none)."""

    def __init__(self, subscription: Subscription, identifier: int) -> None:
        self.subscription = subscription
        self.identifier = identifier


@final
class Session(StoredState):
    """The state of one client identifier.

    Args:
        client_id: the client identifier.
        number: the key of its stored state.
        expiry_interval_s: session expiry interval in seconds; 0 = the session ends with its
            connection, and is not stored.
        context: the parts of the broker that it acts on.
        limits: the limits of the listener that its client uses.
        drops: the counts of dropped messages.
        account: the memory account of its owner (``accounts``); None = the common account.
    """

    def __init__(
        self,
        client_id: str,
        number: int,
        expiry_interval_s: int,
        context: EngineContext,
        limits: EngineLimits,
        drops: Drops,
        account: Pool | None = None,
    ) -> None:
        self.client_id = client_id
        self.account = account or context.accounts.common
        stored = expiry_interval_s > 0
        self.backlog = Backlog(client_id, stored, context, limits, drops, self.account)
        self.transmission = Transmission(self.backlog, context, drops)
        self.outbound = Outbound(self.backlog, self.transmission, context)
        self.inbound = Inbound(self.account, stored)
        self.number = number
        self.expiry_interval_s = expiry_interval_s
        self.is_ended = False
        # The name of ``limits``: the listener that the client used last, or "bridge NAME", which a
        # dialler marks once the session is established.
        self.limits_name = limits.name
        self.username: str | None = None  # the authenticated owner; None = anonymous
        self.is_owner_known = False  # if ``username`` is not known, the next user becomes the owner
        self.has_permissions_set = False  # since the broker started, to ``permissions``
        self.authorize: Authorize | None = None  # of its login; None = the broker's port
        self.disconnected_at_us = 0  # on the steady clock; 0 while the client is connected
        self.disconnected_because = ""  # why its last connection ended; empty after a start
        self.subscriptions: dict[str, SessionSubscription] = {}
        self._context = context
        self._drops = drops
        self.backlog.owner = self  # until ``end``

    @property
    def limits(self) -> EngineLimits:
        """Return the limits of the listener that its client used last."""
        return self.backlog.limits

    @property
    def is_stored(self) -> bool:
        """Return whether the session outlives its connection."""
        return self.backlog.is_stored

    @property
    def link(self) -> Link | None:
        """Return the link of its connection; None while the client is offline."""
        return self.transmission.link

    @property
    def permissions(self) -> Permissions | None:
        """Return the permissions of its client; None = everything is allowed."""
        outlet = self.transmission.outlet
        return None if outlet is None else outlet.permissions

    @property
    def mount_point(self) -> str:
        """Return the mount point of the listener that its client used last."""
        outlet = self.transmission.outlet
        return "" if outlet is None else outlet.mount_point

    @property
    def is_of_settings(self) -> bool:
        """Return whether the settings define the session, and no client."""
        outlet = self.transmission.outlet
        return outlet is not None and outlet.is_of_settings

    @property
    def queue_length(self) -> int:
        """Return the number of messages in the queue."""
        return len(self.backlog.queue)

    @property
    def window_length(self) -> int:
        """Return the number of messages in the in-flight window."""
        return len(self.transmission.window)

    # -- messages for the client ---------------------------------------------------------

    def adopt_in_flight(
        self,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        packet_id: int,
        is_received: bool,
    ) -> bool:
        """Take over a message that another broker had in flight to this client, which is offline.

        The message is sent again with its packet identifier when the client connects, before the
        queue.

        Args:
            message: the message, which must be in the log.
            qos: 1 or 2.
            retain: the RETAIN flag that was sent.
            subscription_ids: identifiers of the subscriptions that matched.
            packet_id: its packet identifier.
            is_received: whether the client has sent PUBREC, so that PUBREL is sent instead.

        Returns:
            False if the packet identifier is in use already; then nothing is changed.
        """
        window = self.transmission.window
        if window.get(packet_id) is not None:
            return False
        delivery = Delivery(message, message.offset, qos, retain, subscription_ids)
        lane = self.backlog.stored_queue.lane(self.backlog.priority_of(message))
        delivery.sequence = lane.next_sequence_number()
        state = AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC
        window.adopt(packet_id, AWAIT_PUBCOMP if is_received else state, delivery)
        self.backlog.note_dequeued(delivery)
        return True

    def refuses(self, size_bytes: int) -> bool:
        """Return whether a message of this size must be refused: see ``SendRoom.refuses``."""
        return self.transmission.room.refuses(self.link, size_bytes)

    def has_memory(self) -> bool:
        """Return whether memory has room for one more QoS 1 or 2 message."""
        return self.backlog.has_memory()

    def watch_links(self) -> None:
        """Have a client whose link has no room resumed when there is room again."""
        link = self.link
        if link is not None:
            self.transmission.room.has_room_for_packet(link)

    # -- connections -------------------------------------------------------------------

    def attach(self, link: Link, limits: EngineLimits, receive_maximum: int, now: Now) -> None:
        """Attach a connection, and send everything unacknowledged again.

        PUBLISH with DUP, and PUBREL, are sent with their packet identifiers and in their order
        [MQTT-4.4.0-1], then queued messages while the window has room. ``limits``, those of the
        connection's listener, apply until the next connection, also while the client is offline.
        """
        self._set_link(link)
        link.set_account(self.account)
        recorder = self._context.recorder
        if recorder is not None:
            next_offset = self._context.batch.next_offset
            link.record = recorder.note_connected(self.client_id, limits.name, next_offset)
        self.disconnected_at_us = 0
        self.inbound.begin_connection(now)
        unreleased = self.inbound.unreleased
        if unreleased is not None:
            unreleased.bytes_max = limits.max_awaiting_rel_bytes
        self.outbound.resume(limits, receive_maximum, now)
        self._watch_releases()
        self._context.member_connections.member_connected(self, now)

    def _set_link(self, link: Link | None) -> None:
        """Set the link of the connection; None: the client is offline."""
        self.transmission.link = link
        self.backlog.is_offline = link is None

    def session_lost(self) -> None:
        """Forget the state that the server shared: it has no session for this client
        [MQTT-3.2.2-5].

        The client role calls it before ``attach``. Queued messages stay. Messages with a PUBREC
        count as delivered. Unacknowledged messages are sent as new ones, so that a QoS 2 message
        whose PUBREC was lost may arrive twice. Received QoS 2 messages, for which the server will
        send no PUBREL, are forgotten.
        """
        if self.transmission.outcomes is not None:
            for delivery in self.transmission.window.delivered_entries():
                self.transmission.outcomes.on_acknowledged(delivery, reasons.SUCCESS)
        self.transmission.window.session_lost()
        # the server knows none of the messages that were sent: none of them is a repeat
        self.backlog.stored_queue.first.sent_below = 0
        self.inbound.session_lost()
        self.backlog.mark_changed()

    def forget_received(self) -> None:
        """Forget the received QoS 2 messages: the sender's store, or this one, is an older copy, so
        that their packet identifiers name other messages (``connection_names``)."""
        self.inbound.session_lost()
        self.backlog.mark_changed()

    def set_user(
        self,
        username: str | None,
        permissions: Permissions | None,
        authorize: Authorize | None = None,
        mount_point: str = "",
    ) -> None:
        """Set the user of this session and that user's permissions; None = everything is
        allowed. ``authorize`` is the port of its login; None = the broker's. ``mount_point`` is
        that of its listener."""
        self.username = username
        self.authorize = authorize
        self.has_permissions_set = True
        limited = permissions is not None or mount_point != ""
        self.transmission.outlet = Outlet(permissions, mount_point) if limited else None
        self.backlog.recheck_blocked_publishers()
        if self.link is not None:  # a message that was blocked may be permitted now, or refused
            self._context.turn.waiting.until_turn(self.link.resumable)

    def detach(self, now: Now) -> None:
        """Detach the connection, which ended, and release message bodies that are in the log."""
        self._context.member_connections.member_disconnected(self, now)
        self._set_link(None)
        if self._context.recorder is not None:
            self._context.recorder.note_disconnected(self.client_id, self.disconnected_because)
        if self.backlog.stored_queue.first.may_send_any():
            self.backlog.mark_changed()  # store that no message may be sent before its commit
        self.disconnected_at_us = now.steady_us
        self.transmission.congestion.set_cause(NOTHING, now)
        if self.inbound.unreleased is not None:
            self.inbound.unreleased.on_disconnect()
        self.outbound.on_disconnect()
        if self.inbound.unreleased is not None:
            self._watch_releases()

    def end(self) -> None:
        """End the session: drop and count the messages that it still has."""
        self.is_ended = True
        self._set_link(None)
        self.transmission.requested_offsets = NO_BODIES
        self.backlog.recheck_blocked_publishers()
        self.backlog.drop_all(self.transmission.window.undelivered_entries())
        if self.inbound.unreleased is not None:
            unreleased = len(self.inbound.unreleased)
            self.inbound.unreleased.leave_account()
            self._drops.count(drop_reasons.NOT_RELEASED, self.client_id, "", unreleased)
        self.transmission.window.leave_account()
        self.inbound.leave_account()
        self.transmission.stop_fetching()
        self.backlog.owner = None

    # -- inbound -----------------------------------------------------------------------

    def receive(self, publish: Publish, now: Now) -> bool:
        """Note a received PUBLISH; return whether the message is new and must be routed."""
        if publish.qos < 2:
            return True
        is_new = self.inbound.receive(publish.packet_id, now)
        if is_new:
            self.backlog.mark_changed()
            if self.due_us == 0:
                self._watch_releases()
        return is_new

    def release(self, packet_id: int) -> int:
        """Note a received PUBREL; return the reason code for PUBCOMP."""
        if self.inbound.awaits_release(packet_id):
            self.backlog.mark_changed()
        return self.inbound.release(packet_id)

    # -- MQTT 3.1: a QoS 2 message is routed at its PUBREL (v3.1 §3.3) ---------------------

    def keep_until_pubrel(self, packet_id: int, message: Message) -> None:
        """Keep ``message``, just received, until its PUBREL; see ``awaiting_release``."""
        unreleased = self.inbound.unreleased_of_v31(
            self.backlog.limits.max_awaiting_rel_bytes, self.account
        )
        if self.is_stored or not unreleased.has_room(message.size_bytes()):
            message.internal = True
            self._context.batch.append(message)
        unreleased.keep(packet_id, message)

    def awaits_routing(self, packet_id: int) -> bool:
        """Return whether an MQTT 3.1 message with this packet identifier waits for its PUBREL."""
        unreleased = self.inbound.unreleased
        return unreleased is not None and unreleased.get(packet_id) is not None

    def release_in_order(self, packet_id: int) -> bool:
        """Note the PUBREL of an MQTT 3.1 message; return whether it is the next to be routed."""
        unreleased = self.inbound.unreleased
        return unreleased is not None and unreleased.release_in_order(packet_id)

    @property
    def released_count(self) -> int:
        """Return how many MQTT 3.1 messages have their PUBREL and are not routed yet."""
        unreleased = self.inbound.unreleased
        return 0 if unreleased is None else len(unreleased.released_ids)

    def first_released(self) -> int:
        """Return the packet identifier of the released message that is routed next; there must be
        one."""
        unreleased = self.inbound.unreleased
        assert unreleased is not None
        return unreleased.released_ids.first()

    def next_released(self) -> UnreleasedMessage | None:
        """Return the released message that is routed next; None while its body is being read.

        Its body is missing if retention removed it from the log.
        """
        unreleased = self.inbound.unreleased
        if unreleased is None:
            return None
        first = unreleased.get(unreleased.released_ids.first())
        if first is None or first.message is not None or first.is_removed:
            return first
        offsets = unreleased.next_offsets_to_read()
        if offsets:
            self._context.batch.body_requests.append((self, offsets))
        return None

    def purpose(self) -> str:
        """Return what the bodies are for, as words for a log line."""
        return f"client {self.client_id}"

    def needs_bodies(self, offsets: list[int]) -> bool:
        """Return whether the bodies at ``offsets`` are still needed: for sending, or for a released
        message."""
        if offsets is self.transmission.requested_offsets:
            return True
        unreleased = self.inbound.unreleased
        return unreleased is not None and offsets is unreleased.requested_offsets

    def supply(self, offsets: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Take requested bodies, by log offset: for sending, or for released messages."""
        unreleased = self.inbound.unreleased
        if unreleased is None or offsets is not unreleased.requested_offsets:
            self.outbound.supply(offsets, bodies, now)
            return
        gone = unreleased.supply(bodies)
        self._drops.count(drop_reasons.RETENTION, self.client_id, "", gone)
        if self.link is not None:
            self._context.turn.waiting.until_turn(self.link.resumable)

    def lowest_offset(self) -> int:
        """Return the lowest log offset that this session still needs, or -1."""
        sending = self.outbound.lowest_offset()
        if self.inbound.unreleased is None:
            return sending
        received = self.inbound.unreleased.lowest_offset()
        return received if sending < 0 or 0 <= received < sending else sending

    def has_room_to_receive(self) -> bool:
        """Return whether one more QoS 2 message may wait for its PUBREL (``max_awaiting_rel``).

        If memory is short, a client that still has to send a PUBREL must send it first.
        """
        if self.awaits_pubrel:
            if self.inbound.unreleased is not None and not self.account.has_room_for_unreleased():
                return False
            if not self.account.has_room_for_blocked():
                return False
        return not 0 < self.backlog.limits.max_awaiting_rel <= len(self.inbound)

    def watch_release_timeout(self, now: Now) -> None:
        """Restart the timeouts of MQTT 3.1 messages: the broker has recovered the session."""
        if self.inbound.unreleased is not None:
            self.inbound.restart_timeouts(now)
            self._watch_releases()

    def _watch_releases(self) -> None:
        timeout_s = self.backlog.limits.await_rel_timeout_s
        if timeout_s <= 0.0:
            return
        inbound = self.inbound
        oldest_us = inbound.oldest_us() if self.link is not None else inbound.oldest_message_us()
        if oldest_us > 0:
            self._context.timers.wake_at(self, oldest_us + int(timeout_s * MICROSECONDS))

    @property
    def has_unfinished_qos2(self) -> bool:
        """Return whether a received QoS 2 message waits for its PUBREL, or to be routed."""
        return len(self.inbound) > 0

    @property
    def awaits_pubrel(self) -> bool:
        """Return whether the client still has to send a PUBREL."""
        return len(self.inbound) > self.released_count

    # -- timers ------------------------------------------------------------------------

    def wake(self, now: Now) -> None:
        """Handle the timer: drop messages whose PUBREL is overdue; send packets again that an MQTT
        3.1 peer has not acknowledged.

        While the client is offline, only MQTT 3.1 messages time out.
        """
        if self.is_ended:
            return
        link = self.link
        timeout_us = int(self.backlog.limits.await_rel_timeout_s * MICROSECONDS)
        if timeout_us > 0:
            forgotten = self.inbound.forget(now.steady_us - timeout_us, now, link is None)
            if forgotten:
                self.backlog.mark_changed()
                self._drops.count(drop_reasons.NOT_RELEASED, self.client_id, "", forgotten)
                if link is not None:  # there is room to receive
                    self._context.turn.waiting.until_turn(link.resumable)
            self._watch_releases()
        if link is not None and self.transmission.retry(now):
            self.outbound.refill(now)

    # -- durable form ------------------------------------------------------------------

    def snapshot(self) -> SessionState | None:
        """Return the progress to store, with the pages that changed since the last snapshot
        (``records``); None if the session ended."""
        self.backlog.is_changed = False
        if self.is_ended:
            return None
        queue = self.backlog.stored_queue
        context = self._context
        is_connected = self.link is not None and context.store_health.waits_for_disk
        first = queue.first
        free_below = 0
        if is_connected and self.transmission.has_acknowledged:
            begin, end = first.next_sendable()
            free_below = self.transmission.window.free_below(begin, end)
        sent_below = first.seal(
            context.batch.latest_sealed,
            context.store_health.durable_batch,
            is_connected,
            free_below,
        )
        self.transmission.window.reserved_ids.reserve(first.head, first.sendable_end())
        self.transmission.has_acknowledged = False
        segments = queue.take_segments(self.backlog.queue)
        return SessionState(
            self.number,
            first.head,
            first.next_sequence,
            self.transmission.window.take_pages(),
            self.inbound.take_pages(),
            segments,
            queue.take_finished(),
            queue.entries(),
            [] if self.inbound.unreleased is None else self.inbound.unreleased.snapshot(),
            sent_below,
            self.transmission.window.stored_len,
            self.transmission.window.next_place,
            self.transmission.window.stored_checksum,
            len(self.inbound),
            self.inbound.checksum,
        )

    def restore(self, progress: SessionState, queue: list[PackedRun], segments: list[int]) -> None:
        """Restore the stored state of this session, whose client is offline.

        Nothing is dropped, even if the limits are lower now: the publishers of these messages have
        their acknowledgements.

        Args:
            progress: the latest record, with all pages of the window.
            queue: the queued deliveries, by ascending sequence.
            segments: first sequences of the stored segments, ascending.
        """
        stored_queue = self.backlog.stored_queue
        stored_queue.restore(progress, queue, segments)
        first = stored_queue.first
        self.transmission.window.reserved_ids.reserve(first.head, first.sendable_end())
        for run in queue:
            self.backlog.queue.restore(run, stored_queue.lane(run.first >> PRIORITY_SHIFT).head)
        self.transmission.window.next_place = progress.next_place
        for page in progress.pages:
            for entry in page.entries:
                self._restore_in_flight(entry, page.number)
        self.inbound.restore(progress.inbound)
        if progress.unreleased:
            bytes_max = self.backlog.limits.max_awaiting_rel_bytes
            self.inbound.unreleased_of_v31(bytes_max, self.account).restore(progress.unreleased)

    def _restore_in_flight(self, entry: WindowEntry, page: int) -> None:
        packet_id, state, sequence, offset, qos, retain, ids, size_bytes, shared = entry
        delivery = Delivery(None, offset, qos, retain, ids, sequence)
        delivery.size_bytes = size_bytes
        if shared is not None:
            delivery.shared_origin = SharedOrigin(shared[0], shared[1], shared[2])
        self.transmission.window.restore(packet_id, state, delivery, page)
