"""Hostile input over real sockets: the answer that is specified, and a bystander undisturbed.

The table is in ``hostile.py``. While each case runs, another client publishes to itself without
a pause; it must go on afterwards, having lost nothing.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
)
from tests.network.hostile import (
    MAX_PACKET_SIZE_BYTES,
    ODDITIES,
    OFFENCES,
    OPENINGS,
    RECEIVE_MAXIMUM,
    TOPIC_ALIAS_MAXIMUM,
    Oddity,
    Offence,
    Opening,
)
from tests.support.broker import Broker
from tests.support.bystander import Bystander
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import ConnectionEndedError

CONNECT_TIMEOUT_S: Final = 1.0

BY_VERSION: Final = {V31: "3.1", V311: "3.1.1", V5: "5"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with small limits, so that they can be reached."""
    settings = {
        "listener.connect_timeout_s": CONNECT_TIMEOUT_S,
        "limits.max_packet_size_bytes": MAX_PACKET_SIZE_BYTES,
        "limits.receive_maximum": RECEIVE_MAXIMUM,
        "limits.topic_alias_maximum": TOPIC_ALIAS_MAXIMUM,
    }
    with running_broker(tmp_path_factory.mktemp("hostile"), settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def everyone(target: Broker) -> Iterator[Bystander]:
    """The one whom nobody may disturb."""
    with Bystander(target.address, "bystander") as bystander:
        yield bystander


@pytest.fixture(autouse=True)
def bystander(everyone: Bystander) -> Iterator[Bystander]:
    """It goes on after each case."""
    yield everyone
    everyone.check()


@pytest.mark.parametrize("pieces", ["whole", "byte by byte"])
@pytest.mark.parametrize(
    ("case", "version"),
    [
        pytest.param(case, version, id=f"v{BY_VERSION[version]} {case.name}")
        for case in OFFENCES
        for version in case.versions
    ],
)
def test_an_offence_ends_the_connection(
    target: Broker, clients: Clients, name: str, case: Offence, version: int, pieces: str
) -> None:
    """[MQTT-4.13.1-1], [MQTT3-4.8.0-1]: told why in MQTT 5, closed in all versions."""
    client = clients.join(target, name, version)
    sent = bytes.fromhex(case.sent)
    step = len(sent) if pieces == "whole" else 1
    with contextlib.suppress(ConnectionError):  # it may be closed before the last byte
        for position in range(0, len(sent), step):
            client.send_bytes(sent[position : position + step])
    try:
        packet = client.receive()
        while isinstance(packet, Puback | Pubrec):  # of what came before the offence
            packet = client.receive()
        assert version == V5, f"{packet} for an older client"
        assert isinstance(packet, Disconnect), packet
        assert packet.reason_code == case.reason, packet
        assert packet.properties is not None
        assert packet.properties.reason_string
        client.expect_end()
    except ConnectionEndedError:
        assert version != V5, "closed without a DISCONNECT"


@pytest.mark.parametrize("case", OPENINGS, ids=lambda case: case.name)
def test_an_opening_that_is_refused(target: Broker, clients: Clients, case: Opening) -> None:
    """[MQTT-3.1.4-1]: the connection is closed, with a CONNACK only where one can be read."""
    client = clients.open(target, case.version)
    client.send_bytes(bytes.fromhex(case.sent))
    if case.code is not None:
        answer = client.expect(Connack)
        assert answer.session_present is False
        expected = case.code
        if case.version != V5:
            expected = {1: 0x84, 2: 0x85}[case.code]
        assert answer.reason_code == expected, answer
    client.expect_end()


@pytest.mark.parametrize(
    ("case", "version"),
    [
        pytest.param(case, version, id=f"v{BY_VERSION[version]} {case.name}")
        for case in ODDITIES
        for version in case.versions
    ],
)
def test_an_oddity_is_answered_and_forgiven(
    target: Broker, clients: Clients, name: str, case: Oddity, version: int
) -> None:
    client = clients.join(target, name, version)
    client.send_bytes(bytes.fromhex(case.sent))
    answers = b"".join(encode(packet, version) for packet in client.settle())
    assert answers.hex() == case.answer.replace(" ", "")


# -- more than some bytes ------------------------------------------------------------------


def test_messages_owed_to_the_offender_are_kept(
    target: Broker, clients: Clients, name: str
) -> None:
    """The session outlives its connection, whatever ended that."""
    publisher = clients.join(target, f"{name}p")
    first = clients.join(target, name, clean_start=False, expiry_s=60)
    first.subscribe(name, qos=2)
    publisher.publish(name, b"one", 1)
    publisher.publish(name, b"two", 2)
    assert first.expect(Publish).payload == b"one"
    assert first.expect(Publish).payload == b"two"
    first.send_bytes(b"\x00\x00")
    first.expect_disconnect(0x81)
    publisher.publish(name, b"three", 1)
    second = clients.join(target, name, clean_start=False, expiry_s=60, present=True)
    assert second.take_payloads(3) == [b"one", b"two", b"three"]


def test_nothing_behind_a_disconnect_is_read(target: Broker, clients: Clients, name: str) -> None:
    """[MQTT-3.14.4-1]: a flood after DISCONNECT reaches nobody."""
    listener = clients.join(target, f"{name}s")
    listener.subscribe(name)
    client = clients.join(target, name)
    flood = encode(Publish(name, bytes(1000)), V5) * 2000
    with contextlib.suppress(ConnectionError):
        client.send_bytes(encode(Publish(name, b"last"), V5) + encode(Disconnect(), V5) + flood)
    assert listener.take().payload == b"last"
    assert listener.settle() == []
    assert client.has_ended(15)


def test_a_flood_of_messages_to_sys_is_refused_one_by_one(
    target: Broker, clients: Clients, name: str
) -> None:
    client = clients.join(target, name)
    for packet_id in range(1, 501):
        client.send(Publish("$SYS/broker/version", b"mine", 1, packet_id=packet_id))
        assert client.expect(Puback) == Puback(packet_id, 0x87)


def test_a_connect_that_never_ends_is_given_up(target: Broker, clients: Clients) -> None:
    """A byte now and then keeps nobody's place: the connect timeout is for all of CONNECT."""
    client = clients.open(target)
    whole = encode(Connect("slow", V5), V5)
    stop = threading.Event()

    def trickle() -> None:
        try:
            for byte in whole[:-1]:
                client.send_bytes(bytes((byte,)))
                if stop.wait(CONNECT_TIMEOUT_S / 4):
                    return
        except ConnectionError:
            return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        client.expect_end(10 * CONNECT_TIMEOUT_S)
    finally:
        stop.set()
        thread.join()


def test_half_open_connections_are_found_by_their_silence(
    target: Broker, clients: Clients, name: str
) -> None:
    """[MQTT-3.1.2-22]: half a packet is not a packet, however many bytes of it come."""
    client = clients.join(target, name, keep_alive_s=1)
    started = encode(Publish(name, bytes(3000), 1, packet_id=1), V5)
    for byte in started[:5]:
        client.send_bytes(bytes((byte,)))
    client.expect_disconnect(0x8D)


def test_many_who_only_connect(target: Broker, clients: Clients) -> None:
    """Two hundred sockets that say nothing cost the others nothing, and end."""
    silent = [clients.open(target) for _ in range(200)]
    for client in silent:
        client.expect_end(10 * CONNECT_TIMEOUT_S)


def test_connections_that_come_and_go_with_half_a_packet(target: Broker, clients: Clients) -> None:
    connect = encode(Connect("passing", V5), V5)
    for size in range(len(connect)):
        client = clients.open(target)
        client.send_bytes(connect[:size])
        client.drop()


def test_everything_at_once(target: Broker, clients: Clients, name: str) -> None:
    """All offences from as many clients at the same time."""
    opened = []
    for number, case in enumerate(OFFENCES):
        version = case.versions[-1]
        client = clients.join(target, f"{name}x{number}", version)
        opened.append((client, case))
    for client, case in opened:
        client.send_bytes(bytes.fromhex(case.sent))
    for client, case in opened:
        assert client.has_ended(15), case.name


def test_the_broker_remembers_nobody(target: Broker, clients: Clients, name: str) -> None:
    """After all of it the offenders' sessions are over: their names are free and empty."""
    client = clients.join(target, name, clean_start=False, expiry_s=0)
    client.send_bytes(b"\x00\x00")
    client.expect_disconnect(0x81)
    again = clients.join(target, name, clean_start=False, expiry_s=0, present=False)
    assert again.settle() == []


def test_a_disturbed_bystander_says_so(target: Broker, clients: Clients, name: str) -> None:
    """The proof above can fail: this one gets a message that is not its own."""
    disturbed = Bystander(target.address, name)
    disturbed.__enter__()
    clients.join(target, f"{name}x").publish(name, b"yours?", 1)
    wait_for("the bystander to see it", lambda: disturbed.failed)
    disturbed.stop()
    with pytest.raises(AssertionError, match="was disturbed"):
        disturbed.check()
