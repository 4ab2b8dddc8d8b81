"""The fault proxy does to a connection what each of its faults says, and nothing else.

Both ends are sockets of the test: ``client`` connects to the proxy, ``broker`` is what the proxy
connects to.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Iterator
from typing import Final, final

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import (
    CONNECT,
    PINGREQ,
    PUBACK,
    PUBLISH,
    PUBREL,
    SUBSCRIBE,
    V5,
    V31,
    V311,
)
from penstock.protocol.packets import (
    Connect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fault_proxy import FOREVER, FaultProxy
from tests.support.seen_packets import DOWN, UP, cut_in_packets

BIG: Final = b"x" * 300_000


@final
class Ends:
    """A proxy, a listening socket behind it, and what was opened."""

    def __init__(self, proxy: FaultProxy, listener: socket.socket) -> None:
        self.proxy = proxy
        self._listener = listener
        self._opened = contextlib.ExitStack()

    def connect(self) -> socket.socket:
        """One end alone: the proxy has not called the broker yet, perhaps never."""
        return self._opened.enter_context(socket.create_connection(self.proxy.address, DEADLINE_S))

    def accept(self) -> socket.socket:
        """The other end."""
        broker, _ = self._listener.accept()
        broker.settimeout(DEADLINE_S)
        return self._opened.enter_context(broker)

    def both(self, version: int = V5) -> tuple[socket.socket, socket.socket]:
        """A client that has said CONNECT, and the broker that read it."""
        client = self.connect()
        broker = self.accept()
        send(client, Connect("c", version), version=version)
        take(broker, encode(Connect("c", version), version))
        self.proxy.forget_seen()
        return client, broker

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        with FaultProxy(listener.getsockname()) as proxy:
            opened = Ends(proxy, listener)
            try:
                yield opened
            finally:
                opened.close()


def message(number: int, payload: bytes = b"", dup: bool = False) -> Publish:
    return Publish("t", payload or b"%d" % number, 1, False, dup, number)


def send(end: socket.socket, *packets: Packet, version: int = V5) -> None:
    end.sendall(b"".join(encode(packet, version) for packet in packets))


def take(end: socket.socket, expected: bytes) -> None:
    """These very bytes come next."""
    got = b""
    while len(got) < len(expected):
        piece = end.recv(len(expected) - len(got))
        assert piece, f"the end after {got!r}"
        got += piece
    assert got == expected


def took(end: socket.socket, *packets: Packet) -> None:
    take(end, b"".join(encode(packet, V5) for packet in packets))


def nothing_to_read(end: socket.socket) -> bool:
    """Whether nothing is there now."""
    end.setblocking(False)
    try:
        end.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        end.settimeout(DEADLINE_S)
    return False


def is_reset(end: socket.socket) -> bool:
    """Whether the connection ends with RST, after what had come."""
    try:
        while end.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    return False


def some_came(proxy: FaultProxy, count: int) -> None:
    wait_for("connections", lambda: proxy.connections >= count)


# -- framing and the record ----------------------------------------------------------------


def test_packets_are_cut_wherever_the_stream_is() -> None:
    packets = [encode(message(1, BIG), V5), encode(Pingreq(), V5), encode(Puback(7), V5)]
    stream = b"".join(packets)
    for place in (0, 1, 2, 3, 4, 100, len(packets[0]), len(stream) - 1, len(stream)):
        *whole, rest = cut_in_packets(stream[:place])
        assert whole == [
            packet
            for number, packet in enumerate(packets)
            if len(b"".join(packets[: number + 1])) <= place
        ]
        *others, end = cut_in_packets(rest + stream[place:])
        assert [*whole, *others, end] == [*packets, b""]


@pytest.mark.parametrize("version", [V31, V311, V5], ids=["3.1", "3.1.1", "5"])
def test_bytes_pass_as_they_are_and_packets_are_recorded(ends: Ends, version: int) -> None:
    client, broker = ends.both(version)
    properties = Properties(content_type="text") if version == V5 else None
    packets: list[Packet] = [
        Publish("a/b", b"1", 0, properties=properties),
        Publish("a/b", b"2", 2, False, True, 9, properties),
        Pubrel(9),
        Subscribe(10, [Subscription("f", 1)]),
        Pingreq(),
    ]
    send(client, *packets, version=version)
    take(broker, b"".join(encode(packet, version) for packet in packets))
    send(broker, Puback(3), version=version)
    take(client, encode(Puback(3), version))
    assert [(one.kind, one.packet_id, one.qos, one.dup) for one in ends.proxy.passed(UP)] == [
        (PUBLISH, 0, 0, False),
        (PUBLISH, 9, 2, True),
        (PUBREL, 9, 0, False),
        (SUBSCRIBE, 10, 0, False),
        (PINGREQ, 0, 0, False),
    ]
    assert ends.proxy.payloads(UP) == [b"1", b"2"]
    assert {one.topic for one in ends.proxy.passed(UP, PUBLISH)} == {"a/b"}
    assert [(one.kind, one.packet_id) for one in ends.proxy.passed(DOWN)] == [(PUBACK, 3)]


def test_connections_are_numbered(ends: Ends) -> None:
    for number in (1, 2):
        client, broker = ends.both()
        send(client, message(number))
        took(broker, message(number))
        assert ends.proxy.payloads(UP, number) == [b"%d" % number]
    assert (ends.proxy.connections, ends.proxy.open_connections) == (2, 2)


def test_a_packet_that_is_cut_off_passes_too(ends: Ends) -> None:
    client, broker = ends.both()
    client.sendall(b"\x30\x7fabc")
    client.shutdown(socket.SHUT_WR)
    take(broker, b"\x30\x7fabc")
    assert broker.recv(1) == b""


def test_the_end_of_one_side_passes_and_the_other_goes_on(ends: Ends) -> None:
    client, broker = ends.both()
    client.shutdown(socket.SHUT_WR)
    assert broker.recv(1) == b""
    send(broker, message(1))
    took(client, message(1))
    broker.close()
    assert client.recv(1) == b""
    wait_for("the end", lambda: ends.proxy.open_connections == 0)


# -- faults of the link ----------------------------------------------------------------------


def test_delay_holds_what_comes_for_as_long(ends: Ends) -> None:
    client, broker = ends.both()
    ends.proxy.delay(0.2, UP)
    began_s = time.monotonic()
    send(client, message(1), message(2))
    send(broker, Puback(1))
    took(client, Puback(1))
    took(broker, message(1), message(2))
    assert time.monotonic() - began_s >= 0.2


def test_throttle_lets_so_many_bytes_a_second_through(ends: Ends) -> None:
    client, broker = ends.both()
    ends.proxy.throttle(1_000_000, UP)
    began_s = time.monotonic()
    send(client, message(1, BIG))
    took(broker, message(1, BIG))
    assert time.monotonic() - began_s >= len(BIG) / 1_000_000
    send(broker, message(2, BIG))
    took(client, message(2, BIG))


def test_a_partition_holds_everything_until_it_heals(ends: Ends) -> None:
    client, broker = ends.both()
    ends.proxy.partition()
    late = ends.connect()
    send(client, message(1))
    send(broker, Puback(1))
    send(late, Connect("late", V5))
    broker.shutdown(socket.SHUT_WR)
    wait_for("the late one", lambda: ends.proxy.connections == 2)
    assert (nothing_to_read(client), nothing_to_read(broker)) == (True, True)
    assert ends.proxy.passed(UP) + ends.proxy.passed(DOWN) == []
    ends.proxy.heal()
    took(broker, message(1))
    took(client, Puback(1))
    assert client.recv(1) == b""
    took(ends.accept(), Connect("late", V5))


def test_a_port_that_is_closed_refuses_and_keeps_what_stands(ends: Ends) -> None:
    client, broker = ends.both()
    ends.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        ends.connect()
    send(client, message(1))
    took(broker, message(1))
    ends.proxy.accept()
    ends.both()


def test_reset_ends_both_sides_with_rst(ends: Ends) -> None:
    client, broker = ends.both()
    ends.proxy.reset()
    assert (is_reset(client), is_reset(broker)) == (True, True)
    ends.both()


def test_half_close_ends_one_direction_alone(ends: Ends) -> None:
    client, broker = ends.both()
    ends.proxy.half_close(UP)
    assert broker.recv(1) == b""
    send(client, message(1))
    send(broker, message(2))
    took(client, message(2))
    wait_for("the lost one", lambda: len(ends.proxy.seen) == 2)
    assert ends.proxy.passed(UP) == []


def test_a_broker_that_is_not_there_resets_who_connects() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with (
            FaultProxy(nobody.getsockname()) as proxy,
            pytest.raises(ConnectionResetError),
            socket.create_connection(proxy.address, DEADLINE_S) as client,
        ):
            client.recv(1)


def test_closing_the_proxy_ends_everything(ends: Ends) -> None:
    with FaultProxy(ends.proxy.address) as chained:
        client = socket.create_connection(chained.address, DEADLINE_S)
        broker = ends.accept()
        chained.partition()
        hanging = socket.create_connection(chained.address, DEADLINE_S)
        wait_for("both", lambda: chained.connections == 2)
    with client, hanging:
        assert (is_reset(client), is_reset(hanging)) == (True, True)
    assert is_reset(broker)


# -- faults of packets -------------------------------------------------------------------------


def test_swallowed_packets_vanish_and_are_recorded_so(ends: Ends) -> None:
    client, broker = ends.both()
    rule = ends.proxy.swallow(UP, PUBLISH, nth=2)
    every = ends.proxy.swallow(DOWN, lambda packet: packet.packet_id == 3, times=FOREVER)
    send(client, *(message(number) for number in range(1, 6)))
    took(broker, message(1), message(3), message(4), message(5))
    send(broker, Puback(3), Puback(1), Puback(3), Puback(4))
    took(client, Puback(1), Puback(4))
    assert (rule.hits, every.hits) == (1, 2)
    assert ends.proxy.payloads(UP) == [b"1", b"3", b"4", b"5"]
    assert [packet.payload for packet in ends.proxy.seen if not packet.passed] == [b"2", b"", b""]
    ends.proxy.forget_rules()
    send(broker, Puback(3))
    took(client, Puback(3))


def test_a_cut_lets_its_packet_arrive_and_no_answer(ends: Ends) -> None:
    client, broker = ends.both()
    ends.proxy.cut(UP, PUBLISH, nth=2)
    send(client, message(1), message(2), message(3))
    took(broker, message(1), message(2))
    assert broker.recv(1) == b""
    assert is_reset(client)
    assert ends.proxy.payloads(UP) == [b"1", b"2"]


def test_a_cut_before_a_packet_keeps_it_from_arriving(ends: Ends) -> None:
    client, broker = ends.both()
    rule = ends.proxy.cut_before(DOWN, PUBACK)
    send(broker, message(7), Puback(1), message(8))
    took(client, message(7))
    assert client.recv(1) == b""
    assert is_reset(broker)
    rule.wait()
    assert ends.proxy.payloads(DOWN) == [b"7"]


def test_a_cut_can_close_the_port_in_the_same_moment(ends: Ends) -> None:
    client, broker = ends.both()
    rule = ends.proxy.cut(UP, PUBLISH, refuse=True)
    send(client, message(1))
    took(broker, message(1))
    rule.wait()
    with pytest.raises(ConnectionRefusedError):
        ends.connect()
    ends.proxy.accept()
    ends.both()


def test_a_rule_counts_anew_after_each_time_over_all_connections(ends: Ends) -> None:
    rule = ends.proxy.cut_before(UP, PUBLISH, nth=2, times=2)
    for number in (1, 2):
        client, broker = ends.both()
        send(client, message(1), message(2))
        took(broker, message(1))
        assert broker.recv(1) == b""
        rule.wait(number)
    client, broker = ends.both()
    send(client, message(1), message(2))
    took(broker, message(1), message(2))


def test_connect_is_a_packet_like_others(ends: Ends) -> None:
    rule = ends.proxy.swallow(UP, CONNECT)
    client = ends.connect()
    broker = ends.accept()
    send(client, Connect("c", V5), Pingreq())
    took(broker, Pingreq())
    assert rule.hits == 1


def test_nobody_slips_through_while_the_port_closes(ends: Ends) -> None:
    """Who was just let in is reset with the others; a bridge would otherwise be connected."""
    stopped = threading.Event()

    def dial_on() -> None:
        while not stopped.is_set():
            with contextlib.suppress(OSError):
                socket.create_connection(ends.proxy.address, DEADLINE_S).close()

    dialling = threading.Thread(target=dial_on)
    dialling.start()
    try:
        for times in range(1, 30):
            some_came(ends.proxy, times)
            ends.proxy.refuse()
            ends.proxy.reset()
            came = ends.proxy.connections
            wait_for("the end of all", lambda: ends.proxy.open_connections == 0)
            assert ends.proxy.connections == came
            ends.proxy.accept()
    finally:
        stopped.set()
        dialling.join()
    ends.proxy.refuse()
    gc.collect()  # a socket that was forgotten is an error
