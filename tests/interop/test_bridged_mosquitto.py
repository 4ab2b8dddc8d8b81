"""Penstock and Mosquitto 2.0 bridged: a stock Mosquitto bridge to Penstock, and a bridge back.

Retained messages are what goes wrong first between the two: a client of MQTT 3.1.1 is sent updates
without RETAIN, so that the copy at the other end stays what it was. Bridges say by their protocol
level (0x84) that they want it, in both directions here.

::

      here (Penstock) ◀── cut, restored ──▶ there (Mosquitto)
                one bridge, of either of them

Mosquitto 2.1 is in no package of Debian 12; where another version is installed, that is tested.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, final

import pytest

from penstock.protocol.packets import Publish
from tests.support.bridged import bridge, client, with_bridges
from tests.support.broker import Address, Broker
from tests.support.deadline import wait_for
from tests.support.fault_proxy import FaultProxy
from tests.support.fixtures import running_broker
from tests.support.mosquitto_broker import Mosquitto, needed
from tests.support.raw_client import RawClient

pytestmark = needed

STATE: Final = "$SYS/broker/connection/+/state"


@final
class Pair:
    """Two brokers and the line between them."""

    def __init__(self, here: Broker, there: Mosquitto, line: FaultProxy, by: str) -> None:
        self.here = here
        self.there = there
        self.line = line
        self.by = by  # whose bridge it is

    def sides(self) -> tuple[Address, Address]:
        """Both addresses: who publishes, who receives; to be tried the other way round, too."""
        return self.here.address, self.there.address

    def wait_until_connected(self) -> None:
        """Until a message passes in each direction."""
        for number, (sender, receiver) in enumerate((self.sides(), self.sides()[::-1])):
            topic = f"probe/{self.by}/{number}"
            with client(receiver, "probed", topic) as probed, client(sender, "probes") as probing:
                wait_for("the bridge", partial(_passes, probing, probed, topic))


def _passes(sender: RawClient, receiver: RawClient, topic: str) -> bool:
    sender.publish(topic, b"", 1)
    sender.settle()
    return receiver.settle() != []


@contextlib.contextmanager
def mosquitto_to_penstock(directory: Path, version: str) -> Iterator[Pair]:
    """A stock bridge of Mosquitto: an address and a topic, and MQTT 5 where that is asked for."""
    with running_broker(directory / "here") as here, FaultProxy(here.address) as line:
        host, port = line.address
        lines = f"connection stock\naddress {host}:{port}\ntopic # both 1\n"
        lines += "restart_timeout 1\n"  # else the test takes half a minute
        lines += "bridge_protocol_version mqttv50\n" if version == "5" else ""
        there = Mosquitto(directory / "there", bridge=lines)
        try:
            there.start()
            yield Pair(here, there, line, "mosquitto")
        finally:
            there.close()


@contextlib.contextmanager
def penstock_to_mosquitto(directory: Path, version: str) -> Iterator[Pair]:
    """The same of Penstock."""
    there = Mosquitto(directory / "there")
    try:
        there.start()
        with FaultProxy(there.address) as line:
            forwards = [{"topic_filters": ["#"], "direction": "both", "qos_max": 1}]
            settings = with_bridges(bridge(line.address, forwards=forwards, version=version))
            with running_broker(directory / "here", settings) as here:
                yield Pair(here, there, line, "penstock")
    finally:
        there.close()


WAYS: Final = {"mosquitto": mosquitto_to_penstock, "penstock": penstock_to_mosquitto}


@pytest.fixture(params=[(by, version) for by in WAYS for version in ("3.1.1", "5")], ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Both brokers, bridged by either of them in either version."""
    by, version = request.param
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with WAYS[by](tmp_path, version) as bridged:
        bridged.wait_until_connected()
        yield bridged


def retained(at: Address, topic: str) -> list[bytes]:
    """What a new subscriber finds there."""
    with client(at, "looks", topic) as looking:
        return [
            message.payload
            for message in looking.settle()
            if isinstance(message, Publish) and message.retain
        ]


def wait_for_retained(at: Address, topic: str, *payloads: bytes) -> None:
    """Wait until a new subscriber finds this, and no more."""
    wait_for(f"{topic} to be {payloads}", lambda: retained(at, topic) == list(payloads))


def test_retained_messages_are_set_changed_and_cleared_live(pair: Pair) -> None:
    for topic, (sender, receiver) in (("a/1", pair.sides()), ("a/2", pair.sides()[::-1])):
        with client(sender, "sends") as sending:
            for payload in (b"set", b"changed"):
                sending.publish(topic, payload, 1, retain=True)
                sending.settle()
                wait_for_retained(receiver, topic, payload)
            sending.publish(topic, b"", 1, retain=True)
            sending.settle()
        wait_for_retained(receiver, topic)
        assert retained(sender, topic) == []


def test_nothing_comes_back(pair: Pair) -> None:
    """``topic # both`` is a loop, but for the bridges' "no local"."""
    for topic, (sender, receiver) in (("b/1", pair.sides()), ("b/2", pair.sides()[::-1])):
        with client(sender, "near", topic) as near, client(receiver, "far", topic) as far:
            near.publish(topic, b"once", 1)
            came: list[Publish] = [near.take(), far.take()]
            assert [one.payload for one in came] == [b"once", b"once"]
        pair.wait_until_connected()  # whatever came back would have come before
        with client(receiver, "later", "b/#") as later:
            assert later.settle() == []
        with client(sender, "echo", topic, "b/end") as echo, client(receiver, "ends") as ending:
            ending.publish("b/end", b"end", 1)
            assert echo.take().payload == b"end"


def test_a_message_published_while_the_line_was_cut_arrives(pair: Pair) -> None:
    with client(pair.there.address, "far", "c/1") as far, client(pair.here, "near", "c/2") as near:
        pair.line.refuse()
        pair.line.reset()
        near.publish("c/1", b"from here", 1, retain=True)
        far.publish("c/2", b"from there", 1, retain=True)
        near.settle()
        pair.line.accept()
        assert far.take().payload == b"from here"
        assert near.take().payload == b"from there"
    wait_for_retained(pair.there.address, "c/1", b"from here")
    wait_for_retained(pair.here.address, "c/2", b"from there")


def test_both_are_restarted(pair: Pair) -> None:
    with client(pair.here, "before") as before:
        before.publish("d/1", b"kept", 1, retain=True)
        before.settle()
    wait_for_retained(pair.there.address, "d/1", b"kept")
    pair.there.stop()
    pair.there.start()
    pair.wait_until_connected()
    pair.here.restart()
    if pair.by == "mosquitto":
        pair.line.target = pair.here.address
    pair.wait_until_connected()
    for topic, (sender, receiver) in (("d/1", pair.sides()), ("d/2", pair.sides()[::-1])):
        with client(sender, "after") as after:
            after.publish(topic, b"changed", 1, retain=True)
            after.settle()
        wait_for_retained(receiver, topic, b"changed")


def test_penstock_tells_of_a_foreign_bridge_whether_it_is_connected(tmp_path: Path) -> None:
    """Its notification is a will, and a message, on a topic below ``$SYS/``."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with mosquitto_to_penstock(tmp_path, "3.1.1") as pair:
        pair.wait_until_connected()
        with client(pair.here, "watches", STATE) as watching:
            told = watching.take()
            assert (told.topic.split("/")[-1], told.payload, told.retain) == ("state", b"1", True)
            pair.line.refuse()
            pair.line.reset()
            assert watching.take().payload == b"0"
