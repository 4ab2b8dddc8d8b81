"""Logs each packet of a client's connection, at level debug: the ``-d`` of `penstock pub`.

::

      engine ─ write ─▶ TracedWire ─▶ wire         each side has a decoder of its own,
      engine ◀──────── TracedPeer ◀─ wire          fed with the same bytes

Only connections that begin while level debug is on are traced; others have no part in this, nor do
bridges, whose broker may have that level for another reason. A payload, a password and
authentication data are not logged, only that they are there.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.kinds import packet_name
from penstock.protocol.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from penstock.telemetry.logs import get_logger
from penstock.transport.wire import Endpoint, Wire

logger = get_logger(__name__)

_SECRET: Final = ("authentication_data",)


def packet_line(packet: Packet) -> str:
    """Return the packet's name and its fields in one line: ``PUBLISH (d0, q1, r0, m1, 'a/b', 4
    bytes)``.

    d, q, r and m are DUP, QoS, RETAIN and the packet identifier, as mosquitto_pub prints them.
    """
    fields, properties = _fields(packet)
    if properties is not None:
        fields += [
            f"{name}={'…' if name in _SECRET else repr(value)}"
            for name, value in properties.present()
        ]
    name = packet_name(packet.type)
    return f"{name} ({', '.join(fields)})" if fields else name


def _fields(packet: Packet) -> tuple[list[str], Properties | None]:
    match packet:
        case Connect():
            return _connect_fields(packet), packet.properties
        case Connack():
            present = ["session present"] if packet.session_present else []
            return [reasons.name_of(packet.reason_code), *present], packet.properties
        case Publish():
            flags = [f"d{packet.dup:d}", f"q{packet.qos}", f"r{packet.retain:d}"]
            size = f"{len(packet.payload):,} bytes"
            return [*flags, f"m{packet.packet_id}", repr(packet.topic), size], packet.properties
        case Ack():
            reason = [reasons.name_of(packet.reason_code)] if packet.reason_code else []
            return [f"m{packet.packet_id}", *reason], packet.properties
        case Subscribe():
            filters = [f"{one.topic_filter!r} q{one.qos}" for one in packet.subscriptions]
            return [f"m{packet.packet_id}", *filters], packet.properties
        case Unsubscribe():
            names = [repr(one) for one in packet.topic_filters]
            return [f"m{packet.packet_id}", *names], packet.properties
        case Suback():
            codes = [f"q{one}" if one <= 2 else reasons.name_of(one) for one in packet.reason_codes]
            return [f"m{packet.packet_id}", *codes], packet.properties
        case Unsuback():
            codes = [reasons.name_of(one) for one in packet.reason_codes]
            return [f"m{packet.packet_id}", *codes], packet.properties
        case Disconnect() | Auth():
            return [reasons.name_of(packet.reason_code)], packet.properties
        case _:
            return [], None


def _connect_fields(packet: Connect) -> list[str]:
    fields = [f"version {packet.version}", repr(packet.client_id)]
    fields += ["clean"] if packet.clean_start else []
    fields += [f"keep alive {packet.keep_alive_s} s"]
    fields += [f"user name {packet.username!r}"] if packet.username is not None else []
    fields += ["a password"] if packet.password is not None else []
    fields += [f"a will for {packet.will.topic!r}"] if packet.will is not None else []
    return fields


class _Side:
    """Logs the packets of one direction."""

    def __init__(self, owner: str, verb: str, version: int, to_server: bool) -> None:
        self._owner = owner
        self._verb = verb
        self._decoder: Decoder | None = Decoder(
            PACKET_SIZE_BYTES_MAX, 0 if to_server else version, to_server
        )

    def log(self, data: bytes) -> None:
        """Log the packets that are whole with these bytes, until one is malformed."""
        if self._decoder is None:
            return
        try:
            self._decoder.feed(data)
            while (packet := self._decoder.next_packet()) is not None:
                logger.debug("%s %s %s", self._owner, self._verb, packet_line(packet))
        except RemoteProtocolError as error:
            logger.debug("%s %s what is no packet: %s", self._owner, self._verb, error.message)
            self._decoder = None


class TracedWire:
    """A wire whose written packets are logged.

    Args:
        wire: the wire beneath, to which everything is passed on.
        owner: the name of the session's owner in logs.
        version: the protocol level, 3 to 5.
    """

    def __init__(self, wire: Wire, owner: str, version: int) -> None:
        self.peer = wire.peer
        self.listener = wire.listener
        self.certificate = wire.certificate
        self.unwritten_bytes = wire.unwritten_bytes
        self.buffered_bytes = wire.buffered_bytes
        self.close = wire.close
        self.pause_reading = wire.pause_reading
        self.resume_reading = wire.resume_reading
        self.peer_state = wire.peer_state
        self._write = wire.write
        self._sent = _Side(owner, "sends", version, True)

    def write(self, data: bytes) -> None:
        """Log the packets in ``data``, and send it."""
        self._sent.log(data)
        self._write(data)


class TracedPeer:
    """An endpoint whose received packets are logged; arguments as of ``TracedWire``."""

    def __init__(self, endpoint: Endpoint, owner: str, version: int) -> None:
        self.pause_writing = endpoint.pause_writing
        self.resume_writing = endpoint.resume_writing
        self.connection_lost = endpoint.connection_lost
        self._receive = endpoint.data_received
        self._received = _Side(owner, "receives", version, False)

    def data_received(self, data: bytes) -> None:
        """Log the packets in ``data``, and pass it on."""
        self._received.log(data)
        self._receive(data)


def is_traced() -> bool:
    """Return whether connections that begin now are traced."""
    return logger.isEnabledFor(logging.DEBUG)
