"""The sending half of one connection: packets that are sent at once, and packets that wait for a
commit.

::

      send ───────────────▶ ready ──────────────────────────────────────▶ socket, in this turn
      send_after_commit ──▶ deferred ── sealed: DeferredPackets ── commit durable ──▶ socket
      QoS 0 ──────────────▶ ready, or behind deferred QoS 0 packets, to keep the order

A packet is sent in one of two ways. ``send`` is for packets that promise nothing: QoS 0 messages
that were published with QoS 0, PINGRESP, DISCONNECT, and a QoS 1 message whose state is on disk
already (``Transmission``). ``send_after_commit`` is for all others: their bytes are sent only after
the commit of the state that they promise (docs/architecture.md, "The delivery contract"). Deferred
bytes of one link keep their order, so acknowledgements are sent in the order of the packets they
answer [MQTT-4.6.0-2], and no message overtakes a deferred QoS 1 or 2 message.

Bytes that are written to a link are counted until the shell has handed them to the socket, and
then for as long as the socket's buffer is full, so that memory has a limit even if the peer reads
nothing::

            send ─▶ pending_bytes ─▶ socket's buffer ─ full ─▶ congested_bytes ─ room ─▶ 0
                    ╰──── at pending_bytes_max the link has no room: QoS 1 and 2 stay in the
                          queue, and the peer's packets are not read (``connection``)

That is the limit of one link. All links together have one too, beyond the ``FREE_BYTES`` of each:
it counts their pending bytes and the bytes in the sockets' buffers, which the shell reports
(``report_socket_buffer``) for sockets that do not take all bytes at once.

A link that this side closes *drains*: what was deferred is still sent after its commit, then the
farewell (DISCONNECT), and the shell closes the socket behind it. So no end that is planned (a stop,
a kick, a take-over) leaves an acknowledgement of a committed message unsent::

      open ── close ─▶ draining ── last commit ─▶ drained: the socket is closed
        │                 ╰ stop_draining: no commit in time, or the store fails ─▶ ▲
        ╰── close, nothing deferred; or the socket is lost ───────────────────────────╯
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.engine.memory.pool import Pool
from penstock.engine.values.client_record import ClientRecord, Run
from penstock.engine.values.counters import AllCounters
from penstock.engine.values.limits import FREE_BYTES
from penstock.engine.waiting import Resumable, Waiting
from penstock.engine.wire.aliases import OutboundAliases
from penstock.engine.wire.byte_rates import ByteRates
from penstock.engine.wire.packet_buffer import PacketBuffer
from penstock.engine.work_budget import WorkBudget

_PLAIN_BYTES: Final = 4  # size of an acknowledgement without a reason code
PENDING_BYTES_MAX: Final = 1_048_576  # of one link, unless its connection sets another limit


@final
class Turn:
    """The work of one broker's links in this turn of the event loop, and what waits for later
    ones."""

    def __init__(self) -> None:
        self.counters = AllCounters()
        self.work_budget = WorkBudget()
        self.waiting = Waiting()
        self.ready: list[Link] = []  # links with bytes to send now
        self.deferring: list[Link] = []  # links with packets that wait for the open batch
        self.closing: list[Link] = []  # links to be closed
        self.unsent_bytes: i64 = 0  # of all links: not handed to a socket yet
        self.buffered_bytes: i64 = (
            0  # of all links: in the buffers of sockets whose peers read slowly
        )
        self.buffers_bytes_max = 0  # limit of these two sums together; 0 = no limit
        self.awaits_no_commit = False  # the store cannot write: no link that is closed drains

    @property
    def waits_for_batch(self) -> bool:
        """Return whether a packet or a ``Resumable`` waits until the open batch is sealed."""
        return len(self.deferring) > 0 or self.waiting.has_seal

    def seal_links(self) -> list[DeferredPackets]:
        """Seal the links with deferred packets; return the packets that wait for this batch."""
        sealed = [link.seal() for link in self.deferring]
        self.deferring = []
        return sealed


@final
class Link:
    """The sending half of one connection, as a session sees it.

    ``is_open`` becomes true when the CONNACK is sent: until then no packet may overtake the CONNACK
    [MQTT-3.2.0-1]. ``is_congested`` is true while the socket's write buffer is full.
    """

    def __init__(self, turn: Turn) -> None:
        self.version = 0
        self.mount_point = ""  # prefix of the peer's topics on this side, see ``mount_point``
        self.is_bridge = False  # the peer is a bridge by its protocol level (``protocol.kinds``)
        self.max_packet_size_bytes = 0  # the largest packet that the peer accepts; 0 = no limit
        self.qos_max = 2  # the highest QoS that the peer accepts
        self.retain_available = True  # the peer accepts the RETAIN flag
        self.problem_information = True  # the peer accepts reason strings
        self.is_open = False
        self.is_congested = False
        self.is_closed = False
        self.is_draining = False  # closed, but the deferred packets are still sent
        self._farewell = b""  # the last packet, to be sent at once if draining takes too long
        self.aliases: OutboundAliases | None = None  # set when the peer accepts topic aliases
        self.sealed_batches: i64 = 0  # batches of deferred bytes so far
        self.uncommitted_batches: i64 = 0  # sealed batches whose commit is not durable yet
        self.uncommitted_acks: i64 = 0  # acknowledgements that wait for a commit
        self.uncommitted_qos0: i64 = 0  # QoS 0 messages that wait for a commit
        self.uncommitted_publishes: i64 = 0  # QoS 1 and 2 messages that wait for a commit
        self.pending_bytes: i64 = 0  # sent or deferred, and not yet handed to the socket
        self.pending_bytes_max: i64 = PENDING_BYTES_MAX
        self.congested_bytes: i64 = 0  # handed to the socket since the link became congested
        self.buffered_bytes: i64 = 0  # in the socket's buffer, as the shell reported last
        self.bytes_received: i64 = 0  # since the connection began
        self.bytes_sent: i64 = 0  # since the connection began
        self.rates: ByteRates | None = None  # created when an operator first asks for rates
        self.account: Pool | None = None  # of its session; None before CONNACK
        self.record: ClientRecord | None = None  # of its client; None: the client has no record
        self.ready_buffer = PacketBuffer()  # packets that are sent in this turn
        self.deferred_buffer = PacketBuffer()  # packets that wait for the commit of the open batch
        self.waiting_qos0_buffer: PacketBuffer | None = None  # behind deferred QoS 0 packets
        self.deferred_acks: i64 = 0
        self.deferred_qos0: i64 = 0
        self.deferred_publishes: i64 = 0
        self._deferred_sent: Run | None = None  # messages in ``deferred_buffer``, for the record
        self._waiting_sent: Run | None = None  # messages in ``waiting_qos0_buffer``
        self.resumable: Resumable | None = None  # the connection, for when there is room again
        self.counters = (
            turn.counters.fallback
        )  # replaced once the listener, and the client, are known
        self._resumes_when_room = False  # whether ``resumable`` is resumed when there is room
        self._turn = turn
        self.work_budget = turn.work_budget  # the work budget of the turn

    @property
    def has_waiting_packets(self) -> bool:
        """Return whether a packet waits for a commit, so that a packet sent now would overtake
        it."""
        return (
            self.uncommitted_batches > 0
            or self.deferred_buffer.count > 0
            or self._has_waiting_qos0()
        )

    def has_room(self) -> bool:
        """Return whether a message may be sent now; if not, the caller leaves it in its queue."""
        return not self.is_congested and self.pending_bytes < self.pending_bytes_max

    def has_room_for(self, size_bytes: int) -> bool:
        """Return whether a message of ``size_bytes`` may be sent now: ``has_room``, and memory.

        Every link may buffer up to ``FREE_BYTES``; beyond that, all links together, and those of
        one account, have a limit. Messages of less than ``LARGE_BYTES`` need not be checked: the
        link to a peer that does not read is soon congested.
        """
        if self.is_congested or self.pending_bytes >= self.pending_bytes_max:
            return False
        if self.pending_bytes + self.buffered_bytes + size_bytes <= FREE_BYTES:
            return True
        return self.may_grow(size_bytes)

    def may_grow(self, size_bytes: int) -> bool:
        """Return whether memory has room for ``size_bytes`` beyond the link's ``FREE_BYTES``.

        A message larger than half of the limit finds room when half of the limit is free.
        """
        turn = self._turn
        bound = turn.buffers_bytes_max
        unread_bytes = turn.unsent_bytes + turn.buffered_bytes
        if 0 < bound < unread_bytes + min(size_bytes, bound // 2):
            return False
        return self.account is None or self.account.has_room_for_unsent(size_bytes)

    def report_socket_buffer(self, size_bytes: int) -> bool:
        """Note that the socket's buffer has ``size_bytes``; return whether the link is congested.

        The link is congested above ``pending_bytes_max``, or if memory has no room for more. In the
        second case the peer's packets are not read until the peer has read the buffered bytes.
        """
        delta_bytes = size_bytes - self.buffered_bytes
        self.buffered_bytes = size_bytes
        self._turn.buffered_bytes += delta_bytes
        if self.account is not None:
            self.account.buffered_bytes += delta_bytes
        may_grow = size_bytes <= FREE_BYTES or self.may_grow(0)
        if may_grow and size_bytes <= self.pending_bytes_max:
            return False
        if not self.is_congested:
            self.mark_socket_full()
        if not may_grow:
            self.congested_bytes = max(self.congested_bytes, self.pending_bytes_max)
        return True

    def set_account(self, account: Pool) -> None:
        """Set the account in which the buffered bytes count: the account of the session."""
        account.buffered_bytes += self.buffered_bytes
        if self.account is not None:
            self.account.buffered_bytes -= self.buffered_bytes
        self.account = account

    def is_full(self) -> bool:
        """Return whether so many bytes wait for the peer that its packets must not be handled."""
        return self.pending_bytes + self.congested_bytes >= self.pending_bytes_max

    def send(self, frame: bytes) -> None:
        """Send ``frame`` in this turn, or behind the CONNACK if that was not sent yet."""
        if not self.is_open:
            self.qos0_after_commit(frame)  # later QoS 0 packets wait behind this one, in order
            return
        self.send_now(frame)

    def send_now(self, frame: bytes) -> None:
        """Send ``frame`` in this turn, even before the CONNACK."""
        self.counters.written.count(frame[0] >> 4)
        self.ready_buffer.add(frame)
        if self.ready_buffer.count == 1:
            self._turn.ready.append(self)
        self._count_written(len(frame))

    def next_batch(self) -> int:
        """Return the number of the link's batch with which a packet deferred now is sent."""
        return self.sealed_batches + 1

    def batch_of_qos0(self, at_once: bool) -> int:
        """Return the number of the link's batch with which a QoS 0 message will be sent.

        0 = at once; -1 = as soon as the QoS 0 messages before it are sent.
        """
        if at_once and self.uncommitted_qos0 > 0:
            return -1
        return 0 if at_once and self.is_open else self.sealed_batches + 1

    def buffer_for_qos0(self, at_once: bool) -> PacketBuffer:
        """Return the buffer to write a QoS 0 message to; the caller calls ``count_qos0_written``
        afterwards.

        With ``at_once`` the message is sent in this turn, or right behind the QoS 0 messages that
        wait for a commit; else after the commit of the open batch.
        """
        if at_once:
            if self.uncommitted_qos0 > 0:
                if self.waiting_qos0_buffer is None:
                    self.waiting_qos0_buffer = PacketBuffer()
                return self.waiting_qos0_buffer
            if self.is_open:
                return self.ready_buffer
        waiting_qos0 = self.waiting_qos0_buffer
        if waiting_qos0 is not None and waiting_qos0.count > 0:
            # these precede the message, so they wait for the same commit from now on
            if self.deferred_buffer.count == 0:
                self._turn.deferring.append(self)
            count = waiting_qos0.count
            self.deferred_buffer.add_all(waiting_qos0)
            self.deferred_qos0 += count
            self.uncommitted_qos0 += count
            self._deferred_sent = _joined(self._deferred_sent, self._waiting_sent)
            self._waiting_sent = None
        return self.deferred_buffer

    def record_written(self, buffer: PacketBuffer, offset: i64) -> None:
        """Record that the message at this log offset was written to ``buffer``.

        The client's record notes it as sent when the buffer is sent.
        """
        record = self.record
        if record is None:
            return
        if buffer is self.ready_buffer:
            record.sent_runs.note(offset)
        elif buffer is self.deferred_buffer:
            if self._deferred_sent is None:
                self._deferred_sent = Run()
            self._deferred_sent.add(offset)
        else:
            if self._waiting_sent is None:
                self._waiting_sent = Run()
            self._waiting_sent.add(offset)

    def count_qos0_written(self, buffer: PacketBuffer, size_bytes: i64) -> None:
        """Note that one QoS 0 message was written to ``buffer``."""
        if buffer is self.ready_buffer:
            if buffer.count == 1:
                self._turn.ready.append(self)
        elif buffer is self.deferred_buffer:
            if buffer.count == 1:
                self._turn.deferring.append(self)
            self.deferred_qos0 += 1
            self.uncommitted_qos0 += 1
        self._count_written(size_bytes)

    def send_last(self, frame: bytes) -> None:
        """Send ``frame``, which answers CONNECT, in this turn: nothing waits for a commit."""
        self.is_open = True
        self.send_now(frame)

    def send_after_commit(self, frame: bytes) -> None:
        """Send ``frame`` after the commit of this turn."""
        self.counters.written.count(frame[0] >> 4)
        self.deferred_buffer.add(frame)
        self.count_deferred(len(frame))

    def count_deferred(self, size_bytes: i64) -> None:
        """Note that one more packet, of ``size_bytes``, was written to ``deferred_buffer``."""
        if self.deferred_buffer.count == 1:
            self._turn.deferring.append(self)
        self._count_written(size_bytes)

    def buffer_for_publish(self, at_once: bool) -> PacketBuffer:
        """Return the buffer to write a QoS 1 or 2 message to; the caller calls
        ``count_publish_written`` afterwards."""
        return self.ready_buffer if at_once else self.deferred_buffer

    def count_publish_written(self, buffer: PacketBuffer, size_bytes: i64) -> None:
        """Note that one QoS 1 or 2 message was written to ``buffer``."""
        if buffer is self.ready_buffer:
            if buffer.count == 1:
                self._turn.ready.append(self)
            self._count_written(size_bytes)
        else:
            self.deferred_publishes += 1
            self.uncommitted_publishes += 1
            self.count_deferred(size_bytes)

    def has_only_sealed_publishes(self) -> bool:
        """Return whether QoS 1 or 2 messages wait for a commit, all of them in sealed batches.

        The next message would then be the first to wait for the open batch, and later ones would
        wait behind it; so the session leaves it in the queue until the sealed batches are durable.
        """
        return self.uncommitted_publishes > 0 and self.deferred_publishes == 0

    def send_plain_after_commit(self, packet_type: i64, packet_id: i64) -> None:
        """Send an acknowledgement without reason code and properties after the commit of this
        turn."""
        self.counters.written.count(packet_type)
        self.deferred_buffer.add_ack(packet_type, packet_id)
        self.count_deferred(_PLAIN_BYTES)

    def ack_plain_after_commit(self, packet_type: i64, packet_id: i64) -> None:
        """Send as ``send_plain_after_commit``; the packet counts as uncommitted until then."""
        self.send_plain_after_commit(packet_type, packet_id)
        self.deferred_acks += 1
        self.uncommitted_acks += 1

    def ack_after_commit(self, frame: bytes) -> None:
        """Send an acknowledgement after the commit of this turn; it counts as uncommitted until
        then."""
        self.send_after_commit(frame)
        self.deferred_acks += 1
        self.uncommitted_acks += 1

    def qos0_after_commit(self, frame: bytes) -> None:
        """Send a QoS 0 message after the commit of this turn; it counts as uncommitted until
        then."""
        buffer = self.buffer_for_qos0(False)
        self.counters.written.count(frame[0] >> 4)
        buffer.add(frame)
        self.count_qos0_written(buffer, len(frame))

    def seal(self) -> DeferredPackets:
        """Return the deferred packets, which wait for the batch that is sealed now, and begin to
        collect those of the next batch."""
        packets = self.deferred_buffer.count
        release = DeferredPackets(
            self,
            self.deferred_buffer.take_pieces(),
            packets,
            self.deferred_acks,
            self.deferred_qos0,
            self.deferred_publishes,
            self._deferred_sent,
        )
        self._deferred_sent = None
        self.sealed_batches += 1
        self.uncommitted_batches += 1
        self.deferred_acks = 0
        self.deferred_qos0 = 0
        self.deferred_publishes = 0
        return release

    def subtract_released(self, size_bytes: i64, acks: i64, qos0: i64, publishes: i64) -> None:
        """Subtract the packets of one batch, which were handed to the socket after their commit."""
        self.is_open = True
        self.uncommitted_batches -= 1
        self.uncommitted_acks -= acks
        self.uncommitted_qos0 -= qos0
        self.uncommitted_publishes -= publishes
        assert self.uncommitted_batches >= 0, "more batches were released than sealed"
        assert self.uncommitted_acks >= 0, "more acknowledgements were released than deferred"
        assert self.uncommitted_qos0 >= 0, "more QoS 0 messages were released than deferred"
        assert self.uncommitted_publishes >= 0, "more messages were released than deferred"
        waiting_qos0 = self.waiting_qos0_buffer
        if waiting_qos0 is not None and waiting_qos0.count > 0 and self.uncommitted_qos0 == 0:
            if self.ready_buffer.count == 0:
                self._turn.ready.append(self)
            self.ready_buffer.add_all(waiting_qos0)
            self.record_sent(self._waiting_sent)
            self._waiting_sent = None
            if self.is_closed:
                self._turn.closing.append(self)
        self._count_handed_over(size_bytes)

    def record_sent(self, batch: Run | None) -> None:
        """Record that the messages of ``batch`` are sent now."""
        if batch is not None and self.record is not None:
            self.record.sent_runs.take(batch)

    def mark_socket_full(self) -> None:
        """Mark the link congested: the socket's buffer is full."""
        self.is_congested = True
        self.congested_bytes = 0

    def mark_socket_writable(self) -> None:
        """Clear the congestion: the socket's buffer has room again."""
        self.report_socket_buffer(0)
        self.is_congested = False
        self.congested_bytes = 0

    def resume_when_room(self) -> None:
        """Have ``resumable`` resumed when bytes are handed to the socket next."""
        self._resumes_when_room = True

    def close(self, drain: bool, farewell: bytes = b"") -> None:
        """Close the link: the shell writes the ready bytes, then ``farewell``, and closes the
        socket.

        With ``drain`` it first waits for the commit of the deferred packets, and sends them; not
        while the store cannot write.
        """
        self.is_closed = True
        self.is_draining = drain and self.has_waiting_packets and not self._turn.awaits_no_commit
        if not self.is_draining:
            self._end(farewell)
            return
        if farewell:
            self._farewell = farewell
            self.qos0_after_commit(farewell)  # like a QoS 0 message: behind all that waits
        self._turn.closing.append(self)

    def stop_draining(self) -> None:
        """Give up the packets that wait for a commit, which does not come in time."""
        self.is_draining = False
        self._end(self._farewell)

    def _end(self, farewell: bytes) -> None:
        """Have the shell write ``farewell`` and close the socket now."""
        if farewell and self.is_open:  # no DISCONNECT before CONNACK [MQTT-3.14.0-1]
            self.send_now(farewell)
        waiting_qos0 = self.waiting_qos0_buffer
        if waiting_qos0 is not None and waiting_qos0.count > 0:
            size_bytes = waiting_qos0.size_bytes()
            self.waiting_qos0_buffer = None
            self._count_handed_over(size_bytes)
        self._turn.closing.append(self)

    @property
    def sends_deferred(self) -> bool:
        """Return whether the packets of a commit are still sent: the link is open, or drains."""
        return self.is_draining or not self.is_closed

    @property
    def is_drained(self) -> bool:
        """Return whether the socket of a closed link may be closed now."""
        if not self.is_draining:
            return True
        waiting = self.deferred_buffer.count + self.ready_buffer.count
        return waiting == 0 and self.uncommitted_batches == 0 and not self._has_waiting_qos0()

    def take_ready(self) -> list[bytes]:
        """Remove and return the bytes to write to the socket now, in pieces."""
        self.counters.packets_sent += self.ready_buffer.count
        pieces = self.ready_buffer.take_pieces()
        size_bytes = _size_of(pieces)
        self.counters.bytes_sent += size_bytes
        self.bytes_sent += size_bytes
        self._count_handed_over(size_bytes)
        return pieces

    def _has_waiting_qos0(self) -> bool:
        return self.waiting_qos0_buffer is not None and self.waiting_qos0_buffer.count > 0

    def _count_written(self, size_bytes: i64) -> None:
        self.pending_bytes += size_bytes
        self._turn.unsent_bytes += size_bytes

    def _count_handed_over(self, size_bytes: i64) -> None:
        self.pending_bytes -= size_bytes
        self._turn.unsent_bytes -= size_bytes
        assert self.pending_bytes >= 0, "more bytes were handed over than were written"
        if self.is_congested:
            self.congested_bytes += size_bytes
        if self._resumes_when_room:
            self._resumes_when_room = False
            self._turn.waiting.until_turn(self.resumable)


@mypyc_attr(acyclic=True)
@final
class DeferredPackets:
    """The packets of one link that are sent when the commit of their batch is durable."""

    def __init__(
        self,
        link: Link,
        pieces: list[bytes],
        packets: i64,
        acks: i64,
        qos0: i64,
        publishes: i64,
        sent: Run | None = None,
    ) -> None:
        self.link = link
        self.pieces = pieces
        self.size_bytes = _size_of(pieces)
        self.packets = packets
        self.acks = acks
        self.qos0 = qos0
        self.publishes = publishes
        self.sent_run = sent  # the messages among the packets, for the client's record

    def mark_sent(self) -> None:
        """Subtract the packets from their link: they were handed to the socket after the commit."""
        link = self.link
        if link.sends_deferred:
            link.counters.packets_sent += self.packets
            link.counters.bytes_sent += self.size_bytes
            link.bytes_sent += self.size_bytes
            link.record_sent(self.sent_run)
        link.subtract_released(self.size_bytes, self.acks, self.qos0, self.publishes)


def _joined(run: Run | None, later: Run | None) -> Run | None:
    if run is None or later is None:
        return run or later
    run.join(later)
    return run


def _size_of(pieces: list[bytes]) -> i64:
    size_bytes: i64 = 0
    for piece in pieces:
        size_bytes += len(piece)
    return size_bytes
