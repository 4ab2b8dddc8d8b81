"""Servers that break the protocol: the client says so, leaves, dials again, and goes on.

No exception escapes: neither to the program nor to the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import pytest

from penstock import Properties
from penstock.errors import ConnectFailed, PublishFailed, SubscribeFailed
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import CONNECT, PUBCOMP, PUBLISH, SUBSCRIBE, V5
from penstock.protocol.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
)
from tests.support.deadline import DEADLINE_S, until
from tests.support.fake_server import (
    Answer,
    FakeServer,
    after_connack,
    connack,
    only_to,
    suback,
    well_behaved,
)
from tests.support.faulty_client import Stati, opened
from tests.support.seen_packets import Seen

PROTOCOL_ERROR: Final = 0x82
MALFORMED: Final = 0x81


def v5(packet: Packet) -> bytes:
    return encode(packet, V5)


def message(
    topic: bytes = b"a", flags: int = 0x32, packet_id: int = 1, more: bytes = b"\0"
) -> bytes:
    """A PUBLISH as a test says; ``more`` are properties and payload."""
    body = len(topic).to_bytes(2, "big") + topic
    if flags & 0x06:
        body += packet_id.to_bytes(2, "big")
    body += more
    return bytes((flags, len(body))) + body


WRONG: Final = [
    pytest.param(b"\x00\x00", MALFORMED, id="packet type 0"),
    pytest.param(b"\x30\xff\xff\xff\xff\x01", MALFORMED, id="length of five bytes"),
    pytest.param(message(flags=0x36), MALFORMED, id="QoS 3"),
    pytest.param(message(flags=0x38), MALFORMED, id="DUP with QoS 0"),
    pytest.param(message(packet_id=0), PROTOCOL_ERROR, id="packet identifier 0"),
    pytest.param(message(b"\xff"), MALFORMED, id="topic no UTF-8"),
    pytest.param(message(b"a\0b"), MALFORMED, id="topic with U+0000"),
    pytest.param(message(b"a/#"), 0x90, id="topic with a wildcard"),
    pytest.param(message(b""), PROTOCOL_ERROR, id="no topic and no alias"),
    pytest.param(message(more=b"\x03\x23\x00\x00"), 0x94, id="topic alias 0"),
    pytest.param(message(more=b"\x03\x23\xff\xff"), 0x94, id="topic alias above the maximum"),
    pytest.param(message(b"", more=b"\x03\x23\x00\x01"), PROTOCOL_ERROR, id="unknown alias"),
    pytest.param(message(more=b"\x05\x11\0\0\0\1"), MALFORMED, id="property of another packet"),
    pytest.param(message(more=b"\x7f"), MALFORMED, id="properties longer than the packet"),
    pytest.param(b"\x62\x01\x00", MALFORMED, id="PUBREL too short"),
    pytest.param(v5(Suback(9, [0])), PROTOCOL_ERROR, id="SUBACK for nothing"),
    pytest.param(v5(Unsuback(9, [0])), PROTOCOL_ERROR, id="UNSUBACK for nothing"),
    pytest.param(connack(), PROTOCOL_ERROR, id="a second CONNACK"),
    pytest.param(v5(Pingreq()), PROTOCOL_ERROR, id="PINGREQ"),
    pytest.param(v5(Connect("x", V5, True)), PROTOCOL_ERROR, id="CONNECT"),
    pytest.param(v5(Subscribe(1, [Subscription("a")])), PROTOCOL_ERROR, id="SUBSCRIBE"),
    pytest.param(v5(Auth(0x18, Properties(authentication_method="m"))), PROTOCOL_ERROR, id="AUTH"),
    pytest.param(v5(Publish("a", b"x" * 3000)), 0x95, id="larger than we accept"),
    pytest.param(
        b"".join(message(packet_id=number) for number in (1, 2, 3)), 0x93, id="Receive Maximum"
    ),
]


@pytest.mark.parametrize(("said", "code"), WRONG)
async def test_a_protocol_error_ends_the_connection_and_not_the_client(
    caplog: pytest.LogCaptureFixture, said: bytes, code: int
) -> None:
    stati = Stati()
    async with (
        FakeServer(after_connack(said), well_behaved()) as server,
        opened(
            server.address,
            client_id="c",
            receive_maximum=2,
            packet_bytes_max=2000,
            status_changed=stati,
        ) as client,
    ):
        await until("another connection", lambda: server.connections == 2)
        assert await client.publish("a", "after that", 1) == 0
        assert server.dismissed_with() == [code]
        assert stati.states[:4] == ["dialling", "connected", "waiting", "dialling"]
        assert stati.of("waiting")[0].error
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


UNSOLICITED: Final = [
    pytest.param(v5(Puback(77)), [], id="PUBACK"),
    pytest.param(v5(Pubrel(77)), [reasons.PACKET_IDENTIFIER_NOT_FOUND], id="PUBREL"),
    pytest.param(b"\xd0\x00", [], id="PINGRESP"),
]


@pytest.mark.parametrize(("said", "codes"), UNSOLICITED)
async def test_an_answer_to_nothing_does_no_harm(said: bytes, codes: list[int]) -> None:
    """After a session was lost on one side there may be such packets."""
    async with (
        FakeServer(after_connack(said)) as server,
        opened(server.address, client_id="c") as client,
    ):
        assert await client.publish("a", "x", 1) == 0
        assert [one.raw[4] for one in server.of(PUBCOMP)] == codes
        assert server.connections == 1


MISTAKEN: Final = [
    pytest.param(1, v5(Pubrec(1)), id="PUBREC for QoS 1"),
    pytest.param(2, v5(Puback(1)), id="PUBACK for QoS 2"),
]


@pytest.mark.parametrize(("qos", "said"), MISTAKEN)
async def test_the_acknowledgement_of_another_qos_is_an_error_and_the_message_goes_again(
    qos: int, said: bytes
) -> None:
    async with (
        FakeServer(only_to(PUBLISH, said), well_behaved()) as server,
        opened(server.address, client_id="c") as client,
    ):
        assert await client.publish("a", "x", qos) == 0
        assert server.dismissed_with() == [PROTOCOL_ERROR]
        assert [one.connection for one in server.of(PUBLISH)] == [1, 2]


async def test_a_suback_with_fewer_codes_than_filters_is_an_error() -> None:
    """[MQTT-3.8.4-6]: else a filter would pass for subscribed of which the server said nothing."""
    short = only_to(SUBSCRIBE, lambda packet: suback(packet, [0]))
    whole = only_to(SUBSCRIBE, lambda packet: suback(packet, [0, 1]))
    async with (
        FakeServer(short, whole) as server,
        opened(server.address, client_id="c") as client,
    ):
        assert await client.subscribe("a", "b") == [0, 1]
        assert server.dismissed_with() == [PROTOCOL_ERROR]


async def test_a_filter_that_is_refused_is_told() -> None:
    async with (
        FakeServer(only_to(SUBSCRIBE, lambda packet: suback(packet, [0x87]))) as server,
        opened(server.address, client_id="c") as client,
    ):
        with pytest.raises(SubscribeFailed, match="not authorized"):
            await client.subscribe("a")


NOT_MQTT: Final = [
    pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="HTTP"),
    pytest.param(b"\x15\x03\x01\x00\x02\x02\x46", id="TLS"),
    pytest.param(b"\xd0\x00", id="PINGRESP before CONNACK"),
    pytest.param(connack(0, "3.1.1"), id="CONNACK of MQTT 3.1.1"),
    pytest.param(b"\x20\x7f", id="half a CONNACK"),
    pytest.param(connack(present=True), id="a session that cannot be"),
    pytest.param(None, id="the end"),
]


@pytest.mark.parametrize("said", NOT_MQTT)
async def test_a_server_that_speaks_no_mqtt_is_no_connection(said: bytes | None) -> None:
    async with FakeServer(only_to(CONNECT, said)) as server:
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1"):
            async with opened(server.address, client_id="c", connect_timeout_s=0.3):
                pass


@pytest.mark.parametrize("said", NOT_MQTT)
async def test_and_a_client_that_waits_gets_in_when_it_is_one(said: bytes | None) -> None:
    async with (
        FakeServer(only_to(CONNECT, said), well_behaved()) as server,
        opened(
            server.address, client_id="c", connect_timeout_s=0.3, waits_for_connection=False
        ) as client,
    ):
        assert await client.publish("a", "x", 2) == 0
        assert server.connections >= 2


async def test_a_server_that_dismisses_us_is_dialled_again() -> None:
    bye = v5(Disconnect(reasons.SERVER_SHUTTING_DOWN, Properties(reason_string="maintenance")))
    stati = Stati()
    async with (
        FakeServer(after_connack(bye), well_behaved()) as server,
        opened(server.address, client_id="c", status_changed=stati) as client,
    ):
        assert await client.publish("a", "x", 1) == 0
        waiting = stati.of("waiting")[0]
        assert waiting.reason_code == reasons.SERVER_SHUTTING_DOWN
        assert "maintenance" in waiting.error


async def test_a_message_the_server_has_no_room_for_is_published_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.client.client._QUOTA_PAUSE_S", 0.01)
    refusals = [reasons.QUOTA_EXCEEDED, reasons.QUOTA_EXCEEDED, reasons.SUCCESS]

    def answer(packet: Seen) -> bytes | None:
        if packet.kind == PUBLISH:
            return v5(Puback(packet.packet_id, refusals.pop(0)))
        return well_behaved()(packet)

    async with FakeServer(answer) as server, opened(server.address, client_id="c") as client:
        assert await client.publish("a", "x", 1) == 0
        assert refusals == []


async def test_a_message_the_server_never_has_room_for_fails_after_the_time_for_it() -> None:
    def answer(packet: Seen) -> bytes | None:
        if packet.kind == PUBLISH:
            return v5(Puback(packet.packet_id, reasons.QUOTA_EXCEEDED))
        return well_behaved()(packet)

    for retry_s, is_told_once in ((0.0, True), (0.01, False)):
        async with (
            FakeServer(answer) as server,
            opened(server.address, client_id="c", quota_retry_s=retry_s) as client,
        ):
            with pytest.raises(PublishFailed, match="quota exceeded"):
                await client.publish("a", "x", 1)
            assert (len(server.of(PUBLISH)) == 1) is is_told_once


@pytest.mark.parametrize("code", [reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED])
async def test_a_client_that_may_goes_where_the_server_says(code: int) -> None:
    async with FakeServer(well_behaved()) as other:
        named = Properties(server_reference="{}:{}".format(*other.address))

        def elsewhere(packet: Seen) -> bytes | None:
            return connack(code, properties=named) if packet.kind == CONNECT else None

        async with FakeServer(elsewhere) as server:
            async with opened(server.address, client_id="c", follow_references=True) as client:
                assert await client.publish("a", "x", 1) == 0
                assert client.status.url.endswith(str(other.address[1]))
            with pytest.raises(ConnectFailed):
                async with opened(server.address, client_id="c"):
                    pass


@pytest.mark.parametrize(("code", "asked"), [(0x9C, 2), (0x9D, 1)])
async def test_the_client_goes_to_the_other_server_once_or_for_good(code: int, asked: int) -> None:
    """Use another server, and server moved (v5 §4.11)."""
    async with FakeServer(only_to(PUBLISH, None), well_behaved()) as other:

        def elsewhere(packet: Seen) -> bytes | None:
            named = Properties(server_reference="{}:{}".format(*other.address))
            return connack(code, properties=named) if packet.kind == CONNECT else None

        async with (
            FakeServer(elsewhere) as server,
            opened(server.address, client_id="c", follow_references=True) as client,
        ):
            assert await client.publish("a", "x", 1) == 0
            assert (server.connections, other.connections) == (asked, 2)


async def test_servers_that_name_each_other_are_not_followed_for_ever() -> None:
    ring: list[FakeServer] = []

    def naming(number: int) -> Answer:
        def answer(packet: Seen) -> bytes | None:
            named = Properties(server_reference="{}:{}".format(*ring[number].address))
            return connack(0x9C, properties=named) if packet.kind == CONNECT else None

        return answer

    async with FakeServer(naming(1)) as first, FakeServer(naming(0)) as second:
        ring += [first, second]
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ConnectFailed):
                async with opened(first.address, client_id="c", follow_references=True):
                    pass
        assert (first.connections, second.connections) == (1, 1)


async def test_a_server_that_acknowledges_with_an_error_is_believed() -> None:
    async with (
        FakeServer(only_to(PUBLISH, v5(Puback(1, reasons.QUOTA_EXCEEDED)))) as server,
        opened(server.address, client_id="c") as client,
    ):
        publication = await client.send("a", "x", 1)
        with pytest.raises(PublishFailed, match="quota exceeded"):
            await publication
        assert client.pending == 0
