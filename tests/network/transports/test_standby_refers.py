"""A standby that refers: every client of every transport is told where the primary is."""

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Connack, Connect
from penstock.protocol.properties import Properties
from tests.network.transports.conftest import listeners
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.dial import Authority, dial
from tests.support.raw_client import RawClient, connect
from tests.support.standby import Standby

PRIMARY = "192.0.2.1:1884"
Start = Callable[..., Standby]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a standby with these settings of its main listener."""
    started: list[Standby] = []

    def start(primary: str = PRIMARY, **settings: Any) -> Standby:
        inherited = settings.pop("inherited", None)
        listener = {"bind": "127.0.0.1:0", **settings}
        started.append(Standby({"listener": listener}, primary, inherited=inherited))
        return started[-1]

    yield start
    for standby in started:
        standby.close()


def answer(standby: Standby, version: int = V5) -> Connack:
    with RawClient(standby.addresses()[0], version) as client:
        wanted = Properties(request_problem_information=1) if version == V5 else None
        found = client.connect("c", properties=wanted)
        client.expect_end()
        return found


def test_every_version_has_its_answer(start: Start) -> None:
    standby = start()
    found = answer(standby)
    assert found.reason_code == reasons.USE_ANOTHER_SERVER
    assert found.properties is not None
    assert found.properties.server_reference == PRIMARY
    for version in (V31, V311):
        assert answer(standby, version).reason_code == reasons.SERVER_UNAVAILABLE
    standby.primary = ""
    assert answer(standby).reason_code == reasons.SERVER_UNAVAILABLE
    assert standby.values()["standby_clients_referred"] == 4


def test_every_transport(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    others = listeners(tmp_path, authority)
    standby = start(others=others)
    for url, listener in zip(standby.listeners.urls, ({}, *others), strict=True):
        with RawClient(("", 0), V5, dial(url, authority.client_context())) as client:
            found = client.connect("c")
        if "bind" not in listener or listener.get("kind") == "unix":
            assert found.properties is not None
            assert found.properties.server_reference == PRIMARY
        else:  # any free port: that of the primary is not known
            assert found.reason_code == reasons.SERVER_UNAVAILABLE


def test_each_listener_names_the_port_of_its_own(start: Start) -> None:
    with socket.create_server(("127.0.0.2", 0)) as reserved:
        port = reserved.getsockname()[1]
    start(others=[{"name": "second", "bind": f"127.0.0.2:{port}"}])
    with RawClient(("127.0.0.2", port)) as client:
        found = client.connect("c")
    assert found.properties is not None
    assert found.properties.server_reference == f"192.0.2.1:{port}"


@pytest.mark.parametrize("primary", ["0.0.0.0:1883", "[::]:1883", "b:0", "nonsense"])
def test_a_primary_that_names_no_machine_is_none(start: Start, primary: str) -> None:
    assert answer(start(primary)).reason_code == reasons.SERVER_UNAVAILABLE


@pytest.mark.parametrize(
    "first",
    [
        b"",  # says nothing
        b"\x10",  # and nothing more
        encode(Connect("c", V5, True, 0), V5)[:-1],
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xc0\x00",
        bytes(100_000),
    ],
)
def test_a_connection_without_a_connect_is_closed(start: Start, first: bytes) -> None:
    standby = start(connect_timeout_s=0.5)
    stream = connect(standby.addresses()[0])
    stream.sendall(first)
    with RawClient(("", 0), V5, stream) as client:
        client.expect_end()
    wait_for("the count", lambda: standby.values()["standby_clients_refused"] == 1)


def test_slow_bytes_do_not_put_the_end_off(start: Start) -> None:
    standby = start(connect_timeout_s=0.5)
    stream = connect(standby.addresses()[0])

    def ended() -> bool:
        try:
            stream.sendall(b"\x10\xff\xff\x03\x00\x04MQTT\x04\x02\x00\x00"[:1])
            stream.settimeout(0.02)
            return stream.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    with stream:
        wait_for("the end", ended)


def test_a_huge_connect_is_refused_by_its_length(start: Start) -> None:
    standby = start()
    with RawClient(standby.addresses()[0]) as client:
        client.send_bytes(b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05\x02\x00\x00")
        assert client.expect(Connack).reason_code == reasons.PACKET_TOO_LARGE
        client.expect_end()


def test_bounds_hold_as_on_the_broker(start: Start) -> None:
    standby = start(max_connections=1, connect_timeout_s=60)
    with connect(standby.addresses()[0]) as first, connect(standby.addresses()[0]) as second:
        assert second.recv(1) == b""
        first.sendall(encode(Connect("c", V311, True, 0), V311))
        assert first.recv(4) == bytes([0x20, 2, 0, 3])


def test_half_received_bytes_are_bounded_for_all_together() -> None:
    begun = encode(Connect("c", V5, True, 0, username="u" * 60_000), V5)[:-1]
    standby = Standby(
        {"listener": {"bind": "127.0.0.1:0"}, "memory": {"half_received_bytes_max": 100_000}}
    )
    try:
        with connect(standby.addresses()[0]) as first, connect(standby.addresses()[0]) as second:
            for stream in (first, second):
                stream.sendall(begun)
            wait_for("one is closed", lambda: standby.values()["standby_clients_refused"] == 1)
            first.setblocking(False)
            second.setblocking(False)
            alive = [stream for stream in (first, second) if not _has_ended(stream)]
            assert len(alive) == 1
            alive[0].settimeout(DEADLINE_S)
            alive[0].sendall(b"u")
            assert alive[0].recv(2)[0] == 0x20
    finally:
        standby.close()


def _has_ended(stream: socket.socket) -> bool:
    try:
        return stream.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_the_proxy_header_is_read_as_on_the_broker(start: Start) -> None:
    standby = start(proxy_protocol="any", proxy_networks=["127.0.0.1/32"])
    stream = connect(standby.addresses()[0])
    stream.sendall(b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 1883\r\n")
    with RawClient(("", 0), V5, stream) as client:
        assert client.connect("c").reason_code == reasons.USE_ANOTHER_SERVER


# -- takeover ------------------------------------------------------------------------------


def test_no_client_is_refused_while_the_sockets_are_handed_on(start: Start, tmp_path: Path) -> None:
    """Neither a TCP nor a Unix client that comes while nobody accepts."""
    path = tmp_path / "mqtt.sock"
    others = [{"name": "unix", "kind": "unix", "bind": str(path)}]
    first = start(others=others)
    address = first.addresses()[0]
    standing = connect(address)
    sockets = first.detach()
    assert standing.recv(1) == b"", "those that stand are closed at once"
    unix = socket.socket(socket.AF_UNIX)
    unix.connect(str(path))
    clients = [RawClient(address), RawClient(("", 0), V5, unix)]
    second = start(inherited=sockets, others=others)
    assert second.addresses()[0] == address
    for client in clients:
        assert client.connect("c").reason_code == reasons.USE_ANOTHER_SERVER
        client.drop()
    standing.close()
    second.close()
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, DEADLINE_S)


def test_the_broker_can_listen_at_once_where_a_standby_listened(
    start: Start, tmp_path: Path
) -> None:
    standby = start()
    host, port = standby.addresses()[0]
    standing = [connect((host, port)) for _ in range(20)]
    standby.close()
    broker = Broker(tmp_path, persistence="memory")
    broker.address = host, port
    try:
        broker.start()
        with RawClient(broker.address) as client:
            assert client.connect("c").reason_code == reasons.SUCCESS
    finally:
        broker.close()
    for stream in standing:
        stream.close()


def test_sockets_of_another_address_are_closed(start: Start) -> None:
    first = start()
    address = first.addresses()[0]
    sockets = first.detach()
    start(inherited=sockets, bind="127.0.0.3:0")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, DEADLINE_S)


def test_a_client_that_resets_is_forgotten(start: Start) -> None:
    standby = start(connect_timeout_s=60)
    stream = connect(standby.addresses()[0])
    stream.sendall(b"\x10")
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
    wait_for("its end", lambda: standby.values()["standby_clients_refused"] == 1)
