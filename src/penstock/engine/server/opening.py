"""The accepting side of a connection until its CONNACK, and the authentication of its client.

::

      AWAIT_CONNECT ── CONNECT, no method ─▶ AWAIT_VERDICT ── accepted ───────────╮
            │                                                                     ▼
            ╰───────── CONNECT, method ────▶ AWAIT_AUTH ── AUTH … ── success ─▶ admitted
                                                                                  │
      a refusal in any state: CONNACK with the reason, then closed                ▼
                                                        session opened, CONNACK ─▶ CONNECTED

``grants`` has the granted limits and the reasons to refuse, ``enhanced_authentication`` the order
of AUTH packets. A client may re-authenticate while it is connected (MQTT 5 §4.12.1).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.connection.connection import DISCONNECTED_ITSELF, Connection
from penstock.engine.connection.enhanced_authentication import EnhancedAuthentication
from penstock.engine.connection.keepalive import KeepAlive
from penstock.engine.memory.pool import Pool
from penstock.engine.publishing.connection_names import (
    CONNECTION,
    PARTED,
    SAME,
    UNRELEASED,
    UNRELEASED_MAX,
    ToldNames,
    told_names,
)
from penstock.engine.server.draining import Draining
from penstock.engine.server.grants import (
    Refusal,
    accepted_properties,
    find_refusal,
    granted_keep_alive_s,
    granted_session_expiry_s,
    no_room_refusal,
    requested_session_expiry_s,
    will_message,
)
from penstock.engine.server.server import Server
from penstock.engine.session.session import Session
from penstock.engine.values.access import (
    CONTINUE,
    FAILURE,
    Authorize,
    AuthResult,
    Credentials,
    Permissions,
)
from penstock.engine.values.clock import NO_DEADLINE, Now
from penstock.engine.values.event_kinds import REFUSED, Event
from penstock.engine.values.limits import PACKET_IDENTIFIERS, EngineLimits
from penstock.engine.values.producer_properties import producer_of
from penstock.engine.values.records import WillRecord
from penstock.engine.values.refusals import (
    claimed_names,
    fits,
    refusal_code,
    refusal_version,
    refusing_connack,
)
from penstock.engine.values.states import (
    ACCEPTED,
    AUTH_DUE,
    AWAIT_AUTH,
    AWAIT_CONNECT,
    AWAIT_VERDICT,
    CONNECTED,
    SERVER,
    VERDICT_DUE,
)
from penstock.engine.values.topics import is_bridge_state
from penstock.engine.wire.aliases import OutboundAliases
from penstock.engine.wire.link import Link
from penstock.errors import RemoteProtocolError, UnsupportedProtocolVersion
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Auth, Connack, Connect, Disconnect, Packet
from penstock.protocol.properties import Properties

_LOGIN_FAILURES: Final = (
    reasons.BAD_USER_NAME_OR_PASSWORD,
    reasons.NOT_AUTHORIZED,
    reasons.BAD_AUTHENTICATION_METHOD,
)
_CLAIMED_LENGTH_MAX: Final = 256  # characters of a name in the event of a refused CONNECT


@mypyc_attr(acyclic=True)
@final
class SessionTerms:
    """The user and the session of an accepted client, for log and events.

    Args:
        username: the user's name; None for an anonymous client.
        clean_start: whether the client asked for a new session.
        present: whether it resumes an existing session.
        expiry_s: its session expiry interval, in seconds.
        is_parted: whether an older copy of one end was accepted (``connection_names``).
    """

    def __init__(
        self,
        username: str | None,
        clean_start: bool,
        present: bool,
        expiry_s: int,
        is_parted: bool,
    ) -> None:
        self.username = username
        self.clean_start = clean_start
        self.present = present
        self.expiry_s = expiry_s
        self.is_parted = is_parted


class OpeningConnection(Connection):
    """An accepted connection until its CONNACK: authentication, and the opening of a session.

    Args:
        server: the broker of the connection.
        limits: the limits of its listener.
        now: when it was accepted.
    """

    def __init__(self, server: Server, limits: EngineLimits, now: Now) -> None:
        super().__init__(
            Link(server.context.turn),
            Decoder(
                limits.max_packet_size_bytes,
                connect_size_bytes_max=limits.connect_packet_size_bytes_max,
            ),
            KeepAlive(limits.connect_timeout_s, now.monotonic_s),
            SERVER,
            AWAIT_CONNECT,
        )
        self.client_id = ""
        self.address = ""  # the peer's address, as the shell names it
        self.connected_at_us = 0  # when its client was accepted, on the steady clock
        self.version = 0  # protocol level of the client; 0 before CONNECT
        self.limits = limits
        self.listener = limits.name
        self.allows_anonymous = True  # whether its listener accepts anonymous clients
        self.identity: str | None = None  # user name of its certificate; None without certificate
        self.granted: SessionTerms | None = None  # None until its client is accepted
        self.receive_maximum = 0  # Receive Maximum of the client
        self.link.pending_bytes_max = limits.write_buffer_bytes_max
        self.link.mount_point = limits.offers.mount_point
        self.link.counters = server.context.turn.counters.counters_of_listener(limits.name)
        self.link.counters.sockets_accepted += 1
        self._server = server
        self._sharing = server.router.sharing
        self._session: Session | None = None  # set once the client is accepted
        self._connect: Connect | None = None  # the CONNECT, until the client is accepted
        self._asked_to_persist = False  # CONNECT asked for a session that outlives its connection
        self._handshake: EnhancedAuthentication | None = None
        self._authorize: Authorize | None = None  # of the verdict; None = the broker's port
        self._authorized_until_s = NO_DEADLINE  # when it is disconnected, on the monotonic clock

    # -- CONNECT -----------------------------------------------------------------------

    def _before_connack(self, packet: Packet, now: Now) -> None:
        if isinstance(packet, Connect):
            self._open(packet, now)
        elif isinstance(packet, Auth):
            self._authenticate(packet, now)
        else:
            assert isinstance(packet, Disconnect), packet
            self._end(False, DISCONNECTED_ITSELF, now)

    def _open(self, connect: Connect, now: Now) -> None:
        server = self._server
        self.version = connect.version
        self.link.version = connect.version
        self.link.is_bridge = connect.is_bridge
        method: str | None = None
        properties = connect.properties
        if properties is not None:
            method = properties.authentication_method
            if properties.maximum_packet_size is not None:
                self.link.max_packet_size_bytes = properties.maximum_packet_size
            self.link.problem_information = properties.request_problem_information != 0
        server.registry.expire(now)
        refused = find_refusal(connect, self.limits, server.options)
        if refused is None and not self._has_room(connect, connect.client_id):
            refused = no_room_refusal(connect)
        if server.draining is not None:
            refused = self._draining_refusal(server.draining)
        refused = (
            self._ban_refusal(self.identity or connect.username, connect.client_id, now) or refused
        )
        if refused is not None:
            if refused.code == reasons.TOPIC_NAME_INVALID and connect.version != V5:
                self._end(False, "the topic of the will has a wildcard", now)  # [MQTT3-3.2.2-6]
            else:
                self._refuse(refused, now, connect)
            return
        self._connect = connect
        if self.identity is not None:  # the certificate proves the user, whatever CONNECT claims
            verdict = AuthResult(reasons.SUCCESS, self.identity)
            if self.identity == "":
                detail = "its certificate has no common name, or several"
                verdict = AuthResult(reasons.NOT_AUTHORIZED, detail=detail)
            elif method is not None:
                detail = "its certificate says who it is"
                verdict = AuthResult(reasons.BAD_AUTHENTICATION_METHOD, detail=detail)
            self._apply_verdict(verdict, now)
            return
        if method is not None:
            self._begin_exchange(connect, method, now)
            return
        self.move(VERDICT_DUE)
        found = server.authenticate.check_credentials(self._credentials(connect), self.link)
        if found is not None:
            self._apply_verdict(found, now)

    def _credentials(self, connect: Connect) -> Credentials:
        """Return the credentials of a CONNECT."""
        return Credentials(
            connect.client_id,
            connect.username,
            connect.password,
            self.allows_anonymous,
            self.address,
        )

    def _ban_refusal(self, username: str | None, client_id: str, now: Now) -> Refusal | None:
        bans = self._server.bans
        ban = bans.find_ban(self.address, username, client_id, now.monotonic_s)
        if ban is None:
            return None
        bans.refused += 1
        return Refusal(reasons.BANNED, f"its {ban.kind}", ban.reason)

    def _draining_refusal(self, draining: Draining) -> Refusal:
        draining.refused += 1
        return Refusal(draining.reason_code, "an operator empties the broker")

    def apply_late_verdict(self, verdict: AuthResult, now: Now) -> None:
        """Apply the verdict that ``check_credentials`` did not return at once, then handle the
        packets that waited for it."""
        if self.state != AWAIT_VERDICT:
            return  # the client disconnected, or the connect timeout has passed
        self._apply_verdict(verdict, now)
        if self._lost_because is not None:
            self.lost(self._lost_because, now)
        else:
            self.resume(now)

    def deadline_s(self) -> float:
        """Return when ``tick`` must be called: at the keep alive deadline, or when the
        authorization ends."""
        silent_s = super().deadline_s()
        if self._authorized_until_s == NO_DEADLINE or self.state != CONNECTED:
            return silent_s
        return (
            self._authorized_until_s
            if silent_s == NO_DEADLINE
            else min(silent_s, self._authorized_until_s)
        )

    def tick(self, now: Now) -> None:
        """Close the connection if a deadline has passed."""
        is_over = (
            self._authorized_until_s != NO_DEADLINE and now.monotonic_s >= self._authorized_until_s
        )
        if is_over and self.state == CONNECTED:
            self.close(reasons.MAXIMUM_CONNECT_TIME, "it was let in until now only", now)
        else:
            super().tick(now)

    def _apply_verdict(self, verdict: AuthResult, now: Now) -> None:
        if verdict.reason_code != reasons.SUCCESS:
            self._refuse(Refusal(verdict.reason_code, verdict.detail), now)
        else:
            self._authorize = verdict.authorize
            if verdict.lasts_s > 0.0:
                self._authorized_until_s = now.monotonic_s + verdict.lasts_s
            self._admit(verdict.username, None, now)

    def _refuse(
        self, refused: Refusal, now: Now, connect: Connect | None = None, why: str = ""
    ) -> None:
        """Send a CONNACK that refuses the client, and end the connection.

        ``why`` is the reason string for the client, by default the name of the code.
        """
        code = refused.code
        why = why or reasons.name_of(code)
        reference = self._server.server_reference
        connect = connect or self._connect
        if code in _LOGIN_FAILURES:
            self._count_failed_login(connect)
        answer = refusing_connack(connect, code, why, reference)
        if not self._is_too_large(answer):  # [MQTT-3.1.2-24]
            self.link.send_last(encode(answer, self.version))
        recorder = self._server.context.recorder
        if recorder is not None and connect is not None:
            recorder.note_refused_connect(connect.client_id, why)
        events = self._server.context.events
        if events is not None:
            event: Event = {
                "client": "" if connect is None else _shortened(connect.client_id),
                "user": None if connect is None else _shortened(connect.username),
                "protocol": self.version,
                "listener": self.limits.name,
                "code": code,
                "reason": why,
            }
            events.note(REFUSED, event)
        self._end(False, f"CONNECT refused: {why}{refused.log_text()}{claimed_names(connect)}", now)

    def _count_failed_login(self, connect: Connect | None) -> None:
        """Count a failed login in the client group of the claimed names; without a CONNECT, in the
        counters of the link."""
        counters = self.link.counters
        if connect is not None:
            username = self.identity or connect.username
            counters = self._server.context.turn.counters.counters_of_client(
                self.limits.name, connect.client_id, username
            )
        counters.logins_failed += 1

    def protocol_error(self, error: RemoteProtocolError, now: Now) -> None:
        """Answer a protocol error: before CONNACK by a refusal, else by closing the connection.

        A client of an unknown version is refused in the closest version. Before MQTT 5 a CONNECT
        that violates the protocol gets no answer [MQTT 5 §4.13.1].
        """
        if isinstance(error, UnsupportedProtocolVersion) and self._session is None:
            self.version = refusal_version(error)
            self._refuse(Refusal(reasons.UNSUPPORTED_PROTOCOL_VERSION), now)
            return
        if self.state == AWAIT_CONNECT and self._decoder.version == V5:
            self.version = V5
        if self.state == AWAIT_AUTH or (self.state == AWAIT_CONNECT and self.version == V5):
            self._refuse(Refusal(refusal_code(error), quoted=error.message), now)
            return
        self.close(error.reason, error.message, now)

    # -- CONNACK -----------------------------------------------------------------------

    def _admit(self, username: str | None, proof: bytes | None, now: Now) -> None:
        """Open the session of an authenticated client, or refuse the client.

        ``proof`` is the last authentication data of its method, which CONNACK carries; None without
        a method.
        """
        connect = self._connect
        assert connect is not None
        self._connect = None
        server = self._server
        limits = self.limits
        self.client_id = connect.client_id or server.registry.unused_client_id(
            server.epoch, self.limits.offers.auto_id_prefix
        )
        # the authenticated user may differ from that of CONNECT, or may have been banned meanwhile
        refused = self._ban_refusal(username, self.client_id, now)
        if refused is not None:
            self._refuse(refused, now, connect)
            return
        authorize = self._authorize or server.authorize
        permissions = authorize.permissions(username, self.client_id)
        will = connect.will
        is_denied = False
        if will is not None and permissions is not None and not is_bridge_state(will.topic):
            is_denied = not permissions.may_publish(will.topic)  # checked again when it is due
        if is_denied:
            detail = "the access list does not let it publish its will"
            self._refuse(Refusal(reasons.NOT_AUTHORIZED, detail), now, connect)
            return
        server.registry.expire(now)  # a session that has expired must not be resumed
        server.wills.publish_due(now)  # a will that is due must be published, not deleted
        if not self._may_have_session(username):
            why = "the session of this client identifier belongs to another user"
            self._refuse(Refusal(reasons.NOT_AUTHORIZED), now, connect, why)
            return
        if server.context.store_health.is_failing and self._needs_store(connect):
            why = server.context.store_health.failure
            self._refuse(Refusal(reasons.SERVER_UNAVAILABLE), now, connect, why)
            return
        if server.draining is not None:  # draining began meanwhile
            self._refuse(self._draining_refusal(server.draining), now, connect)
            return
        account = server.context.accounts.account_of(username, self.address)
        if not self._has_room(connect, self.client_id, account):  # also in the user's account
            self._refuse(no_room_refusal(connect), now, connect)
            return
        told = told_names(connect.properties)
        verdict = SAME
        if told is not None and self._resumes(connect):
            verdict, why = server.connection_names.judge(self.client_id, told, server.epoch)
            if why:
                refusal = Refusal(reasons.IMPLEMENTATION_SPECIFIC_ERROR)
                self._refuse(refusal, now, connect, why)
                return
        earlier = server.connections.get(self.client_id)
        if earlier is not None and self.has_peer_closed:
            self._end(False, "left before it was let in, and its client is connected again", now)
            return
        if earlier is not None:  # [MQTT-3.1.4-3]
            earlier.close(reasons.SESSION_TAKEN_OVER, "another connection took over", now)
        expiry_s = granted_session_expiry_s(connect, limits)
        present = self._resumes(connect)  # the earlier connection may have ended its session
        session = self._open_session(
            connect, expiry_s, present, username, permissions, account, now
        )
        is_parted = present and verdict == PARTED
        self.granted = SessionTerms(username, connect.clean_start, present, expiry_s, is_parted)
        keep_alive_s = granted_keep_alive_s(connect, limits)
        self._keep_alive.set_interval(keep_alive_s)
        self._keep_alive.note_packet(now.monotonic_s)
        receive_maximum = PACKET_IDENTIFIERS
        answer = Connack(reasons.SUCCESS, present)
        if connect.version == V5:
            receive_maximum = self._negotiate(connect)
            answer.properties = self._connack_properties(connect, expiry_s, keep_alive_s, proof)
            name: ToldNames | None = None
            if is_parted:
                session.forget_received()
            if told is not None and session.is_stored:
                name = ToldNames((told.this,), is_parted)
                _tell_name(name, session, answer.properties)
            if self._is_too_large(answer):
                answer.properties.user_properties = None  # [MQTT-3.2.2-20]
                name = None
            if name is not None:
                server.connection_names.accept(self.client_id, name, server.epoch, now)
            if self._is_too_large(answer):
                answer.properties.response_information = None
        self._answer(answer, now)
        if not self.link.is_closed:
            server.router.note_limits(limits)
            self.receive_maximum = receive_maximum
            events = server.context.events
            if events is not None:
                granted: Event = {
                    "user": username,
                    "protocol": connect.version,
                    "clean_start": connect.clean_start,
                    "session_present": present,
                    "session_expiry_s": expiry_s,
                    "keep_alive_s": keep_alive_s,
                    "receive_maximum": receive_maximum,
                }
                events.note_connected(self.client_id, limits.name, granted)
            session.attach(self.link, limits, receive_maximum, now)

    def _resumes(self, connect: Connect) -> bool:
        """Return whether ``connect`` resumes a session that exists now."""
        return not connect.clean_start and self.client_id in self._server.registry.sessions

    def _open_session(
        self,
        connect: Connect,
        expiry_s: int,
        present: bool,
        username: str | None,
        permissions: Permissions | None,
        account: Pool,
        now: Now,
    ) -> Session:
        """Open and return the session, and store the will."""
        server = self._server
        if present:
            server.wills.disarm(self.client_id)
        else:
            server.wills.publish(self.client_id, now)
        session = server.registry.open(
            self.client_id, connect.clean_start, expiry_s, self.limits, username, account
        )
        self._asked_to_persist = requested_session_expiry_s(connect) > 0
        session.set_user(username, permissions, self._authorize, self.link.mount_point)
        if connect.will is not None:
            message, delay_s = will_message(connect.will, self.client_id)
            record = WillRecord(message, delay_s, 0, username)
            record.set_authorize(self._authorize)
            server.wills.arm(self.client_id, record, session.account)
        self._session = session
        self.move(ACCEPTED)
        self.connected_at_us = now.steady_us
        server.connections[self.client_id] = self
        server.clients_max = max(server.clients_max, len(server.connections))
        self.link.counters = server.drops.counters_of(self.client_id)
        self.link.counters.connections_accepted += 1
        return session

    def _negotiate(self, connect: Connect) -> int:
        """Apply the limits in the properties of CONNECT; return the client's Receive Maximum."""
        requested = connect.properties
        if requested is None:
            return PACKET_IDENTIFIERS
        aliases = min(requested.topic_alias_maximum or 0, self.limits.topic_alias_outbound_max)
        if aliases > 0:
            self.link.aliases = OutboundAliases(aliases)
        if requested.receive_maximum is None:
            return PACKET_IDENTIFIERS
        return requested.receive_maximum

    def _connack_properties(
        self, connect: Connect, expiry_s: int, keep_alive_s: int, proof: bytes | None
    ) -> Properties:
        server = self._server
        properties = accepted_properties(
            connect,
            self.limits,
            "" if connect.client_id else self.client_id,
            expiry_s,
            keep_alive_s,
            server.acknowledged_when,
            self._sharing.options.enabled,
            server.options,
            self._latest_sequence(connect),
        )
        if self._handshake is not None:  # [MQTT-4.12.0-5]
            properties.authentication_method = self._handshake.method
            properties.authentication_data = proof
        return properties

    def _latest_sequence(self, connect: Connect) -> int | None:
        """Return the latest number of the producer that ``connect`` names; None if it names
        none."""
        name = producer_of(connect.properties)
        if not name or self._session is None:
            return None
        return self._server.producers.latest(self._session.username, name)

    def _may_have_session(self, username: str | None) -> bool:
        """Return whether this user may open the session of this client identifier."""
        server = self._server
        shared = server.options.client_ids_shared
        return shared or server.registry.may_open(self.client_id, username)

    def _needs_store(self, connect: Connect) -> bool:
        """Return whether ``connect`` can be accepted only while the store can write."""
        session = self._server.registry.sessions.get(self.client_id)
        is_known = session is not None and session.is_stored
        expires = granted_session_expiry_s(connect, self.limits) > 0
        if producer_of(connect.properties):  # a failing commit may have the latest number
            return True
        return is_known or expires or connect.will is not None

    def _answer(self, packet: Packet, now: Now) -> None:
        """Send ``packet`` after the commit; if it is larger than the client accepts, end the
        connection."""
        if self._is_too_large(packet):  # [MQTT-3.1.2-24]
            self.close(reasons.PACKET_TOO_LARGE, "the answer exceeds maximum packet size", now)
            return
        frame = encode(packet, self.version)
        link = self.link
        session = self._session
        is_transient = session is not None and not session.is_stored
        if (
            is_transient
            and self._server.context.store_health.is_failing
            and not link.has_waiting_packets
        ):
            link.send_last(frame)  # before the commit: the session is not stored
        else:
            link.send_after_commit(frame)

    def _has_room(self, connect: Connect, client_id: str, account: Pool | None = None) -> bool:
        """Return whether there is room for the session of ``connect`` and its will.

        ``account`` is the account of the user; None while the user is not known, when only the
        limits of the broker apply.
        """
        server = self._server
        account = account or server.context.accounts.common
        known = server.registry.sessions.get(client_id)
        if known is not None and not connect.clean_start:
            account = known.account
        if connect.will is not None:
            replaced_bytes = server.wills.armed_bytes(client_id)
            if not account.has_room_for_sessions(replaced_bytes):
                return False
        return server.registry.has_room(client_id, account)

    def _is_too_large(self, packet: Packet) -> bool:
        return not fits(packet, self.version, self.link.max_packet_size_bytes)

    # -- enhanced authentication -------------------------------------------------------

    def _begin_exchange(self, connect: Connect, method: str, now: Now) -> None:
        exchange = self._server.authenticate.begin_exchange(method, self._credentials(connect))
        if exchange is None:
            self._refuse(Refusal(reasons.BAD_AUTHENTICATION_METHOD), now)  # [MQTT-4.12.0-1]
            return
        self.move(AUTH_DUE)
        self._handshake = EnhancedAuthentication(method, exchange)
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
            again = Credentials(self.client_id, None, None, False, self.address)
            exchange = self._server.authenticate.begin_exchange(handshake.method, again)
            if exchange is None:  # the method was removed from the settings
                self.close(reasons.NOT_AUTHORIZED, "the method is not offered any more", now)
                return
            handshake.restart(exchange)
        data = None if packet.properties is None else packet.properties.authentication_data
        self._step(data, now)

    def _step(self, data: bytes | None, now: Now) -> None:
        """Take one step of the method, and send the answer: AUTH or CONNACK; end the connection on
        failure."""
        handshake = self._handshake
        assert handshake is not None
        session = self._session
        step = handshake.step(data)
        if step.outcome == FAILURE:
            if session is None:
                self._refuse(Refusal(step.reason_code), now)  # [MQTT-4.12.0-4]
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


def _shortened(name: str | None) -> str | None:
    return None if name is None else name[:_CLAIMED_LENGTH_MAX]


def _tell_name(name: ToldNames, session: Session, properties: Properties) -> None:
    """Add the name of a connection, and what its session has not released, to the properties of a
    CONNACK."""
    told = properties.user_properties or []
    told.append((CONNECTION, str(name)))
    unreleased = session.inbound.first_ids(UNRELEASED_MAX)
    if unreleased:
        told.append((UNRELEASED, " ".join([str(packet_id) for packet_id in unreleased])))
    properties.user_properties = told
