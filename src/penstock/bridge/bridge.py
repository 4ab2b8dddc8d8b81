"""One bridge: a session of this broker, and the connection to a remote broker that takes it up.

::

      DIALLING ── socket, CONNACK ─▶ CONNECTED ── lost, dismissed ─╮
         ▲  ╰─── nobody there, refused ──────────────────────────╮ │
         ╰────────── the pause is over ── WAITING (``backoff``) ◀─┴─╯

The session is there from the start of the broker and never expires: what its subscriptions match
joins its queue on the log (tier 1), connected or not, and leaves when the remote broker has
acknowledged it. In memory is only what the window and the socket hold (tier 2), bounded as those of
every client; after a restart all of it is sent again, in its order.

What comes in is published here before it is acknowledged there, in one commit with the packet
identifier of a QoS 2 message. Where a queue refuses it, or the store cannot write, it waits, and
the remote broker with it: nothing more is read.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from random import Random
from typing import Final, Protocol, final

from penstock.bridge.plan import (
    VERSIONS,
    connect_of,
    established,
    incoming,
    local_subscriptions,
    outgoing,
    remote_subscriptions,
    session_of,
)
from penstock.config.bridge import Remote
from penstock.config.remote_url import RemoteUrl
from penstock.engine.arrivals import Arrival, Arrivals
from penstock.engine.client_connection import Application, ClientConnection
from penstock.engine.clock import Now
from penstock.engine.connection import CONNECTED
from penstock.engine.drop_counts import slug_of
from penstock.engine.lag import UNKNOWN, Lag
from penstock.engine.limits import NEVER_EXPIRES_S, EngineLimits
from penstock.engine.message import Message
from penstock.engine.records import SessionRecord, SubscriptionRecord
from penstock.engine.server import Server
from penstock.engine.session import Session, SessionSubscription
from penstock.errors import LocalProtocolError
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Packet, Suback
from penstock.protocol.properties import encode_properties
from penstock.transport.api import Endpoint, Wire
from penstock.transport.backoff import Backoff
from penstock.transport.dialling import dial

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 0.25  # what waits for room is tried again
_REFUSED: Final = frozenset(
    (
        reasons.BAD_USER_NAME_OR_PASSWORD,
        reasons.NOT_AUTHORIZED,
        reasons.BANNED,
        reasons.BAD_AUTHENTICATION_METHOD,
        reasons.CLIENT_IDENTIFIER_NOT_VALID,
        reasons.UNSUPPORTED_PROTOCOL_VERSION,
    )
)
"""To dial again soon would be to hammer: only a person can mend these."""


class Host(Protocol):
    """The loop that the bridge's connection runs in: the broker's driver."""

    def now(self) -> Now:
        """Both clocks."""

    def adopt(self, wire: Wire, connection: ClientConnection) -> Endpoint:
        """Run a connection that was dialled."""

    def end_turn_soon(self) -> None:
        """Write and commit what was done."""


@final
class Bridge(Application):
    """One bridge of a broker.

    Args:
        remote: its settings.
        limits: bounds of its session.
        context: for TLS; None where no address needs one.
        server: the broker.
        host: its loop.
        random: for jitter.
    """

    def __init__(
        self,
        remote: Remote,
        limits: EngineLimits,
        context: ssl.SSLContext | None,
        server: Server,
        host: Host,
        random: Random,
    ) -> None:
        self.name = remote.name
        self.state = "dialling"
        self.attempt = 0  # since the last connection
        self.url = ""  # of the latest attempt
        self.last_error = ""
        self.received = 0  # messages from the remote broker
        self._remote = remote
        self._limits = limits
        self._context = context
        self._server = server
        self._host = host
        self._backoff = Backoff(remote.reconnect_s_min, remote.reconnect_s_max, random)
        self._arrivals = Arrivals()
        self._waiting: deque[Arrival] = deque()  # for room here
        self._version = VERSIONS[remote.version]
        self._outgoing = outgoing(remote)
        self._incoming = incoming(remote)
        self._asked = remote_subscriptions(self._incoming, self._version)
        self._connected_s = 0.0  # since when, on the loop's clock
        self._is_adopted = False  # the attempt got as far as a socket
        self._asking: dict[int, str] = {}  # filters not answered, by packet identifier
        self._connection: ClientConnection | None = None
        self._over: asyncio.Future[None] | None = None  # done when the connection is
        self._starts_clean = False  # the next connection
        name = session_of(remote.name)
        known = server.registry.sessions.get(name)
        self._is_known = known is not None and known.zone == established(limits.zone)
        self._session = self._open_session(name, host.now())
        self._lag = Lag(self._session, server.effects)

    def _open_session(self, name: str, now: Now) -> Session:
        server = self._server
        session = server.registry.open(name, False, NEVER_EXPIRES_S, now, self._limits)
        if self._is_known:
            self._establish(session)
        session.identify(None, None)
        session.forwarding = self._outgoing
        server.router.rejecting = server.router.rejecting or self._limits.rejects
        wanted = local_subscriptions(self._outgoing, self._remote.persist)
        for topic_filter in list(session.subscriptions):
            if topic_filter not in wanted:
                server.router.unsubscribe(session, topic_filter)
                record = SubscriptionRecord(session.number, topic_filter, None)
                server.effects.put_subscription(record)
        for topic_filter, subscription in wanted.items():
            entry = SessionSubscription(subscription, 0)
            is_new = server.router.subscribe(session, entry)
            record = SubscriptionRecord(session.number, topic_filter, subscription)
            server.effects.put_subscription(record)
            server.router.deliver_retained(session, entry, is_new, now)
        if self._version != V5 and any(part.direction == "both" for part in self._remote.forwards):
            logger.warning(
                "bridge %s: before MQTT 5 a broker sends back to a bridge what it brought: of what"
                " is handed on in both directions subscribers here get two copies; use prefixes"
                " that differ by direction, or version 5",
                self.name,
            )
        if not self._remote.persist:
            logger.warning(
                "bridge %s: persist is false, so all messages are handed on with QoS 0: those that"
                " cannot be sent at once may be lost",
                self.name,
            )
        return session

    def _establish(self, session: Session) -> None:
        """Note on disk that the remote broker may have the other half of the session.

        It has subscriptions, and so messages for us, only after that: SUBSCRIBE waits for the
        commit. Without this note a session found there is none of ours.
        """
        session.zone = established(self._limits.zone)
        record = SessionRecord(session.client_id, session.number, NEVER_EXPIRES_S, 0, session.zone)
        self._server.effects.put_session(record)

    # -- dialling --------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the bridge connected until cancelled."""
        while True:
            try:
                await self._keep_connected()
            except Exception:
                logger.exception("bridge %s: a defect of Penstock; it goes on", self.name)
                await asyncio.sleep(self._backoff.refused())

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        place = 0
        told = ""  # why it failed, as the log has it already
        while True:
            self.url = self._remote.addresses[place]
            self.state = "dialling"
            self.attempt += 1
            self._over = loop.create_future()
            self._connected_s = 0.0
            self._is_adopted = False
            pause_s = 0.0
            try:
                await dial(
                    RemoteUrl.parse(self.url),
                    f"bridge {self.name}",
                    self._context,
                    self._accept,
                    self._remote.connect_timeout_s,
                    self._limits.write_buffer_bytes_max,
                )
                await self._over
            except (OSError, ValueError) as error:
                if self._is_adopted and self._connection is not None:  # both in one turn
                    self._connection.disconnect(self._host.now())
                self.last_error = (
                    str(error) or f"no answer for {self._remote.connect_timeout_s:g} s"
                )
                place = (place + 1) % len(self._remote.addresses)
                pause_s = self._backoff.failed()
            else:
                told = told if self.attempt > 0 else ""
                pause_s = self._after(loop.time() - self._connected_s)
                refused = self.attempt > 0
                place = (place + 1) % len(self._remote.addresses) if refused else 0
            self.state = "waiting"
            is_news = told != self.last_error
            told = self.last_error
            logger.log(
                logging.WARNING if is_news else logging.DEBUG,
                "bridge %s: %s: %s; again in %.1f s",
                self.name,
                self.url,
                self.last_error,
                pause_s,
            )
            await asyncio.sleep(pause_s)

    def _after(self, stood_s: float) -> float:
        """A connection is over; how long to wait, seconds."""
        connection = self._connection
        assert connection is not None
        self.last_error = connection.closed_because
        if connection.is_unknown and not self._starts_clean:
            self._starts_clean = True
            logger.warning(
                "bridge %s: %s keeps a session of %s that this broker knows nothing of; it is"
                " replaced, and what it holds for us is lost",
                self.name,
                self.url,
                connection.client_id,
            )
        if connection.reason_code in _REFUSED and self.attempt > 0:
            return self._backoff.refused()
        if self.attempt == 0:
            self._backoff.stood(stood_s)
        return self._backoff.failed()

    def _accept(self, wire: Wire) -> Endpoint:
        connect = connect_of(
            self._remote,
            self._limits.receive_maximum,
            self._limits.max_packet_size_bytes,
            self._starts_clean,
        )
        self._is_adopted = True
        self._connection = ClientConnection(
            self._server.effects,
            self._session,
            self._arrivals,
            connect,
            self._limits,
            self,
            self._is_known,
            self._host.now(),
        )
        return self._host.adopt(wire, self._connection)

    # -- the connection --------------------------------------------------------------------

    def connected(self, connack: Connack, now: Now) -> None:
        """The remote broker let us in."""
        del now
        self.state = "connected"
        self._connected_s = asyncio.get_running_loop().time()
        self.attempt = 0
        self.last_error = ""
        if not self._is_known:
            self._is_known = True
            self._establish(self._session)
        self._starts_clean = False
        logger.info(
            "bridge %s: connected to %s, which %s",
            self.name,
            self.url,
            "has our session" if connack.session_present else "begins a new session",
        )
        assert self._connection is not None
        self._asking.clear()
        for subscription in self._asked:  # each by itself: a packet of all may be too large
            try:
                packet_id = self._connection.subscribe([subscription])
            except LocalProtocolError as error:
                self._not_subscribed(subscription.topic_filter, error.message)
            else:
                self._asking[packet_id] = subscription.topic_filter

    def answered(self, packet: Packet, now: Now) -> None:
        """What the remote broker says to our subscriptions."""
        del now
        if isinstance(packet, Suback):
            topic_filter = self._asking.pop(packet.packet_id, "")
            for code in packet.reason_codes:
                if code >= reasons.UNSPECIFIED_ERROR:
                    self._not_subscribed(topic_filter, reasons.name_of(code))

    def _not_subscribed(self, topic_filter: str, why: str) -> None:
        self.last_error = f"nothing of {topic_filter!r} comes in: {why}"
        logger.error("bridge %s: %s: %s", self.name, self.url, self.last_error)

    def ended(self, now: Now) -> None:
        """The connection is over."""
        del now
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    # -- messages from the remote broker ---------------------------------------------------

    def has_room(self) -> bool:
        """Whether more may be read."""
        return not self._waiting

    def arrived(self, arrival: Arrival, now: Now) -> None:
        """A message from the remote broker."""
        self.received += 1
        if self._waiting or not self._publish(arrival, now):
            if not self._waiting:
                asyncio.get_running_loop().call_later(_AGAIN_S, self._try_again)
            self._waiting.append(arrival)

    def _try_again(self) -> None:
        now = self._host.now()
        while self._waiting:
            if not self._publish(self._waiting[0], now):
                asyncio.get_running_loop().call_later(_AGAIN_S, self._try_again)
                break
            self._waiting.popleft()
        self._server.effects.resume_later(self._connection)
        self._host.end_turn_soon()

    def _publish(self, arrival: Arrival, now: Now) -> bool:
        """Publish what arrived, and acknowledge it; False if it must wait."""
        connection = self._connection
        assert connection is not None
        server = self._server
        publish = arrival.publish
        encoded = b""
        if publish.properties is not None:
            publish.properties.subscription_identifiers = None
            encoded = encode_properties(publish.properties)
        rule = self._incoming.rule_for(arrival.topic)
        if rule is None or not self._incoming.passes(rule, arrival.topic, encoded):
            connection.settle(arrival, reasons.SUCCESS, now)  # no rule: an earlier start asked
            return True
        message = Message(
            rule.topic_for(arrival.topic),
            publish.payload,
            min(publish.qos, rule.qos_max),
            publish.retain and rule.keeps_retain,
            self._session.client_id,
            now.wall_us,
            self._incoming.properties_for(encoded),
        )
        if message.qos > 0:
            if server.effects.store_fails:
                return False
            if server.router.rejecting and server.router.refuses(message, self._session):
                return False
        server.router.publish(message, self._session, now)
        connection.settle(arrival, reasons.SUCCESS, now)
        return True

    def status(self) -> list[tuple[str, object]]:
        """What is told of it below ``$SYS/broker/``."""
        session = self._session
        told: list[tuple[str, object]] = [
            ("state", self.state),
            ("address", self.url),
            ("attempt", self.attempt),
            ("queue/messages", session.queue_length),
            ("queue/bytes", session.queue_bytes),
            ("inflight/messages", session.window_length),
            ("sent/messages", self._outgoing.sent),
            ("resent/messages", self._outgoing.resent),
            ("acknowledged/messages", self._outgoing.acknowledged),
            ("received/messages", self.received),
            ("looped/messages", self._outgoing.looped + self._incoming.looped),
            ("too_long/messages", self._outgoing.too_long + self._incoming.too_long),
            ("last_error", self.last_error),
        ]
        lag_s = self._lag.seconds(self._host.now())
        if lag_s == UNKNOWN:
            self._host.end_turn_soon()  # it is read, and told next time
        else:
            told.append(("lag_s", round(lag_s, 3)))
        dropped = self._server.drops.of(session.client_id)
        told += [(f"dropped/{slug_of(reason)}", count) for reason, count in dropped.items()]
        found: list[tuple[str, object]] = [
            (f"bridge/{self.name}/{name}", value) for name, value in told
        ]
        found.append((f"connection/{self.name}/state", int(self.is_connected)))
        return found

    @property
    def is_connected(self) -> bool:
        """Whether the remote broker has let us in."""
        return self._connection is not None and self._connection.state == CONNECTED
