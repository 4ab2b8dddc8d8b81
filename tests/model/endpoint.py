"""One side of a simulated link: an application, ``engine.session``, a disk, and a shell around
them.

Both sides are the same: each publishes to the other, as a bridge and its broker do. Between the
session and the wire is only what any user of a session must have, so that the runs prove the
session and the commit, not a broker.

::

      publish ─▶ session ─▶ open batch ─▶ seal ─▶ (write) ─▶ disk ─▶ (release) ─▶ wire
      wire ─▶ decoder ─▶ session ─▶ new messages: rows of the log, acknowledgements held

``crash`` forgets everything that the disk does not have. A subclass with one method changed is a
broken side, and must be found out (``tests/model/test_link_faults.py``).
"""

from __future__ import annotations

from typing import Final

from penstock.engine.batch.commit import Commit
from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import REASONS
from penstock.engine.values.limits import NEVER_EXPIRES_S, EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.records import RecoveredState, SessionRecord
from penstock.engine.wire.link import Link
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode_ack
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC, V5
from penstock.protocol.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties, encode_properties
from penstock.protocol.reasons import QUOTA_EXCEEDED
from penstock.store.memory import MemoryStore
from tests.model.traffic import Traffic, key_of
from tests.support.waiting import forget_who_waits

PACKET_SIZE_BYTES_MAX: Final = 1_000_000
NUMBER: Final = 1  # of the one session


class Endpoint:
    """One side of the link.

    Args:
        version: protocol level of the link, 3, 4 or 5.
        limits: the limits of its session.
        outward: the judge of what it sends.
        inward: the judge of what it receives.
        refuse_every: refuse each message whose number is a multiple of it; 0 = none.
        now: when it starts.
    """

    def __init__(
        self,
        version: int,
        limits: EngineLimits,
        outward: Traffic,
        inward: Traffic,
        refuse_every: int,
        now: Now,
    ) -> None:
        self.version = version
        self.limits = limits
        self.outward = outward
        self.inward = inward
        self.wire = bytearray()  # written to the socket in this step
        self.under_way: Commit | None = None
        self.written = False
        self.reads: list[tuple[Session, list[int]]] = []  # bodies asked from the log
        self.link: Link | None = None
        self._refuse_every = refuse_every
        self._store = MemoryStore(outward.sender)
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX, version)
        self._wire_decoder = Decoder(PACKET_SIZE_BYTES_MAX, version)
        self._start(now)

    def _start(self, now: Now) -> None:
        recovered = self.recovered()
        forget_who_waits(self._store)
        self.context = EngineContext(recovered.next_offset)
        self.context.store_health.waits_for_disk = True
        self.drops = Drops()
        self.session = Session(
            self.outward.sender, NUMBER, NEVER_EXPIRES_S, self.context, self.limits, self.drops
        )
        if recovered.sessions:
            self.session.disconnected_at_us = now.wall_us
            if NUMBER in recovered.progress:
                self.session.restore(
                    recovered.progress[NUMBER],
                    recovered.queues.get(NUMBER, []),
                    recovered.segments.get(NUMBER, []),
                )
        else:
            record = SessionRecord(self.outward.sender, NUMBER, NEVER_EXPIRES_S, 0)
            self.context.batch.put_session(record)
        self.link = None
        self.under_way = None
        self.written = False
        self.reads = []

    def recovered(self) -> RecoveredState:
        """Return the state that its disk has."""
        return self._store.recover()

    # -- the application ---------------------------------------------------------------

    def publish(self, topic: str, qos: int, size: int, expiry_s: int, now: Now) -> None:
        """Publish a message for the other side."""
        properties = b""
        if expiry_s > 0 and self.version == V5:
            properties = encode_properties(Properties(message_expiry_interval=expiry_s))
        expires_at_us = now.wall_us + expiry_s * 1_000_000 if properties else 0
        key = self.outward.published(topic, qos, expires_at_us)
        payload = key.encode() + b"." * size
        sender = self.outward.sender
        message = Message(topic, payload, qos, False, sender, now.wall_us, properties)
        if qos > 0:
            self.context.batch.append(message)
        self.session.outbound.deliver(message, qos, False, (), qos == 0, now)

    # -- the connection ----------------------------------------------------------------

    def attach(self, receive_maximum: int, packet_size_max: int, now: Now) -> None:
        """Attach a connection whose other end accepts this much."""
        self.detach(now)
        link = Link(self.context.turn)
        link.version = self.version
        link.max_packet_size_bytes = packet_size_max
        link.is_open = True
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX, self.version)
        self._wire_decoder = Decoder(PACKET_SIZE_BYTES_MAX, self.version)
        self.outward.connected(receive_maximum)
        self.link = link
        self.session.attach(link, self.limits, receive_maximum, now)

    def detach(self, now: Now) -> None:
        """End the connection, as far as this side knows."""
        if self.link is not None:
            self.link.close(False)
            self.link = None
            self.session.detach(now)

    def receive(self, data: bytes, now: Now) -> None:
        """Handle bytes from the wire."""
        self._decoder.feed(data)
        while (packet := self._decoder.next_packet()) is not None:
            self.handle(packet, now)

    def handle(self, packet: Packet, now: Now) -> None:
        """Handle one packet from the other side."""
        link = self.link
        assert link is not None
        if isinstance(packet, Publish):
            self._arrival(packet, link, now)
        elif isinstance(packet, Pubrel):
            code = self.session.release(packet.packet_id)
            link.send_after_commit(encode_ack(PUBCOMP, packet.packet_id, code, self.version))
        else:
            assert isinstance(packet, Puback | Pubrec | Pubcomp), packet
            self.outward.answered(packet)
            kinds = {Puback: PUBACK, Pubrec: PUBREC, Pubcomp: PUBCOMP}
            kind = kinds[type(packet)]
            if self.session.transmission.acknowledge(
                kind, packet.packet_id, packet.reason_code, now
            ):
                self.session.outbound.refill(now)

    def _arrival(self, packet: Publish, link: Link, now: Now) -> None:
        answer = {0: 0, 1: PUBACK, 2: PUBREC}[packet.qos]
        refused = packet.qos > 0 and self.refuses(packet)
        if not refused and self.is_new(packet, now):
            sender = self.inward.sender
            self.context.batch.append(
                Message(packet.topic, packet.payload, packet.qos, False, sender, now.wall_us)
            )
        if answer:
            code = QUOTA_EXCEEDED if refused else 0
            link.ack_after_commit(encode_ack(answer, packet.packet_id, code, self.version))

    def refuses(self, packet: Publish) -> bool:
        """Return whether the application refuses this message, whenever it comes."""
        number = int(key_of(packet.payload).rpartition("|")[2])
        return self._refuse_every > 0 and number % self._refuse_every == 0

    def is_new(self, packet: Publish, now: Now) -> bool:
        """Return whether the session receives this message for the first time."""
        return self.session.receive(packet, now)

    # -- commits -----------------------------------------------------------------------

    def end_turn(self, now: Now) -> None:
        """Write what is ready; seal and start a commit unless one is under way."""
        ready = self.context.turn.ready
        self.context.turn.ready = []
        for link in ready:
            self.leave(link, b"".join(link.take_ready()), now)
        self.context.turn.closing = []
        if self.under_way is None:
            commit = self.context.seal()
            if commit.has_writes:
                self.under_way = commit
                self.written = False
            else:
                self._release(commit, now)

    def write(self) -> None:
        """Write the commit under way to the disk."""
        commit = self.under_way
        if commit is None or self.written:
            return
        self.keep(commit)
        self.written = True
        for message in commit.messages:
            key = key_of(message.payload)
            if message.client_id == self.outward.sender:
                self.outward.accepted(key)
            else:
                self.inward.row(key)

    def keep(self, commit: Commit) -> None:
        """Make a commit durable."""
        self._store.commit(commit)

    def release(self, now: Now) -> None:
        """Note that the commit is on disk, and send what waited for it."""
        if self.under_way is not None and self.written:
            commit = self.under_way
            self.under_way = None
            self._release(commit, now)
            self.end_turn(now)

    def _release(self, commit: Commit, now: Now) -> None:
        self.context.store_health.mark_committed(commit)
        for release in commit.deferred_packets:
            if release.link.sends_deferred:
                self.leave(release.link, b"".join(release.pieces), now)
            release.mark_sent()
        for requester, offsets in commit.body_requests:
            assert isinstance(requester, Session)
            if requester.needs_bodies(offsets):
                self.reads.append((requester, offsets))

    def leave(self, link: Link, data: bytes, now: Now) -> None:
        """Put bytes on the wire, and show them to the judges."""
        if link is not self.link:
            return
        self._wire_decoder.feed(data)
        while (packet := self._wire_decoder.next_packet()) is not None:
            self.outward.left(packet, now.wall_us)
        self.wire += data

    def supply(self, now: Now) -> None:
        """Answer the oldest question for bodies from the log."""
        if self.reads:
            session, offsets = self.reads.pop(0)
            session.supply(offsets, self._store.read(offsets), now)

    # -- trouble -----------------------------------------------------------------------

    def crash(self, now: Now) -> None:
        """Forget everything that the disk does not have, and start again."""
        self.count_drops()
        self.outward.crashed()
        self.wire.clear()
        self._start(now)

    def trim(self) -> None:
        """Remove all messages from the log, as retention may, whether the session needs them or
        not."""
        self._store.trim_log(1 << 62, 0, 1 << 62)

    def count_drops(self) -> None:
        """Hand the drop counters over to the judge."""
        for reason in range(len(REASONS)):
            self.outward.dropped[reason] += self.drops.counts[reason]
            self.drops.counts[reason] = 0

    def at_rest(self) -> None:
        """Check that nothing is left to do."""
        name = self.outward.sender
        assert self.session.window_length == 0, f"{name}: the window is stuck"
        assert self.session.queue_length == 0, f"{name}: the queue is stuck"
        assert self.link is not None
        assert self.link.uncommitted_acks == 0, f"{name}: acknowledgements are stuck"
        assert not self.session.has_unfinished_qos2, f"{name} keeps packet identifiers"
