"""The client: MQTT for asyncio programs that must lose nothing.

::

      async with penstock.Client("mqtt://localhost", client_id="meter-7") as client:
          await client.subscribe("commands/#", qos=1)
          await client.publish("heat/7", b"21.5", qos=1)
          async for message in client.messages():
              async with message.processing():
                  await store(message)

It connects and reconnects by itself. Unacknowledged messages are then sent again, with their
packet identifiers and in their order, and subscriptions stay in force. The protocol is that
of the broker's engine, with the client at the other end.
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
    bytes_of,
    check_connect,
    check_filters,
    check_topic,
    context_of,
    encode_publish_properties,
    urls_of,
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
    StoreFailed,
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
            tried in this order, and at most one accepts us. All must lead to one session.
        settings: everything else, see ``Options``.

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
            raise ConfigError(f"{unknown[0]} is no setting of a client{hint}")
        self.options = Options(**settings)
        self._urls = urls_of(url)
        self._context = context_of(self._urls, self.options.tls)
        check_connect(self.options)
        self._life: Lifecycle | None = None
        self._engine: ClientEngine | None = None  # the engine of that
        self._responses: Responses | None = None
        self._is_opened = False
        self._is_closed = False

    # -- from beginning to end -------------------------------------------------------------

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
            ConfigError: the outbox is of another client.
            StoreError: the outbox cannot be used.
            NotConnected: the client was closed meanwhile.
        """
        if self._is_opened or self._is_closed:
            raise ClientError("a client is opened once")
        self._is_opened = True
        life = await Lifecycle.begin(self.options, self._urls, self._context)
        self._life = life
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
        """Disconnect; later calls do nothing.

        Args:
            drain: first wait up to ``drain_s`` for missing acknowledgements; with an outbox
                only while there is a connection.

        Raises:
            PublishFailed: there is no outbox, and after ``drain_s`` messages were not acknowledged:
                they are lost.
        """
        self._is_closed = True
        if self._life is not None:
            await self._life.end(drain)

    # -- state --------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """The client identifier: that of ``options``, or the one that was chosen."""
        return self.options.client_id if self._engine is None else self._engine.client_id

    @property
    def status(self) -> Status:
        """The state of the connection to the server."""
        if self._engine is None:
            return Status("closed", str(self._urls[0]), 0, 0.0, "", 0)
        return self._engine.status

    @property
    def is_connected(self) -> bool:
        """True while there is a connection."""
        return self._engine is not None and self._engine.dialler.is_connected

    @property
    def pending(self) -> int:
        """The number of QoS 1 and 2 messages without acknowledgement, those of the outbox
        included."""
        return 0 if self._engine is None else self._engine.pending

    @property
    def last_sequence(self) -> int:
        """The ``sequence`` of the latest message that was sent with one; 0 if none was.

        After opening it is the number of the last message on disk: the program continues
        with the next.

        Raises:
            NotConnected: the client is not open.
        """
        return self._opened().last_sequence

    @property
    def connack(self) -> Connack | None:
        """The server's latest CONNACK: what it accepts, and whether it had our session."""
        return None if self._engine is None else self._engine.connack

    def connect_now(self) -> None:
        """Try to connect at once instead of waiting for the next attempt: the network is back."""
        self._opened().dialler.dial_now()

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
        """Publish, and wait for what the QoS promises.

        QoS 0 returns when the message is written to the socket, QoS 1 with PUBACK, QoS 2 with
        PUBCOMP, across lost connections, however long it takes. When the server has no room
        for it (0x97), it is published again for ``quota_retry_s``, behind newer messages.
        Cancelling the call does not take back a message that had found room.

        Args:
            topic: topic name.
            payload: bytes, or text that is sent as UTF-8.
            qos: 0 to 2.
            retain: the server keeps it for later subscribers.
            properties: of MQTT 5, such as ``Properties(content_type="application/json")``.
            receipt: may be awaited afterwards, until a Penstock broker has the message in a table.

        Returns:
            The server's reason code, below 0x80: 0, or 0x10 if nobody subscribes.

        Raises:
            PublishFailed: the server refused it, or the client gave it up, as the error says.
            QueueFull: there is no room, and ``overflow`` is "raise".
            NotConnected: the client is closed; or QoS 0, no connection, and ``overflow`` is
                "raise".
            LocalProtocolError: no topic name, or something MQTT cannot carry.
            SubscribeFailed: a receipt is asked for, and the client may not subscribe to its
                response topic.
        """
        if receipt is not None:
            properties = await receipt.ask(self._response_topic("receipts"), properties)
        engine, encoded = self._check(topic, qos, properties)
        if payload.__class__ is not bytes:
            payload = bytes_of(payload)
        if engine.exceeds_turn_share:
            await asyncio.sleep(0)
            self._opened()
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
        """Publish a message that the server had no room for, repeatedly, for ``quota_retry_s``."""
        pauses = Backoff(_QUOTA_PAUSE_S, _QUOTA_PAUSE_S_MAX, SystemRandom())
        until_s = time.monotonic() + self.options.quota_retry_s
        data = payload if isinstance(payload, bytes) else bytes_of(payload)
        while True:
            left_s = until_s - time.monotonic()
            pause_s = pauses.after_failure()
            is_last = pause_s >= left_s
            await asyncio.sleep(max(0.0, min(pause_s, left_s)))
            engine = self._opened()
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
        """Publish, and return when the message is accepted, before it is delivered.

        With an outbox it is on disk then. ``await`` what is returned for the delivery, or
        leave that to ``close``. With a ``sequence`` a program that is killed at any moment knows
        from ``last_sequence`` which message was the last that was accepted.

        Args:
            topic: as for ``publish``.
            payload: as for ``publish``.
            qos: 1 or 2.
            retain: as for ``publish``.
            properties: as for ``publish``.
            sequence: the program's own number of this message, 1 to 2^63 - 1 and greater than that
                of the message before; the outbox stores both in one step. There may be gaps.

        Raises:
            QueueFull: there is no room, and ``overflow`` is "raise".
            OutOfSequence: ``sequence`` is not greater than ``last_sequence``; nothing was sent.
            NotConnected: the client is closed.
            StoreFailed: the outbox failed for good.
            ClientError: there is a ``sequence``, and no outbox.
            LocalProtocolError: no topic name, or something MQTT cannot carry.
        """
        if self._engine is not None and properties is None and sequence is None:
            at_once = self._engine.publish_at_once(topic, payload, qos, retain)
            if at_once is not None:
                return at_once
        if qos == 0:
            raise LocalProtocolError(reasons.QOS_NOT_SUPPORTED, "QoS 0 is published, not sent")
        engine, encoded = self._check(topic, qos, properties)
        body = bytes_of(payload)
        if engine.exceeds_turn_share:
            await asyncio.sleep(0)
            self._opened()
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
        """Publish if there is room now; return None for QoS 0. With an outbox it is not on disk
        yet.

        Raises:
            QueueFull: there is no room; for QoS 0, none in the socket's buffer.
            OutOfSequence: as for ``send``.
            NotConnected: the client is closed; or QoS 0, and there is no connection.
            LocalProtocolError: no topic name, or something MQTT cannot carry.
            ClientError: there is a ``sequence``, and no outbox, or QoS 0.
        """
        if qos == 0 and sequence is not None:
            raise ClientError("QoS 0 does not go through the outbox, and has no sequence")
        engine, encoded = self._check(topic, qos, properties)
        line = engine.line if qos > 0 else engine.socket_line
        if not line.is_free:
            if qos == 0 and engine.link is None:
                raise NotConnected("there is no connection")
            raise QueueFull("there is no room for one more message")
        if qos == 0:
            engine.publish_qos0(topic, bytes_of(payload), retain, encoded)
            return None
        number = 0 if sequence is None else self._check_sequence(engine, sequence)
        return engine.publish(topic, bytes_of(payload), qos, retain, encoded, number)

    def _check_sequence(self, engine: ClientEngine, sequence: int) -> int:
        """Check the ``sequence`` of the next message, and return it."""
        if self.options.outbox is None:
            raise ClientError("a sequence needs an outbox, which remembers it")
        last = engine.last_sequence
        if not last < sequence <= _SEQUENCE_MAX:
            raise OutOfSequence(f"message {sequence} is out of sequence: the last one is {last}")
        return sequence

    async def drain(self) -> None:
        """Wait until the server has all QoS 1 and 2 messages, those of the outbox too.

        It waits across lost connections, and also for messages published meanwhile.

        Raises:
            NotConnected: the client is closed, now or while it waits.
            StoreFailed: the outbox failed for good.
        """
        while self._opened().pending > 0:
            await self._opened().drain()

    async def _wait_for_room(self, engine: ClientEngine) -> None:
        if self.options.overflow == "raise":
            why = engine.server.context.store.failure
            raise QueueFull(
                why
                or f"{engine.pending} messages wait for their acknowledgement: queue_messages_max"
                " or queue_bytes_max is reached"
            )
        await engine.wait_in(engine.line)
        self._opened()

    async def _wait_for_socket(self, engine: ClientEngine) -> None:
        """Wait until a QoS 0 message may be sent."""
        overflow = self.options.overflow
        if overflow == "raise":
            if engine.link is None:
                raise NotConnected("there is no connection")
            raise QueueFull("the socket's buffer is full")
        if overflow != "wait":
            raise PublishFailed("given up: QoS 0 needs a connection with room in its socket")
        await engine.wait_in(engine.socket_line)
        self._opened()

    def _check(
        self, topic: str, qos: int, properties: Properties | None
    ) -> tuple[ClientEngine, bytes]:
        engine = self._engine
        if engine is None or engine.is_closed or engine.failure is not None:
            engine = self._opened()
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
        """Subscribe, and stay subscribed; return when the server has answered.

        Args:
            topic_filters: one or more; a ``Subscription`` where MQTT 5 has more options.
            qos: the highest that messages come with, 0 to 2, for those given as text.
            properties: of MQTT 5: a subscription identifier, user properties.

        Returns:
            The granted QoS of each.

        Raises:
            SubscribeFailed: the server refused one or more; the others are in force.
            NotConnected: the client is closed.
            LocalProtocolError: no topic filter, or something MQTT cannot carry.
        """
        engine = self._opened()
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
        return await self._ask(engine, subscriptions, [], properties)

    async def unsubscribe(
        self, *topic_filters: str, properties: Properties | None = None
    ) -> list[int]:
        """End subscriptions; return when the server has answered.

        Returns:
            The server's reason codes: 0, or 0x11 where there was none.

        Raises:
            SubscribeFailed: the server refused.
            NotConnected: the client is closed.
            LocalProtocolError: no topic filter, or something MQTT cannot carry.
        """
        engine = self._opened()
        check_filters(list(topic_filters))
        return await self._ask(engine, [], list(topic_filters), properties)

    async def _ask(
        self,
        engine: ClientEngine,
        subscriptions: list[Subscription],
        ended: list[str],
        properties: Properties | None,
    ) -> list[int]:
        request = (
            Unsubscribe(1, ended, properties) if ended else Subscribe(1, subscriptions, properties)
        )
        encode(request, self.options.level)  # encoded here, so that the caller gets the error
        codes = await engine.ask(subscriptions, ended, properties)
        names = ended or [one.topic_filter for one in subscriptions]
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
        """Return an iterator over received messages: see ``Messages``."""
        return Messages(self._opened().inbox)

    # -- requests ------------------------------------------------------------------------------

    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        timeout_s: float = 10.0,
        properties: Properties | None = None,
    ) -> Message:
        """Publish a request, and wait for its response (MQTT 5 §4.10).

        Args:
            topic: the responder subscribes to it, and publishes to the response topic in the
                properties, with their correlation data.
            payload: the request.
            qos: the QoS of the request, and the highest of the response.
            timeout_s: how long to wait for the response, seconds.
            properties: further properties of the request.

        Raises:
            RequestFailed: no response in time, nobody subscribes, or not MQTT 5.
            PublishFailed: the server refused the request.
            NotConnected: the client is closed, now or while it waits.
        """
        responses = self._response_topic("requests")
        return await request(self.publish, responses, topic, payload, qos, timeout_s, properties)

    # -- inside --------------------------------------------------------------------------------

    def _response_topic(self, asker: str) -> Responses:
        """Return the responses of this client, made when they are first asked for."""
        engine = self._opened()
        if self.options.level != V5:
            raise RequestFailed(f"{asker} need MQTT 5")
        if self._responses is None:
            self._responses = Responses(partial(self.subscribe, qos=2), engine)
        return self._responses

    def _opened(self) -> ClientEngine:
        engine = self._engine
        if engine is None or engine.is_closed:
            raise NotConnected("the client is not open: use it in 'async with'")
        if engine.failure is not None:
            raise StoreFailed(*engine.failure.args)
        return engine
