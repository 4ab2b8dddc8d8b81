"""WebSocket: what is granted, what is refused, and frames of every shape."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from wsproto.events import BytesMessage, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Connack, Connect, Publish
from tests.network.transports.conftest import Transports
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.dial import UpgradeRefusedError, WebSocket, dial_stream
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient

HEADERS: Final = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


@pytest.fixture
def url(transports: Transports) -> str:
    return transports.urls["ws"]


def opened(url: str, **options: Any) -> WebSocket:
    stream, path = dial_stream(url)
    return WebSocket(stream, **{"path": path, **options})


def answer(url: str, request: bytes) -> bytes:
    """Everything that comes back for bytes sent to a listener, to the end of the connection."""
    stream, _ = dial_stream(url)
    with closing(stream):
        stream.sendall(request)
        said = b""
        try:
            while data := stream.recv(65536):
                said += data
        except ConnectionResetError:
            pass  # closed while something of ours was unread
        return said


def upgrade(path: str = "/mqtt", method: str = "GET", **changes: str | None) -> bytes:
    """An upgrade with some headers other than they should be; None leaves one out."""
    headers: dict[str, str | None] = {**HEADERS}
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode()


def the_broker_still_serves(transports: Transports, name: str) -> None:
    with transports.join("ws", name) as client:
        client.publish(f"{name}/t", b"x", 1)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (("mqtt",), "mqtt"),
        (("mqttv3.1",), "mqttv3.1"),
        (("mqttv3.1", "mqtt"), "mqtt"),
        (("chat", "mqtt"), "mqtt"),
    ],
)
def test_the_subprotocol_is_mqtt(url: str, offered: tuple[str, ...], chosen: str) -> None:
    """[MQTT-6.0.0-4], [MQTT3-6.0.0-4]."""
    with closing(opened(url, subprotocols=offered)) as stream:
        assert stream.subprotocol == chosen


@pytest.mark.parametrize("offered", [(), ("chat",), ("MQTT",)])
def test_without_the_subprotocol_there_is_no_upgrade(url: str, offered: tuple[str, ...]) -> None:
    """[MQTT-6.0.0-4], [MQTT3-6.0.0-4]."""
    with pytest.raises(UpgradeRefusedError) as error:
        opened(url, subprotocols=offered)
    assert error.value.status_code == 400


@pytest.mark.parametrize(
    ("path", "status"), [("/", 404), ("/mqttt", 404), ("/mqtt?token=1", 0), ("/mqtt/", 0)]
)
def test_the_path(url: str, path: str, status: int) -> None:
    if status == 0:
        opened(url, path=path).close()
        return
    with pytest.raises(UpgradeRefusedError) as error:
        opened(url, path=path)
    assert error.value.status_code == status


def test_compression_is_not_granted(url: str) -> None:
    """A small frame could become a large one."""
    said = b""
    stream, _ = dial_stream(url)
    with closing(stream):
        stream.sendall(upgrade(Sec_WebSocket_Extensions="permessage-deflate"))
        while b"\r\n\r\n" not in said:
            said += stream.recv(65536)
    assert said.startswith(b"HTTP/1.1 101")
    assert b"extensions" not in said.lower()


@pytest.mark.parametrize("version", [V311, V5])
def test_a_text_frame_ends_the_connection(url: str, version: int, name: str) -> None:
    """[MQTT-6.0.0-1], [MQTT3-6.0.0-1]: whatever is in it."""
    with closing(opened(url)) as stream:
        client = RawClient(("", 0), version, stream)
        assert client.connect(name).reason_code == 0
        stream.send(TextMessage(data="\x10\x00"))
        client.expect_end()
        assert stream.closed_with == CloseReason.UNSUPPORTED_DATA


def test_fragmented_messages_and_frames_that_cut_packets(url: str, name: str) -> None:
    """[MQTT-6.0.0-2], [MQTT3-6.0.0-2]: no frame begins or ends where a packet does."""
    packets = encode(Connect(name, V5), V5) + b"".join(
        encode(Publish(f"{name}/t", bytes(300), 1, packet_id=number), V5) for number in range(1, 50)
    )
    with closing(opened(url)) as stream:
        for start in range(0, len(packets), 7):
            last = start % 5 == 0 or start + 7 >= len(packets)
            stream.send(BytesMessage(packets[start : start + 7], message_finished=last))
            if last:
                stream.send(Ping(b"between"))
        client = RawClient(("", 0), V5, stream)
        assert client.expect(Connack).reason_code == 0
        received = [client.receive() for _ in range(49)]
        assert [getattr(packet, "packet_id", 0) for packet in received] == list(range(1, 50))


def test_sent_in_binary_frames_however_they_are_read(url: str, name: str) -> None:
    """[MQTT-6.0.0-1], [MQTT3-6.0.0-1]: what the server sends; no frame is empty or text."""
    with closing(opened(url)) as stream:
        client = RawClient(("", 0), V5, stream)
        client.connect(name)
        client.subscribe(f"{name}/t")
        client.publish(f"{name}/t", bytes(100_000))
        assert len(client.take().payload) == 100_000
        assert sum(len(frame) for frame in stream.frames) > 100_000
        assert all(stream.frames)


def test_ping_is_answered_by_pong(url: str) -> None:
    with closing(opened(url)) as stream:
        stream.send(Ping(b"who is there"))
        while not stream.pongs:
            stream.read()
        assert stream.pongs == [b"who is there"]


def test_a_silent_connection_is_pinged_and_one_that_is_sent_to_is_not(
    start: Callable[..., Broker],
) -> None:
    """A proxy between cut a client with a long keep alive after a minute without a frame."""
    url = start(ws_ping_s=0.2, path="*").urls[1]
    with closing(opened(url, path="/any/path")) as stream:
        client = RawClient(("", 0), V5, stream)
        client.connect("silent")
        while stream.pings < 3:
            stream.read()
        client.publish("t", b"x", 1)  # its pongs were no MQTT


def test_the_end_of_mqtt_is_a_close_frame(url: str, name: str) -> None:
    with closing(opened(url)) as stream:
        client = RawClient(("", 0), V5, stream)
        client.connect(name)
        client.disconnect()
        assert stream.closed_with == CloseReason.NORMAL_CLOSURE


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (upgrade(method="POST", Content_Length="5") + b"hello", b"400"),
        (upgrade(Sec_WebSocket_Version="8"), b"426"),
        (upgrade(Sec_WebSocket_Key=None), b"400"),
        (upgrade(Upgrade="h2c"), b"400"),
        (upgrade(Connection="close"), b"400"),
        (upgrade(Host=None), b"400"),
        (upgrade(path="/elsewhere"), b"404"),
        (upgrade(path="http://other/else?x=1#y"), b"404"),
        (upgrade(path="//[::1"), b"404"),
        (upgrade(Sec_WebSocket_Protocol="chat"), b"400"),
        (upgrade(Sec_WebSocket_Protocol="\xff"), b"400"),
        (upgrade(Host="\xff\xfe"), b"400"),
        (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + 20_000 * b"x", b"400"),
        (b"GET /" + 100_000 * b"x", b"400"),
        (b"\r\n\r\n\r\n\r\n NONSENSE \r\n\r\n", b"400"),
    ],
)
def test_a_request_that_is_no_upgrade_is_refused(
    transports: Transports, url: str, request_bytes: bytes, status: bytes, name: str
) -> None:
    said = answer(url, request_bytes)
    assert said[:12] in (b"HTTP/1.1 " + status, b""), said
    the_broker_still_serves(transports, name)


FRAMES = {
    "not masked": "82 01 00",
    "reserved bit": "c2 80 00 00 00 00",
    "unknown opcode": "83 80 00 00 00 00",
    "unknown control opcode": "8b 80 00 00 00 00",
    "fragmented ping": "09 80 00 00 00 00",
    "long ping": "89 fe 00 7e 00 00 00 00",
    "continuation of nothing": "80 80 00 00 00 00",
    "negative length": "82 ff ff ff ff ff ff ff ff ff 00 00 00 00",
    "length in too many bytes": "82 fe 00 01 00 00 00 00 10",
    "text that is not UTF-8": "81 81 00 00 00 00 ff",
    "close with one byte": "88 81 00 00 00 00 03",
    "close with a forbidden code": "88 82 00 00 00 00 03 ed",
    "nothing but a close": "88 80 00 00 00 00",
}


@pytest.mark.parametrize("case", FRAMES)
def test_bad_frames_end_the_connection(
    transports: Transports, url: str, case: str, name: str
) -> None:
    stream, _ = dial_stream(url)
    with closing(WebSocket(stream)) as client:
        stream.sendall(bytes.fromhex(FRAMES[case]))
        while client.read():
            pass
    the_broker_still_serves(transports, name)


def test_a_frame_larger_than_any_packet_is_not_kept(url: str, name: str) -> None:
    """It is passed on as it comes: the packet in it is too large, and says so at once."""
    stream, _ = dial_stream(url)
    with closing(WebSocket(stream)) as above:
        client = RawClient(("", 0), V5, above)
        client.connect(name)
        head = bytes.fromhex("82 ff 00 00 00 40 00 00 00 00 00 00 00 00")
        stream.sendall(head + bytes.fromhex("30 ff ff ff 7f"))
        client.expect_disconnect(0x95)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start a broker with a WebSocket listener of these settings."""
    running = []

    def start(**settings: Any) -> Broker:
        listener = {"name": "ws", "kind": "ws", "bind": "127.0.0.1:0", **settings}
        broker = running_broker(tmp_path, {"listener.others": json.dumps([listener])}, "memory")
        running.append(broker)
        return broker.__enter__()

    yield start
    for broker in running:
        broker.__exit__(None, None, None)


def test_web_pages_of_other_origins_are_kept_out(start: Callable[..., Broker]) -> None:
    url = start(origins=["https://dashboard.example"]).urls[1]
    opened(url).close()
    opened(url, headers=((b"Origin", b"https://dashboard.example"),)).close()
    for origin in (b"https://evil.example", b"null"):
        with pytest.raises(UpgradeRefusedError) as error:
            opened(url, headers=((b"Origin", origin),))
        assert error.value.status_code == 403


@pytest.mark.parametrize("sent", [b"", b"GET /mqtt HTTP/1.1\r\n", upgrade()])
def test_an_upgrade_or_connect_that_never_comes_is_cut(
    start: Callable[..., Broker], sent: bytes
) -> None:
    url = start(connect_timeout_s=0.5).urls[1]
    stream, _ = dial_stream(url)
    with closing(stream):
        stream.settimeout(DEADLINE_S)
        stream.sendall(sent)
        try:
            while stream.recv(65536):
                pass
        except ConnectionResetError:
            pass
