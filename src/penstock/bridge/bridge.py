"""One bridge: a session of this broker, and the connection to a remote broker that resumes it.

``runtime.dialler`` dials, and dials again. The session exists from the start of the broker and
never expires: messages that its subscriptions match enter its queue on the log (tier 1), connected
or not, and leave it when the remote broker has acknowledged them. Only the window and the socket's
buffer are in memory (tier 2), bounded as those of every client; after a restart their messages are
sent again, in their order.

An incoming message is published here before it is acknowledged to the remote broker, in one commit
with the packet identifier of a QoS 2 message. If a queue rejects the message, or the store cannot
write, the message waits, and nothing more is read from the remote broker.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Final, final

from penstock.bridge.consumer_lag import UNKNOWN, ConsumerLag
from penstock.bridge.forwarding import BridgeOutlet
from penstock.bridge.plan import (
    AWAY,
    CONNECTED,
    VERSIONS,
    connect_of,
    incoming,
    local_subscriptions,
    outgoing,
    remote_subscriptions,
    session_of,
)
from penstock.bridge.repeats import REPEATS, WINDOW_S, RepeatDetector
from penstock.config.bridge import RemoteBroker
from penstock.config.remote_url import RemoteUrl
from penstock.control.metric_families import MetricSample
from penstock.engine.api import (
    ClientCallbacks,
    PoisonMessageDetector,
    ReceivedMessage,
    Server,
    Session,
    SessionSubscription,
)
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import slug_of
from penstock.engine.values.limits import NEVER_EXPIRES_S, EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.records import SubscriptionRecord
from penstock.engine.values.topics import bridge_state_topic
from penstock.errors import LocalProtocolError
from penstock.masking import mask_secrets
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Packet, Suback
from penstock.protocol.properties import encode_properties
from penstock.runtime.dialler import Dialler, with_established_mark
from penstock.runtime.driver import Driver
from penstock.runtime.server_addresses import ServerAddresses
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, warn_limited
from penstock.transport.backoff import Backoff

logger = get_logger(__name__)

_RING_INTERVAL_S: Final = 600.0  # between two warnings of a ring
_RETRY_S: Final = 0.25  # between two attempts to publish a message that waits for room


@final
class Bridge(ClientCallbacks):
    """One bridge of a broker.

    Args:
        remote: the settings of the bridge.
        limits: the limits of its session.
        tls_context: the TLS context; None if no address needs one.
        server: the broker's engine.
        driver: the driver that runs the engine.
        random: the source of the backoff's jitter.

    Attributes:
        name: the name of the bridge.
        received: the number of messages received from the remote broker.
    """

    def __init__(
        self,
        remote: RemoteBroker,
        limits: EngineLimits,
        tls_context: ssl.SSLContext | None,
        server: Server,
        driver: Driver,
        random: Random,
    ) -> None:
        self.name = remote.name
        self.received = 0
        self._remote = remote
        self._limits = limits
        self._server = server
        self._driver = driver
        self._blocked_messages: deque[ReceivedMessage] = deque()  # received; no room to publish
        self._version = VERSIONS[remote.version]
        self._is_private = remote.try_private and self._version != V5  # the dialect of bridges
        self._outgoing = outgoing(remote)
        self._outlet = BridgeOutlet(self._outgoing)
        self._incoming = incoming(remote)
        self._subscriptions = remote_subscriptions(self._incoming, self._version)
        self._unanswered: dict[int, str] = {}  # topic filters without SUBACK, by packet identifier
        self._repeats = RepeatDetector()
        self._ring_limiter = RepeatLimiter(_RING_INTERVAL_S)
        self._outlet.note_uncounted = self._note_uncounted
        self._is_accepted = False  # CONNACK has accepted the present connection
        self._subscribe_error = ""  # the latest subscription that the remote broker refused
        server.router.own_bridge_states.add(bridge_state_topic(remote.name))
        self._session = self._open_session(session_of(remote.name), driver.now())
        urls = [RemoteUrl.parse(address) for address in remote.addresses]
        backoff = Backoff(remote.reconnect_s_min, remote.reconnect_s_max, random)
        self._dialler = Dialler(
            f"bridge {remote.name}",
            ServerAddresses(urls, backoff),
            tls_context,
            self._connect,
            server,
            driver,
            self._session,
            limits,
            self,
            remote.connect_timeout_s,
        )
        self._lag = ConsumerLag(self._session, server.context)

    def _open_session(self, name: str, now: Now) -> Session:
        server = self._server
        known = server.registry.sessions.get(name)
        limits_name = self._limits.name if known is None else known.limits_name
        session = server.registry.open(name, False, NEVER_EXPIRES_S, self._limits)
        if limits_name == with_established_mark(self._limits.name):
            session.limits_name = limits_name
        session.set_user(None, None)
        session.transmission.outlet = self._outlet
        if self._remote.ends_at_message_max > 0:
            session.transmission.poison_detector = PoisonMessageDetector(
                self._remote.ends_at_message_max
            )
        server.router.note_limits(self._limits)
        wanted = local_subscriptions(self._outgoing, self._remote.persist)
        for topic_filter in list(session.subscriptions):
            if topic_filter not in wanted:
                server.router.unsubscribe(session, topic_filter)
                record = SubscriptionRecord(session.number, topic_filter, None)
                server.context.batch.put_subscription(record)
        for topic_filter, subscription in wanted.items():
            entry = SessionSubscription(subscription, 0)
            is_new = server.router.subscribe(session, entry)
            record = SubscriptionRecord(session.number, topic_filter, subscription)
            server.context.batch.put_subscription(record)
            server.router.deliver_retained(session, entry, is_new, now)
        if not self._is_private:
            self._warn_of_copies()
        if not self._remote.persist:
            logger.warning(
                "bridge %s: persist is false, so all messages are forwarded with QoS 0; those that"
                " cannot be sent at once may be lost",
                self.name,
            )
        return session

    def _warn_of_copies(self) -> None:
        if self._version != V5 and any(part.direction == "both" for part in self._remote.forwards):
            logger.warning(
                "bridge %s: before MQTT 5, and without the dialect of bridges, a broker sends a"
                " bridge's own messages back: with direction both, subscribers here get two copies;"
                " use prefixes that differ by direction, or version 5",
                self.name,
            )

    async def run(self) -> None:
        """Keep the bridge connected until cancelled."""
        await self._dialler.run()

    def _connect(self, clean: bool) -> Connect:
        limits = self._limits
        return connect_of(
            self._remote,
            limits.receive_maximum,
            limits.max_packet_size_bytes,
            clean,
            self._is_private,
        )

    # -- the connection --------------------------------------------------------------------

    def on_connected(self, connack: Connack, now: Now) -> None:
        """Subscribe at the remote broker, which has accepted the connection."""
        del now
        self._subscribe_error = ""
        self._is_accepted = True
        self._dialler.on_connect(connack)
        connection = self._dialler.connection
        assert connection is not None
        self._update_reading()
        if self._remote.status_topic:
            connection.publish_state(self._remote.status_topic, CONNECTED)
            connection.state_at_end = (self._remote.status_topic, AWAY)
        self._unanswered.clear()
        for (
            subscription
        ) in self._subscriptions:  # one packet each: a packet of all may be too large
            try:
                packet_id = connection.subscribe([subscription])
            except LocalProtocolError as error:
                self._log_subscribe_error(subscription.topic_filter, error.message)
            else:
                self._unanswered[packet_id] = subscription.topic_filter

    def on_answer(self, packet: Packet, now: Now) -> None:
        """Log the subscriptions that the remote broker refuses in a SUBACK."""
        del now
        if isinstance(packet, Suback):
            topic_filter = self._unanswered.pop(packet.packet_id, "")
            for code in packet.reason_codes:
                if code >= reasons.UNSPECIFIED_ERROR:
                    self._log_subscribe_error(topic_filter, reasons.name_of(code))

    def _log_subscribe_error(self, topic_filter: str, why: str) -> None:
        error = f"nothing of {topic_filter!r} comes in: {why}"
        self._subscribe_error = error
        logger.error("bridge %s: %s: %s", self.name, self._dialler.url, Sentence(error))

    def on_end(self, now: Now) -> None:
        """Choose the dialect of the next connection: the connection has ended."""
        del now
        connection = self._dialler.connection
        assert connection is not None
        if self._is_accepted:
            self._is_accepted = False
            self._is_private = self._remote.try_private and self._version != V5
        elif connection.may_not_know_dialect:
            self._try_without_dialect()
        self._dialler.on_end()

    def _try_without_dialect(self) -> None:
        """Dial at once without the dialect of bridges: the remote broker ended the connection
        before CONNACK.

        The connection after that uses the dialect again.
        """
        if self._is_private:
            self._is_private = False
            self._dialler.redials_at_once = True
            logger.info(
                "bridge %s: %s may not know the dialect of bridges; trying without",
                self.name,
                self._dialler.url,
            )
            self._warn_of_copies()
        else:
            self._is_private = self._remote.try_private and self._version != V5

    # -- messages from the remote broker ---------------------------------------------------

    def on_message(self, arrival: ReceivedMessage, now: Now) -> None:
        """Publish a message from the remote broker, or queue it if there is no room."""
        self.received += 1
        if self._version != V5:
            self._note_uncounted(arrival.topic, arrival.publish.payload)
        if self._blocked_messages or not self._publish(arrival, now):
            if not self._blocked_messages:
                asyncio.get_running_loop().call_later(_RETRY_S, self._publish_waiting)
            self._blocked_messages.append(arrival)
            self._update_reading()

    def _note_uncounted(self, topic: str, payload: bytes) -> None:
        """Warn if a message without a hop count seems to go round in a ring of brokers."""
        now_s = asyncio.get_running_loop().time()
        if self._repeats.note(topic, payload, now_s):
            warn_limited(
                logger,
                self._ring_limiter,
                now_s,
                "ring",
                "bridge %s: the same message of %r passed %d times within %g s: if the brokers are"
                " bridged in a ring, it goes round for ever, because MQTT %s has nothing to count"
                " hops in; use version 5, or prefixes that do not match twice (docs/bridges.md)",
                self.name,
                topic,
                REPEATS,
                WINDOW_S,
                self._remote.version,
            )

    def _publish_waiting(self) -> None:
        """Publish the waiting messages, in their order, as far as there is room now."""
        assert self._blocked_messages, "there is a timer only while messages wait"
        now = self._driver.now()
        while self._blocked_messages:
            if not self._publish(self._blocked_messages[0], now):
                asyncio.get_running_loop().call_later(_RETRY_S, self._publish_waiting)
                break
            self._blocked_messages.popleft()
        self._update_reading()
        self._server.context.resume_soon(self._dialler.connection)
        self._driver.end_turn_soon()

    def _publish(self, arrival: ReceivedMessage, now: Now) -> bool:
        """Publish a received message and acknowledge it; return False if there is no room."""
        connection = self._dialler.connection
        assert connection is not None
        server = self._server
        publish = arrival.publish
        encoded = b""
        if publish.properties is not None:
            publish.properties.subscription_identifiers = None
            encoded = encode_properties(publish.properties)
        rule = self._incoming.rule_that_forwards(arrival.topic, encoded)
        if rule is None:
            connection.settle(
                arrival, reasons.SUCCESS, now
            )  # subscribed to by an earlier configuration
            return True
        message = Message(
            rule.topic_for(arrival.topic),
            publish.payload,
            min(publish.qos, rule.qos_max),
            publish.retain and rule.keeps_retain,
            self._session.client_id,
            now.wall_us,
            self._incoming.properties_for(encoded),
            lead_us=now.lead_us,
        )
        if message.qos > 0 and server.context.store_failure:
            return False
        if server.router.publish_if_room(message, self._session, now) is not None:
            return False
        connection.settle(arrival, reasons.SUCCESS, now)
        return True

    def _update_reading(self) -> None:
        """Pause reading from the remote broker while messages wait for room, else resume."""
        if self._dialler.connection is not None:
            self._dialler.connection.is_application_full = bool(self._blocked_messages)

    def status(self) -> list[tuple[str, object]]:
        """Return the topics of the bridge below ``$SYS/broker/`` with their values."""
        session = self._session
        values: list[tuple[str, object]] = [
            ("state", self._dialler.state),
            ("address", mask_secrets(str(self._dialler.url))),
            ("attempt", self._dialler.attempt),
            ("queue/messages", session.queue_length),
            ("queue/bytes", session.backlog.queue_bytes),
            ("inflight/messages", session.window_length),
            ("sent/messages", self._outlet.sent),
            ("resent/messages", self._outlet.resent),
            ("acknowledged/messages", self._outlet.acknowledged),
            ("received/messages", self.received),
            ("looped/messages", self._outgoing.looped_messages + self._incoming.looped_messages),
            ("too_long/messages", self._outgoing.too_long_topics + self._incoming.too_long_topics),
            ("last_error", self._dialler.last_error or self._subscribe_error),
        ]
        lag_s = self._lag.seconds(self._driver.now())
        if lag_s == UNKNOWN:
            self._driver.end_turn_soon()  # the next call reports it
        else:
            values.append(("lag_s", round(lag_s, 3)))
        dropped = self._server.drops.counts_by_reason(session.client_id)
        values += [(f"dropped/{slug_of(reason)}", count) for reason, count in dropped.items()]
        found: list[tuple[str, object]] = [
            (f"bridge/{self.name}/{name}", value) for name, value in values
        ]
        found.append((f"connection/{self.name}/state", int(self.is_connected)))
        return found

    def metrics(self) -> Iterable[MetricSample]:
        """Yield the values of the bridge for a scrape."""
        session = self._session
        labels = (self.name,)
        yield "bridge_connected", labels, self.is_connected
        yield "bridge_queue_messages", labels, session.queue_length
        yield "bridge_queue_bytes", labels, session.backlog.queue_bytes
        yield "bridge_window_messages", labels, session.window_length
        yield "bridge_sent", labels, self._outlet.sent
        yield "bridge_resent", labels, self._outlet.resent
        yield "bridge_acknowledged", labels, self._outlet.acknowledged
        yield "bridge_received", labels, self.received
        yield (
            "bridge_looped",
            labels,
            self._outgoing.looped_messages + self._incoming.looped_messages,
        )
        lag_s = self._lag.seconds(self._driver.now())
        if lag_s == UNKNOWN:
            self._driver.end_turn_soon()  # the next scrape has it
        else:
            yield "bridge_lag_seconds", labels, lag_s
        for reason, count in self._server.drops.counts_by_reason(session.client_id).items():
            yield "bridge_dropped", (self.name, slug_of(reason)), count

    @property
    def is_connected(self) -> bool:
        """True if the remote broker has accepted the present connection."""
        return self._dialler.is_connected
