"""The accepting side of a connection: what the server does with each packet.

The table, states by packets; everything else is a protocol error (0x82), and a first
packet other than CONNECT closes the connection without an answer [MQTT-3.1.0-1]:

============== ==================================================================
AWAIT_CONNECT  CONNECT
AWAIT_VERDICT  none: what comes waits, unread, for the answer to CONNECT
AWAIT_AUTH     AUTH DISCONNECT                                    [MQTT-3.1.2-30]
CONNECTED      PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE UNSUBSCRIBE PINGREQ
               AUTH DISCONNECT               (a second CONNECT is not [MQTT-3.1.0-2])
============== ==================================================================
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from penstock.engine import drop_counts as reasons_to_drop
from penstock.engine.access import CONTINUE, FAILURE, Credentials, Verdict
from penstock.engine.aliases import OutboundAliases
from penstock.engine.answers import (
    acknowledgement,
    fits,
    reason_properties,
    refused_filters,
    refusing_connack,
)
from penstock.engine.at_limit import INBOUND, AtLimit
from penstock.engine.clock import Now
from penstock.engine.connection import (
    AWAIT_AUTH,
    AWAIT_CONNECT,
    AWAIT_VERDICT,
    CLOSED,
    CONNECTED,
    Connection,
)
from penstock.engine.handshake import Handshake
from penstock.engine.keepalive import KeepAlive
from penstock.engine.limits import PACKET_IDENTIFIERS, EngineLimits
from penstock.engine.link import Link
from penstock.engine.message import Message
from penstock.engine.opening import (
    accepted_properties,
    granted_keep_alive_s,
    granted_session_expiry_s,
    refusal,
    will_message,
)
from penstock.engine.options import is_utf8
from penstock.engine.rate import TokenBucket
from penstock.engine.records import SubscriptionRecord
from penstock.engine.server import Server
from penstock.engine.session import Session, SessionSubscription
from penstock.engine.topics import (
    is_share_name,
    is_shared,
    is_system_topic,
    is_topic_filter,
    is_topic_name,
    share_name,
    unshared,
)
from penstock.errors import RemoteProtocolError, UnsupportedProtocolVersion
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import CONNACK, PUBACK, PUBCOMP, PUBREC, V5, V31, V311
from penstock.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties, encode_properties

_PINGRESP: Final = encode(Pingresp(), V311)


@final
class ServerConnection(Connection):
    """One accepted connection.

    Args:
        server: the broker it belongs to.
        limits: bounds of the listener it came through (its zone).
        now: when it was accepted.
    """

    def __init__(self, server: Server, limits: EngineLimits, now: Now) -> None:
        super().__init__(
            Link(server.effects),
            Decoder(limits.max_packet_size_bytes),
            KeepAlive(limits.connect_timeout_s, now.monotonic_s),
        )
        self.client_id = ""
        self.version = 0
        self.limits = limits
        self.lets_anonymous_in = True  # its listener does
        self.receive_maximum = 0  # of the client
        self.inbound_limit: AtLimit | None = None  # made when it is reached first
        self.link.pending_bytes_max = limits.write_buffer_bytes_max
        self._message_rate: TokenBucket | None = None
        self._byte_rate: TokenBucket | None = None
        if limits.messages_per_s_max > 0:
            self._message_rate = TokenBucket(limits.messages_per_s_max, now.monotonic_s)
        if limits.bytes_per_s_max > 0:
            self._byte_rate = TokenBucket(limits.bytes_per_s_max, now.monotonic_s)
        self._server = server
        self._sharing = server.router.sharing
        self._session: Session | None = None
        self._connect: Connect | None = None  # until its CONNACK
        self._handshake: Handshake | None = None
        self._aliases: dict[int, str] = {}
        self.link.counters.sockets_accepted += 1
        self._held_back: deque[Publish] = deque()  # not routed yet: there is no room
        self._held_back_bytes = 0
        self._quota_raised = 0  # by PUBCOMP for messages of earlier connections

    # -- the table ---------------------------------------------------------------------

    def handle(self, packet: Packet, now: Now) -> None:
        """One packet from the client, by the table above."""
        session = self._session
        if session is None:
            self._before_connack(packet, now)
        elif isinstance(packet, Publish):
            self._publish(packet, session, now)
        elif isinstance(packet, Puback):
            session.acknowledge(PUBACK, packet.packet_id, packet.reason_code, now)
            if self._sharing.uneven and session.queue_length == 0:
                self._sharing.ready(session, now)
        elif isinstance(packet, Pubrec):
            session.acknowledge(PUBREC, packet.packet_id, packet.reason_code, now)
        elif isinstance(packet, Pubcomp):
            session.acknowledge(PUBCOMP, packet.packet_id, packet.reason_code, now)
            if self._sharing.uneven and session.queue_length == 0:
                self._sharing.ready(session, now)
        elif isinstance(packet, Pubrel):
            self._release(packet, session)
        elif isinstance(packet, Subscribe):
            self._subscribe(packet, session, now)
        elif isinstance(packet, Unsubscribe):
            self._unsubscribe(packet, session, now)
        elif isinstance(packet, Pingreq):
            self.link.send(_PINGRESP)
        elif isinstance(packet, Disconnect):
            self._disconnect(packet, session, now)
        elif isinstance(packet, Auth):
            self._authenticate(packet, now)
        else:
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, f"a connected client must not send {packet!r}"
            )

    @property
    def saturated(self) -> bool:
        """Whether as many acknowledgements wait for a commit as a client may leave open.

        MQTT 5 clients know the limit, and exceeding it is an error; older ones are not read
        until there is room. What counts is what waits for us: a QoS 2 message that waits for
        its PUBREL does not, for the PUBREL could never be read.
        """
        return self.version != V5 and self.link.unreleased_acks >= self.limits.receive_maximum

    @property
    def inbound_unacknowledged(self) -> int:
        """Messages of the client that count against our Receive Maximum: see ``saturated``."""
        if self.version != V5 or self._session is None:
            return self.link.unreleased_acks
        return self.link.unreleased_acks + self._session.inbound_count

    def _watch_inbound(self, now: Now) -> None:
        """Note when the client may send no more; looked at again when something left."""
        if self.inbound_unacknowledged >= self.limits.receive_maximum and self.state == CONNECTED:
            if self.inbound_limit is None:
                self.inbound_limit = AtLimit(self.client_id, INBOUND)
            self._server.effects.reach(self.inbound_limit, now)
            self.link.resume_when_room()
        elif self.inbound_limit is not None:
            self.inbound_limit.left(now.monotonic_s)

    def must_wait(self) -> bool:
        """Whether too much waits on our side for more of this client's packets."""
        link = self.link
        effects = self._server.effects
        if (  # after nearly every packet, so without a call
            link.pending_bytes + link.unwritten_bytes < link.pending_bytes_max
            and effects.size_bytes + effects.unsent_bytes < effects.waiting_bytes_max
            and link.unreleased_acks < self.limits.receive_maximum
            and self.state == CONNECTED
            and self.resume_at_s == 0.0
            and not self._held_back
        ):
            return False
        return self._must_wait_for_what()

    def _must_wait_for_what(self) -> bool:
        if self.state == AWAIT_VERDICT:
            return True  # ``decided`` goes on
        link = self.link
        effects = self._server.effects
        if self.resume_at_s > 0.0:
            return True
        if self.saturated or link.is_full():
            link.resume_when_room()
            return True
        if (
            len(self._held_back) >= self.limits.receive_maximum
            or self._held_back_bytes >= link.pending_bytes_max
        ):
            return True  # resumed with the first that is routed
        if effects.is_full():
            effects.resume_when_sealed(self)
            return True
        return False

    def wait_for_turn(self) -> None:
        """See to it that ``resume`` is called in the next turn."""
        self._server.effects.resume_later(self)

    def resume(self, now: Now) -> None:
        """There may be room again, or it is this connection's turn."""
        if self.state == CLOSED:
            return
        if 0.0 < self.resume_at_s <= now.monotonic_s:
            self.resume_at_s = 0.0
        if self._session is not None:
            self._session.refill(now)
            if self._held_back:
                self._try_again(self._session, now)
        super().resume(now)
        self._watch_inbound(now)

    def receive(self, data: bytes, now: Now) -> None:
        """Bytes from the client."""
        if self._byte_rate is not None:
            self._pause(self._byte_rate.take(len(data), now.monotonic_s), now)
        super().receive(data, now)
        if self.resume_at_s > 0.0 and self.state != CLOSED:
            self.stalled = True
        self._watch_inbound(now)

    def _pause(self, seconds: float, now: Now) -> None:
        """Read nothing more for ``seconds``: the client is above a rate limit."""
        if seconds > 0.0:
            if self.resume_at_s == 0.0:
                self.link.counters.rate_pauses += 1
            self.resume_at_s = max(self.resume_at_s, now.monotonic_s + seconds)

    def writable(self, now: Now) -> None:
        """The shell's write buffer has room again."""
        self.link.wire_has_room()
        self.resume(now)

    # -- CONNECT and the end -----------------------------------------------------------

    def _before_connack(self, packet: Packet, now: Now) -> None:
        if self.state == AWAIT_CONNECT and isinstance(packet, Connect):
            self._open(packet, now)
        elif self.state == AWAIT_CONNECT:
            self._end(False, "the first packet is not CONNECT", now)
        elif isinstance(packet, Auth):
            self._authenticate(packet, now)
        elif isinstance(packet, Disconnect):
            self._end(False, "client disconnected", now)
        else:
            raise RemoteProtocolError(  # [MQTT-3.1.2-30]
                reasons.PROTOCOL_ERROR, f"a client that authenticates must not send {packet!r}"
            )

    def _open(self, connect: Connect, now: Now) -> None:
        server = self._server
        limits = self.limits
        self.version = connect.version
        self.link.version = connect.version
        server.registry.expire(now)
        has_room = server.registry.has_room(connect.client_id)
        code = refusal(connect, limits, has_room, server.options)
        if code == reasons.TOPIC_NAME_INVALID and connect.version != V5:
            self._end(False, "the topic of the will has a wildcard", now)  # [MQTT3-3.2.2-6]
            return
        if code != reasons.SUCCESS:
            self._refuse(code, now, connect)
            return
        self._connect = connect
        method: str | None = None
        properties = connect.properties
        if properties is not None:
            method = properties.authentication_method
            if properties.maximum_packet_size is not None:
                self.link.max_packet_size_bytes = properties.maximum_packet_size
            self.link.problem_information = properties.request_problem_information != 0
        if method is not None:
            self._begin_exchange(connect, method, now)
            return
        self.state = AWAIT_VERDICT
        credentials = Credentials(
            connect.client_id, connect.username, connect.password, self.lets_anonymous_in
        )
        verdict = server.authenticate.judge(credentials, self.link)
        if verdict is not None:
            self._settle(verdict, now)

    def decided(self, verdict: Verdict, now: Now) -> None:
        """The answer that ``judge`` owed; what the client sent meanwhile follows."""
        if self.state != AWAIT_VERDICT:
            return  # it left, or was too late
        self._settle(verdict, now)
        self.resume(now)

    def _settle(self, verdict: Verdict, now: Now) -> None:
        if verdict.reason_code != reasons.SUCCESS:
            self._refuse(verdict.reason_code, now)
        else:
            self._admit(verdict.username, None, now)

    def _admit(self, username: str | None, proof: bytes | None, now: Now) -> None:
        """Who it is, is known: open the session, if they may leave the will they bring.

        ``proof`` is the last authentication data of the method, if there is one.
        """
        connect = self._connect
        assert connect is not None
        self._connect = None
        server = self._server
        limits = self.limits
        assigned = connect.client_id == ""
        self.client_id = (
            server.registry.unused_client_id(server.epoch) if assigned else connect.client_id
        )
        permissions = server.authorize.permissions(username, self.client_id)
        will = connect.will
        if will is not None and permissions is not None and not permissions.may_publish(will.topic):
            self._refuse(reasons.NOT_AUTHORIZED, now, connect)
            return
        server.registry.expire(now)
        if not server.registry.has_room(self.client_id):  # others came meanwhile
            self._refuse(refusal(connect, limits, False, server.options), now, connect)
            return
        earlier = server.connections.get(self.client_id)
        if earlier is not None:  # [MQTT-3.1.4-3]
            earlier.close(reasons.SESSION_TAKEN_OVER, "another connection took over", now)
        server.tick(now)  # a session whose time has passed must not be taken up
        expiry_s = granted_session_expiry_s(connect, limits)
        present = not connect.clean_start and self.client_id in server.registry.sessions
        if present:
            server.wills.disarm(self.client_id)
        else:
            server.wills.publish(self.client_id, now)
        session = server.registry.open(self.client_id, connect.clean_start, expiry_s, now)
        session.identify(username, permissions)
        if will is not None:
            message, delay_s = will_message(will, self.client_id)
            server.wills.arm(self.client_id, message, delay_s, username)
        self._session = session
        self.state = CONNECTED
        server.connections[self.client_id] = self
        server.clients_max = max(server.clients_max, len(server.connections))
        self.link.counters.connections_accepted += 1
        keep_alive_s = granted_keep_alive_s(connect, limits)
        self._keep_alive.negotiated(keep_alive_s)
        self._keep_alive.heard(now.monotonic_s)
        receive_maximum = PACKET_IDENTIFIERS
        answer = Connack(reasons.SUCCESS, present)
        if connect.version == V5:
            requested = connect.properties or Properties()
            if requested.receive_maximum is not None:
                receive_maximum = requested.receive_maximum
            aliases = min(requested.topic_alias_maximum or 0, limits.topic_alias_outbound_max)
            if aliases > 0:
                self.link.aliases = OutboundAliases(aliases)
            answer.properties = accepted_properties(
                connect,
                limits,
                self.client_id if assigned else "",
                expiry_s,
                keep_alive_s,
                server.acknowledged_when,
                self._sharing.options.enabled,
                server.options,
            )
            if self._handshake is not None:  # [MQTT-4.12.0-5]
                answer.properties.authentication_method = self._handshake.method
                answer.properties.authentication_data = proof
            if self._exceeds(answer):
                answer.properties.user_properties = None  # [MQTT-3.2.2-20]
            if self._exceeds(answer):
                answer.properties.response_information = None
        self._answer(answer, now)
        if not self.link.closed:
            server.router.rejecting = server.router.rejecting or limits.rejects
            self.receive_maximum = receive_maximum
            session.attach(self.link, limits, receive_maximum, now)
            self._sharing.ready(session, now)

    def _answer(self, packet: Packet, now: Now) -> None:
        """Hold an answer for the commit; one the client would not take ends the connection."""
        if self._exceeds(packet):  # [MQTT-3.1.2-24]
            self.close(reasons.PACKET_TOO_LARGE, "the answer exceeds maximum packet size", now)
            return
        self.link.hold(encode(packet, self.version))

    def _exceeds(self, packet: Packet) -> bool:
        return not fits(packet, self.version, self.link.max_packet_size_bytes)

    def _refuse(self, code: int, now: Now, connect: Connect | None = None) -> None:
        why = reasons.name_of(code)
        reference = self._server.options.server_reference
        answer = refusing_connack(connect or self._connect, code, why, reference)
        self.link.send_last(encode(answer, self.version))
        self._end(False, f"CONNECT refused: {why}", now)

    def protocol_error(self, error: RemoteProtocolError, now: Now) -> None:
        """Refuse an unknown version in the form the client may understand; else close.

        A client that still authenticates gets its answer in CONNACK.
        """
        if isinstance(error, UnsupportedProtocolVersion) and self._session is None:
            self.version = V5 if error.level > V5 else V311  # [MQTT-3.1.2-2]
            self._refuse(reasons.UNSUPPORTED_PROTOCOL_VERSION, now)
            return
        if self.state == AWAIT_AUTH:
            known = reasons.is_allowed(error.reason, CONNACK)
            self._refuse(error.reason if known else reasons.PROTOCOL_ERROR, now)
            return
        self.close(error.reason, error.message, now)

    # -- enhanced authentication -------------------------------------------------------

    def _begin_exchange(self, connect: Connect, method: str, now: Now) -> None:
        exchange = self._server.authenticate.exchange(method, connect.client_id)
        if exchange is None:
            self._refuse(reasons.BAD_AUTHENTICATION_METHOD, now)  # [MQTT-4.12.0-1]
            return
        self.state = AWAIT_AUTH
        self._handshake = Handshake(method, exchange)
        assert connect.properties is not None
        self._step(connect.properties.authentication_data, now)

    def _authenticate(self, packet: Auth, now: Now) -> None:
        handshake = self._handshake
        if handshake is None:  # [MQTT-4.12.0-7]
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT"
            )
        handshake.check(packet, self.state == CONNECTED)
        if packet.reason_code == reasons.REAUTHENTICATE:
            exchange = self._server.authenticate.exchange(handshake.method, self.client_id)
            if exchange is None:  # the method was taken away
                self.close(reasons.NOT_AUTHORIZED, "the method is not offered any more", now)
                return
            handshake.again(exchange)
        data = None if packet.properties is None else packet.properties.authentication_data
        self._step(data, now)

    def _step(self, data: bytes | None, now: Now) -> None:
        """One step of the method, and its answer: AUTH, CONNACK, or the end."""
        handshake = self._handshake
        assert handshake is not None
        session = self._session
        step = handshake.step(data)
        if step.outcome == FAILURE:
            if session is None:
                self._refuse(step.reason_code, now)  # [MQTT-4.12.0-4]
            else:  # [MQTT-4.12.1-2]
                self.close(reasons.NOT_AUTHORIZED, "authenticating again failed", now)
            return
        code = reasons.CONTINUE_AUTHENTICATION  # [MQTT-4.12.0-2]
        if step.outcome != CONTINUE:
            if session is None:
                self._admit(step.username, step.data, now)
                return
            if step.username != session.username:
                self.close(reasons.NOT_AUTHORIZED, "authenticated again as another user", now)
                return
            code = reasons.SUCCESS
        frame = handshake.frame(
            code, step, self.link.max_packet_size_bytes, self.link.problem_information
        )
        if not frame:
            self._end(True, "AUTH exceeds the client's maximum packet size", now)
        elif session is None:
            self.link.send_now(frame)
        else:
            self.link.send(frame)

    # -- the end -----------------------------------------------------------------------

    def _disconnect(self, packet: Disconnect, session: Session, now: Now) -> None:
        properties = packet.properties
        if properties is not None and properties.session_expiry_interval is not None:
            wanted_s = properties.session_expiry_interval
            if wanted_s > 0 and session.expiry_interval_s == 0:
                raise RemoteProtocolError(  # MQTT 5 §3.14.2.2.2
                    reasons.PROTOCOL_ERROR, "session expiry was 0 in CONNECT"
                )
            session.expiry_interval_s = min(wanted_s, self.limits.session_expiry_s_max)
        with_will = packet.reason_code != reasons.SUCCESS  # [MQTT-3.14.4-3] [MQTT-3.1.2-10]
        self._end(with_will, "client disconnected", now, answered=True)

    def ended(self, with_will: bool, now: Now) -> None:
        """Settle the will and the session; a server that shuts down keeps its wills armed."""
        server = self._server
        session = self._session
        if session is None:
            return
        if server.connections.get(self.client_id) is self:
            del server.connections[self.client_id]
        if self.inbound_limit is not None:
            self.inbound_limit.left(now.monotonic_s)
        while self._held_back:  # above QoS 0 they were not acknowledged: the client has them
            packet = self._held_back.popleft()
            if packet.qos == 0:
                server.drops.count(reasons_to_drop.QUEUE_FULL, self.client_id, packet.topic)
        if not with_will:
            server.wills.disarm(self.client_id)
        elif not server.shutting_down:
            server.wills.lost(self.client_id, session.expiry_interval_s, now)
        server.registry.close(session, now)

    # -- PUBLISH -----------------------------------------------------------------------

    def _publish(self, packet: Publish, session: Session, now: Now) -> None:
        topic = packet.topic
        self.link.counters.publish_received += 1
        if self._message_rate is not None:
            self._pause(self._message_rate.take(1, now.monotonic_s), now)
        self.link.counters.publish_bytes_received += len(packet.payload)
        properties = packet.properties
        encoded = b""
        if properties is not None:
            topic = self._resolve_alias(topic, properties)
            properties.topic_alias = None
            encoded = encode_properties(properties)
        if not is_topic_name(topic, self.limits.topic_levels_max):
            raise RemoteProtocolError(reasons.TOPIC_NAME_INVALID, f"not a topic name: {topic!r}")
        qos = packet.qos
        again = qos == 2 and session.awaits_release(packet.packet_id)
        if qos > 0 and self.version == V5 and not again:
            self._check_receive_maximum(session)
        permissions = session.permissions
        if is_system_topic(topic) or (
            permissions is not None and not again and not permissions.may_publish(topic)
        ):
            self._server.drops.count(reasons_to_drop.NO_PERMISSION, self.client_id, topic)
            code = reasons.NOT_AUTHORIZED if self.version == V5 else 0
            why = "topics below $SYS are the server's own"
            self._acknowledge(packet, code, why if is_system_topic(topic) else "not authorized")
            return
        if properties is not None and self._is_false_text(packet, properties) and not again:
            self._refuse_payload(packet, topic)
            return
        if self._held_back:  # what came later must not overtake
            self._hold_back(packet)
        elif not self._route(packet, topic, encoded, session, now):
            self._hold_back(packet)
            self._server.effects.held_back.append(self)

    def _route(
        self, packet: Publish, topic: str, encoded: bytes, session: Session, now: Now
    ) -> bool:
        """Hand a message on and acknowledge it; False: it must wait for room, and does so whole.

        A client that can be told, is: 0x97 means that nobody got the message.
        """
        qos = packet.qos
        message = Message(
            topic, packet.payload, qos, packet.retain, self.client_id, now.wall_us, encoded
        )
        if qos > 0:
            if qos == 2 and session.awaits_release(packet.packet_id):
                session.receive(packet, now)
                self._acknowledge(packet, reasons.SUCCESS)
                return True
            refused = qos == 2 and not session.has_room_to_receive()
            router = self._server.router
            if refused or (router.rejecting and router.refuses(message, session)):
                if self.version != V5:
                    return False
                self._acknowledge(packet, reasons.QUOTA_EXCEEDED, "there is no room for it now")
                return True
            session.receive(packet, now)
        reached = self._server.router.publish(message, session, now)
        self.work += reached
        if qos > 0:
            nobody = reached == 0 and message.offset < 0 and self.version == V5
            self._acknowledge(packet, reasons.NO_MATCHING_SUBSCRIBERS if nobody else 0)
        return True

    def _hold_back(self, packet: Publish) -> None:
        self._held_back.append(packet)
        self._held_back_bytes += len(packet.payload)

    def _try_again(self, session: Session, now: Now) -> None:
        """Route what is held back, in order, as far as there is room; only before MQTT 5."""
        held_back = self._held_back
        while held_back:
            packet = held_back[0]
            if not self._route(packet, packet.topic, b"", session, now):
                self._server.effects.held_back.append(self)
                return
            held_back.popleft()
            self._held_back_bytes -= len(packet.payload)

    def _is_false_text(self, packet: Publish, properties: Properties) -> bool:
        if properties.payload_format_indicator != 1:
            return False
        return self._server.options.check_payload_format and not is_utf8(packet.payload)

    def _refuse_payload(self, packet: Publish, topic: str) -> None:
        """Its format indicator says UTF-8, and it is not (v5 §3.3.2.3.2)."""
        code = reasons.PAYLOAD_FORMAT_INVALID
        why = "the payload is not UTF-8, as its format indicator says"
        self._server.drops.count(reasons_to_drop.PAYLOAD_FORMAT, self.client_id, topic)
        if packet.qos == 0:
            raise RemoteProtocolError(code, why)
        self._acknowledge(packet, code, why)

    def _acknowledge(self, packet: Publish, code: int, why: str = "") -> None:
        if packet.qos == 1:
            self.link.hold_ack(acknowledgement(PUBACK, packet.packet_id, code, why, self.link))
        elif packet.qos == 2:
            frame = acknowledgement(PUBREC, packet.packet_id, code, why, self.link)
            if self.version == V5:  # counts until its PUBREL: see _check_receive_maximum
                self.link.hold(frame)
            else:
                self.link.hold_ack(frame)

    def _release(self, packet: Pubrel, session: Session) -> None:
        counted = session.inbound_count
        code = session.release(packet.packet_id)
        if self._held_back:
            self._server.effects.wake_held_back()
        why = "no message with this packet identifier waits for PUBREL"
        frame = acknowledgement(PUBCOMP, packet.packet_id, code, why, self.link)
        if session.inbound_count < counted or self.version != V5:
            self.link.hold_ack(frame)
        else:
            self.link.hold(frame)
            self._quota_raised += 1

    def _check_receive_maximum(self, session: Session) -> None:
        """Refuse what exceeds our Receive Maximum [MQTT-3.3.4-7].

        It counts anew with each connection: what came on an earlier one and is released on
        this takes nothing of it, and yet its PUBCOMP adds to the sender's quota [MQTT 5 §4.9].
        """
        allowed = self.limits.receive_maximum
        unacknowledged = self.link.unreleased_acks + session.inbound_count
        if unacknowledged >= allowed + self._quota_raised:
            raise RemoteProtocolError(
                reasons.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {allowed} QoS 1 and 2 messages unacknowledged",
            )

    def _resolve_alias(self, topic: str, properties: Properties) -> str:
        alias = properties.topic_alias
        if alias is None:
            return topic
        if alias > self.limits.topic_alias_maximum:  # [MQTT-3.3.2-9]
            raise RemoteProtocolError(
                reasons.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum"
            )
        if topic:
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"topic alias {alias} is unknown")
        return known

    # -- SUBSCRIBE, UNSUBSCRIBE --------------------------------------------------------

    def _subscribe(self, packet: Subscribe, session: Session, now: Now) -> None:
        server = self._server
        identifier = 0
        if packet.properties is not None and packet.properties.subscription_identifiers:
            identifier = packet.properties.subscription_identifiers[0]
        codes: list[int] = []
        added: list[tuple[SessionSubscription, bool]] = []
        for subscription in packet.subscriptions:
            code = self._judge(subscription.topic_filter, session)
            if code == reasons.SUCCESS:
                code = subscription.qos
                entry = SessionSubscription(subscription, identifier)
                added.append((entry, server.router.subscribe(session, entry)))
                if session.stored:
                    server.effects.put_subscription(
                        SubscriptionRecord(
                            session.number, subscription.topic_filter, subscription, identifier
                        )
                    )
            elif self.version == V31 and code == reasons.NOT_AUTHORIZED:
                code = subscription.qos  # v3.1 §3.8: "it must make a positive acknowledgement"
            elif self.version != V5:
                code = reasons.UNSPECIFIED_ERROR  # v3.1.1 knows 0x80 only [MQTT-3.9.3-2]
            codes.append(code)
        answer = Suback(packet.packet_id, codes)
        filters = [subscription.topic_filter for subscription in packet.subscriptions]
        answer.properties = reason_properties(self.link, refused_filters(filters, codes))
        if answer.properties is not None and self._exceeds(answer):
            answer.properties = None  # [MQTT-3.9.2-1]
        self._answer(answer, now)
        if self.link.closed:
            return
        for entry, is_new in added:
            server.router.deliver_retained(session, entry, is_new, now)
        if self._sharing.uneven:
            self._sharing.ready(session, now)

    def _judge(self, topic_filter: str, session: Session) -> int:
        """The reason code to refuse a subscription with, or ``SUCCESS``."""
        limits = self.limits
        if is_shared(topic_filter):
            sharing = self._sharing.options
            if not sharing.enabled or (self.version != V5 and not sharing.before_v5):
                return reasons.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
            if not is_share_name(share_name(topic_filter)):
                return reasons.TOPIC_FILTER_INVALID
        if not is_topic_filter(unshared(topic_filter), limits.topic_levels_max):
            return reasons.TOPIC_FILTER_INVALID
        full = len(session.subscriptions) >= limits.subscriptions_per_session_max
        if full and topic_filter not in session.subscriptions:
            return reasons.QUOTA_EXCEEDED
        permissions = session.permissions
        if permissions is not None and not permissions.may_subscribe(unshared(topic_filter)):
            return reasons.NOT_AUTHORIZED
        return reasons.SUCCESS

    def _unsubscribe(self, packet: Unsubscribe, session: Session, now: Now) -> None:
        server = self._server
        codes: list[int] = []
        for topic_filter in packet.topic_filters:
            if server.router.unsubscribe(session, topic_filter):
                codes.append(reasons.SUCCESS)
                self._sharing.unsubscribed(session, topic_filter, now)
                if session.stored:
                    server.effects.put_subscription(
                        SubscriptionRecord(session.number, topic_filter, None)
                    )
            else:
                codes.append(reasons.NO_SUBSCRIPTION_EXISTED)
        answer = Unsuback(packet.packet_id, codes)
        why = refused_filters(packet.topic_filters, codes)
        answer.properties = reason_properties(self.link, why)
        if answer.properties is not None and self._exceeds(answer):
            answer.properties = None  # [MQTT-3.11.2-1]
        self._answer(answer, now)
