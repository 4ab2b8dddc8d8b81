"""One connection: it decodes bytes to packets, handles them, and sends through a link.

::

      AWAIT_CONNECT ── CONNECT ─▶ (authentication) ── CONNACK ─▶ CONNECTED ── end, error ─▶ CLOSED
            ╰─── error, silence ──────┴──────────── refused ────────────────────────────────▲

      authentication   AWAIT_VERDICT   a password is checked; received bytes wait, undecoded
                       AWAIT_AUTH      the client's next AUTH is due (MQTT 5 §4.12)

``states`` has the packets that each state accepts; any other packet is a protocol error. The shell
passes received bytes to ``receive``, calls ``tick`` at ``deadline_s``, calls ``lost`` when the
socket ends, and closes the socket when ``link.is_closed`` is set and all ready bytes are written.

While a peer has used its share of a turn, or too much waits for it, its packets are not decoded::

      READING ── a turn's share of work is done ───────────────▶ PAUSED ── next turn ─▶ READING
              ── too much waits (``must_wait``) ───────────────▶ PAUSED ── room again ─▶ READING

Received bytes stay undecoded, the shell stops reading while ``is_reading_paused`` is set, and the
silence that follows does not count against keep alive. Before CONNECTED the connect timeout applies
nevertheless; reading is also paused while a connection awaits its verdict. The shell must detect
that the peer of a paused connection has closed; it then reads all remaining bytes, and calls
``lost``. Packets that were received before the end are handled at once, or after the verdict if
they wait for it. But a connection that has ended takes over no session: if its client is connected
again at the verdict, it ends as if refused, and its packets are dropped; none of them was
acknowledged::

      AWAIT_VERDICT ── lost ─▶ AWAIT_VERDICT, socket ended ── accepted ─▶ packets handled ─▶ CLOSED
                                  ╰── refused, connected again, connect timeout ─────────────▲
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.connection.keepalive import KeepAlive
from penstock.engine.values.clock import NO_DEADLINE, Now
from penstock.engine.values.refusals import REASON_CHARACTERS_MAX, fits
from penstock.engine.values.states import (
    AWAIT_CONNECT,
    AWAIT_VERDICT,
    CLOSED,
    CONNECTED,
    ENDED,
    FINISHING,
    StateTable,
)
from penstock.engine.waiting import Resumable
from penstock.engine.wire.link import Link
from penstock.engine.work_budget import (
    BYTES_PER_UNIT,
    HEAVY_BYTES,
    HEAVY_FOR_BATCHES,
    WORK_PER_PACKET,
)
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import PUBREL, V5
from penstock.protocol.packets import Disconnect, Packet
from penstock.protocol.properties import Properties

DISCONNECTED_ITSELF: Final = "client disconnected"  # why a connection ended

EARLY_BYTES_MAX: Final = 1_048_576  # received between CONNECT and its verdict


class Connection(Resumable):
    """The base of a connection, for the server and the client role.

    Args:
        link: the sending half.
        decoder: decodes received bytes to packets.
        keep_alive: the deadline for the peer's next packet.
        table: the states of the role.
        state: the first state of the role.
    """

    def __init__(
        self, link: Link, decoder: Decoder, keep_alive: KeepAlive, table: StateTable, state: int
    ) -> None:
        super().__init__()
        self.link = link
        link.resumable = self
        self.is_reading_paused = False  # packets wait undecoded: the shell must not read
        self.resume_at_s = 0.0  # paused until then, monotonic seconds; 0 = until ``resume``
        self.has_peer_closed = False  # then all bytes that it sent are handled, unpaused
        self.is_refill_due = False  # an acknowledgement made room in the window: ``refill`` is due
        self.expects_more = False  # a packet has arrived in part: ``packet_incomplete``
        self.state = state
        self.close_reason = ""  # one sentence for the log, set when the state is CLOSED
        self.is_closed_locally = False  # ended by this side, not by the peer or the network
        self.closing_code = reasons.SUCCESS  # of the DISCONNECT of either side
        self.listener = ""  # name of the listener that accepted it; empty if it was dialled
        self._decoder = decoder
        self._table = table
        self._keep_alive = keep_alive
        self._work_budget = link.work_budget
        self._began_at: i64 = 0  # ``work_budget.work_done`` when this connection's turn began
        self._logged_before: i64 = 0  # ``work_budget.logged_bytes`` when it was last counted
        self._logged_bytes: i64 = 0  # bytes that it added to the batch ``_logged_in``
        self._logged_in: i64 = 0  # number of that batch
        self._heavy_in: i64 = -HEAVY_FOR_BATCHES  # the last batch with over HEAVY_BYTES of it
        self._bytes_work = 0  # work of received bytes, counted in the turn that decodes them
        self._early_bytes = 0
        self._lost_because: str | None = None  # why the socket ended before the verdict

    @property
    def work(self) -> int:
        """Return the units of ``work_budget`` that this connection has used in its turn."""
        return self._work_budget.work_done - self._began_at

    def receive(self, data: bytes, now: Now) -> None:
        """Handle the packets in bytes from the peer, as far as there is room."""
        if self.state == CLOSED:
            return
        self._began_at = self._work_budget.work_done
        self._logged_before = self._work_budget.logged_bytes
        self.link.counters.bytes_received += len(data)
        self.link.bytes_received += len(data)
        self._bytes_work += len(data) // BYTES_PER_UNIT
        if self.state == AWAIT_VERDICT:
            self._early_bytes += len(data)
            if self._early_bytes > EARLY_BYTES_MAX:
                self._end(False, "sent too many bytes before it was authenticated", now)
                return
        try:
            self._decoder.feed(data)
            if self.has_peer_closed:
                self._decode(now, True)
            elif not self.is_reading_paused:
                if self.broker_is_saturated():
                    self.is_reading_paused = True
                else:
                    self._decode(now, False)
        except RemoteProtocolError as error:
            self.protocol_error(error, now)

    def resume(self, now: Now) -> None:
        """Decode the received bytes that are not decoded yet, as far as there is room."""
        self._began_at = self._work_budget.work_done
        self._logged_before = self._work_budget.logged_bytes
        self._decode_rest(now)

    def _decode_rest(self, now: Now) -> None:
        if self.state in (CLOSED, AWAIT_VERDICT) or not self.is_reading_paused:
            return
        if self.state == CONNECTED:
            self._keep_alive.note_packet(now.monotonic_s)
        self.is_reading_paused = False
        try:
            if self.must_wait():
                self.is_reading_paused = True
            else:
                self._decode(now, False)
        except RemoteProtocolError as error:
            self.protocol_error(error, now)

    def _decode(self, now: Now, to_the_end: bool) -> None:
        """Handle received packets, then refill the window once if acknowledgements made room.

        With ``to_the_end`` all received packets are handled, regardless of limits.
        """
        self._handle_packets(now, to_the_end)
        if self._work_budget.logged_bytes > self._logged_before:
            self._count_logged()
        if self.is_refill_due:
            self._refill(now)

    def _count_logged(self) -> None:
        """Count the bytes that this connection added to the open batch since its turn began."""
        work_budget = self._work_budget
        if self._logged_in != work_budget.batch:
            self._logged_in = work_budget.batch
            self._logged_bytes = 0
        self._logged_bytes += work_budget.logged_bytes - self._logged_before
        self._logged_before = work_budget.logged_bytes
        if self._logged_bytes > HEAVY_BYTES:
            self._heavy_in = work_budget.batch

    def must_yield_batch(self, context: EngineContext) -> bool:
        """Return whether this connection must wait until the open batch is sealed; if so, arrange
        for ``resume``.

        It must if the open batch is full, and this connection has more than ``HEAVY_BYTES`` in it
        or had in a recent batch.
        """
        if context.batch.size_bytes < context.store_health.batch_bytes_max:
            return False
        work_budget = self._work_budget
        logged: i64 = work_budget.logged_bytes - self._logged_before
        if self._logged_in == work_budget.batch:
            logged += self._logged_bytes
        if logged > HEAVY_BYTES:
            context.turn.waiting.until_sealed(self)
            return True
        if work_budget.batch - self._heavy_in < HEAVY_FOR_BATCHES:
            context.turn.waiting.first_until_sealed(self)
            return True
        return False

    def _refill(self, now: Now) -> None:
        self.is_refill_due = False
        self.refill(now)

    def refill(self, now: Now) -> None:
        """Send queued messages: acknowledgements made room in the window. A role overrides it."""

    def _handle_packets(self, now: Now, to_the_end: bool) -> None:
        """Handle packets until one is incomplete, or until the share of this turn is used up unless
        ``to_the_end``."""
        work_budget = self._work_budget
        work_budget.work_done += self._bytes_work
        self._bytes_work = 0
        spent_max: i64 = self._began_at + work_budget.remaining_units()
        received = self.link.counters.received
        decoder = self._decoder
        while True:
            ack: i64 = 0
            if self.state == CONNECTED:
                ack = decoder.next_plain_ack()
            if ack != 0:
                packet_type = ack >> 16
                received.count(packet_type)
                self._keep_alive.note_packet(now.monotonic_s)
                if self.is_refill_due and packet_type == PUBREL:  # PUBREL may route a message
                    self._refill(now)
                self.handle_acknowledgement(packet_type, ack & 0xFFFF, reasons.SUCCESS, now)
            else:
                packet = decoder.next_packet()
                if packet is None:
                    size_bytes = decoder.incomplete_bytes()
                    if size_bytes > 0:
                        self.packet_incomplete(size_bytes, now)
                    return
                if self.expects_more:
                    self.packet_incomplete(0, now)
                received.count(decoder.packet_type)
                if self.state == CONNECTED:  # before that, the connect timeout applies
                    self._keep_alive.note_packet(now.monotonic_s)
                if self.is_refill_due:  # before the packet, which may need the room
                    self._refill(now)
                if self._table.accepts(self.state, decoder.packet_type):
                    self.handle(packet, now)
                elif not self._table.drops_others:
                    raise self._table.error(self.state, packet)
                received = self.link.counters.received  # CONNECT may have changed the counters
            if self.link.is_closed:
                return
            work_budget.work_done += WORK_PER_PACKET
            if self.state == AWAIT_VERDICT:  # ``apply_late_verdict`` continues
                self.is_reading_paused = True
                return
            if not to_the_end and (work_budget.work_done >= spent_max or self.must_wait()):
                self.is_reading_paused = True
                if work_budget.work_done >= spent_max:
                    work_budget.exhausted_shares += 1
                    self.wait_for_turn()
                return

    def packet_incomplete(self, size_bytes: int, now: Now) -> None:
        """Note that a packet of ``size_bytes`` has arrived in part; 0 = the packet is complete."""

    def must_wait(self) -> bool:
        """Return whether the peer's next packets must wait; if so, arrange for ``resume``.

        A role overrides it.
        """
        return False

    def broker_is_saturated(self) -> bool:
        """Return whether no packets of any client may be decoded; if so, arrange for ``resume``.

        A role overrides it.
        """
        return False

    def wait_for_turn(self) -> None:
        """Arrange for ``resume`` in the next turn of the event loop. A role overrides it."""

    def handle(self, packet: Packet, now: Now) -> None:
        """Handle one packet that the state accepts. Each role overrides it."""

    def handle_acknowledgement(
        self, packet_type: int, packet_id: int, reason_code: int, now: Now
    ) -> None:
        """Handle a PUBACK, PUBREC, PUBREL or PUBCOMP of a connected peer. Each role overrides
        it."""

    def on_end(self, with_will: bool, now: Now) -> None:
        """Detach the session: the connection ended; ``with_will``: the will is to be published. A
        role overrides it."""

    def move(self, event: int) -> None:
        """Go to the state after ``event``; see ``states``."""
        self.state = self._table.next_state(self.state, event)

    def finish(self) -> None:
        """Take over nothing new from the peer from now on: a planned stop begins."""
        self._table = FINISHING

    def awaits_release(self) -> bool:
        """Return whether the peer has a QoS 2 message under way, which it may call failed if its
        connection ends now. A role overrides it."""
        return False

    def protocol_error(self, error: RemoteProtocolError, now: Now) -> None:
        """Close the connection with the reason code of the peer's protocol error."""
        self.close(error.reason, error.message, now)

    def close(self, reason_code: int, because: str, now: Now, server_reference: str = "") -> None:
        """End the connection from this side, behind the packets that wait for a commit; an MQTT 5
        peer gets a DISCONNECT [MQTT-4.13.1-1]."""
        if self.state == CLOSED:
            return
        because = because[:REASON_CHARACTERS_MAX]
        self.is_closed_locally = True
        self.closing_code = reason_code
        farewell = b""
        if self.state == CONNECTED and self.link.version == V5:
            farewell = self._farewell(reason_code, because, server_reference)
        self._end(True, because, now, farewell, drains=self.state == CONNECTED)

    def _farewell(self, reason_code: int, because: str, server_reference: str) -> bytes:
        """Return an encoded DISCONNECT, with as much of its properties as the peer accepts."""
        properties = Properties(reason_string=because)
        packet = Disconnect(reason_code, properties)
        if server_reference:
            properties.server_reference = server_reference
        size_bytes_max = self.link.max_packet_size_bytes
        if not fits(packet, V5, size_bytes_max):
            properties.reason_string = None  # [MQTT-3.14.2-3]
        if not fits(packet, V5, size_bytes_max):
            packet.properties = None
        return encode(packet, V5)

    def peer_hung_up(self, now: Now) -> None:
        """Decode all received bytes: the peer closed while reading was paused.

        The shell reads the remaining bytes, then calls ``lost``.
        """
        self.has_peer_closed = True
        self._logged_before = self._work_budget.logged_bytes
        if self.state not in (CLOSED, AWAIT_VERDICT):
            try:
                self._decode(now, True)
            except RemoteProtocolError as error:
                self.protocol_error(error, now)

    def lost(self, because: str, now: Now) -> None:
        """Handle the remaining packets, then end the connection: its socket ended.

        If packets wait for the verdict, the connection ends after it, or at its deadline.
        """
        self.has_peer_closed = True
        self._logged_before = self._work_budget.logged_bytes
        if self.is_reading_paused and self.state not in (CLOSED, AWAIT_VERDICT):
            try:
                self._decode(now, True)
            except RemoteProtocolError as error:
                self.protocol_error(error, now)
        if self.state == AWAIT_VERDICT and self._decoder.has_packet():
            self._lost_because = because
        else:
            self._end(True, because, now)

    @property
    def patience_s(self) -> float:
        """Return for how many seconds the peer may send nothing; 0 = without limit."""
        return self._keep_alive.patience_s

    def deadline_s(self) -> float:
        """Return when ``tick`` must be called, on the monotonic clock, or ``NO_DEADLINE``."""
        return NO_DEADLINE if self.state == CLOSED else self._keep_alive.deadline_s()

    def tick(self, now: Now) -> None:
        """End the connection if its deadline has passed [MQTT-3.1.2-22]."""
        deadline_s = self.deadline_s()
        if deadline_s == NO_DEADLINE or now.monotonic_s < deadline_s:
            return
        if self.is_reading_paused and self.state == CONNECTED:  # its packets are not read
            self._keep_alive.note_packet(now.monotonic_s)
        elif self.state == AWAIT_CONNECT:
            self._end(False, "no CONNECT within the connect timeout", now)
        elif self.state != CONNECTED:
            self._end(False, "not authenticated within the connect timeout", now)
        else:
            self.close(reasons.KEEP_ALIVE_TIMEOUT, "nothing heard for 1.5 x keep alive", now)

    def _end(
        self, with_will: bool, because: str, now: Now, farewell: bytes = b"", drains: bool = False
    ) -> None:
        """Set the state CLOSED and close the link.

        Args:
            with_will: whether the will is to be published.
            because: the reason, one sentence.
            now: the time of the turn.
            farewell: the last packet to send; empty for none.
            drains: whether the packets that wait for a commit are still sent, before ``farewell``.
        """
        if self.state == CLOSED:
            return
        was_connected = self.state == CONNECTED
        self.move(ENDED)
        self.close_reason = because
        self.is_reading_paused = False  # what still arrives is discarded
        self.link.close(drains, farewell)
        self.link.resumable = None
        self._decoder.forget()
        if was_connected:
            self.on_end(with_will, now)
