"""The bytes of NATS: whole, byte by byte, and with more behind them."""

from __future__ import annotations

import json

import pytest

from penstock.cluster.nats_protocol import (
    Incoming,
    Info,
    Message,
    NatsProtocolError,
    Parser,
    Ping,
    Pong,
    ServerError,
    connect,
    publish,
    subscribe,
)

HEADER = b"NATS/1.0\r\nNats-Sequence: 7\r\nNats-Subject: a.log\r\n\r\n"

VECTORS: list[tuple[bytes, list[Incoming]]] = [
    (b"PING\r\n", [Ping()]),
    (b"PONG\r\n", [Pong()]),
    (b"+OK\r\nPING\r\n", [Ping()]),
    (b"-ERR 'Authorization Violation'\r\n", [ServerError("Authorization Violation")]),
    (b'INFO {"version":"2.15.1","max_payload":1}\r\n', [
        Info({"version": "2.15.1", "max_payload": 1})
    ]),
    (b"MSG a.b 1 0\r\n\r\n", [Message("a.b", b"", b"")]),
    (b"MSG a.b 1 5\r\nhello\r\n", [Message("a.b", b"", b"hello")]),
    (b"MSG a.b 1 c.d 4\r\n\r\n\r\n\r\n", [Message("a.b", b"", b"\r\n\r\n")]),
    (b"MSG a 1 6\r\nPING\r\n\r\nPONG\r\n", [Message("a", b"", b"PING\r\n"), Pong()]),
    (
        b"HMSG a 1 %d %d\r\n%bdata\r\n" % (len(HEADER), len(HEADER) + 4, HEADER),
        [Message("a", HEADER, b"data")],
    ),
    (
        b"HMSG a 1 30 30\r\nNATS/1.0 404 Message Not Found\r\n",
        [Message("a", b"NATS/1.0 404 Message Not Found", b"")],
    ),
]  # fmt: skip


def parsed(pieces: list[bytes]) -> list[Incoming]:
    parser = Parser()
    found: list[Incoming] = []
    for piece in pieces:
        parser.feed(piece)
        while (incoming := parser.next()) is not None:
            found.append(incoming)
    assert parser.is_empty
    return found


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_messages_are_parsed_however_they_come(data: bytes, expected: list[Incoming]) -> None:
    assert parsed([data]) == expected
    assert parsed([data[at : at + 1] for at in range(len(data))]) == expected
    assert parsed([data * 3]) == expected * 3
    for at in range(len(data)):
        assert parsed([data[:at], data[at:] + b"PING\r\n"]) == [*expected, Ping()]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"MSG\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 many\r\n",
        b"MSG a 1 999999999999\r\n",
        b"HMSG a 1 9 4\r\n",
        b"HMSG a\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b"x" * 100_000,
    ],
)
def test_bytes_of_something_else_are_an_error(data: bytes) -> None:
    parser = Parser()
    parser.feed(data)
    with pytest.raises(NatsProtocolError):
        parser.next()


def test_a_header_has_values_and_may_have_a_status() -> None:
    message = Message("a", HEADER, b"")
    assert message.status == 0
    assert message.header_value(b"Nats-Sequence") == b"7"
    assert message.header_value(b"Nats-Subject") == b"a.log"
    assert message.header_value(b"Sequence") == b""
    assert Message("a", b"", b"").status == 0
    assert Message("a", b"NATS/1.0 503\r\n\r\n", b"").status == 503
    assert Message("a", b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n", b"").status == 204


def test_the_bytes_sent_are_those_of_nats() -> None:
    assert b"".join(publish("a.log", b"body")) == b"PUB a.log 4\r\nbody\r\n"
    assert b"".join(publish("a.log", b"body", "inbox.1")) == b"PUB a.log inbox.1 4\r\nbody\r\n"
    assert b"".join(publish("a", b"body", "r", b"K: v\r\n")) == (
        b"HPUB a r 18 22\r\nNATS/1.0\r\nK: v\r\n\r\nbody\r\n"
    )
    assert subscribe("a.*", 2) == b"SUB a.* 2\r\n"
    line, _, rest = connect({"name": 'a "b"'}).partition(b"\r\n")
    assert json.loads(line.removeprefix(b"CONNECT ")) == {"name": 'a "b"'}
    assert rest == b"PING\r\n"
