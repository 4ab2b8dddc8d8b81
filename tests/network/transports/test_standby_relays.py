"""A standby that relays: its clients are served by the primary as if they had come to it."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from penstock.protocol import reasons
from penstock.protocol.kinds import V5, V31, V311
from penstock.transport.proxy_protocol import ProxyHeader
from tests.interop import mosquitto
from tests.interop.paho_client import VERSIONS, PahoClient
from tests.support.broker import Broker, address_of
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.dial import Authority, WebSocket
from tests.support.fixtures import running_broker
from tests.support.raw_client import ByteStream, RawClient, connect
from tests.support.standby import LOOPS, Standby

STANDBY: Final = "127.0.0.2"
"""Address of the standby; the primary is at 127.0.0.1, with the same ports."""


_ENDLESS_BYTES: Final = 64 * 2**20


class Plant:
    """A primary with listeners, and a standby with the same."""

    def __init__(self, broker: Broker, standby: Standby, authority: Authority) -> None:
        self.broker = broker
        self.standby = standby
        self.authority = authority

    def dial(self, number: int) -> socket.socket:
        """A connection to a listener of the standby, from an address of its own."""
        address = self.standby.addresses()[number]
        return socket.create_connection(address, DEADLINE_S, ("127.0.0.5", 0))


def settings_of(host: str, ports: list[int], certificate: tuple[str, str]) -> dict[str, Any]:
    """The listeners of one machine: main, TLS with client certificates, WebSocket.

    Stock clients come to the standby from the address that the standby has for the primary.
    """
    trusted = ["127.0.0.1/32" if host == "127.0.0.1" else "127.0.0.9/32"]
    behind = {"proxy_protocol": "v2", "proxy_networks": trusted, "proxy_networks_only": False}
    pem, key = certificate
    main, tls, ws = (f"{host}:{port}" for port in ports)
    encrypted = {
        "certificate": pem,
        "key": key,
        "client_ca": str(Path(pem).parent / "authority.pem"),
    }
    others = [
        {"name": "tls", "kind": "tls", "bind": tls, **encrypted, **behind},
        {"name": "ws", "kind": "ws", "bind": ws, **behind},
    ]
    return {"bind": main, "others": others, **behind}


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    directory = tmp_path_factory.mktemp("plant")
    authority = Authority(directory)
    certificate = authority.issue("server", "localhost")
    settings = settings_of("127.0.0.1", [0, 0, 0], certificate)
    given = {f"listener.{name}": json.dumps(value) for name, value in settings.items()}
    given |= {"listener.proxy_protocol": "v2"}
    del given["listener.bind"]
    with running_broker(directory, given, "memory") as broker:
        ports = [address_of(url.removesuffix("/mqtt"))[1] for url in broker.urls]
        listener = settings_of(STANDBY, ports, certificate)
        primary = "{}:{}".format(*broker.address)
        relaying = {"standby_clients": "relay"}
        standby = Standby({"listener": listener, "cluster": relaying}, primary)
        try:
            yield Plant(broker, standby, authority)
        finally:
            standby.close()


def assert_served(plant: Plant, client_id: str, stream: ByteStream, peer: str) -> None:
    """Connect, subscribe, get what was published; the broker names the client's own address."""
    with RawClient(("", 0), V5, stream) as client:
        assert client.connect(client_id).reason_code == reasons.SUCCESS
        client.subscribe(client_id, qos=1)
        client.publish(client_id, b"x", 1)
        assert client.take().payload == b"x"
    said = f"client {client_id} connected from {peer}"
    wait_for("the log line", lambda: said in plant.broker.log())


def test_every_transport_and_the_clients_own_address(plant: Plant) -> None:
    """TLS ends at the primary, which sees the client's certificate."""
    plain, encrypted, websocket = (plant.dial(number) for number in range(3))
    names = ["{}:{}".format(*stream.getsockname()) for stream in (plain, encrypted, websocket)]
    own = plant.authority.issue("meter", "meter.example", common_name="meter-7")
    context = plant.authority.client_context(own)
    assert_served(plant, "relayed-tcp", plain, names[0])
    secure = context.wrap_socket(encrypted, server_hostname="localhost")
    assert_served(plant, "relayed-tls", secure, names[1])
    assert_served(plant, "relayed-ws", WebSocket(websocket), names[2])


@pytest.mark.parametrize("version", [V31, V311])
def test_older_versions(plant: Plant, version: int) -> None:
    with RawClient(("", 0), version, plant.dial(0)) as client:
        assert client.connect(f"older-{version}").reason_code == reasons.SUCCESS


def test_a_client_that_comes_to_the_primary_needs_no_header(plant: Plant) -> None:
    stream = socket.create_connection(plant.broker.address, DEADLINE_S, ("127.0.0.6", 0))
    peer = "{}:{}".format(*stream.getsockname())
    assert_served(plant, "direct", stream, peer)


def test_the_primary_closes_connections_without_a_header_from_a_standbys_address(
    plant: Plant,
) -> None:
    with RawClient(plant.broker.address) as client, pytest.raises(AssertionError):
        client.connect("without-header")


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_paho(plant: Plant, version: MQTTProtocolVersion) -> None:
    name = f"paho-{version.name}"
    client = PahoClient(name, version, False, "")
    assert not client.connect(plant.standby.addresses()[0], 60)
    try:
        client.subscribe(name, 2)
        for number in range(50):
            client.client.publish(name, b"%d" % number, 2)
        client.publish(name, bytes(900_000), 2)
        received = [message.payload for message in client.take(51)]
    finally:
        client.leave()
    assert received == [*(b"%d" % number for number in range(50)), bytes(900_000)]


@mosquitto.needed
def test_mosquitto_pub(plant: Plant) -> None:
    host, port = plant.standby.addresses()[0]
    where = ["-h", host, "-p", str(port)]
    with RawClient(("", 0), V5, plant.dial(0)) as client:
        client.connect("behind-mosquitto")
        client.subscribe("mosquitto/1", qos=1)
        mosquitto.publish(
            plant.broker, "mqttv311", "mosquitto/1", "-q", "1", "-m", "hello", at=where
        )
        assert client.take().payload == b"hello"


# -- against a primary of the test's -------------------------------------------------------


class Primary:
    """A server that reads the header, and then does what a test says."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(DEADLINE_S)
        self.header = ProxyHeader("v2")

    def accept(self) -> socket.socket:
        """The next connection, behind its header."""
        stream, _ = self.listening.accept()
        stream.settimeout(DEADLINE_S)
        self.header = ProxyHeader("v2")
        while not self.header.is_complete:
            self.header.feed(stream.recv(self.header.bytes_needed()))
        return stream


@pytest.fixture
def primary() -> Iterator[Primary]:
    made = Primary()
    with made.listening:
        yield made


@pytest.fixture(params=list(LOOPS))
def standby(primary: Primary, request: pytest.FixtureRequest) -> Iterator[Standby]:
    address = "{}:{}".format(*primary.listening.getsockname())
    settings = {
        "listener": {
            "bind": f"{STANDBY}:0",
            "proxy_protocol": "any",
            "proxy_networks": ["127.0.0.9/32"],
            "proxy_networks_only": False,
            "connect_timeout_s": 1,  # half of it for the next primary
        },
        "cluster": {"standby_clients": "relay"},
    }
    made = Standby(settings, address, loop=request.param)
    yield made
    made.close()


def test_half_close_and_every_byte(primary: Primary, standby: Standby) -> None:
    """A client that ends its half still gets the answer."""
    sent = bytes(range(256)) * 20_000
    with connect(standby.addresses()[0]) as client, primary.accept() as served:
        writing = threading.Thread(target=_send_and_end, args=(client, sent))
        writing.start()
        assert _read_to_end(served) == sent
        writing.join()
        _send_and_end(served, sent[::-1])
        assert _read_to_end(client) == sent[::-1]
    wait_for("the end", lambda: standby.values()["standby_relays"] == 0)


def test_a_client_that_does_not_read_is_not_sent_more_than_the_buffers(
    primary: Primary, standby: Standby
) -> None:
    """The sender blocks, soon after what the systems buffer, and nothing is lost."""
    with connect(standby.addresses()[0]) as client, primary.accept() as served:
        taken = _send_until_blocked(client)
        assert taken < _ENDLESS_BYTES
        client.shutdown(socket.SHUT_WR)
        assert len(_read_to_end(served)) == taken


def test_a_reset_of_one_side_ends_the_other(primary: Primary, standby: Standby) -> None:
    client = connect(standby.addresses()[0])
    with primary.accept() as served:
        _reset(client)
        assert _read_to_end(served) == b""
    with connect(standby.addresses()[0]) as client:
        _reset(primary.accept())
        assert _read_to_end(client) == b""
    wait_for("both ends", lambda: standby.values()["standby_relays"] == 0)


def test_a_connection_that_was_relayed_once_is_not_relayed_again(standby: Standby) -> None:
    """Two standbys that take each other for the primary."""
    header = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x13\xe0\x00\x10penstock standby"
    stream = socket.create_connection(standby.addresses()[0], DEADLINE_S, ("127.0.0.9", 0))
    stream.sendall(header)
    with RawClient(("", 0), V5, stream) as client:
        assert client.connect("c").reason_code == reasons.SERVER_UNAVAILABLE
    assert standby.values()["standby_clients_relayed"] == 0


def test_without_a_primary_clients_are_told_to_try_again(
    primary: Primary, standby: Standby
) -> None:
    known, standby.primary = standby.primary, ""
    with RawClient(standby.addresses()[0]) as client:
        assert client.connect("c").reason_code == reasons.SERVER_UNAVAILABLE
    primary.listening.close()
    standby.primary = known
    with RawClient(standby.addresses()[0]) as client:
        assert client.connect("c").reason_code == reasons.SERVER_UNAVAILABLE
    assert standby.values()["standby_relays_failed"] == 1


def test_a_client_that_comes_between_two_primaries_waits_for_the_next(
    primary: Primary, standby: Standby
) -> None:
    """mosquitto_sub, for example, gives up where it is refused."""
    known, standby.primary = standby.primary, ""
    with connect(standby.addresses()[0]) as client:
        client.sendall(b"hello")
        standby.primary = known
        with primary.accept() as served:
            assert served.recv(5) == b"hello"
    assert standby.values()["standby_relays_failed"] == 0


def test_another_primary_ends_what_leads_to_the_old_one(primary: Primary, standby: Standby) -> None:
    with connect(standby.addresses()[0]) as client, primary.accept():
        standby.primary = "192.0.2.1:1883"
        assert _read_to_end(client) == b""


def test_many_at_once_and_a_quick_end(primary: Primary, standby: Standby) -> None:
    clients = [connect(standby.addresses()[0]) for _ in range(100)]
    served = [primary.accept() for _ in clients]
    assert standby.values()["standby_relays"] == 100
    standby.close()
    for stream in (*clients, *served):
        assert _read_to_end(stream) == b""
        stream.close()


def test_a_standby_that_stops_passes_on_what_the_primary_still_acknowledges(
    primary: Primary, standby: Standby
) -> None:
    """What a client sends meanwhile is not taken over by anybody."""
    with connect(standby.addresses()[0]) as client, primary.accept() as served:
        client.sendall(b"message")
        assert served.recv(100) == b"message"
        draining = standby.start(standby.listeners.drain())
        client.sendall(b"another")
        served.sendall(b"acknowledged")
        assert _read_to_end(client) == b"acknowledged"
        client.close()
        assert _read_to_end(served) == b""
        served.close()
        draining.result(DEADLINE_S)
    assert standby.values()["standby_relays"] == 0


@pytest.mark.torture("it waits for the whole time limit")
def test_messages_without_a_pause_do_not_hold_the_stop_of_a_standby(
    primary: Primary, standby: Standby
) -> None:
    with connect(standby.addresses()[0]) as client, primary.accept() as served:
        draining = standby.start(standby.listeners.drain())
        while not draining.done():
            with contextlib.suppress(OSError):
                served.sendall(b"message")
        assert _read_to_end(client)
        draining.result(DEADLINE_S)


def _send_until_blocked(stream: socket.socket) -> int:
    """Send until nothing is taken for half a second; how much was taken."""
    stream.settimeout(0.5)
    taken = 0
    try:
        while taken < _ENDLESS_BYTES:
            taken += stream.send(bytes(65_536))
    except TimeoutError:
        pass
    stream.settimeout(DEADLINE_S)
    return taken


def _send_and_end(stream: socket.socket, data: bytes) -> None:
    stream.sendall(data)
    stream.shutdown(socket.SHUT_WR)


def _read_to_end(stream: socket.socket) -> bytes:
    found = bytearray()
    try:
        while data := stream.recv(65_536):
            found += data
    except ConnectionResetError:
        assert not found
    return bytes(found)


def _reset(stream: socket.socket) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
