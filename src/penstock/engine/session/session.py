"""A session: the state of one client identifier, whichever side of the link it is on.

Broker, client and bridge run this one machine::

      Session ─┬─ outbound ────── a message goes to the window or waits; refill
               │     │ │
               │     │ ▼
               ├─ transmission ── the in-flight window: sent, acknowledged, sent again
               │     │ │
               │     ▼ ▼
               ├─ backlog ─────── the message queue: what waits, what is dropped of it
               ├─ inbound ─────── QoS 2 messages not yet released: packet identifiers, for MQTT 3.1
               │                  the messages too (``AwaitingRelease``)
               ╰─ its subscriptions, its expiry, its durable form

Each part knows those below it. The backlog alone knows the session, to mark it as changed, until
the session ends.

It writes packets to the ``Link`` of the connection it is attached to, if any. What
promises something leaves only after the commit that holds it (``Link.send_after_commit``).
"""

from __future__ import annotations

from typing import final

from penstock.engine.access.access import Permissions
from penstock.engine.batch.commit import StoredState
from penstock.engine.batch.effects import Effects
from penstock.engine.batch.packed_run import PackedRun
from penstock.engine.batch.records import Progress, WindowEntry
from penstock.engine.clock import MICROSECONDS, Now
from penstock.engine.limits import EngineLimits
from penstock.engine.memory.accounts import Account
from penstock.engine.message import Delivery, Message, Shared
from penstock.engine.reporting import drop_counts as reasons_to_drop
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.awaiting_release import UnreleasedMessage
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.congestion import NOTHING
from penstock.engine.session.inbound import Inbound
from penstock.engine.session.outbound import Outbound
from penstock.engine.session.queue import PRIORITY_MASK, PRIORITY_SHIFT, SLOT_SHIFT
from penstock.engine.session.transmission import NO_BODIES, Transmission
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.packets import Publish, Subscription


@final
class SessionSubscription:
    """One subscription, with the subscription identifier it was made with (0 = none)."""

    def __init__(self, subscription: Subscription, identifier: int) -> None:
        self.subscription = subscription
        self.identifier = identifier


@final
class Session(StoredState):
    """State of one client identifier.

    Args:
        client_id: the client identifier.
        number: key of its stored state.
        expiry_interval_s: 0 = ends with its connection, and is not stored.
        effects: the parts of the broker that it acts on.
        limits: bounds.
        drops: the counts of dropped messages.
        account: its owner's, see ``accounts``; without, it is bounded by what all may keep.
    """

    def __init__(
        self,
        client_id: str,
        number: int,
        expiry_interval_s: int,
        effects: Effects,
        limits: EngineLimits,
        drops: Drops,
        account: Account | None = None,
    ) -> None:
        self.client_id = client_id
        self.account = account or effects.accounts.common
        stored = expiry_interval_s > 0
        self.backlog = Backlog(client_id, stored, effects, limits, drops, self.account)
        self.transmission = Transmission(self.backlog, effects, drops)
        self.outbound = Outbound(self.backlog, self.transmission, effects)
        self.inbound = Inbound(self.account, stored)
        self.number = number
        self.expiry_interval_s = expiry_interval_s
        self.ended = False
        self.zone = limits.zone  # listener its client came through last
        self.username: str | None = None  # whose it is, as authenticated; None = anonymous
        self.owned = False  # ``username`` tells; else the next user owns it
        self.identified = False  # since this start of the broker: what it may do is known
        self.disconnected_at_us = 0
        self.subscriptions: dict[str, SessionSubscription] = {}
        self._effects = effects
        self._drops = drops
        self._former: list[FormerRun] | None = None  # in an earlier store, until a group has it
        self.backlog.owner = self  # until ``end``

    @property
    def limits(self) -> EngineLimits:
        """Return the bounds that hold for it."""
        return self.backlog.limits

    @property
    def stored(self) -> bool:
        """Return whether it outlives its connection."""
        return self.backlog.stored

    @property
    def link(self) -> Link | None:
        """Return the link of its connection; None while the client is away."""
        return self.transmission.link

    @property
    def permissions(self) -> Permissions | None:
        """Return what its client may do; None = everything."""
        return self.transmission.permissions

    @property
    def queue_length(self) -> int:
        """Return the number of messages waiting."""
        return len(self.backlog.queue)

    @property
    def window_length(self) -> int:
        """Return the number of messages in flight."""
        return len(self.transmission.window)

    # -- messages for the client ---------------------------------------------------------

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        at_once: bool,
        now: Now,
        planned: bool = False,
    ) -> None:
        """Take one message for this client: see ``Outbound.deliver``."""
        self.outbound.deliver(message, qos, retain, subscription_ids, at_once, now, planned)

    def refill(self, now: Now) -> None:
        """Send what the window has room for."""
        self.outbound.refill(now)

    def may_receive(self, message: Message) -> bool:
        """Return whether this client may have ``message``."""
        return self.transmission.may_receive(message)

    def refuses(self, size_bytes: int) -> bool:
        """Return whether a message of this size must be refused: see ``Outbound.refuses``."""
        return self.outbound.refuses(size_bytes)

    def has_memory(self) -> bool:
        """Return whether memory has a place for one more QoS 1 or 2 message."""
        return self.backlog.has_memory()

    def recheck_blocked_publishers(self) -> None:
        """Ask every publisher blocked here: limits, subscriptions or permissions changed."""
        self.backlog.recheck_blocked_publishers()

    def watch_links(self) -> None:
        """Have the client resumed when it reads again, if it does not read now."""
        link = self.link
        if link is not None and not link.has_room():
            link.resume_when_room()

    # -- connections -------------------------------------------------------------------

    def attach(self, link: Link, limits: EngineLimits, receive_maximum: int, now: Now) -> None:
        """Attach a connection: everything unacknowledged is sent again.

        The bounds of the connection's listener hold for the session from here on, also
        while it is offline.

        PUBLISH with DUP and PUBREL, with their packet identifiers and in their order
        [MQTT-4.4.0-1], then the queue, as far as the window allows.
        """
        self._use(link)
        link.belongs_to(self.account)
        self.disconnected_at_us = 0
        self.inbound.reconnected(now)
        held = self.inbound.held
        if held is not None:
            held.bytes_max = limits.max_awaiting_rel_bytes
        self.outbound.resume(limits, receive_maximum, now)
        self._watch_releases()
        self._effects.presence.member_connected(self, now)

    def _use(self, link: Link | None) -> None:
        """Send through ``link`` from now on; None: the client is away."""
        self.transmission.link = link
        self.backlog.away = link is None

    def session_lost(self) -> None:
        """Begin anew: the server has no session for us, although we have one [MQTT-3.2.2-5].

        Called before ``attach``. To discard all would lose what waits. What the server had
        received is delivered; what it had not acknowledged is sent anew, so that a QoS 2 message
        whose PUBREC got lost may arrive twice: nobody knows any more. What it sent us and will
        not release is forgotten.
        """
        if self.transmission.sender is not None:
            for delivery in self.transmission.window.delivered():
                self.transmission.sender.acknowledged(delivery, reasons.SUCCESS)
        self.transmission.window.session_lost()
        # whatever was sent, this server does not know
        self.backlog.stored_queue.first.sent_below = 0
        self.inbound.session_lost()
        self.backlog.touch()

    def inherit(self, last_id: int) -> None:
        """Take up a session whose former client nothing is known of, see ``ClientConnection``."""
        self.transmission.window.use_only(last_id)

    def identify(self, username: str | None, permissions: Permissions | None) -> None:
        """Set who uses this session from now on, and what they may do."""
        self.username = username
        self.identified = True
        self.transmission.permissions = permissions
        self.recheck_blocked_publishers()
        if self.link is not None:  # what it may publish now may wait for nothing
            self._effects.turn.resume_later(self.link.user)

    def detach(self, now: Now) -> None:
        """Detach the connection, which is gone; bodies that the log has leave memory."""
        self._effects.presence.member_disconnected(self, now)
        self._use(None)
        if self.backlog.stored_queue.first.lets_leave():
            self.backlog.touch()  # it may not any more
        self.disconnected_at_us = now.steady_us
        self.transmission.congestion.by(NOTHING, now)
        if self.inbound.held is not None:
            self.inbound.held.rest()
        self.outbound.rest()
        if self.inbound.held is not None:
            self._watch_releases()

    def end(self) -> None:
        """End the session: drop and count what it still had."""
        self.ended = True
        self._use(None)
        self.transmission.wanted = NO_BODIES
        self.recheck_blocked_publishers()
        self.backlog.drop_all(self.transmission.window.undelivered())
        if self.inbound.held is not None:
            unreleased = len(self.inbound.held)
            self.inbound.held.ended()
            self._drops.count(reasons_to_drop.NOT_RELEASED, self.client_id, "", unreleased)
        self.transmission.window.ended()
        self.inbound.ended()
        self.transmission.stop_fetching()
        self.backlog.owner = None

    # -- inbound -----------------------------------------------------------------------

    def receive(self, publish: Publish, now: Now) -> bool:
        """Take a PUBLISH from the peer; return whether it is new and must be routed."""
        if publish.qos < 2:
            return True
        is_new = self.inbound.receive(publish.packet_id, now)
        if is_new:
            self.backlog.touch()
            if self.due_us == 0:
                self._watch_releases()
        return is_new

    def awaits_release(self, packet_id: int) -> bool:
        """Return whether a QoS 2 message with this packet identifier was received and not
        released."""
        return self.inbound.waits(packet_id)

    def came_here(self, packet_id: int) -> bool:
        """Return whether such a message came on this connection, and not on an earlier one."""
        return self.inbound.came_here(packet_id)

    def release(self, packet_id: int) -> int:
        """Take a PUBREL from the peer; return the reason code for PUBCOMP."""
        code = self.inbound.release(packet_id)
        if code == reasons.SUCCESS:
            self.backlog.touch()
        return code

    # -- held until PUBREL (v3.1 §3.3) -----------------------------------------------------

    def keep_until_release(self, packet_id: int, message: Message) -> None:
        """Keep ``message``, just received, until its PUBREL routes it; see ``awaiting_release``."""
        held = self.inbound.messages_for_v31(
            self.backlog.limits.max_awaiting_rel_bytes, self.account
        )
        if self.stored or not held.has_room(message.size_bytes()):
            message.internal = True
            self._effects.batch.append(message)
        held.keep(packet_id, message)

    def holds(self, packet_id: int) -> bool:
        """Return whether the message with this packet identifier is not routed yet."""
        held = self.inbound.held
        return held is not None and held.get(packet_id) is not None

    def release_in_order(self, packet_id: int) -> bool:
        """Note the PUBREL of a held message; return whether it is the first in line."""
        held = self.inbound.held
        return held is not None and held.release_in_order(packet_id)

    @property
    def released_count(self) -> int:
        """Return how many held messages have their PUBREL and are not routed yet."""
        held = self.inbound.held
        return 0 if held is None else len(held.line)

    def first_released(self) -> int:
        """Return the packet identifier of the first held message in line; there must be one."""
        held = self.inbound.held
        assert held is not None
        return held.line.first()

    def next_released(self) -> UnreleasedMessage | None:
        """Return the first held message in line, with its body unless that is gone.

        None until the body is read from the log.
        """
        messages = self.inbound.held
        if messages is None:
            return None
        held = messages.get(messages.line.first())
        if held is None or held.message is not None or held.gone:
            return held
        asked = messages.ask()
        if asked:
            self._effects.batch.body_requests.append((self, asked))
        return None

    def wants(self, asked: list[int]) -> bool:
        """Return whether the bodies asked for are still needed, on either way."""
        held = self.inbound.held
        return (held is not None and asked is held.wanted) or asked is self.transmission.wanted

    def supply(self, asked: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Take bodies from the log, by offset: of messages to send, or that await PUBREL."""
        held = self.inbound.held
        if held is None or asked is not held.wanted:
            self.outbound.supply(asked, bodies, now)
            return
        gone = held.supply(bodies)
        self._drops.count(reasons_to_drop.RETENTION, self.client_id, "", gone)
        if self.link is not None:
            self._effects.turn.resume_later(self.link.user)

    def lowest_offset(self) -> int:
        """Return the lowest log offset that this session still needs, or -1."""
        sending = self.outbound.lowest_offset()
        if self.inbound.held is None:
            return sending
        held = self.inbound.held.lowest_offset()
        return held if sending < 0 or 0 <= held < sending else sending

    def has_room_to_receive(self) -> bool:
        """Return whether one more QoS 2 message may wait for its PUBREL (``max_awaiting_rel``).

        Where messages are held, and there is no room for more of them, one that the client owes
        a PUBREL for must go first.
        """
        if self.inbound.held is not None and self.awaits_own_pubrel and not self.has_room_to_hold():
            return False
        if self.awaits_own_pubrel and not self.account.has_room_to_block():
            return False
        return not 0 < self.backlog.limits.max_awaiting_rel <= len(self.inbound)

    def has_room_to_hold(self) -> bool:
        """Return whether one more message may be held until its PUBREL."""
        return self.account.has_room_for_unreleased()

    def watch_release_timeout(self, now: Now) -> None:
        """Time what awaits PUBREL from now on: the broker started and took the session up."""
        if self.inbound.held is not None:
            self.inbound.restarted(now)
            self._watch_releases()

    def _watch_releases(self) -> None:
        timeout_s = self.backlog.limits.await_rel_timeout_s
        if timeout_s <= 0.0:
            return
        inbound = self.inbound
        oldest_us = inbound.oldest_held_us() if self.link is None else inbound.oldest_us()
        if oldest_us > 0:
            self._effects.timers.wake_at(self, oldest_us + int(timeout_s * MICROSECONDS))

    @property
    def waits_for_releases(self) -> bool:
        """Return whether a QoS 2 message waits for its PUBREL, or was released and waits for us."""
        return len(self.inbound) > 0

    @property
    def awaits_own_pubrel(self) -> bool:
        """Return whether the client still has to send a PUBREL."""
        return len(self.inbound) > self.released_count

    @property
    def was_resumed(self) -> bool:
        """Return whether the client may have left QoS 2 messages open on an earlier connection."""
        return self.inbound.resumed

    @property
    def inbound_count(self) -> int:
        """QoS 2 messages received on this connection and not yet released (MQTT 5 §4.9)."""
        return self.inbound.here

    # -- timers ------------------------------------------------------------------------

    def wake(self, now: Now) -> None:
        """Drop messages whose PUBREL is overdue; send again what an MQTT 3.1 peer owes an answer.

        The timer of the session calls it. Offline, only held messages expire.
        """
        if self.ended:
            return
        link = self.link
        timeout_us = int(self.backlog.limits.await_rel_timeout_s * MICROSECONDS)
        if timeout_us > 0:
            forgotten = self.inbound.forget(now.steady_us - timeout_us, now, link is None)
            if forgotten:
                self.backlog.touch()
                self._drops.count(reasons_to_drop.NOT_RELEASED, self.client_id, "", forgotten)
                if link is not None:
                    self._effects.turn.resume_later(link.user)  # there is room to receive
            self._watch_releases()
        if link is not None and self.transmission.retry(now):
            self.outbound.refill(now)

    # -- durable form ------------------------------------------------------------------

    def snapshot(self) -> Progress | None:
        """Return the change since the last snapshot; see ``records``."""
        self.backlog.changed = False
        if self.ended:
            return None
        queue = self.backlog.stored_queue
        effects = self._effects
        is_connected = self.link is not None and effects.store.waits_for_disk
        first = queue.first
        free_below = 0
        if is_connected and self.transmission.acknowledges:
            begin, end = first.unsealed()
            free_below = self.transmission.window.free_below(begin, end)
        sent_below = first.seal(
            effects.batch.sealed, effects.store.durable, is_connected, free_below
        )
        self.transmission.window.reserved_ids.keep(first.head, first.leaving_end())
        self.transmission.acknowledges = False
        segments = queue.take_segments(self.backlog.queue)
        return Progress(
            self.number,
            first.head,
            first.next_sequence,
            self.transmission.window.take_pages(),
            self.inbound.take_pages(),
            segments,
            queue.take_finished(),
            queue.entries(),
            [] if self.inbound.held is None else self.inbound.held.snapshot(),
            sent_below,
            self.transmission.window.stored_len,
            self.transmission.window.next_place,
            self.transmission.window.stored_squares,
            len(self.inbound),
            self.inbound.squares,
        )

    def restore(self, progress: Progress, queue: list[PackedRun], segments: list[int]) -> None:
        """Take up what ``snapshot`` and the segments kept. The session is offline.

        All of it: what was acknowledged is not dropped because a start finds other bounds.

        Args:
            progress: the latest record, with all pages of the window.
            queue: the deliveries that wait, ascending.
            segments: first sequences of the stored segments, ascending.
        """
        stored_queue = self.backlog.stored_queue
        stored_queue.restore(progress, queue, segments)
        first = stored_queue.first
        self.transmission.window.reserved_ids.keep(first.head, first.leaving_end())
        former: list[FormerRun] = []
        for run in queue:
            number = run.first >> PRIORITY_SHIFT
            head = stored_queue.lane(number).head
            if run.end > head and run.is_shared():
                former.append(FormerRun(self, run, head))
            if number >> SLOT_SHIFT == 0:
                self.backlog.queue.restore(run, head)
        self._former = former or None
        self.transmission.window.next_place = progress.next_place
        for page in progress.pages:
            for entry in page.entries:
                self._restore_in_flight(entry, page.number)
        self.inbound.restore(progress.inbound)
        if progress.held:
            bytes_max = self.backlog.limits.max_awaiting_rel_bytes
            self.inbound.messages_for_v31(bytes_max, self.account).restore(progress.held)

    def _restore_in_flight(self, entry: WindowEntry, page: int) -> None:
        packet_id, state, sequence, offset, qos, retain, ids, size_bytes, shared = entry
        delivery = Delivery(None, offset, qos, retain, ids, sequence)
        delivery.size_bytes = size_bytes
        if shared is not None:
            delivery.shared = Shared(shared[0], shared[1], shared[2])
        self.transmission.window.restore(packet_id, state, delivery, page)

    # -- what an earlier store has here of shared subscriptions ------------------------------

    def former_runs(self) -> list[FormerRun]:
        """Return what is to be moved to the queues of groups; then call ``give_up_former``."""
        return self._former or []

    def keep_former(self, delivery: Delivery) -> None:
        """Make ``delivery`` the client's own: its group is no more."""
        if delivery.sequence >> PRIORITY_SHIFT >> SLOT_SHIFT > 0:
            priority = delivery.sequence >> PRIORITY_SHIFT & PRIORITY_MASK
            own = Delivery(
                None, delivery.offset, delivery.qos, delivery.retain, delivery.subscription_ids
            )
            own.size_bytes = delivery.size_bytes
            self.backlog.push(own, priority)

    def give_up_former(self) -> None:
        """Empty the lanes of slots, and remove what was mixed in: all of it is elsewhere."""
        former = self._former
        if former is None:
            return
        self._former = None
        self.backlog.touch()
        mixed: dict[int, set[int]] = {}
        for run in former:
            if run.lane >> SLOT_SHIFT > 0:
                lane = self.backlog.stored_queue.lane(run.lane)
                lane.head = lane.next_sequence
            else:
                mixed.setdefault(run.lane, set()).update(run.moved)
        for number, sequences in mixed.items():
            for delivery in self.backlog.queue.take_out_shared(number, sequences):
                self.backlog.stored_queue.taken_out(delivery.sequence)


@final
class FormerRun:
    """Deliveries of shared subscriptions that an earlier store has at one member.

    Args:
        session: the member.
        run: the deliveries there; some of them may be its own.
        head: the first sequence that is not gone.
    """

    def __init__(self, session: Session, run: PackedRun, head: int) -> None:
        self.session = session
        self.lane = run.first >> PRIORITY_SHIFT
        self.priority = self.lane & PRIORITY_MASK
        self.moved: set[int] = set()  # sequences of those that are mixed with its own
        self._run = run
        self._end = len(run)  # it may grow
        self._position = max(0, head - run.first) - 1

    def advance(self) -> bool:
        """Go on to the next that is shared; whether there is one."""
        run = self._run
        self._position += 1
        while self._position < self._end:
            if run.table[run.kinds[self._position]][3] is not None:
                return True
            self._position += 1
        return False

    @property
    def offset(self) -> int:
        """Return where the present one lies in the log."""
        return self._run.offsets[self._position]

    def delivery(self) -> Delivery:
        """Return the present one."""
        return self._run.delivery(self._position)
