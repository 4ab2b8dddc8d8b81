"""Places of a listener: who comes back at once, and how many come from one address."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from penstock.protocol.kinds import V5
from penstock.protocol.packets import Disconnect
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.dial import dial
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient


def opened(broker: Broker, source: str = "") -> RawClient:
    """A connection to the second listener; ``source`` is told in a PROXY header."""
    client = RawClient(("", 0), V5, dial(broker.urls[1]))
    if source:
        family = 6 if ":" in source else 4
        client.send_bytes(f"PROXY TCP{family} {source} {source} 1000 1883\r\n".encode())
    return client


def gets_in(broker: Broker, stack: ExitStack, client_id: str, source: str = "") -> bool:
    """Whether a client is let in; it stays until ``stack`` ends."""
    client = opened(broker, source)
    stack.callback(client.drop)
    with suppress(ConnectionError, EOFError, AssertionError):
        return client.connect(client_id).reason_code == 0
    return False


@pytest.fixture
def start() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def broker_of(stack: ExitStack, directory: Path, **settings: object) -> Broker:
    listener = {"name": "few", "bind": "127.0.0.1:0", **settings}
    return stack.enter_context(
        running_broker(directory, {"listener.others": json.dumps([listener])})
    )


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_client_that_closes_and_comes_back_at_once_gets_in(
    start: ExitStack, tmp_path: Path, cleanly: bool
) -> None:
    """At exactly max_connections: a place is free when its client left it, not a turn later."""
    broker = broker_of(start, tmp_path, max_connections=2)
    assert gets_in(broker, start, "stays")
    for number in range(200):
        client = opened(broker)
        assert client.connect("returns").reason_code == 0, number
        client.publish("t", b"x", 1)
        if cleanly:
            client.send(Disconnect())
        client.drop()


def test_a_client_above_the_number_is_closed_and_counted(start: ExitStack, tmp_path: Path) -> None:
    broker = broker_of(start, tmp_path, max_connections=1)
    assert gets_in(broker, start, "in")
    refused = opened(broker)
    refused.expect_end()
    refused.drop()
    wait_for("the line", lambda: "max_connections (1) of listener few are open" in broker.log())


def test_connections_by_address(start: ExitStack, tmp_path: Path) -> None:
    """An IPv6 network of 64 bits is one; the load balancer's own address counts nothing."""
    broker = broker_of(
        start,
        tmp_path,
        connections_per_address_max=2,
        connections_per_address_exempt=["192.0.2.0/24"],
        proxy_protocol="any",
        proxy_networks=["127.0.0.0/8"],
    )
    assert gets_in(broker, start, "a", "198.51.100.1")
    assert gets_in(broker, start, "b", "198.51.100.1")
    assert not gets_in(broker, start, "c", "198.51.100.1")
    assert gets_in(broker, start, "d", "198.51.100.2")
    assert gets_in(broker, start, "e", "2001:db8:0:1::1")
    assert gets_in(broker, start, "f", "2001:db8:0:1::2")
    assert not gets_in(broker, start, "g", "2001:db8:0:1:ffff::3")
    assert gets_in(broker, start, "h", "2001:db8:0:2::1")
    for number in range(5):
        assert gets_in(broker, start, f"exempt{number}", "192.0.2.7")
    wait_for(
        "the line",
        lambda: "connections_per_address_max (2) of listener few are open" in broker.log(),
    )


def test_a_place_of_an_address_is_given_back(start: ExitStack, tmp_path: Path) -> None:
    broker = broker_of(
        start,
        tmp_path,
        connections_per_address_max=1,
        connections_per_address_exempt=[],
    )
    for number in range(100):
        client = opened(broker)
        assert client.connect("returns").reason_code == 0, number
        client.drop()
