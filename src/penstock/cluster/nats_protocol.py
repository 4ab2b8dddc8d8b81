"""The client protocol of NATS: encodes the client's commands, and parses the server's. Pure.

It has the parts that a client of JetStream needs
(https://docs.nats.io/reference/reference-protocols/nats-protocol)::

    client                          server
       ◀─ INFO {…} ────────────────── first of all; again when the servers' addresses change
       ─ CONNECT {…}, PING ─────────▶
       ◀─ PONG, or -ERR '…' ───────── the login is accepted, or refused
       ─ SUB subject id ────────────▶
       ─ HPUB subject reply … ──────▶
       ◀─ MSG | HMSG subject id … ──── an answer, or a message of another client
       ◀─ PING ─ PONG ──────────────▶ in both directions

A line ends with CR LF; the length of a message's body is in the line before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

from penstock.errors import PenstockError

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

_HEADER_LINE: Final = b"NATS/1.0"
_LINE_BYTES_MAX: Final = 64 * 1024  # INFO lists addresses
_BODY_BYTES_MAX: Final = 128 << 20


class NatsProtocolError(PenstockError):
    """A server sent bytes that violate the protocol of NATS."""


class Message(NamedTuple):
    """A received message.

    Attributes:
        subject: subject of the message.
        header: header block, from ``NATS/1.0`` on; empty if there is none.
        data: body of the message.
    """

    subject: str
    header: bytes
    data: bytes

    @property
    def status(self) -> int:
        """The status in the header's first line, such as 404; 0 if there is none."""
        words = self.header.split(b"\r\n", 1)[0].split(None, 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    def header_value(self, name: bytes) -> bytes:
        """Return the value of the header ``name``; empty if there is no such header."""
        at = self.header.find(b"\r\n" + name + b":")
        if at < 0:
            return b""
        start = at + len(name) + 3
        return self.header[start : self.header.index(b"\r\n", start)].strip()


class Info(NamedTuple):
    """A server's description of itself: the JSON of its INFO line."""

    fields: Mapping[str, Any]


class ServerError(NamedTuple):
    """A server's ``-ERR`` line: its text, without quotes."""

    text: str


class Ping(NamedTuple):
    """A server's PING, which demands a PONG."""


class Pong(NamedTuple):
    """The server's answer to a PING."""


Incoming = Message | Info | ServerError | Ping | Pong


@final
class Parser:
    """Parses received bytes into protocol messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        """True if no received byte waits to be parsed."""
        return not self._buffer

    def feed(self, data: bytes | memoryview) -> None:
        """Add received bytes."""
        self._buffer += data

    def next(self) -> Incoming | None:
        """Return the next protocol message; None if more bytes are needed.

        Raises:
            NatsProtocolError: the bytes violate the protocol.
        """
        while True:
            end = self._buffer.find(b"\r\n", 0, _LINE_BYTES_MAX)
            if end < 0:
                if len(self._buffer) >= _LINE_BYTES_MAX:
                    raise NatsProtocolError("a line without an end: no server of NATS")
                return None
            line = bytes(self._buffer[:end])
            word, _, rest = line.partition(b" ")
            if word in (b"MSG", b"HMSG"):
                return self._message(word == b"HMSG", rest.split(), end + 2)
            del self._buffer[: end + 2]
            if word != b"+OK":
                return _without_body(word.upper(), rest)

    def _message(self, has_header: bool, words: list[bytes], start: int) -> Message | None:
        try:
            size = int(words[-1])
            header_size = int(words[-2]) if has_header else 0
            subject = words[0].decode()
        except (ValueError, IndexError) as error:
            raise NatsProtocolError("a message without its size") from error
        if not 0 <= header_size <= size <= _BODY_BYTES_MAX:
            raise NatsProtocolError(f"a message of {size} bytes")
        end = start + size
        if len(self._buffer) < end + 2:
            return None
        with memoryview(self._buffer) as buffer:
            header = bytes(buffer[start : start + header_size])
            data = bytes(buffer[start + header_size : end])
        del self._buffer[: end + 2]
        return Message(subject, header, data)


def connect(fields: Mapping[str, Any]) -> bytes:
    """Return CONNECT with these fields, and a PING, whose PONG confirms the login."""
    return b"CONNECT %b\r\n%b" % (json.dumps(fields).encode(), PING)


def subscribe(subject: str, number: int) -> bytes:
    """Return SUB, which subscribes to ``subject`` (wildcards are allowed) under this number."""
    return b"SUB %b %d\r\n" % (subject.encode(), number)


def publish(subject: str, data: bytes, reply: str = "", header: bytes = b"") -> list[bytes]:
    """Return PUB, or HPUB for a message with a header, in pieces; ``data`` is a piece of its own.

    Args:
        subject: subject of the message.
        data: body of the message.
        reply: subject for answers; empty for none.
        header: lines ``Name: value``, each with CR LF at its end; empty for none.
    """
    words = f"{subject} {reply}" if reply else subject
    if not header:
        return [b"PUB %b %d\r\n" % (words.encode(), len(data)), data, b"\r\n"]
    block = b"%b\r\n%b\r\n" % (_HEADER_LINE, header)
    size = len(block) + len(data)
    return [b"HPUB %b %d %d\r\n%b" % (words.encode(), len(block), size, block), data, b"\r\n"]


def _without_body(word: bytes, rest: bytes) -> Incoming:
    if word == b"PING":
        return Ping()
    if word == b"PONG":
        return Pong()
    if word == b"-ERR":
        return ServerError(rest.decode(errors="replace").strip().strip("'"))
    if word == b"INFO":
        try:
            fields = json.loads(rest)
        except ValueError as error:
            raise NatsProtocolError("INFO is no JSON") from error
        if isinstance(fields, dict):
            return Info(fields)
    raise NatsProtocolError(f"{word[:20]!r} is no word of NATS")
