"""Mosquitto's database, ``mosquitto.db``: formats 5 (Mosquitto 1.6) and 6 (2.0 and 2.1).

A head, and then chunks of six kinds until the end of the file::

      head     00 B5 00 "mosquitto db"   4 bytes (unused)   4 bytes: the format
      chunk    4 bytes: kind             4 bytes: length    the rest, of this length

      1 configuration   last id, saved at the end, bytes of an id
      2 message         id, expiry, topic, payload, properties, who published it
      3 client message  which message, for which client, QoS, state, packet identifier
      4 retained        the id of a message
      5 subscription    client, filter, QoS and options, identifier
      6 client          expiry, the last packet identifier; in format 6 user and listener's port

Kinds, lengths and most numbers are big-endian. Ids of messages and times of expiry are as the
machine had them, which is taken for little-endian: so are all that Mosquitto is packaged for but
s390x. A part of fixed size is what is left of the length beside the texts, so that the padding of
32-bit machines is none of our concern.

Nothing here believes a length before it is compared with what is there: a file that is cut off,
damaged or of another format is refused in one sentence.
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

FORMATS: Final = (5, 6)
FILE_BYTES_MAX: Final = 16 * 1024**3

_OVERHEAD_BYTES: Final = 70  # of a message in a queue, with its message expiry interval

_MAGIC: Final = b"\x00\xb5\x00mosquitto db"
_HEAD: Final = struct.Struct(">15sII")
_CHUNK: Final = struct.Struct(">II")
_ID: Final = struct.Struct("<Q")
_MESSAGE: Final = struct.Struct("<Qq")
_MESSAGE_REST: Final = struct.Struct(">IHHHHHBB")
_CLIENT_MESSAGE: Final = struct.Struct(">HHBBBB")
_SUBSCRIPTION: Final = struct.Struct(">IHHBB")
_CLIENT: Final = struct.Struct(">IHH")
_CLIENT_6: Final = struct.Struct(">HH")
_EXPIRY: Final = struct.Struct("<q")
_SHUTDOWN_AT: Final = 8

OUTGOING: Final = 1
INCOMING: Final = 0

# of a client message; those of what is written are what was last sent or is next to be sent
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
    """One message.

    Attributes:
        number: its id; later messages have greater ones.
        expires_at_s: seconds since the Unix epoch; 0 for never.
        topic: topic name.
        payload: application bytes.
        qos: as published.
        retain: as published.
        client_id: the client that published it; empty where that is not known.
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
        """Return the size that the message has in a queue, bytes; a little more than it takes."""
        size = len(self.topic.encode()) + len(self.payload) + _OVERHEAD_BYTES
        return size + (len(encode_properties(self.properties)) if self.properties else 0)


@final
@dataclass(slots=True)
class ClientMessage:
    """One message on its way to a client, or from it.

    Attributes:
        number: the id of the message.
        packet_id: packet identifier; 0 where it has none yet.
        qos: of this delivery.
        retain: the RETAIN flag of this delivery.
        state: one of those above.
        is_repeat: it was sent at least once (DUP).
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
    """One subscription, with the options of MQTT 5."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int


@final
@dataclass(slots=True)
class StoredClient:
    """One client with a session.

    Attributes:
        client_id: client identifier.
        expires_at_s: seconds since the Unix epoch; 0 for never, or not known.
        expiry_interval_s: 4294967295 for never.
        username: None where the database does not tell.
        port: of the listener that it came through; 0 where the database does not tell.
        outgoing: messages for it, in their order: those in flight first.
        incoming: QoS 2 messages of its own that it has not released.
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
    """All that a database holds.

    Attributes:
        format: 5 or 6.
        is_final: it was saved when Mosquitto stopped, and not while it went on.
        messages: by id.
        clients: by client identifier.
        retained: ids of the retained messages; a message that had expired may not be there.
    """

    format: int
    is_final: bool = False
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    clients: dict[str, StoredClient] = field(default_factory=dict)
    retained: list[int] = field(default_factory=list)

    def largest_queue(self) -> tuple[int, int]:
        """Return the most messages that wait for one client, QoS 0 apart, and the most bytes of
        such."""
        longest = largest_bytes = 0
        for client in self.clients.values():
            waiting = [entry for entry in client.outgoing if entry.qos > 0]
            found = [self.messages.get(entry.number) for entry in waiting]
            size_bytes = sum(one.size_bytes() for one in found if one)
            longest = max(longest, len(waiting))
            largest_bytes = max(largest_bytes, size_bytes)
        return longest, largest_bytes


def read_database(path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
    """Return the sessions and messages of the database in ``path``.

    Args:
        path: the file.
        progress: told the bytes that were read, and how many there are.

    Raises:
        ConfigError: it cannot be read, is of another format, is cut off or damaged.
    """
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise ConfigError(f"Mosquitto's database {path} is larger than {FILE_BYTES_MAX} bytes.")
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"Mosquitto's database {path} cannot be read: {reason}.") from None
    return _Reader(path, data).read(progress)


class _CutOff(Exception):
    """The file, or a chunk, ends too early."""


@final
class _Reader:
    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        self._data = data
        self._found = Snapshot(0)
        self._handlers: dict[int, Callable[[int, int], None]] = {
            1: self._configuration,
            2: self._message,
            3: self._client_message,
            4: self._retained,
            5: self._subscription,
            6: self._client,
        }

    def read(self, progress: Callable[[int, int], None] | None) -> Snapshot:
        data = self._data
        self._found.format = self._format()
        at = _HEAD.size
        while at < len(data):
            if len(data) - at < _CHUNK.size:
                raise self._refused(at, "is cut off")
            kind, length = _CHUNK.unpack_from(data, at)
            handler = self._handlers.get(kind)
            if handler is None:
                raise self._refused(at, f"has a chunk of the unknown kind {kind}")
            begin = at + _CHUNK.size
            if begin + length > len(data):
                raise self._refused(at, "is cut off")
            try:
                handler(begin, begin + length)
            except (_CutOff, struct.error):
                raise self._refused(at, f"has a damaged chunk of kind {kind}") from None
            except UnicodeDecodeError:
                raise self._refused(at, "has a name or topic that is no UTF-8") from None
            except RemoteProtocolError as error:
                raise self._refused(at, f"has damaged properties ({error.message})") from None
            at = begin + length
            if progress is not None:
                progress(at, len(data))
        return self._found

    def _format(self) -> int:
        data = self._data
        if not data.startswith(_MAGIC):
            what = "is empty" if not data else "is not a database of Mosquitto's"
            raise ConfigError(f"{self._path} {what}; nothing was written.")
        if len(data) < _HEAD.size:
            raise self._refused(0, "is cut off")
        number = int(_HEAD.unpack_from(data)[2])
        if number not in FORMATS:
            hint = (
                "start Mosquitto 2.0 on it and stop it, which writes format 6"
                if number < min(FORMATS)
                else "it is of a later Mosquitto than 2.1"
            )
            raise ConfigError(
                f"Mosquitto's database {self._path} has format {number}, and formats 5 and 6 can be"
                f" read: {hint}. Nothing was written."
            )
        return number

    def _refused(self, at: int, what: str) -> ConfigError:
        return ConfigError(
            f"Mosquitto's database {self._path} {what} at byte {at:,} of {len(self._data):,}:"
            " take one that Mosquitto saved whole (stop it first). Nothing was written."
        )

    # -- chunks ------------------------------------------------------------------------------

    def _configuration(self, begin: int, end: int) -> None:
        if end - begin <= _SHUTDOWN_AT + 1:
            raise _CutOff
        self._found.is_final = self._data[begin + _SHUTDOWN_AT] != 0

    def _message(self, begin: int, end: int) -> None:
        data = self._data
        number, expires_at_s = _MESSAGE.unpack_from(data, begin)
        at = begin + _MESSAGE.size
        payload_len, _, id_len, user_len, topic_len, _, qos, retain = _MESSAGE_REST.unpack_from(
            data, at
        )
        at += _MESSAGE_REST.size
        texts_end = at + id_len + user_len + topic_len + payload_len
        if at > end or texts_end > end or topic_len == 0 or qos > 2:
            raise _CutOff
        client_id = data[at : at + id_len].decode()
        at += id_len + user_len
        topic = data[at : at + topic_len].decode()
        at += topic_len
        payload = data[at : at + payload_len]
        properties = self._properties(texts_end, end)
        self._found.messages[number] = StoredMessage(
            number, expires_at_s, topic, payload, qos, retain != 0, client_id, properties
        )

    def _properties(self, begin: int, end: int) -> Properties | None:
        """Return the properties in a chunk, which have their length in front."""
        if begin == end:
            return None
        length = 0
        shift = 0
        at = begin
        while True:
            if at >= end or shift > 21:
                raise _CutOff
            digit = self._data[at]
            at += 1
            length |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                break
        if at + length != end:
            raise _CutOff
        return decode_properties(self._data, at, end, PUBLISH) if length else None

    def _client_message(self, begin: int, end: int) -> None:
        data = self._data
        (number,) = _ID.unpack_from(data, begin)
        at = begin + _ID.size
        packet_id, id_len, qos, state, retain_dup, direction = _CLIENT_MESSAGE.unpack_from(data, at)
        at += _CLIENT_MESSAGE.size
        if at + id_len > end or id_len == 0 or qos > 2:
            raise _CutOff
        client = self._client_of(data[at : at + id_len].decode())
        properties = self._properties(at + id_len, end)
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

    def _retained(self, begin: int, end: int) -> None:
        if end - begin < _ID.size:
            raise _CutOff
        (number,) = _ID.unpack_from(self._data, begin)
        self._found.retained.append(number)

    def _subscription(self, begin: int, end: int) -> None:
        data = self._data
        identifier, id_len, filter_len, qos, options = _SUBSCRIPTION.unpack_from(data, begin)
        at = end - id_len - filter_len  # whatever the padding in front
        if at < begin + _SUBSCRIPTION.size or id_len == 0 or filter_len == 0:
            raise _CutOff
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

    def _client(self, begin: int, end: int) -> None:
        data = self._data
        (expires_at_s,) = _EXPIRY.unpack_from(data, begin)
        at = begin + _EXPIRY.size
        interval_s, _, id_len = _CLIENT.unpack_from(data, at)
        at += _CLIENT.size
        port = user_len = 0
        if self._found.format >= 6:
            port, user_len = _CLIENT_6.unpack_from(data, at)
            at += _CLIENT_6.size
        text = end - id_len - user_len  # whatever the padding in front
        if text < at or id_len == 0:
            raise _CutOff
        client = self._client_of(data[text : text + id_len].decode())
        client.expires_at_s = max(0, expires_at_s)
        client.expiry_interval_s = interval_s
        client.port = port
        client.username = data[text + id_len : end].decode() if user_len else None

    def _client_of(self, client_id: str) -> StoredClient:
        client = self._found.clients.get(client_id)
        if client is None:
            client = self._found.clients[client_id] = StoredClient(client_id)
        return client
