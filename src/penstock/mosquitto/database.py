"""The parser of Mosquitto's database, ``mosquitto.db``: formats 5 (Mosquitto 1.6) and 6 (2.0 and
2.1).

The file has a header, and then chunks of six kinds until its end::

      header   00 B5 00 "mosquitto db"   4 bytes (unused)   4 bytes: the format
      chunk    4 bytes: kind             4 bytes: length    content of this length

      1 configuration   last id, saved at the end, bytes of an id
      2 message         id, expiry, topic, payload, properties, publisher
      3 client message  id of the message, client, QoS, state, packet identifier
      4 retained        the id of a message
      5 subscription    client, filter, QoS and options, identifier
      6 client          expiry, the last packet identifier; in format 6 user and listener's port

Kinds, lengths and most numbers are big-endian. Ids of messages and times of expiry have the byte
order of the machine, which is taken to be little-endian: all machines that Mosquitto is packaged
for are, except s390x. The length of a part of fixed size is computed as the chunk's length less its
texts, so the padding of 32-bit machines does not matter.

Every length is compared with the bytes present before it is used: a file that is cut off, damaged
or of another format is refused in one sentence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from penstock.errors import ConfigError, RemoteProtocolError
from penstock.protocol.kinds import PUBLISH
from penstock.protocol.properties import Properties, decode_properties, encode_properties
from penstock.regular_file import read_regular

FORMATS: Final = (5, 6)
FILE_BYTES_MAX: Final = 16 * 1024**3

_QUEUE_OVERHEAD_BYTES: Final = 70  # of a queued message, its message expiry interval included

_MAGIC: Final = b"\x00\xb5\x00mosquitto db"
_HEADER: Final = struct.Struct(">15sII")
_CHUNK: Final = struct.Struct(">II")
_ID: Final = struct.Struct("<Q")
_MESSAGE: Final = struct.Struct("<Qq")
_MESSAGE_REST: Final = struct.Struct(">IHHHHHBB")
_CLIENT_MESSAGE: Final = struct.Struct(">HHBBBB")
_SUBSCRIPTION: Final = struct.Struct(">IHHBB")
_CLIENT: Final = struct.Struct(">IHH")
_CLIENT_6: Final = struct.Struct(">HH")
_EXPIRY: Final = struct.Struct("<q")
_SHUTDOWN_OFFSET: Final = 8

OUTGOING: Final = 1
INCOMING: Final = 0

# States of a client message: the packet that is awaited, or that is to be sent again.
PUBLISH_QOS0: Final = 1
WAIT_FOR_PUBACK: Final = 3
WAIT_FOR_PUBREC: Final = 5
RESEND_PUBREL: Final = 6
WAIT_FOR_PUBREL: Final = 7
RESEND_PUBCOMP: Final = 8
WAIT_FOR_PUBCOMP: Final = 9
QUEUED: Final = 11


@final
@dataclass(slots=True)
class StoredMessage:
    """A stored message; clients and retained messages refer to it by its number.

    Attributes:
        number: its id; later messages have greater ids.
        expires_at_s: when it expires, seconds since the Unix epoch; 0 for never.
        topic: its topic name.
        payload: its payload.
        qos: the QoS with which it was published.
        retain: the RETAIN flag with which it was published.
        client_id: the client that published it; empty if that is not known.
        properties: its MQTT 5 properties; None without any.
    """

    number: int
    expires_at_s: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client_id: str
    properties: Properties | None

    def size_bytes(self) -> int:
        """Return an upper estimate of the message's size in a queue, in bytes."""
        size = len(self.topic.encode()) + len(self.payload) + _QUEUE_OVERHEAD_BYTES
        return size + (len(encode_properties(self.properties)) if self.properties else 0)


@final
@dataclass(slots=True)
class ClientMessage:
    """A delivery of a message to a client, or a message from a client that is not complete yet.

    Attributes:
        number: the id of the message.
        packet_id: packet identifier; 0 if it has none yet.
        qos: the QoS of this delivery.
        retain: the RETAIN flag of this delivery.
        is_repeat: whether it was sent at least once (DUP).
        state: one of the constants above, such as ``WAIT_FOR_PUBACK``.
        subscription_id: subscription identifier; 0 for none.
    """

    number: int
    packet_id: int
    qos: int
    retain: bool
    is_repeat: bool
    state: int
    subscription_id: int


@final
@dataclass(slots=True)
class StoredSubscription:
    """A subscription, with the options of MQTT 5."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int


@final
@dataclass(slots=True)
class StoredClient:
    """A client with a session.

    Attributes:
        client_id: client identifier.
        expires_at_s: when the session expires, seconds since the Unix epoch; 0 for never, or not
            known.
        expiry_interval_s: session expiry interval in seconds; 4294967295 for never.
        username: its user name; None if the database has none.
        port: port of the listener that it connected to; 0 if the database has none.
        outgoing: messages for it, in their order: those in flight first.
        incoming: QoS 2 messages from it that it has not released.
        subscriptions: its subscriptions.
    """

    client_id: str
    expires_at_s: int = 0
    expiry_interval_s: int = 4_294_967_295
    username: str | None = None
    port: int = 0
    outgoing: list[ClientMessage] = field(default_factory=list)
    incoming: list[ClientMessage] = field(default_factory=list)
    subscriptions: list[StoredSubscription] = field(default_factory=list)


@final
@dataclass(slots=True)
class Snapshot:
    """The whole content of a database.

    Attributes:
        format: the version of the format, 5 or 6.
        is_final: whether Mosquitto saved it when it stopped, and not while it was running.
        messages: all messages, by id.
        clients: all clients, by client identifier.
        retained: ids of the retained messages; the message of an id may be missing if it expired.
    """

    format: int
    is_final: bool = False
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    clients: dict[str, StoredClient] = field(default_factory=dict)
    retained: list[int] = field(default_factory=list)

    def largest_queue(self) -> tuple[int, int]:
        """Return the greatest number, and the greatest size in bytes, of QoS 1 and 2 messages that
        wait for one client."""
        longest = largest_bytes = 0
        for client in self.clients.values():
            waiting = [entry for entry in client.outgoing if entry.qos > 0]
            messages = [self.messages.get(entry.number) for entry in waiting]
            size_bytes = sum(message.size_bytes() for message in messages if message)
            longest = max(longest, len(waiting))
            largest_bytes = max(largest_bytes, size_bytes)
        return longest, largest_bytes


def read_database(path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
    """Return the sessions and messages of the database in ``path``.

    Args:
        path: the path of the file.
        progress: called with the number of bytes read, and the number of all bytes.

    Raises:
        ConfigError: the file cannot be read, has another format, is cut off or damaged.
    """
    try:
        data = read_regular(path, FILE_BYTES_MAX)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"Mosquitto's database {path} cannot be read: {reason}.") from None
    return _DatabaseParser(path, data).parse(progress)


class _ChunkDamaged(Exception):
    """A chunk is shorter than its content, or its content is not valid."""


@final
class _DatabaseParser:
    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        self._data = data
        self._snapshot = Snapshot(0)
        self._handlers: dict[int, Callable[[int, int], None]] = {
            1: self._parse_configuration,
            2: self._parse_message,
            3: self._parse_client_message,
            4: self._parse_retained,
            5: self._parse_subscription,
            6: self._parse_client,
        }

    def parse(self, progress: Callable[[int, int], None] | None) -> Snapshot:
        data = self._data
        self._snapshot.format = self._parse_header()
        at = _HEADER.size
        while at < len(data):
            if len(data) - at < _CHUNK.size:
                raise self._damage(at, "is cut off")
            kind, length = _CHUNK.unpack_from(data, at)
            handler = self._handlers.get(kind)
            if handler is None:
                raise self._damage(at, f"has a chunk of the unknown kind {kind}")
            begin = at + _CHUNK.size
            if begin + length > len(data):
                raise self._damage(at, "is cut off")
            try:
                handler(begin, begin + length)
            except (_ChunkDamaged, struct.error):
                raise self._damage(at, f"has a damaged chunk of kind {kind}") from None
            except UnicodeDecodeError:
                raise self._damage(at, "has a name or topic that is no UTF-8") from None
            except RemoteProtocolError as error:
                raise self._damage(at, f"has damaged properties ({error.message})") from None
            at = begin + length
            if progress is not None:
                progress(at, len(data))
        return self._snapshot

    def _parse_header(self) -> int:
        """Return the version of the format."""
        data = self._data
        if not data.startswith(_MAGIC):
            mistake = "is empty" if not data else "is not a database of Mosquitto's"
            raise ConfigError(f"{self._path} {mistake}; nothing was written.")
        if len(data) < _HEADER.size:
            raise self._damage(0, "is cut off")
        number = int(_HEADER.unpack_from(data)[2])
        if number not in FORMATS:
            hint = (
                "start Mosquitto 2.0 on it and stop it, which writes format 6"
                if number < min(FORMATS)
                else "a later version than Mosquitto 2.1 wrote it"
            )
            raise ConfigError(
                f"Mosquitto's database {self._path} has format {number}, and formats 5 and 6 can be"
                f" read: {hint}. Nothing was written."
            )
        return number

    def _damage(self, at: int, mistake: str) -> ConfigError:
        return ConfigError(
            f"Mosquitto's database {self._path} {mistake} at byte {at:,} of {len(self._data):,}:"
            " take one that Mosquitto saved completely (stop it first). Nothing was written."
        )

    # -- chunks ------------------------------------------------------------------------------

    def _parse_configuration(self, begin: int, end: int) -> None:
        if end - begin <= _SHUTDOWN_OFFSET + 1:
            raise _ChunkDamaged
        self._snapshot.is_final = self._data[begin + _SHUTDOWN_OFFSET] != 0

    def _parse_message(self, begin: int, end: int) -> None:
        data = self._data
        number, expires_at_s = _MESSAGE.unpack_from(data, begin)
        at = begin + _MESSAGE.size
        payload_len, _, id_len, user_len, topic_len, _, qos, retain = _MESSAGE_REST.unpack_from(
            data, at
        )
        at += _MESSAGE_REST.size
        texts_end = at + id_len + user_len + topic_len + payload_len
        if at > end or texts_end > end or topic_len == 0 or qos > 2:
            raise _ChunkDamaged
        client_id = data[at : at + id_len].decode()
        at += id_len + user_len
        topic = data[at : at + topic_len].decode()
        at += topic_len
        payload = data[at : at + payload_len]
        properties = self._parse_properties(texts_end, end)
        self._snapshot.messages[number] = StoredMessage(
            number, expires_at_s, topic, payload, qos, retain != 0, client_id, properties
        )

    def _parse_properties(self, begin: int, end: int) -> Properties | None:
        """Return the properties at the end of a chunk; their length comes first."""
        if begin == end:
            return None
        length = 0
        shift = 0
        at = begin
        while True:
            if at >= end or shift > 21:
                raise _ChunkDamaged
            digit = self._data[at]
            at += 1
            length |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                break
        if at + length != end:
            raise _ChunkDamaged
        return decode_properties(self._data, at, end, PUBLISH) if length else None

    def _parse_client_message(self, begin: int, end: int) -> None:
        data = self._data
        (number,) = _ID.unpack_from(data, begin)
        at = begin + _ID.size
        packet_id, id_len, qos, state, retain_dup, direction = _CLIENT_MESSAGE.unpack_from(data, at)
        at += _CLIENT_MESSAGE.size
        if at + id_len > end or id_len == 0 or qos > 2:
            raise _ChunkDamaged
        client = self._client_of(data[at : at + id_len].decode())
        properties = self._parse_properties(at + id_len, end)
        identifiers = None if properties is None else properties.subscription_identifiers
        entry = ClientMessage(
            number,
            packet_id,
            qos,
            retain_dup & 0xF0 != 0,
            retain_dup & 0x0F != 0,
            state,
            identifiers[0] if identifiers else 0,
        )
        (client.outgoing if direction == OUTGOING else client.incoming).append(entry)

    def _parse_retained(self, begin: int, end: int) -> None:
        if end - begin < _ID.size:
            raise _ChunkDamaged
        (number,) = _ID.unpack_from(self._data, begin)
        self._snapshot.retained.append(number)

    def _parse_subscription(self, begin: int, end: int) -> None:
        data = self._data
        identifier, id_len, filter_len, qos, options = _SUBSCRIPTION.unpack_from(data, begin)
        at = end - id_len - filter_len  # counted from the end, because padding may come first
        if at < begin + _SUBSCRIPTION.size or id_len == 0 or filter_len == 0:
            raise _ChunkDamaged
        client = self._client_of(data[at : at + id_len].decode())
        client.subscriptions.append(
            StoredSubscription(
                data[at + id_len : end].decode(),
                min(qos & 3, 2),
                options & 0x04 != 0,
                options & 0x08 != 0,
                min(options >> 4 & 3, 2),
                identifier,
            )
        )

    def _parse_client(self, begin: int, end: int) -> None:
        data = self._data
        (expires_at_s,) = _EXPIRY.unpack_from(data, begin)
        at = begin + _EXPIRY.size
        interval_s, _, id_len = _CLIENT.unpack_from(data, at)
        at += _CLIENT.size
        port = user_len = 0
        if self._snapshot.format >= 6:
            port, user_len = _CLIENT_6.unpack_from(data, at)
            at += _CLIENT_6.size
        text = end - id_len - user_len  # counted from the end, because padding may come first
        if text < at or id_len == 0:
            raise _ChunkDamaged
        client = self._client_of(data[text : text + id_len].decode())
        client.expires_at_s = max(0, expires_at_s)
        client.expiry_interval_s = interval_s
        client.port = port
        client.username = data[text + id_len : end].decode() if user_len else None

    def _client_of(self, client_id: str) -> StoredClient:
        client = self._snapshot.clients.get(client_id)
        if client is None:
            client = self._snapshot.clients[client_id] = StoredClient(client_id)
        return client
