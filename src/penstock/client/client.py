"""The MQTT client for asyncio programs.

::

      async with penstock.Client("mqtt://localhost", client_id="meter-7") as client:
          await client.subscribe("commands/#", qos=1)
          await client.publish("heat/7", b"21.5", qos=1)
          async for message in client.messages():
              async with message.processing():
                  await store(message)

It connects and reconnects by itself. After a reconnection it sends unacknowledged messages again,
with their packet identifiers and in their order, and keeps its subscriptions. It uses the broker's
engine as its implementation of the protocol, with the roles of client and server exchanged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from random import SystemRandom
from types import TracebackType
from typing import Final, Self, Unpack, final

from penstock.client.checks import (
    Payload,
    check_connect,
    check_filters,
    check_topic,
    encode_payload,
    encode_publish_properties,
    parse_urls,
    tls_context,
)
from penstock.client.client_engine import ClientEngine
from penstock.client.inbox import Messages
from penstock.client.lifecycle import Lifecycle
from penstock.client.message import Message
from penstock.client.options import Options, Settings, Status
from penstock.client.publication import Publication
from penstock.client.receipts import Receipt
from penstock.client.requests import request
from penstock.client.responses import Responses
from penstock.errors import (
    ClientError,
    ConfigError,
    LocalProtocolError,
    NotConnected,
    OutOfSequence,
    PublishFailed,
    QueueFull,
    RequestFailed,
    StoreUnavailable,
    SubscribeFailed,
)
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Subscribe, Subscription, Unsubscribe
from penstock.protocol.properties import Properties
from penstock.transport.backoff import Backoff

_QOS: Final = (0, 1, 2)
_QUOTA_PAUSE_S: Final = 0.5  # the first pause before a message refused with 0x97 is published again
_QUOTA_PAUSE_S_MAX: Final = 10.0
_SEQUENCE_MAX: Final = 2**63 - 1


@final
class Client:
    """An MQTT client, used in the event loop in which it was entered.

    Args:
        url: the server's URL: ``mqtt://HOST:PORT``, ``mqtts://…``, ``ws://HOST:PORT/PATH``,
            ``wss://…`` or ``unix:///PATH``. Of a cluster the URLs of its servers, 1 to 100, as a
            sequence or with commas between them, also ``mqtt://HOST:PORT,HOST:PORT``: they are
            tried in this order, and at most one of them may accept the client. All must have the
            same session.
        settings: all other settings; see ``Options``.

    Raises:
        ConfigError: a setting is not valid.
    """

    def __init__(
        self, url: str | Sequence[str] = "mqtt://localhost", **settings: Unpack[Settings]
    ) -> None:
        unknown = sorted(set(settings) - Settings.__annotations__.keys())
        if unknown:
            near = get_close_matches(unknown[0], Settings.__annotations__, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{unknown[0]} is not a setting of a client{hint}")
        self.options = Options(**settings)
        self._urls = parse_urls(url)
        self._context = tls_context(self._urls, self.options.tls)
        check_connect(self.options)
        self._lifecycle: Lifecycle | None = None
        self._engine: ClientEngine | None = None  # that of the lifecycle
        self._responses: Responses | None = None
        self._is_opened = False
        self._is_closed = False

    # -- opening and closing ---------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(drain=kind is None)

    async def open(self) -> None:
        """Open the outbox, if there is one, and connect.

        Raises:
            ConnectFailed: the first connection failed, and ``waits_for_connection`` holds.
            ConfigError: the outbox belongs to another client.
            StoreError: the outbox cannot be used.
            NotConnected: the client was closed meanwhile.
            ClientError: the client was opened before.
        """
        if self._is_opened or self._is_closed:
            raise ClientError("a client is opened once")
        self._is_opened = True
        life = await Lifecycle.begin(self.options, self._urls, self._context)
        self._lifecycle = life
        self._engine = life.engine
        try:
            await life.engine.driver.wait_durable()
            if self._is_closed:
                raise NotConnected("the client was closed while it was opened")
            await life.connect()
        except BaseException:
            await self.close(drain=False)
            raise

    async def close(self, drain: bool = True) -> None:
        """Disconnect, and close the outbox; later calls do nothing.

        Args:
            drain: first wait up to ``drain_s`` for missing acknowledgements; with an outbox
                only if the client is connected.

        Raises:
            PublishFailed: there is no outbox, and messages were not acknowledged within
                ``drain_s``; they are lost.
        """
        self._is_closed = True
        if self._lifecycle is not None:
            await self._lifecycle.end(drain)

    # -- state --------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """The client identifier: that of ``options``, of the outbox, or a random one once open."""
        return self.options.client_id if self._engine is None else self._engine.client_id

    @property
    def status(self) -> Status:
        """The state of the connection to the server."""
        if self._engine is None:
            return Status("closed", str(self._urls[0]), 0, 0.0, "", 0)
        return self._engine.status

    @property
    def is_connected(self) -> bool:
        """True while the server has accepted the present connection."""
        return self._engine is not None and self._engine.dialler.is_connected

    @property
    def pending(self) -> int:
        """The number of unacknowledged QoS 1 and 2 messages, including those of the outbox."""
        return 0 if self._engine is None else self._engine.pending

    @property
    def last_sequence(self) -> int:
        """The ``sequence`` of the latest message that was sent with one; 0 if there is none.

        After opening it is the ``sequence`` of the last message on disk, after which the program
        continues.

        Raises:
            NotConnected: the client is not open.
        """
        return self._open_engine().last_sequence

    @property
    def connack(self) -> Connack | None:
        """The server's latest CONNACK, with its limits and ``session_present``; None before."""
        return None if self._engine is None else self._engine.connack

    def connect_now(self) -> None:
        """Connect at once instead of after the present pause, such as when the network is back.

        Raises:
            NotConnected: the client is not open.
        """
        self._open_engine().dialler.dial_now()

    # -- publishing --------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        receipt: Receipt | None = None,
    ) -> int:
        """Publish, and wait for the delivery that the QoS guarantees.

        The call returns when a QoS 0 message is written to the socket, on PUBACK for QoS 1, and on
        PUBCOMP for QoS 2. It waits without limit, also across lost connections. If the server
        refuses the message because a quota is exceeded (0x97), it is published again for
        ``quota_retry_s``, after newer messages. Cancelling the call does not withdraw a message
        that was queued.

        Args:
            topic: topic name.
            payload: bytes, or text that is sent as UTF-8.
            qos: 0 to 2.
            retain: whether the server retains the message for later subscribers.
            properties: properties of MQTT 5, such as
                ``Properties(content_type="application/json")``.
            receipt: asks a Penstock broker to report when the message is in a table; await it
                afterwards.

        Returns:
            The server's reason code, below 0x80; it is 0, or 0x10 if nobody subscribes.

        Raises:
            PublishFailed: the server refused the message, or the client dropped it; the error says
                why.
            QueueFull: the queue is full, and ``overflow`` is "raise".
            NotConnected: the client is closed; or QoS is 0, the client is not connected, and
                ``overflow`` is "raise".
            LocalProtocolError: ``topic`` is not a topic name, or an argument cannot be encoded in
                MQTT.
            SubscribeFailed: there is a receipt, and the server refused the subscription to the
                client's response topic.
        """
        if receipt is not None:
            properties = await receipt.ask(self._response_topic("receipts"), properties)
        engine, encoded = self._check_publish(topic, qos, properties)
        if payload.__class__ is not bytes:
            payload = encode_payload(payload)
        if engine.exceeds_turn_share:
            await asyncio.sleep(0)
            self._open_engine()
        if qos > 0:
            if not engine.line.is_free:
                await self._wait_for_room(engine)
            try:
                return await engine.publish(topic, payload, qos, retain, encoded)
            except PublishFailed as error:
                if error.reason != reasons.QUOTA_EXCEEDED or self.options.quota_retry_s == 0:
                    raise
            return await self._publish_again(topic, payload, qos, retain, encoded)
        if not engine.socket_line.is_free:
            await self._wait_for_socket(engine)
        engine.publish_qos0(topic, payload, retain, encoded)
        return reasons.SUCCESS

    async def _publish_again(
        self, topic: str, payload: Payload, qos: int, retain: bool, encoded: bytes
    ) -> int:
        """Publish a message again until the server's quota allows it, for ``quota_retry_s``."""
        pauses = Backoff(_QUOTA_PAUSE_S, _QUOTA_PAUSE_S_MAX, SystemRandom())
        until_s = time.monotonic() + self.options.quota_retry_s
        data = payload if isinstance(payload, bytes) else encode_payload(payload)
        while True:
            left_s = until_s - time.monotonic()
            pause_s = pauses.after_failure()
            is_last = pause_s >= left_s
            await asyncio.sleep(max(0.0, min(pause_s, left_s)))
            engine = self._open_engine()
            if not engine.line.is_free:
                await self._wait_for_room(engine)
            try:
                return await engine.publish(topic, data, qos, retain, encoded)
            except PublishFailed as error:
                if error.reason != reasons.QUOTA_EXCEEDED or is_last:
                    raise

    async def send(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
        sequence: int | None = None,
    ) -> Publication:
        """Publish, and return when the message is queued, before it is delivered.

        With an outbox the message is on disk then. Await the returned publication to wait for the
        delivery, or let ``close`` wait. If messages have a ``sequence``, a program that was killed
        learns from ``last_sequence`` which message was the last one stored.

        Args:
            topic: as for ``publish``.
            payload: as for ``publish``.
            qos: 1 or 2.
            retain: as for ``publish``.
            properties: as for ``publish``.
            sequence: the program's own number of this message, 1 to 2^63 - 1 and greater than that
                of the message before; gaps are allowed. The outbox stores number and message in one
                step.

        Returns:
            The publication of the message.

        Raises:
            QueueFull: the queue is full, and ``overflow`` is "raise".
            OutOfSequence: ``sequence`` is not greater than ``last_sequence``; nothing was sent.
            NotConnected: the client is closed.
            StoreUnavailable: the outbox failed for good.
            ClientError: there is a ``sequence``, and no outbox.
            LocalProtocolError: ``qos`` is 0, ``topic`` is not a topic name, or an argument cannot
                be encoded in MQTT.
        """
        if self._engine is not None and properties is None and sequence is None:
            at_once = self._engine.try_publish(topic, payload, qos, retain)
            if at_once is not None:
                return at_once
        if qos == 0:
            raise LocalProtocolError(
                reasons.QOS_NOT_SUPPORTED, "send needs QoS 1 or 2; use publish for QoS 0"
            )
        engine, encoded = self._check_publish(topic, qos, properties)
        body = encode_payload(payload)
        if engine.exceeds_turn_share:
            await asyncio.sleep(0)
            self._open_engine()
        if not engine.line.is_free:
            await self._wait_for_room(engine)
        number = 0 if sequence is None else self._check_sequence(engine, sequence)
        publication = engine.publish(topic, body, qos, retain, encoded, number)
        if engine.is_stored:
            await engine.driver.wait_durable()
        return publication

    def send_nowait(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
        sequence: int | None = None,
    ) -> Publication | None:
        """Publish without waiting. The message is not yet on disk, even with an outbox.

        Returns:
            The publication of the message; None for QoS 0.

        Raises:
            QueueFull: the queue is full; for QoS 0, the socket's buffer is.
            OutOfSequence: ``sequence`` is not greater than ``last_sequence``; nothing was sent.
            NotConnected: the client is closed; or QoS is 0, and the client is not connected.
            LocalProtocolError: ``topic`` is not a topic name, or an argument cannot be encoded in
                MQTT.
            ClientError: there is a ``sequence``, and no outbox, or QoS is 0.
        """
        if qos == 0 and sequence is not None:
            raise ClientError(
                "a QoS 0 message is not stored in the outbox, and cannot have a sequence"
            )
        engine, encoded = self._check_publish(topic, qos, properties)
        line = engine.line if qos > 0 else engine.socket_line
        if not line.is_free:
            if qos == 0 and engine.link is None:
                raise NotConnected("there is no connection")
            raise QueueFull("the queue or the socket's buffer is full")
        if qos == 0:
            engine.publish_qos0(topic, encode_payload(payload), retain, encoded)
            return None
        number = 0 if sequence is None else self._check_sequence(engine, sequence)
        return engine.publish(topic, encode_payload(payload), qos, retain, encoded, number)

    def _check_sequence(self, engine: ClientEngine, sequence: int) -> int:
        """Return the ``sequence`` of the next message, after a check against the last one."""
        if self.options.outbox is None:
            raise ClientError("a sequence needs an outbox, which stores it")
        last = engine.last_sequence
        if not last < sequence <= _SEQUENCE_MAX:
            raise OutOfSequence(f"message {sequence} is out of sequence: the last one is {last}")
        return sequence

    async def drain(self) -> None:
        """Wait until the server has acknowledged all QoS 1 and 2 messages, and those of the outbox.

        The call waits across lost connections, and also for messages published meanwhile.

        Raises:
            NotConnected: the client is closed, now or while it waits.
            StoreUnavailable: the outbox failed for good.
        """
        while self._open_engine().pending > 0:
            await self._open_engine().drain()

    async def _wait_for_room(self, engine: ClientEngine) -> None:
        if self.options.overflow == "raise":
            why = engine.server.context.store_failure
            raise QueueFull(
                why
                or f"{engine.pending} messages wait for their acknowledgement: queue_messages_max"
                " or queue_bytes_max is reached"
            )
        await engine.wait_in(engine.line)
        self._open_engine()

    async def _wait_for_socket(self, engine: ClientEngine) -> None:
        """Wait until a QoS 0 message may be sent; raise unless ``overflow`` is "wait"."""
        overflow = self.options.overflow
        if overflow == "raise":
            if engine.link is None:
                raise NotConnected("there is no connection")
            raise QueueFull("the socket's buffer is full")
        if overflow != "wait":
            raise PublishFailed(
                "dropped: the client is not connected, or the socket's buffer is full"
            )
        await engine.wait_in(engine.socket_line)
        self._open_engine()

    def _check_publish(
        self, topic: str, qos: int, properties: Properties | None
    ) -> tuple[ClientEngine, bytes]:
        engine = self._engine
        if engine is None or engine.is_closed or engine.failure is not None:
            engine = self._open_engine()
        if topic != engine.topic:
            check_topic(topic)
            engine.topic = topic
        if properties is None and qos.__class__ is int and qos in _QOS:
            return engine, b""
        if qos not in _QOS or qos.__class__ is not int:
            raise LocalProtocolError(reasons.QOS_NOT_SUPPORTED, f"QoS is 0, 1 or 2, not {qos}")
        if self.options.level != V5:
            raise LocalProtocolError(reasons.UNSUPPORTED_PROTOCOL_VERSION, "properties need MQTT 5")
        assert properties is not None
        return engine, encode_publish_properties(properties)

    # -- subscribing -------------------------------------------------------------------------

    async def subscribe(
        self,
        *topic_filters: str | Subscription,
        qos: int = 1,
        properties: Properties | None = None,
    ) -> list[int]:
        """Subscribe, and return when the server has answered.

        The client subscribes again if the server loses its session.

        Args:
            topic_filters: one or more topic filters, as text, or as ``Subscription`` for the
                options of MQTT 5.
            qos: the maximum QoS of messages, 0 to 2, for filters given as text.
            properties: properties of MQTT 5: a subscription identifier, user properties.

        Returns:
            The granted QoS of each filter.

        Raises:
            SubscribeFailed: the server refused one or more filters; it granted the others.
            NotConnected: the client is closed.
            LocalProtocolError: there is no topic filter, one is not valid, or an argument cannot be
                encoded in MQTT.
        """
        engine = self._open_engine()
        for one in topic_filters:
            if not isinstance(one, str | Subscription):
                raise TypeError(
                    "subscribe takes topic filters, as text or Subscription, one after the other:"
                    f" not {one!r}"
                )
        subscriptions = [
            one if isinstance(one, Subscription) else Subscription(one, qos)
            for one in topic_filters
        ]
        check_filters([one.topic_filter for one in subscriptions])
        return await self._send_subscriptions(engine, subscriptions, [], properties)

    async def unsubscribe(
        self, *topic_filters: str, properties: Properties | None = None
    ) -> list[int]:
        """Unsubscribe, and return when the server has answered.

        Args:
            topic_filters: one or more topic filters.
            properties: properties of MQTT 5: user properties.

        Returns:
            The server's reason codes, one for each filter, which are 0, or 0x11 if there was no
            subscription.

        Raises:
            SubscribeFailed: the server refused one or more filters.
            NotConnected: the client is closed.
            LocalProtocolError: there is no topic filter, one is not valid, or an argument cannot be
                encoded in MQTT.
        """
        engine = self._open_engine()
        check_filters(list(topic_filters))
        return await self._send_subscriptions(engine, [], list(topic_filters), properties)

    async def _send_subscriptions(
        self,
        engine: ClientEngine,
        subscriptions: list[Subscription],
        unsubscribe_filters: list[str],
        properties: Properties | None,
    ) -> list[int]:
        request = (
            Unsubscribe(1, unsubscribe_filters, properties)
            if unsubscribe_filters
            else Subscribe(1, subscriptions, properties)
        )
        encode(request, self.options.level)  # so that an error is raised to the caller
        codes = await engine.send_request(subscriptions, unsubscribe_filters, properties)
        names = unsubscribe_filters or [one.topic_filter for one in subscriptions]
        refused = [
            (name, code)
            for name, code in zip(names, codes, strict=False)
            if code >= reasons.UNSPECIFIED_ERROR
        ]
        if refused:
            shown = ", ".join(f"{name!r}: {reasons.name_of(code)}" for name, code in refused)
            raise SubscribeFailed(f"the server refused {shown}", refused[0][1])
        return codes

    def messages(self) -> Messages:
        """Return an asynchronous iterator over received messages; see ``Messages``.

        Raises:
            NotConnected: the client is not open.
        """
        return Messages(self._open_engine().inbox)

    # -- requests ------------------------------------------------------------------------------

    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        timeout_s: float = 10.0,
        properties: Properties | None = None,
    ) -> Message:
        """Publish a request, and return its response (MQTT 5 §4.10).

        Args:
            topic: the topic to which the responder subscribes; it publishes its response to the
                response topic of the request's properties, with the same correlation data.
            payload: the payload of the request.
            qos: the QoS of the request, 0 to 2.
            timeout_s: time limit for the response, seconds.
            properties: further properties of the request.

        Raises:
            RequestFailed: there was no response within ``timeout_s``, nobody subscribes to
                ``topic``, or the client does not use MQTT 5.
            PublishFailed: the server refused the request.
            NotConnected: the client is closed, or was closed during the wait.
        """
        responses = self._response_topic("requests")
        return await request(self.publish, responses, topic, payload, qos, timeout_s, properties)

    # -- internal ------------------------------------------------------------------------------

    def _response_topic(self, purpose: str) -> Responses:
        """Return the responses of this client, created at the first call."""
        engine = self._open_engine()
        if self.options.level != V5:
            raise RequestFailed(f"{purpose} need MQTT 5")
        if self._responses is None:
            self._responses = Responses(partial(self.subscribe, qos=2), engine)
        return self._responses

    def _open_engine(self) -> ClientEngine:
        engine = self._engine
        if engine is None or engine.is_closed:
            raise NotConnected("the client is not open: use it in 'async with'")
        if engine.failure is not None:
            raise StoreUnavailable(*engine.failure.args)
        return engine
