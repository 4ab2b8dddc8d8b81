"""A client's engine: its session, its connection to the server, and the store of its outbox.

::

      publish ─▶ line ─▶ (log of the outbox) ─▶ session ─▶ connection ─▶ socket
                                                   ▲           │
                     publications ◀── PUBACK … ────╯           ▼
                     inbox, subscriptions, responses ◀── received packets

It is the broker's engine: a ``Server`` without listeners and with one session, whose connection the
client dials. Without an outbox the session is in memory only, ends with the client, and commits
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from random import SystemRandom
from typing import Final, final

from penstock.client.age_limit import AgeLimit
from penstock.client.engine_options import connect_packet
from penstock.client.inbox import Inbox
from penstock.client.options import Options, Status
from penstock.client.publication import Publication, Publications
from penstock.client.publisher_line import PublisherLine
from penstock.client.subscriptions import Subscriptions
from penstock.config.remote_url import RemoteUrl
from penstock.engine.api import ClientCallbacks, Link, ReceivedMessage, Server, Session
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import REASONS, SLOW_CONSUMER
from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.engine.values.message import Message
from penstock.engine.values.producer_properties import ProducerSequence
from penstock.errors import ConnectFailed, PublishFailed, StoreUnavailable
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Packet, Subscription
from penstock.protocol.properties import Properties
from penstock.runtime.dialler import Dialler
from penstock.runtime.driver import Driver
from penstock.runtime.machine_clock import MachineClock
from penstock.runtime.server_addresses import ServerAddresses
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger
from penstock.transport.backoff import Backoff

logger = get_logger(__name__)

_PROGRAM: Final = "program"  # the producer of the ``sequence`` numbers
_STORE_RETRY_S_MAX: Final = 3600.0
_UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
_CLEANUP_CONNECTIONS_MAX: Final = (
    3  # connections on which an earlier program's identifiers are released
)
_TURN_SHARE_MAX: Final = 512  # QoS 0 messages published in one turn before other tasks run
_QUEUED_WEIGHT: Final = 8  # weight of a QoS 1 or 2 message in that share: its answer must be read
_OTHER_SERVER: Final = (reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED)


@final
class ClientEngine(ClientCallbacks):
    """The engine of one client, on the running loop.

    Args:
        options: the client's options.
        urls: the server's URLs.
        client_id: client identifier.
        tls_context: the TLS context; None if no URL needs one.
        store: the store of the session.
        server: the engine, recovered from the store.
        clock: the clock whose time the server was started with.
    """

    def __init__(
        self,
        options: Options,
        urls: list[RemoteUrl],
        client_id: str,
        tls_context: ssl.SSLContext | None,
        store: Store,
        server: Server,
        clock: MachineClock,
    ) -> None:
        self.client_id = client_id
        self.server = server
        self.store = store
        self.limits = server.limits
        self._options = options
        self._context = server.context
        self._loop = asyncio.get_running_loop()

        self.connack: Connack | None = None  # of the latest connection
        self.is_closed = False
        self.failure: StoreUnavailable | None = None
        self._first_connection: asyncio.Future[None] = self._loop.create_future()
        self._first_failures: list[tuple[str, str, int]] = []  # until then: URL, error, code
        self._begins_clean = options.begins_clean
        self._dialling: asyncio.Task[None] | None = None

        self.is_stored = options.outbox is not None
        self.publications = Publications()
        self.line = PublisherLine(self._queue_has_room)
        self.socket_line = PublisherLine(self._socket_has_room)
        self._limits_queue = options.overflow in ("wait", "raise")
        self._messages_max = options.queue_messages_max
        self._bytes_max = options.queue_bytes_max
        self._next_offset = 0  # without a log
        self.topic: str | None = None  # the latest valid topic
        self._published_in_turn = 0
        self.has_waiters = False  # tasks wait for room or for a drain; woken as a turn ends
        self._drain_waiter: asyncio.Future[None] | None = None

        self.inbox = Inbox(
            options.inbox_messages_max,
            options.inbox_bytes_max,
            options.redeliver_s,
            self._now,
            self._update_reading,
            self._write_acknowledgements,
        )
        self.subscriptions = Subscriptions()
        self.take_response: Callable[[ReceivedMessage], bool] | None = None  # see ``responses``
        self.fail_responses: Callable[[str], None] | None = None

        self.session = self._open_session()
        self.driver = Driver(
            server,
            store,
            _UNSENT_BYTES_MAX,
            self._on_store_failed,
            _STORE_RETRY_S_MAX,
            self._on_turn_end,
            clock,
        )
        self._ages = AgeLimit(
            self.session,
            self.driver,
            options.age_s_max,
            self._next_message_offset,
            self.notify_room,
        )
        self.dialler = self._new_dialler(urls, tls_context)

    def _open_session(self) -> Session:
        """Return the recovered session, or a new one, with ``publications`` for its outcomes."""
        registry = self.server.registry
        known = registry.sessions.get(self.client_id)
        limits_name = self.limits.name if known is None else known.limits_name
        expiry_s = NEVER_EXPIRES_S if self.is_stored else 0
        session = registry.open(self.client_id, False, expiry_s, self.limits)
        session.limits_name = limits_name
        session.transmission.outcomes = self.publications
        self.server.drops.drop_handler = self.publications
        return session

    def _new_dialler(self, urls: list[RemoteUrl], tls_context: ssl.SSLContext | None) -> Dialler:
        options = self._options
        backoff = Backoff(options.reconnect_s_min, options.reconnect_s_max, SystemRandom())
        dialler = Dialler(
            f"client {self.client_id}",
            ServerAddresses(urls, backoff, options.follow_references),
            tls_context,
            self._connect,
            self.server,
            self.driver,
            self.session,
            self.limits,
            self,
            options.connect_timeout_s,
            options.headers,
            self._on_state_change,
            may_trace=True,
        )
        if not options.begins_clean and not dialler.is_known:
            dialler.is_known = True
            dialler.cleanup_connections_left = _CLEANUP_CONNECTIONS_MAX
        return dialler

    # -- connecting ------------------------------------------------------------------------

    def start(self) -> None:
        """Start to dial the server, and to check the age of messages."""
        self._ages.start()
        self._dialling = self._loop.create_task(self.dialler.run())

    async def first_connection(self) -> None:
        """Wait until a server accepts the client for the first time.

        Raises:
            ConnectFailed: each address was tried, and none accepted the client.
        """
        await asyncio.shield(self._first_connection)

    @property
    def status(self) -> Status:
        """The state of the connection to the server."""
        dialler = self.dialler
        if self.failure is not None and not self.is_closed:
            return Status("failed", dialler.url, 0, 0.0, str(self.failure), 0)
        if self.is_closed:
            return Status("closed", dialler.url, 0, 0.0, dialler.last_error, dialler.reason_code)
        is_waiting = dialler.state == "waiting"
        return Status(
            dialler.state,
            dialler.url,
            dialler.attempt,
            dialler.pause_s if is_waiting else 0.0,
            dialler.last_error,
            dialler.reason_code,
            str(dialler.addresses.next) if is_waiting else "",
        )

    def _on_state_change(self) -> None:
        dialler = self.dialler
        if not self._first_connection.done():
            if dialler.state == "connected":
                self._first_connection.set_result(None)
            elif dialler.state == "waiting":
                self._first_failures.append((dialler.url, dialler.last_error, dialler.reason_code))
                if dialler.addresses.is_round_over:
                    self._fail_first_connection()
        self._report_status()

    def _fail_first_connection(self) -> None:
        """Fail the wait for the first connection: no address accepted the client.

        The reason code is that of the latest server that did not refer to another server.
        """
        failures = self._first_failures
        codes = [code for _, _, code in failures]
        telling = [code for code in codes if code not in _OTHER_SERVER] or codes
        why = "; ".join(f"{url}: {error}" for url, error, _ in failures)
        self._first_connection.set_exception(ConnectFailed(why, telling[-1]))
        self._first_connection.exception()  # mark it as retrieved: perhaps no task waits for it
        failures.clear()

    def _report_status(self) -> None:
        if self._options.status_changed is not None:
            try:
                self._options.status_changed(self.status)
            except Exception:
                logger.exception("status_changed failed")

    def _connect(self, clean: bool) -> Connect:
        options = self._options
        first = None if options.authentication is None else options.authentication.first()
        return connect_packet(options, self.client_id, clean or self._begins_clean, first)

    def on_connected(self, connack: Connack, now: Now) -> None:
        """Use the connection: the server accepted it with ``connack``."""
        del now
        self.connack = connack
        self._begins_clean = False
        self.dialler.on_connect(connack)
        connection = self.dialler.connection
        assert connection is not None
        self.inbox.connection = connection
        self._update_reading()
        self.subscriptions.connected(connection, connack.session_present)
        self._loop.call_soon(self.notify_room)  # once the session is attached

    def on_end(self, now: Now) -> None:
        """Note that the connection ended: requeue unanswered requests, and tell the dialler."""
        del now
        self.subscriptions.disconnected()
        self.dialler.on_end()

    def authenticate(self, data: bytes | None) -> bytes | None:
        """Return the answer to the server's data in enhanced authentication; None for no data."""
        authentication = self._options.authentication
        return None if authentication is None else authentication.next(data)

    def _now(self) -> Now:
        """Return the time of the present turn of the loop."""
        return self._context.now_of_turn or self.driver.now_of_turn()

    # -- publishing ------------------------------------------------------------------------

    @property
    def link(self) -> Link | None:
        """The sending half of the connection; None while the client is not connected."""
        return self.session.link

    @property
    def pending(self) -> int:
        """The number of QoS 1 and 2 messages that the server has not acknowledged."""
        return self.session.queue_length + self.session.window_length

    def _queue_has_room(self) -> bool:
        context = self._context
        if context.store_failure or context.is_full():
            return False
        if not self._limits_queue:
            return True
        session = self.session
        if session.queue_length + session.window_length >= self._messages_max:
            return False
        return self._bytes_max == 0 or session.backlog.queue_bytes < self._bytes_max

    def _socket_has_room(self) -> bool:
        link = self.session.link
        if link is None:
            return False
        if link.has_room():
            return True
        link.resume_when_room()
        return False

    @property
    def last_sequence(self) -> int:
        """The ``sequence`` of the latest message that was sent with one; 0 if there is none."""
        return self.server.producers.latest(None, _PROGRAM)

    def publish_qos0(self, topic: str, payload: bytes, retain: bool, properties: bytes) -> None:
        """Write a QoS 0 message to the socket; the caller has waited for room.

        Raises:
            PublishFailed: the message was dropped.
        """
        now = self._now()
        message = Message(
            topic, payload, 0, retain, "", now.wall_us, properties, lead_us=now.lead_us
        )
        self.publications.qos0_drop_reason = -1
        self._published_in_turn += 1
        self.session.outbound.deliver(message, 0, retain, (), True, now)
        if self.publications.qos0_drop_reason >= 0:
            raise PublishFailed(f"{topic}: dropped: {REASONS[self.publications.qos0_drop_reason]}")

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes,
        sequence: int = 0,
    ) -> Publication:
        """Send or queue a QoS 1 or 2 message; the caller has waited for room.

        Args:
            topic: topic name.
            payload: the payload.
            qos: 1 or 2.
            retain: whether the server retains the message.
            properties: encoded PUBLISH properties.
            sequence: the program's number of the message, which is stored in the same commit; 0 for
                none.

        Returns:
            The publication of the message.
        """
        now = self._now()
        message = Message(
            topic, payload, qos, retain, "", now.wall_us, properties, lead_us=now.lead_us
        )
        self._published_in_turn += _QUEUED_WEIGHT
        if self.is_stored:
            self._context.batch.append(message)
        else:
            message.offset = self._next_offset
            self._next_offset += 1
        if sequence > 0:
            self.server.producers.record_published(None, ProducerSequence(_PROGRAM, sequence), now)
        publication = self.publications.add(message.offset, topic)
        self.session.outbound.deliver(message, qos, retain, (), False, now)
        if self.inbox.is_full:
            self._update_reading()
        return publication

    def try_publish(
        self, topic: str, payload: object, qos: object, retain: bool
    ) -> Publication | None:
        """Publish at once if no argument must be checked or converted and nobody waits.

        That is so with QoS 1 or 2, a payload of bytes, the topic of the last call, no outbox, and
        room in the queue and in the share of this turn (``exceeds_turn_share``).

        Returns:
            The publication; None if one of these conditions does not hold, or the client is closed
            or has failed. Then nothing was published: the caller checks and converts the arguments,
            waits for room, and calls ``publish``.
        """
        if self.is_closed or self.failure is not None or self.is_stored or self.exceeds_turn_share:
            return None
        if topic != self.topic or not isinstance(payload, bytes):
            return None
        if not isinstance(qos, int) or isinstance(qos, bool) or not 1 <= qos <= 2:
            return None
        if self.line.waiting_count > 0 or not self._queue_has_room():
            return None
        return self.publish(topic, payload, qos, retain, b"")

    @property
    def exceeds_turn_share(self) -> bool:
        """True if the publisher must let other tasks run before it publishes more in this turn."""
        return self._published_in_turn >= _TURN_SHARE_MAX

    def _on_turn_end(self) -> None:
        self._published_in_turn = 0
        if self.has_waiters:
            self.notify_room()

    def _next_message_offset(self) -> int:
        """Return the offset that the next message will get."""
        return self._context.log_end if self.is_stored else self._next_offset

    def notify_room(self) -> None:
        """Wake publishers that wait, if the queue or the socket has room, and drains that end."""
        self.line.notify()
        self.socket_line.notify()
        if self.pending == 0:
            self.stop_draining()
        self.has_waiters = bool(
            self.line.waiting_count
            or self.socket_line.waiting_count
            or self._drain_waiter is not None
        )

    def stop_draining(self) -> None:
        """Wake the tasks in ``drain``."""
        if self._drain_waiter is not None:
            if not self._drain_waiter.done():
                self._drain_waiter.set_result(None)
            self._drain_waiter = None

    async def wait_in(self, line: PublisherLine) -> None:
        """Wait until this publisher is first in ``line`` and there is room."""
        self.has_waiters = True
        await line.wait()

    def on_writable(self, now: Now) -> None:
        """Wake publishers that wait for room: the socket's buffer has drained."""
        del now
        self.dialler.establish_if_released()
        self.notify_room()

    async def drain(self) -> None:
        """Wait until no message is pending, or ``stop_draining`` is called."""
        if self.pending > 0 and not self.is_closed:
            if self._drain_waiter is None:
                self._drain_waiter = self._loop.create_future()
            self.has_waiters = True
            await asyncio.shield(self._drain_waiter)

    # -- receiving -------------------------------------------------------------------------

    def on_message(self, arrival: ReceivedMessage, now: Now) -> None:
        """Put a received message into the inbox, or pass a response to its request.

        A QoS 0 message is dropped if the inbox is full.
        """
        del now
        if self.take_response is not None and self.take_response(arrival):
            return
        if self.inbox.is_full:
            if arrival.publish.qos == 0:
                self.server.drops.count(SLOW_CONSUMER, self.client_id, arrival.topic)
                return
            self._update_reading()
        self.inbox.put(arrival)

    def on_answer(self, packet: Packet, now: Now) -> None:
        """Pass a SUBACK or UNSUBACK to the request that waits for it."""
        del now
        self.subscriptions.answered(packet)

    def _update_reading(self) -> None:
        """Stop reading the socket while the inbox is full, and resume it afterwards.

        While the program waits for an acknowledgement or an answer, reading continues even if the
        inbox is full: the packet lies behind unread messages.
        """
        connection = self.dialler.connection
        if connection is None:
            return
        was_full = connection.is_application_full
        connection.is_application_full = self.inbox.is_full and not self._awaits_answers()
        if was_full and not connection.is_application_full:
            self.server.context.resume_soon(connection)
            self.driver.end_turn_soon()

    def _write_acknowledgements(self) -> None:
        self.driver.push()

    def _awaits_answers(self) -> bool:
        return self.pending > 0 or self.subscriptions.awaits_answer

    def send_request(
        self,
        subscriptions: list[Subscription],
        unsubscribe_filters: list[str],
        properties: Properties | None,
    ) -> asyncio.Future[list[int]]:
        """Subscribe or unsubscribe; see ``Subscriptions.send_request``."""
        answer = self.subscriptions.send_request(subscriptions, unsubscribe_filters, properties)
        self.driver.end_turn_soon()
        self._update_reading()
        return answer

    # -- closing ---------------------------------------------------------------------------

    def _on_store_failed(self, failure: StoreUnavailable) -> None:
        """Fail all publications and waiting tasks: the outbox failed for good."""
        self.failure = failure
        self.publications.fail_all(f"the outbox failed: {failure}")
        self.inbox.failure = failure
        if self._dialling is not None:
            self._dialling.cancel()
        self._fail_waiters("the outbox failed")
        self._report_status()

    def _fail_waiters(self, why: str) -> None:
        """Close inbox, subscriptions and lines; every wait ends with an error that says ``why``."""
        self.inbox.close()
        self.subscriptions.close(why)
        if self.fail_responses is not None:
            self.fail_responses(why)
        self.line.close()
        self.socket_line.close()
        self.stop_draining()
        self._ages.stop()

    async def close(self) -> None:
        """Send DISCONNECT, close the connection, and fail all publications and waiting tasks."""
        if self.is_closed:
            return
        self.is_closed = True
        self._fail_waiters("the client was closed")
        if self._dialling is not None:
            self._dialling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._dialling
        if self.dialler.is_connected and self.dialler.connection is not None:
            self.dialler.connection.disconnect(self.driver.now(), self._disconnect_properties())
        await self.driver.stop()
        if not self._first_connection.done():
            self._first_connection.set_exception(ConnectFailed("the client was closed"))
            self._first_connection.exception()
        kept = "; the outbox keeps it" if self.is_stored else ""
        why = f"the client was closed before it was delivered{kept}"
        self.publications.fail_all(why, self.is_stored)
        self._report_status()

    def _disconnect_properties(self) -> Properties | None:
        """Return DISCONNECT properties that end the session, if it need not outlive the client.

        They set the Session Expiry Interval to 0 (MQTT 5 §3.14.2.2.2).
        """
        options = self._options
        if options.level == V5 and not options.keeps_session and options.while_connected_s > 0:
            return Properties(session_expiry_interval=0)
        return None
