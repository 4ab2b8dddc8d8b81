"""Clients that do not read, read slowly, send too fast or vanish, over real sockets."""

import fcntl
import socket
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from tests.support.broker import Broker
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.fixtures import Clients, running_broker

BUFFER_BYTES = 65_536
MIB = 2**20
PATIENCE_S = 1.0
SLOW_S = 3.0  # that a slow reader reads
ATTEMPTS_MAX = 10


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with small buffers that gives up soon who does not read."""
    settings = {
        "listener.write_buffer_bytes_max": BUFFER_BYTES,
        "listener.slow_peer_timeout_s": PATIENCE_S,
    }
    with running_broker(tmp_path_factory.mktemp("impatient"), settings, "file") as broker:
        yield broker


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with small buffers that waits for ever."""
    settings = {
        "listener.write_buffer_bytes_max": BUFFER_BYTES,
        "listener.slow_peer_timeout_s": 0,
    }
    with running_broker(tmp_path_factory.mktemp("patient"), settings, "file") as broker:
        yield broker


def resident_bytes(broker: Broker) -> int:
    """Memory of the broker's process."""
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def deaf(broker: Broker, client_id: str) -> socket.socket:
    """A connection with the smallest receive buffer there is, which nobody reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect(broker.address)
    client.sendall(encode(Connect(client_id, 4, True, 0), 4))
    assert client.recv(4) == b"\x20\x02\x00\x00"
    return client


def fill(client: socket.socket, packet: Packet, most_bytes: int) -> int:
    """Send ``packet`` again and again without reading, until it is not taken any more."""
    block = encode(packet, 4) * 10_000
    sent = 0
    client.setblocking(False)
    idle_since_s = time.monotonic()
    while sent < most_bytes and time.monotonic() - idle_since_s < 1.0:
        try:
            sent += client.send(block[sent % len(block) :])
            idle_since_s = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
        except ConnectionError:
            break
    return sent


@pytest.mark.parametrize(
    "packet",
    [Pingreq(), Publish("t", b"x", 1, packet_id=1), Subscribe(1, [Subscription("t", 1)])],
    ids=lambda packet: type(packet).__name__,
)
def test_a_client_that_never_reads_is_not_read_any_more(
    patient: Broker, clients: Clients, name: str, packet: Packet
) -> None:
    """It may send for ever: what it takes of us has an end, and others notice nothing."""
    before = resident_bytes(patient)
    with deaf(patient, name) as client:
        sent = fill(client, packet, 100_000_000)
        assert sent < 100_000_000
        assert resident_bytes(patient) - before < 32 * MIB
        other = clients.join(patient, f"{name}o")
        assert other.publish(f"{name}/t", b"x", 1) in (0, 0x10)
        client.settimeout(20)
        assert client.recv(65_536), "and it is answered when it reads"


def test_retained_messages_for_who_never_reads(
    patient: Broker, clients: Clients, name: str
) -> None:
    """400 SUBSCRIBEs in one write to 1.5 MB of retained messages: 600 MB, if they were made."""
    publisher = clients.join(patient, f"{name}p")
    for number in range(100):
        publisher.publish(f"{name}/{number}", bytes(15_000), 1, retain=True)
    before = resident_bytes(patient)
    with deaf(patient, name) as client:
        client.sendall(encode(Subscribe(1, [Subscription(f"{name}/#", 0)]), 4) * 400)
        publisher.settle()
        for _ in range(20):
            publisher.publish(f"{name}x", b"", 1)
        assert resident_bytes(patient) - before < 64 * MIB


def unsent(client: socket.socket) -> int:
    """What the other side's system has not got yet, bytes."""
    answer = fcntl.ioctl(client.fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", answer)[0])


def overwhelm(broker: Broker, clients: Clients, name: str) -> socket.socket:
    """A connection that reads nothing and was sent more than all buffers on the way take."""
    client = deaf(broker, name)
    client.sendall(encode(Subscribe(1, [Subscription(f"{name}/t", 0)]), 4))
    publisher = clients.join(broker, f"{name}p")
    publisher.settle()
    for _ in range(20):
        publisher.publish(f"{name}/t", bytes(500_000), 1)
    return client


def test_a_client_that_reads_nothing_is_given_up(
    impatient: Broker, clients: Clients, name: str
) -> None:
    with overwhelm(impatient, clients, name):
        wait_for(
            "the broker to give it up",
            lambda: f"closed the connection of {name}" in impatient.log(),
        )
    wait_until_logged(impatient, "it read nothing for 1 s while its write buffer was full")


def read_slowly(client: socket.socket, since_s: float) -> tuple[bool, float]:
    """Read a few kilobytes now and then.

    Return whether the connection lasted, and the longest time without reading since ``since_s``: a
    busy machine may make a long one of a short one.
    """
    ends_s = time.monotonic() + SLOW_S
    longest_s = 0.0
    while True:
        lasts = bool(client.recv(8_000))
        now_s = time.monotonic()
        longest_s = max(longest_s, now_s - since_s)
        if not lasts or now_s >= ends_s:
            return lasts, longest_s
        since_s = now_s
        time.sleep(0.1)


def test_a_client_that_reads_slowly_is_not_given_up(
    impatient: Broker, clients: Clients, name: str
) -> None:
    """A few kilobytes now and then, for three times as long as nothing would be put up with.

    The system's own buffer takes nothing more of us in that time. Where this process itself had to
    wait for longer than the broker does, the attempt says nothing.
    """
    for attempt in range(ATTEMPTS_MAX):
        client_id = f"{name}{attempt}"
        began_s = time.monotonic()
        with overwhelm(impatient, clients, client_id) as client:
            lasts, longest_s = read_slowly(client, began_s)
        if longest_s < PATIENCE_S / 2:
            assert lasts
            assert f"closed the connection of {client_id} " not in impatient.log()
            return
    pytest.skip("this machine is too busy to read regularly")


def test_a_rate_limit_slows_down_and_loses_nothing(tmp_path: Path, clients: Clients) -> None:
    """Each client for itself: another one is as quick as ever."""
    settings = {"limits.messages_per_s_max": 200}
    with running_broker(tmp_path, settings, "file") as broker:
        fast, modest = clients.join(broker, "fast", 4), clients.join(broker, "modest", 4)
        observer = clients.join(broker, "observer", 4)
        observer.subscribe("rate/#", qos=0)
        started_s = time.monotonic()
        fast.send(*[Publish("rate/t", b"x", 1, packet_id=n) for n in range(1, 601)])
        assert modest.publish("rate/u", b"x", 1) == 0
        for packet_id in range(1, 601):
            assert fast.expect(Puback).packet_id == packet_id
        assert time.monotonic() - started_s > 1.8
        topics = [observer.take().topic for _ in range(601)]
        assert topics[-1] == "rate/t", "the modest one did not wait for the fast one"
        wait_until_logged(broker, "client fast from 127.0.0.1")
        wait_until_logged(broker, "reading from it pauses")


def test_a_paused_client_is_not_taken_for_silent(tmp_path: Path, clients: Clients) -> None:
    """Three seconds of our not reading, with a keep alive of one."""
    settings = {"limits.messages_per_s_max": 10}
    with running_broker(tmp_path, settings, "file") as broker:
        client = clients.open(broker, 4)
        client.connect("c", keep_alive_s=1)
        client.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, 41)], Pingreq())
        for packet_id in range(1, 41):
            assert client.expect(Puback).packet_id == packet_id
        client.expect(Pingresp)


@pytest.mark.parametrize(
    "reset",
    [True, pytest.param(False, marks=pytest.mark.torture("another end of the same"))],
    ids=["reset", "finished"],
)
def test_a_client_that_hangs_up_while_not_read_is_noticed(
    tmp_path: Path, clients: Clients, reset: bool
) -> None:
    """Not read for a minute, gone after half a second: its keep alive of one counts."""
    settings = {"limits.bytes_per_s_max": 1000}
    with running_broker(tmp_path, settings, "memory") as broker:
        heir = clients.join(broker, "heir", 4)
        heir.subscribe("will")
        with socket.create_connection(broker.address) as client:
            will = Will("will", b"gone")
            client.sendall(encode(Connect("c", 4, True, 1, will), 4))
            assert client.recv(4) == b"\x20\x02\x00\x00"
            client.sendall(encode(Publish("t", bytes(60_000)), 4))
            wait_for("the broker to pause", lambda: "reading from it pauses" in broker.log())
            if reset:
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        assert heir.take().payload == b"gone"


@pytest.mark.parametrize(
    "reset",
    [pytest.param(True, marks=pytest.mark.torture("another end of the same")), False],
    ids=["reset", "finished"],
)
def test_packets_sent_before_a_hang_up_are_handled(
    tmp_path: Path, clients: Clients, reset: bool
) -> None:
    """QoS 0 messages and a DISCONNECT that lay unread: all arrive, and no will does."""
    settings = {"limits.bytes_per_s_max": 20_000}
    with running_broker(tmp_path, settings, "memory") as broker:
        heir = clients.join(broker, "heir", 4)
        heir.subscribe("t")
        heir.subscribe("will")
        with socket.create_connection(broker.address) as client:
            client.sendall(encode(Connect("c", 4, True, 1, Will("will", b"gone")), 4))
            assert client.recv(4) == b"\x20\x02\x00\x00"
            client.sendall(encode(Publish("t", bytes(600_000)), 4))
            wait_for("the broker to pause", lambda: "reading from it pauses" in broker.log())
            for number in range(100):
                client.sendall(encode(Publish("t", b"%d" % number), 4))
            client.sendall(encode(Pingreq(), 4))
            client.sendall(encode(Disconnect(), 4))
            if reset:
                wait_for("the rest to be under way", lambda: unsent(client) == 0)
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        assert len(heir.take().payload) == 600_000
        assert [heir.take().payload for _ in range(100)] == [b"%d" % n for n in range(100)]
        assert heir.settle() == []


def test_a_very_large_retained_set_arrives_whole(
    patient: Broker, clients: Clients, name: str
) -> None:
    """Many times what the queue holds, with QoS 1, while another client has its turns."""
    publisher = clients.join(patient, f"{name}p")
    count = 3000
    for number in range(count):
        publisher.publish(f"{name}/{number % 10}/{number}", b"%d" % number, 0, retain=True)
    publisher.settle()
    subscriber = clients.join(patient, name)
    subscriber.subscribe(f"{name}/#")
    seen = set()
    for number in range(count):
        message = subscriber.take()
        assert message.retain
        seen.add(message.topic)
        if number % 500 == 0:
            publisher.publish(f"{name}x", b"", 1)
    assert len(seen) == count


def test_unread_bytes_are_told_bounded_and_given_back(
    tmp_path: Path, clients: Clients, name: str
) -> None:
    """Buffers of all connections together have a bound, and no client in it stays counted."""
    bound = MIB
    settings = {
        "memory.unsent_bytes_max": bound,
        "memory.share_max": 1,
        "status.sys_interval_s": 0.2,
    }
    with running_broker(tmp_path, settings, "memory") as broker:
        watcher = clients.join(broker, f"{name}w")
        watcher.subscribe("$SYS/broker/unsent/bytes")
        publisher = clients.join(broker, f"{name}p")
        unread = [deaf(broker, f"{name}{number}") for number in range(5)]
        for client in unread:
            client.sendall(encode(Subscribe(1, [Subscription(name, 0)]), 4))
            assert client.recv(5)[:1] == b"\x90"
        for _ in range(60):
            publisher.publish(name, bytes(200_000), 1)
        told = int(watcher.take().payload)
        while told < bound // 2:
            told = int(watcher.take().payload)
        assert told < bound + 5 * BUFFER_BYTES + 200_000
        for client in unread:
            client.close()
        while told > 0:
            told = int(watcher.take().payload)
