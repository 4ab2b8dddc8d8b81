"""The control packets as values: the fields of a packet, independent of its encoding.

One class for each packet type, the same for all versions of the protocol. A field that a version
does not have (properties and most reason codes before MQTT 5) has its default value when decoded.
Reason codes are always those of MQTT 5. `properties` is None if there are none. The classes are
plain mutable values: two are equal if their types and all their fields are equal; `encode` checks
the fields, not the classes.
"""

from typing import ClassVar, final

from mypy_extensions import mypyc_attr

from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)
from penstock.protocol.properties import Properties


@mypyc_attr(acyclic=True)
class Value:
    """The base of values whose equality and ``repr`` are those of their fields."""

    def _fields(self) -> tuple[object, ...]:
        """Return the fields in the order of the constructor's parameters."""
        return ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value):
            return False
        same_class = self.__class__ is other.__class__
        return same_class and self._fields() == other._fields()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        raise TypeError(f"{self.__class__.__name__} is mutable and has no hash")

    def __repr__(self) -> str:
        shown = ", ".join([repr(field) for field in self._fields()])
        return f"{self.__class__.__name__}({shown})"


@mypyc_attr(acyclic=True)
@final
class Will(Value):
    """The message that the server publishes if the connection ends without a DISCONNECT.

    ``qos`` is 0 to 2; ``payload`` has at most 65,535 bytes.
    """

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.topic, self.payload, self.qos, self.retain, self.properties)


@mypyc_attr(acyclic=True)
@final
class Subscription(Value):
    """One topic filter of a SUBSCRIBE with its options.

    ``qos`` is 0 to 2, ``retain_handling`` 0 to 2; options other than ``qos`` exist in MQTT 5 only
    (v5 §3.8.3.1).
    """

    def __init__(
        self,
        topic_filter: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic_filter,
            self.qos,
            self.no_local,
            self.retain_as_published,
            self.retain_handling,
        )


@mypyc_attr(acyclic=True)
class Packet(Value):
    """The base of all control packets; `type` is the number of the packet type (1 to 15)."""

    type: ClassVar[int] = 0


@mypyc_attr(acyclic=True)
@final
class Connect(Packet):
    """Client to server: open a session.

    ``version`` is the protocol level, 3 to 5. ``clean_start`` is called clean session below MQTT 5.
    ``keep_alive_s`` is 0 (off) to 65,535 seconds. ``is_bridge`` is True for the dialect of bridges
    (``kinds.BRIDGE_BIT``), below MQTT 5 only.
    """

    type: ClassVar[int] = CONNECT

    def __init__(
        self,
        client_id: str,
        version: int = 5,
        clean_start: bool = True,
        keep_alive_s: int = 60,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        properties: Properties | None = None,
        is_bridge: bool = False,
    ) -> None:
        self.client_id = client_id
        self.is_bridge = is_bridge
        self.version = version
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.will = will
        self.username = username
        self.password = password
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (
            self.client_id,
            self.version,
            self.clean_start,
            self.keep_alive_s,
            self.will,
            self.username,
            self.password,
            self.properties,
            self.is_bridge,
        )

    def __repr__(self) -> str:
        password = None if self.password is None else "..."
        return (
            f"Connect({self.client_id!r}, {self.version}, {self.clean_start}, {self.keep_alive_s}, "
            f"{self.will!r}, {self.username!r}, {password}, {self.properties!r}, {self.is_bridge})"
        )


@mypyc_attr(acyclic=True)
@final
class Connack(Packet):
    """Server to client: the answer to CONNECT. ``reason_code`` is one of MQTT 5 in every
    version."""

    type: ClassVar[int] = CONNACK

    def __init__(
        self,
        reason_code: int = 0,
        session_present: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self.reason_code = reason_code
        self.session_present = session_present
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.reason_code, self.session_present, self.properties)


@mypyc_attr(acyclic=True)
@final
class Publish(Packet):
    """An application message. ``packet_id`` is 0 if ``qos`` is 0, and 1 to 65,535 otherwise.

    ``topic`` may be empty in MQTT 5 only, if ``properties.topic_alias`` replaces it.
    """

    type: ClassVar[int] = PUBLISH

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties

    def take_alias(self) -> Properties | None:
        """Remove the topic alias, which is resolved, from the properties; return the properties,
        None if there are no others."""
        properties = self.properties
        if properties is not None:
            if properties.is_shared:  # a decoder's: the alias is its only property
                self.properties = None
            else:
                properties.topic_alias = None
        return self.properties

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.dup,
            self.packet_id,
            self.properties,
        )


@mypyc_attr(acyclic=True)
class Ack(Packet):
    """The base of PUBACK, PUBREC, PUBREL and PUBCOMP: identifier, reason code, properties."""

    def __init__(
        self, packet_id: int, reason_code: int = 0, properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reason_code, self.properties)


@mypyc_attr(acyclic=True)
@final
class Puback(Ack):
    """The receiver accepts a QoS 1 message, or refuses it (``reason_code`` >= 0x80)."""

    type: ClassVar[int] = PUBACK


@mypyc_attr(acyclic=True)
@final
class Pubrec(Ack):
    """The receiver accepts a QoS 2 message, or refuses it (``reason_code`` >= 0x80)."""

    type: ClassVar[int] = PUBREC


@mypyc_attr(acyclic=True)
@final
class Pubrel(Ack):
    """The sender releases a QoS 2 message. ``dup`` exists in MQTT 3.1 only (v3.1 §2.1, §4.1)."""

    type: ClassVar[int] = PUBREL

    def __init__(
        self,
        packet_id: int,
        reason_code: int = 0,
        properties: Properties | None = None,
        dup: bool = False,
    ) -> None:
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.properties = properties
        self.dup = dup

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reason_code, self.properties, self.dup)


@mypyc_attr(acyclic=True)
@final
class Pubcomp(Ack):
    """The receiver has completed a QoS 2 message; its packet identifier may be used again."""

    type: ClassVar[int] = PUBCOMP


@mypyc_attr(acyclic=True)
@final
class Subscribe(Packet):
    """Client to server: add one or more subscriptions."""

    type: ClassVar[int] = SUBSCRIBE

    def __init__(
        self,
        packet_id: int,
        subscriptions: list[Subscription],
        properties: Properties | None = None,
    ) -> None:
        self.packet_id = packet_id
        self.subscriptions = subscriptions
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.subscriptions, self.properties)


@mypyc_attr(acyclic=True)
@final
class Suback(Packet):
    """Server to client: a reason code for each topic filter of the SUBSCRIBE, in its order."""

    type: ClassVar[int] = SUBACK

    def __init__(
        self, packet_id: int, reason_codes: list[int], properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reason_codes, self.properties)


@mypyc_attr(acyclic=True)
@final
class Unsubscribe(Packet):
    """Client to server: remove one or more subscriptions."""

    type: ClassVar[int] = UNSUBSCRIBE

    def __init__(
        self, packet_id: int, topic_filters: list[str], properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.topic_filters = topic_filters
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.topic_filters, self.properties)


@mypyc_attr(acyclic=True)
@final
class Unsuback(Packet):
    """Server to client: the answer to UNSUBSCRIBE. ``reason_codes`` is empty below MQTT 5."""

    type: ClassVar[int] = UNSUBACK

    def __init__(
        self,
        packet_id: int,
        reason_codes: list[int],
        properties: Properties | None = None,
    ) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reason_codes, self.properties)


@mypyc_attr(acyclic=True)
@final
class Pingreq(Packet):
    """Client to server: keeps the connection alive, and asks for a PINGRESP."""

    type: ClassVar[int] = PINGREQ


@mypyc_attr(acyclic=True)
@final
class Pingresp(Packet):
    """Server to client: the answer to PINGREQ."""

    type: ClassVar[int] = PINGRESP


@mypyc_attr(acyclic=True)
@final
class Disconnect(Packet):
    """The last packet on a connection; below MQTT 5 only a client sends it."""

    type: ClassVar[int] = DISCONNECT

    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.reason_code, self.properties)


@mypyc_attr(acyclic=True)
@final
class Auth(Packet):
    """A step of enhanced authentication; MQTT 5 only."""

    type: ClassVar[int] = AUTH

    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties = properties

    def _fields(self) -> tuple[object, ...]:
        return (self.reason_code, self.properties)
