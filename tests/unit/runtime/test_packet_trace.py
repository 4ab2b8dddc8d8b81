"""The lines of `-d`: what a packet is, and nothing that is secret."""

import logging

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import Properties
from penstock.runtime.packet_trace import TracedPeer, TracedWire, packet_line
from penstock.transport.wire import ClientCertificate, Endpoint

LOGGER = "penstock.runtime.packet_trace"


@pytest.mark.parametrize(
    ("packet", "line"),
    [
        (
            Connect("c", 4, False, 9, Will("w", b"gone"), "me", b"secret"),
            "CONNECT (version 4, 'c', keep alive 9 s, user name 'me', a password, a will for 'w')",
        ),
        (Connack(0, True), "CONNACK (success, session present)"),
        (Publish("a\nb", b"21.5", 1, True, True, 7), "PUBLISH (d1, q1, r1, m7, 'a\\nb', 4 bytes)"),
        (
            Publish("", b"x" * 1500, properties=Properties(topic_alias=3)),
            "PUBLISH (d0, q0, r0, m0, '', 1,500 bytes, topic_alias=3)",
        ),
        (Puback(7), "PUBACK (m7)"),
        (Puback(7, 0x97), "PUBACK (m7, quota exceeded)"),
        (Subscribe(1, [Subscription("a/#", 2)]), "SUBSCRIBE (m1, 'a/#' q2)"),
        (Suback(1, [2, 0x87]), "SUBACK (m1, q2, not authorized)"),
        (Unsubscribe(2, ["a/#"]), "UNSUBSCRIBE (m2, 'a/#')"),
        (Unsuback(2, [0x11]), "UNSUBACK (m2, no subscription existed)"),
        (Pingreq(), "PINGREQ"),
        (Disconnect(0x8B), "DISCONNECT (server shutting down)"),
        (
            Auth(0x18, Properties(authentication_method="SCRAM", authentication_data=b"proof")),
            "AUTH (continue authentication, authentication_method='SCRAM', authentication_data=…)",
        ),
    ],
)
def test_a_line_names_a_packet_and_no_secret(packet: Packet, line: str) -> None:
    assert packet_line(packet) == line


class Other:
    """A wire and an endpoint that keep what they are given."""

    peer = "127.0.0.1:1883"
    listener = "dialled"
    certificate: ClientCertificate | None = None

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.given.append(data)

    data_received = write

    def unwritten_bytes(self) -> int:
        return 0

    buffered_bytes = peer_state = unwritten_bytes

    def nothing(self) -> None: ...

    pause_reading = resume_reading = pause_writing = resume_writing = nothing

    def close(self, lingers: bool = False) -> None: ...

    def connection_lost(self, reason: str) -> None: ...


def test_bytes_pass_as_they_are_and_each_packet_has_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire, endpoint = Other(), Other()
    kept: Endpoint = endpoint
    sent = encode(Connect("c", 5), 5) + encode(Publish("a", b"1"), 5)
    received = encode(Connack(), 5) + encode(Publish("b", b"22"), 5)
    with caplog.at_level(logging.DEBUG, LOGGER):
        traced = TracedWire(wire, "client c", 5)
        for place in range(len(sent)):
            traced.write(sent[place : place + 1])
        TracedPeer(kept, "client c", 5).data_received(received)
    assert (b"".join(wire.given), endpoint.given) == (sent, [received])
    assert [record.getMessage() for record in caplog.records] == [
        "client c sends CONNECT (version 5, 'c', clean, keep alive 60 s)",
        "client c sends PUBLISH (d0, q0, r0, m0, 'a', 1 bytes)",
        "client c receives CONNACK (success)",
        "client c receives PUBLISH (d0, q0, r0, m0, 'b', 2 bytes)",
    ]


def test_a_text_that_is_no_packet_is_passed_on_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = Other()
    with caplog.at_level(logging.DEBUG, LOGGER):
        traced = TracedPeer(endpoint, "client c", 5)
        traced.data_received(b"HTTP/1.1 400 Bad Request\r\n")
        traced.data_received(b"\r\n")
    assert endpoint.given == [b"HTTP/1.1 400 Bad Request\r\n", b"\r\n"]
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("client c receives what is no packet: ")
