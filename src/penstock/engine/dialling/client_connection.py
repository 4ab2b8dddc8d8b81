"""The client role of a connection, in a client or a bridge: the handling of each packet.

::

      CONNECT ─▶ AWAIT_CONNACK ── CONNACK 0 ─▶ CONNECTED ── DISCONNECT, lost, silent ─▶ CLOSED
                      ╰── refused, or no answer within the connect timeout ─────────────▲

``engine/values/states.py`` has the packets that a server may send in each state.

The session is of the same class as in a server (``session``), with its window, queue and commits.
CONNACK says whether the server still has its session (``session.session_lost``), and announces
limits that this side observes: Receive Maximum [MQTT-3.3.4-7], Maximum Packet Size [MQTT-3.2.2-15],
Maximum QoS [MQTT-3.2.2-11], Retain Available [MQTT-3.2.2-14], Topic Alias Maximum
[MQTT-3.2.2-17], Server Keep Alive [MQTT-3.2.2-21].

Keep alive: PINGREQ is sent every three quarters of the interval, even while other packets are sent
[MQTT-3.1.2-20]. The connection is ended if the server sends nothing, not even PINGRESP, for one and
a half intervals.

If the session is *inherited* from an earlier program, or is an older copy, the packet identifiers
that may be in use on the server are released first (``PacketIdCleanup``).

Messages from the server are passed to the ``ClientCallbacks``, which settle them when they are
processed (``client_inbound``).
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.connection.connection import Connection
from penstock.engine.connection.keepalive import KeepAlive
from penstock.engine.dialling.client_inbound import ClientCallbacks, ClientInbound
from penstock.engine.dialling.unacknowledged import ReceivedMessage, UnacknowledgedMessages
from penstock.engine.publishing.connection_names import unknown_ids
from penstock.engine.session.session import Session
from penstock.engine.values.clock import NO_DEADLINE, Now
from penstock.engine.values.limits import PACKET_IDENTIFIERS, EngineLimits
from penstock.engine.values.refusals import REASON_CHARACTERS_MAX
from penstock.engine.values.states import ACCEPTED, AWAIT_CONNACK, CLIENT, CLOSED, CONNECTED
from penstock.engine.wire.aliases import OutboundAliases
from penstock.engine.wire.link import Link
from penstock.errors import LocalProtocolError, RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode, encode_ack
from penstock.protocol.kinds import PUBCOMP, PUBREL, V5, V31, V311
from penstock.protocol.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties

_PING_AFTER: Final = 0.75  # fraction of the keep alive after which PINGREQ is sent
_PINGREQ: Final = encode(Pingreq(), V311)
_NOT_ABOUT_MESSAGES: Final = (  # DISCONNECT codes that do not blame a message we sent
    reasons.SERVER_BUSY,
    reasons.SERVER_SHUTTING_DOWN,
    reasons.KEEP_ALIVE_TIMEOUT,
    reasons.SESSION_TAKEN_OVER,
    reasons.USE_ANOTHER_SERVER,
    reasons.SERVER_MOVED,
    reasons.CONNECTION_RATE_EXCEEDED,
    reasons.ADMINISTRATIVE_ACTION,
    reasons.MAXIMUM_CONNECT_TIME,
)
_REQUEST_IDS: Final = 1000  # for SUBSCRIBE and UNSUBSCRIBE, beside those of the window


@final
class PacketIdCleanup:
    """The packet identifiers of an earlier program that are released on one connection.

    The server may have QoS 2 messages of that program that were never released; it would take a new
    message with one of their packet identifiers for a repeat, and the message would be lost. So
    PUBREL is sent for all identifiers that this program will use, about a thousand (all 65,535 for
    a stored session), and no message is sent until the server has sent all PUBCOMPs, or the connect
    timeout has passed::

          CONNACK, session present ─▶ PUBREL 1 … n ─▶ PUBCOMP 1 … n ─▶ the session is attached
                                                    └─ timeout ────────▲

    A Penstock server tells which messages it has not released (``connection_names``): of those, the
    ones that this side does not know are released in the same way.
    """

    def __init__(self) -> None:
        self.until_s = NO_DEADLINE  # when to stop waiting for PUBCOMP, monotonic seconds
        self._awaited_pubcomps: set[int] = set()

    @property
    def is_waiting(self) -> bool:
        """Return whether PUBCOMPs of the server are still awaited."""
        return len(self._awaited_pubcomps) > 0

    def release_all(self, session: Session, link: Link, limits: EngineLimits, now: Now) -> None:
        """Send PUBREL for all packet identifiers that ``session`` will use."""
        last_id = PACKET_IDENTIFIERS
        if not session.is_stored:
            own = limits.window(PACKET_IDENTIFIERS)
            last_id = min(own + _REQUEST_IDS, PACKET_IDENTIFIERS)
        session.transmission.window.limit_packet_ids(last_id)
        self.release(list(range(1, last_id + 1)), link, limits, now)

    def release(self, packet_ids: list[int], link: Link, limits: EngineLimits, now: Now) -> None:
        """Send PUBREL for ``packet_ids``."""
        self._awaited_pubcomps = set(packet_ids)
        self.until_s = now.monotonic_s + limits.connect_timeout_s
        for packet_id in packet_ids:
            link.send_after_commit(encode_ack(PUBREL, packet_id, reasons.SUCCESS, link.version))

    def handle_pubcomp(self, packet_id: int) -> bool:
        """Handle a PUBCOMP; return whether it was the last awaited one."""
        self._awaited_pubcomps.discard(packet_id)
        return len(self._awaited_pubcomps) == 0

    def give_up(self) -> None:
        """Stop waiting for PUBCOMPs: the server did not send them in time."""
        self._awaited_pubcomps = set()


@final
class ClientConnection(Connection):
    """One connection that was dialled, in the client role.

    Args:
        context: the parts of the broker, or of the client library, that it acts on.
        session: the session, which is attached when the server accepts the CONNECT.
        arrivals: the unacknowledged messages of that session.
        connect: the first packet to send. Its properties announce the limits of this side.
        limits: the limits of this side. ``await_rel_timeout_s`` must be 0: else a message whose
            PUBREC waits behind others would be forgotten.
        application: the user of the connection.
        is_known: whether this side has the state of a session that the server may have too.
        now: when the connection was dialled.
        needs_packet_id_cleanup: whether packet identifiers must be released first, because the
            session is that of an earlier program, whose state is not known.
    """

    def __init__(
        self,
        context: EngineContext,
        session: Session,
        arrivals: UnacknowledgedMessages,
        connect: Connect,
        limits: EngineLimits,
        application: ClientCallbacks,
        is_known: bool,
        now: Now,
        needs_packet_id_cleanup: bool = False,
    ) -> None:
        asked = connect.properties or Properties()
        size_bytes_max = asked.maximum_packet_size or limits.max_packet_size_bytes
        super().__init__(
            Link(context.turn),
            Decoder(size_bytes_max, connect.version, server=False),
            KeepAlive(limits.connect_timeout_s, now.monotonic_s),
            CLIENT,
            AWAIT_CONNACK,
        )
        self.reason_code = reasons.SUCCESS  # of the CONNACK or DISCONNECT that ended the connection
        self.server_reference = ""  # the other server that this packet named [MQTT 5 §4.11]
        self.is_application_full = False  # set by the application, which resumes this later
        self.state_at_end: tuple[str, bytes] | None = (
            None  # topic and payload that ``disconnect`` publishes, see ``publish_state``
        )
        self.has_foreign_session = False  # the server has a session whose state is not known here
        self.unknown_ids: list[int] = []  # of QoS 2 messages that only the server knows
        self.link.version = connect.version
        self.link.pending_bytes_max = limits.write_buffer_bytes_max
        self._context = context
        self._session = session
        self._connect = connect
        self.limits = limits
        self.client_id = connect.client_id
        self._application = application
        self._is_known = is_known
        self.needs_packet_id_cleanup = needs_packet_id_cleanup  # until the cleanup has ended
        self._cleanup = PacketIdCleanup()
        self._inbound = ClientInbound(session, self.link, arrivals, application, asked)
        self._window = PACKET_IDENTIFIERS  # the server's Receive Maximum
        self._keep_alive_s = connect.keep_alive_s
        self._ping_due_s = NO_DEADLINE
        self.link.send_after_commit(encode(connect, connect.version))  # once the session is on disk

    # -- packets -------------------------------------------------------------------------

    def handle(self, packet: Packet, now: Now) -> None:
        """Handle one packet that the state accepts.

        Raises:
            RemoteProtocolError: 0x82, nothing waits for this acknowledgement.
        """
        if isinstance(packet, Publish):
            self._handle_publish(packet, now)
        elif isinstance(packet, Ack):
            self.handle_acknowledgement(packet.type, packet.packet_id, packet.reason_code, now)
        elif isinstance(packet, Suback | Unsuback):
            if not self._session.transmission.free_packet_id(packet.packet_id):
                raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"nothing waits for {packet!r}")
            self._application.on_answer(packet, now)
        elif isinstance(packet, Connack):
            self._handle_connack(packet, now)
        elif isinstance(packet, Auth):
            self._authenticate(packet)
        elif isinstance(packet, Disconnect):
            self._server_disconnected(packet, now)
        else:  # PINGRESP has no content
            assert isinstance(packet, Pingresp), packet

    def handle_acknowledgement(
        self, packet_type: int, packet_id: int, reason_code: int, now: Now
    ) -> None:
        """Handle a PUBACK, PUBREC, PUBREL or PUBCOMP from the server."""
        if packet_type == PUBREL:
            self._inbound.handle_pubrel(packet_id)
        elif packet_type == PUBCOMP and self._cleanup.is_waiting:
            if self._cleanup.handle_pubcomp(packet_id):
                self._finish_cleanup(now)
        elif self._session.transmission.acknowledge(packet_type, packet_id, reason_code, now):
            self.is_refill_due = True

    def refill(self, now: Now) -> None:
        """Send queued messages: acknowledgements made room in the window."""
        if self._session.link is self.link:
            self._session.outbound.refill(now)

    # -- CONNACK -------------------------------------------------------------------------

    def _handle_connack(self, connack: Connack, now: Now) -> None:
        connect = self._connect
        if connack.reason_code != reasons.SUCCESS:
            self.reason_code = connack.reason_code
            self._note_reference(connack.properties)
            self._end(
                False,
                f"the server refused: {_reason_text(connack.reason_code, connack.properties)}",
                now,
            )
            return
        present = connack.session_present
        if connect.version == V31:  # CONNACK has no session present flag: v3.1 §3.2
            present = self._is_known and not connect.clean_start
        elif present and (connect.clean_start or not self._is_known):
            self.has_foreign_session = True  # [MQTT-3.2.2-4]
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, "the server has a session that we know nothing of"
            )
        self._negotiate(connack.properties or Properties(), now)
        self._inbound.begin_connection(present)
        if not present:
            self._session.session_lost()
        elif connack.properties is not None:
            self.unknown_ids = unknown_ids(connack.properties, self._session)
        self.move(ACCEPTED)
        self.link.is_open = True
        if not present or self.link.qos_max < 2:
            self.needs_packet_id_cleanup = False
        self._application.on_connected(connack, now)
        if self.state != CONNECTED:
            return
        if self.needs_packet_id_cleanup:
            self._cleanup.release_all(self._session, self.link, self.limits, now)
        elif self.unknown_ids:
            self._cleanup.release(self.unknown_ids, self.link, self.limits, now)
        else:
            self._session.attach(self.link, self.limits, self._window, now)

    def _finish_cleanup(self, now: Now) -> None:
        self.needs_packet_id_cleanup = False
        self._session.attach(self.link, self.limits, self._window, now)
        self._application.on_writable(now)

    def _negotiate(self, accepted: Properties, now: Now) -> None:
        link = self.link
        self._window = accepted.receive_maximum or PACKET_IDENTIFIERS
        largest = accepted.maximum_packet_size or 0
        ours = self.limits.sent_packet_bytes_max
        link.max_packet_size_bytes = min(largest, ours) if largest and ours else largest or ours
        if accepted.maximum_qos is not None:
            link.qos_max = accepted.maximum_qos
        link.retain_available = accepted.retain_available != 0
        aliases = min(accepted.topic_alias_maximum or 0, self.limits.topic_alias_outbound_max)
        if aliases > 0:
            link.aliases = OutboundAliases(aliases)
        if accepted.server_keep_alive is not None:
            self._keep_alive_s = accepted.server_keep_alive
        self._keep_alive.set_interval(self._keep_alive_s)
        self._keep_alive.note_packet(now.monotonic_s)
        if self._keep_alive_s > 0:
            self._ping_due_s = now.monotonic_s + _PING_AFTER * self._keep_alive_s

    def _authenticate(self, packet: Auth) -> None:
        asked = self._connect.properties
        method = None if asked is None else asked.authentication_method
        said = packet.properties
        if method is None or said is None or said.authentication_method != method:
            raise RemoteProtocolError(  # [MQTT-4.12.0-6]
                reasons.PROTOCOL_ERROR, "AUTH names no method that CONNECT did"
            )
        if packet.reason_code != reasons.CONTINUE_AUTHENTICATION:
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, "AUTH before CONNACK goes on, or CONNACK ends it"
            )
        data = self._application.authenticate(said.authentication_data)
        if data is None:
            raise RemoteProtocolError(
                reasons.BAD_AUTHENTICATION_METHOD, "the server did not authenticate itself"
            )
        properties = Properties(authentication_method=method, authentication_data=data)
        self.link.send_now(encode(Auth(reasons.CONTINUE_AUTHENTICATION, properties), V5))

    @property
    def may_not_know_dialect(self) -> bool:
        """Return whether the server may not support the protocol level: it refused the version, or
        closed without a reason."""
        if self.reason_code != reasons.SUCCESS:
            return self.reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION
        return self.has_peer_closed

    # -- messages from the server --------------------------------------------------------

    def _handle_publish(self, publish: Publish, now: Now) -> None:
        if not self._inbound.is_current():
            self._end(True, "another connection took the session over", now)
            return
        self._inbound.handle_publish(publish, now)
        if publish.qos > 0 and self.state == CONNECTED:
            self._inbound.acknowledge_settled()

    def settle(self, arrival: ReceivedMessage, code: int, now: Now) -> None:
        """Settle ``arrival``: have it acknowledged, on this connection or on a later one.

        The acknowledgement is sent when all earlier messages are settled too; if the connection of
        the message has ended, when the server sends the message again.

        Args:
            arrival: the message that ``ClientCallbacks.on_message`` got, on this connection or an
                earlier one.
            code: a reason code, 0x80 or more to refuse the message (before MQTT 5 a message cannot
                be refused, and is acknowledged); or ``NOT_ACKNOWLEDGED``: the server sends the
                message again on the next connection. It takes room in the server's window until
                then, so the connection should end soon.
            now: the time of the turn.

        Raises:
            LocalProtocolError: no acknowledgement of this message may have this code.
        """
        if arrival.publish.qos > 0:
            self._inbound.settle(arrival, code, now)
            if self.state == CONNECTED:
                self._inbound.acknowledge_settled()

    # -- SUBSCRIBE and UNSUBSCRIBE -------------------------------------------------------

    def subscribe(
        self, subscriptions: list[Subscription], properties: Properties | None = None
    ) -> int:
        """Send SUBSCRIBE; return its packet identifier, or 0 if none is free.

        ``ClientCallbacks.on_answer`` gets the SUBACK. The packet is sent after the commit, which
        may store that the server lost its session.

        Raises:
            LocalProtocolError: 0x95, the packet is larger than the server accepts; or it cannot be
                encoded.
        """
        packet_id = self._session.transmission.allocate_request_id()
        if packet_id > 0:
            self._send_request(Subscribe(packet_id, subscriptions, properties), packet_id)
        return packet_id

    def unsubscribe(self, topic_filters: list[str], properties: Properties | None = None) -> int:
        """Send UNSUBSCRIBE; return its packet identifier, or 0 if none is free.

        Raises:
            LocalProtocolError: as for ``subscribe``.
        """
        packet_id = self._session.transmission.allocate_request_id()
        if packet_id > 0:
            self._send_request(Unsubscribe(packet_id, topic_filters, properties), packet_id)
        return packet_id

    def _send_request(self, packet: Packet, packet_id: int) -> None:
        try:
            encoded = encode(packet, self.link.version)
            if 0 < self.link.max_packet_size_bytes < len(encoded):
                raise LocalProtocolError(
                    reasons.PACKET_TOO_LARGE,
                    f"the server does not accept packets as large as {packet!r}",
                )
        except Exception:
            self._session.transmission.free_packet_id(packet_id)
            raise
        self.link.send_after_commit(encoded)

    # -- when packets must wait ------------------------------------------------------------

    def must_wait(self) -> bool:
        """Return whether the server's next packets must wait; if so, arrange for ``resume``."""
        if self.state != CONNECTED:
            return False
        if self.link.is_full():
            self.link.resume_when_room()
            return True
        if self._context.store_health.is_full():
            self._context.turn.waiting.until_sealed(self)
            return True
        return self.must_yield_batch(self._context) or self.is_application_full

    def broker_is_saturated(self) -> bool:
        """Return whether no packets may be decoded because too much waits for commits and sockets;
        if so, arrange for ``resume``."""
        if not self._context.store_health.is_full():
            return self.must_yield_batch(self._context)
        self._context.turn.waiting.until_sealed(self)
        return True

    def wait_for_turn(self) -> None:
        """Arrange for ``resume`` in the next turn of the event loop."""
        self._context.turn.waiting.until_turn(self)

    def resume(self, now: Now) -> None:
        """Send queued messages and decode received bytes: there may be room, or a new turn
        began."""
        if self.state == CONNECTED and self._session.link is self.link:
            self._session.outbound.refill(now)
            self._application.on_writable(now)
        super().resume(now)

    def writable(self, now: Now) -> None:
        """Continue sending: the socket's write buffer has room again."""
        self.link.mark_socket_writable()
        self.resume(now)

    # -- keep alive ------------------------------------------------------------------------

    def deadline_s(self) -> float:
        """Return when ``tick`` must be called, on the monotonic clock, or ``NO_DEADLINE``."""
        silent_s = super().deadline_s()
        if self.state != CONNECTED:
            return silent_s
        earliest_s = silent_s
        release_until_s = self._cleanup.until_s if self._cleanup.is_waiting else NO_DEADLINE
        for due_s in (self._ping_due_s, release_until_s):
            if due_s != NO_DEADLINE and (earliest_s == NO_DEADLINE or due_s < earliest_s):
                earliest_s = due_s
        return earliest_s

    def tick(self, now: Now) -> None:
        """Send PINGREQ if it is due; end the connection if the server was silent for too long."""
        if self._cleanup.is_waiting and self._cleanup.until_s <= now.monotonic_s:
            self._cleanup.give_up()
            self._finish_cleanup(now)
        silent_s = super().deadline_s()
        if silent_s == NO_DEADLINE:
            return
        if self.is_reading_paused and self.state == CONNECTED:  # its packets are not read
            self._keep_alive.note_packet(now.monotonic_s)
        elif silent_s <= now.monotonic_s:
            if self.state == CONNECTED:
                why = "the server said nothing for 1.5 x keep alive"
            else:
                why = f"no answer to CONNECT for {self.limits.connect_timeout_s:g} s"
            self._end(True, why, now)
            return
        if self.state == CONNECTED and NO_DEADLINE < self._ping_due_s <= now.monotonic_s:
            self._ping_due_s = now.monotonic_s + _PING_AFTER * self._keep_alive_s
            self.link.send(_PINGREQ)

    # -- the end -----------------------------------------------------------------------------

    def publish_state(self, topic: str, payload: bytes) -> None:
        """Publish the state of a bridge: a retained QoS 0 message, which bypasses the session."""
        retain = self.link.retain_available
        said = Publish(topic, payload, 0, retain)
        self.link.qos0_after_commit(encode(said, self.link.version))

    def disconnect(self, now: Now, properties: Properties | None = None) -> None:
        """Disconnect: send the deferred packets, then DISCONNECT; before CONNACK, give up."""
        if self.state == CONNECTED:
            if self.state_at_end is not None:  # there is no will after DISCONNECT [MQTT-3.14.4-3]
                self.publish_state(self.state_at_end[0], self.state_at_end[1])
            farewell = encode(Disconnect(reasons.SUCCESS, properties), self.link.version)
            self.is_closed_locally = True
            self._end(False, "disconnected", now, farewell, drains=True)
        else:
            self._end(False, "given up", now)

    def close(self, reason_code: int, because: str, now: Now, server_reference: str = "") -> None:
        """End the connection from this side; if this broker shuts down, with a normal
        DISCONNECT."""
        if reason_code == reasons.SERVER_SHUTTING_DOWN:
            self.disconnect(now)
        else:
            super().close(reason_code, because, now, server_reference)

    def _server_disconnected(self, packet: Disconnect, now: Now) -> None:
        self.reason_code = packet.reason_code
        self._note_reference(packet.properties)
        why = _reason_text(packet.reason_code, packet.properties)
        self._end(True, f"the server disconnected: {why}", now)

    def _note_reference(self, properties: Properties | None) -> None:
        if properties is not None and properties.server_reference:
            self.server_reference = properties.server_reference

    def _end(
        self, with_will: bool, because: str, now: Now, farewell: bytes = b"", drains: bool = False
    ) -> None:
        if self.state == CLOSED:
            return
        super()._end(with_will, because, now, farewell, drains)
        if self._session.link is self.link:
            if self.is_ended_by_peer:
                self._session.transmission.peer_ended()
            self._session.detach(now)
        self._application.on_end(now)

    @property
    def is_ended_by_peer(self) -> bool:
        """Return whether the server ended the connection, maybe because of a message: it closed, or
        sent a DISCONNECT with such a reason."""
        if self.reason_code != reasons.SUCCESS:
            return self.reason_code not in _NOT_ABOUT_MESSAGES
        return self.has_peer_closed


def _reason_text(code: int, properties: Properties | None) -> str:
    """Return the name of a reason code, with the server's reason string if there is one."""
    name = reasons.name_of(code)
    if properties is None or not properties.reason_string:
        return name
    told = properties.reason_string[:REASON_CHARACTERS_MAX]
    return told if told.startswith(name) else f"{name}: {told}"
