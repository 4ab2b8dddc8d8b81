"""A paho-mqtt client in its own thread, with what it received in a queue a test can wait on."""

import queue
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple, final
from urllib.parse import urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tests.support.broker import Address, Broker, address_of
from tests.support.deadline import DEADLINE_S

Transport = Literal["tcp", "websockets", "unix"]

VERSIONS: Final = (
    MQTTProtocolVersion.MQTTv31,
    MQTTProtocolVersion.MQTTv311,
    MQTTProtocolVersion.MQTTv5,
)


class Received(NamedTuple):
    """One message as paho handed it over."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


def properties_of(packet_type: int, **values: object) -> Properties:
    """MQTT 5 properties as paho has them, by its names."""
    properties = Properties(packet_type)  # type: ignore[no-untyped-call]  # paho has no type there
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


@final
class PahoClient:
    """A connected client; see ``joined``."""

    def __init__(
        self,
        client_id: str,
        version: MQTTProtocolVersion,
        stays: bool,
        will: str,
        transport: Transport = "tcp",
    ) -> None:
        clean = None if version == MQTTProtocolVersion.MQTTv5 else not stays
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=clean,
            protocol=version,
            transport=transport,
        )
        if will:
            self.client.will_set(will, b"gone", 1)
        self._version = version
        self._stays = stays
        self._connected: queue.Queue[tuple[ReasonCode, bool]] = queue.Queue()
        self._subscribed: queue.Queue[list[ReasonCode]] = queue.Queue()
        self._messages: queue.Queue[Received] = queue.Queue()
        self._lost: queue.Queue[ReasonCode] = queue.Queue()
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.client.on_disconnect = self._on_disconnect

    def connect(self, address: Address, keep_alive_s: int, from_address: str = "") -> bool:
        """Connect, from an address of this machine; whether a session was there."""
        if self._version == MQTTProtocolVersion.MQTTv5:
            expiry_s = 3600 if self._stays else 0
            properties = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=expiry_s)
            self.client.connect(
                *address,
                keep_alive_s,
                from_address,
                clean_start=not self._stays,
                properties=properties,
            )
        else:
            self.client.connect(*address, keep_alive_s, from_address)
        self.client.loop_start()
        code, present = self._connected.get(timeout=DEADLINE_S)
        assert not code.is_failure, code
        return present

    def wait_until_back(self) -> None:
        """paho reconnects by itself, again where it is refused: wait until it has, to the session
        it had."""
        code, present = self._connected.get(timeout=DEADLINE_S)
        while code.is_failure:
            code, present = self._connected.get(timeout=DEADLINE_S)
        assert present is (self._version != MQTTProtocolVersion.MQTTv31)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Subscribe and wait for SUBACK, which must grant the QoS."""
        self.client.subscribe(topic_filter, qos)
        codes = self._subscribed.get(timeout=DEADLINE_S)
        assert [code.value for code in codes] == [qos]

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        """Publish and wait for the end of its flow."""
        handed_over = self.client.publish(topic, payload, qos, retain)
        handed_over.wait_for_publish(DEADLINE_S)
        assert handed_over.is_published()

    def take(self, count: int) -> list[Received]:
        """The next ``count`` messages."""
        return [self._messages.get(timeout=DEADLINE_S) for _ in range(count)]

    def has_nothing(self) -> bool:
        """Whether no message was handed over that was not taken."""
        return self._messages.empty()

    def lose(self) -> None:
        """Lose the connection without DISCONNECT."""
        self.client.loop_stop()
        connection = self.client.socket()
        assert connection is not None
        connection.close()

    def leave(self) -> None:
        """Disconnect in order and end the thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def was_lost(self) -> bool:
        """Whether the connection ended at some time."""
        return not self._lost.empty()

    def _on_connect(
        self,
        client: paho.Client,
        userdata: Any,
        flags: paho.ConnectFlags,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        del client, userdata, properties
        self._connected.put((code, flags.session_present))

    def _on_subscribe(
        self,
        client: paho.Client,
        userdata: Any,
        mid: int,
        codes: list[ReasonCode],
        properties: Properties | None,
    ) -> None:
        del client, userdata, mid, properties
        self._subscribed.put(codes)

    def _on_message(self, client: paho.Client, userdata: Any, message: paho.MQTTMessage) -> None:
        del client, userdata
        self._messages.put(
            Received(message.topic, bytes(message.payload), message.qos, bool(message.retain))
        )

    def _on_disconnect(
        self,
        client: paho.Client,
        userdata: Any,
        flags: paho.DisconnectFlags,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        del client, userdata, flags, properties
        self._lost.put(code)


@contextmanager
def joined(
    broker: Broker,
    client_id: str,
    version: MQTTProtocolVersion,
    stays: bool = False,
    present: bool = False,
    will: str = "",
    keep_alive_s: int = 60,
) -> Iterator[PahoClient]:
    """A connected client.

    ``stays``: with a session that outlives the connection; ``present``: whether the broker must
    know it already (MQTT 3.1 has no word for it); ``will``: topic of its will.
    """
    client = PahoClient(client_id, version, stays, will)
    try:
        known = client.connect(broker.address, keep_alive_s)
        assert known is (present and version != MQTTProtocolVersion.MQTTv31)
        yield client
    finally:
        client.leave()


@contextmanager
def joined_at(
    url: str, context: ssl.SSLContext, client_id: str, version: MQTTProtocolVersion
) -> Iterator[PahoClient]:
    """A client connected over the transport that the URL of a listener names."""
    parts = urlsplit(url)
    transport: Transport = "tcp"
    address: Address = (parts.path, 1)  # of a Unix socket; paho insists on a port
    if parts.scheme == "unix":
        transport = "unix"
    else:
        address = ("localhost", address_of(f"//{parts.netloc}")[1])
    if parts.scheme.startswith("ws"):
        transport = "websockets"
    client = PahoClient(client_id, version, False, "", transport)
    if transport == "websockets":
        client.client.ws_set_options(parts.path)
    if parts.scheme in ("mqtts", "wss"):
        client.client.tls_set_context(context)
    try:
        assert not client.connect(address, 60)
        yield client
    finally:
        client.leave()
