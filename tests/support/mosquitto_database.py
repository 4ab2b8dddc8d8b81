"""A database of Mosquitto's, written chunk by chunk as Mosquitto does."""

from __future__ import annotations

import struct
from typing import Final

_MAGIC: Final = b"\x00\xb5\x00mosquitto db"


def _chunk(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", kind, len(body)) + body


def unknown_chunk(kind: int) -> bytes:
    """A chunk of a kind that there is not."""
    return _chunk(kind, b"12345678")


def database(version: int, *chunks: bytes, is_final: bool = True) -> bytes:
    """The head, the configuration, and ``chunks``."""
    configuration = _chunk(1, struct.pack("<QBB6x", 99, is_final, 8))
    return _MAGIC + struct.pack(">II", 0, version) + configuration + b"".join(chunks)


def message(
    number: int,
    topic: str,
    payload: bytes,
    qos: int,
    *,
    retain: bool = False,
    client_id: str = "",
    user: str = "",
    expires_at_s: int = 0,
    properties: bytes = b"",
) -> bytes:
    """A message; ``properties`` are encoded, without their length."""
    body = struct.pack("<Qq", number, expires_at_s) + struct.pack(
        ">IHHHHHBB",
        len(payload),
        0,
        len(client_id),
        len(user),
        len(topic.encode()),
        1883,
        qos,
        retain,
    )
    body += client_id.encode() + user.encode() + topic.encode() + payload
    if properties:
        body += bytes((len(properties),)) + properties
    return _chunk(2, body)


def client_message(
    client_id: str,
    number: int,
    packet_id: int,
    qos: int,
    state: int,
    *,
    is_retained: bool = False,
    is_repeat: bool = False,
    is_incoming: bool = False,
    identifier: int = 0,
) -> bytes:
    """A message on its way to a client, or from it."""
    flags = is_retained << 4 | is_repeat
    body = struct.pack("<Q", number) + struct.pack(
        ">HHBBBB", packet_id, len(client_id), qos, state, flags, not is_incoming
    )
    body += client_id.encode()
    if identifier:
        encoded = bytes((identifier & 0x7F | 0x80, identifier >> 7)) if identifier > 127 else b""
        body += b"\x03\x0b" + encoded if encoded else bytes((2, 0x0B, identifier))
    return _chunk(3, body)


def retained(number: int) -> bytes:
    """A message that is retained."""
    return _chunk(4, struct.pack("<Q", number))


def subscription(
    client_id: str,
    topic_filter: str,
    qos: int,
    *,
    no_local: bool = False,
    as_published: bool = False,
    identifier: int = 0,
) -> bytes:
    """A subscription."""
    options = no_local << 2 | as_published << 3
    body = struct.pack(">IHHBB2x", identifier, len(client_id), len(topic_filter), qos, options)
    return _chunk(5, body + client_id.encode() + topic_filter.encode())


def client(
    client_id: str,
    expiry_interval_s: int,
    *,
    expires_at_s: int = 0,
    port: int = 0,
    user: str = "",
    version: int = 6,
    padding: int = 4,
) -> bytes:
    """A client with a session."""
    body = struct.pack("<q", expires_at_s)
    body += struct.pack(">IHH", expiry_interval_s, 0, len(client_id))
    if version >= 6:
        body += struct.pack(">HH", port, len(user)) + bytes(padding)
    return _chunk(6, body + client_id.encode() + user.encode())
