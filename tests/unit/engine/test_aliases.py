"""Topic aliases towards the client: fewer bytes, never another topic."""

from __future__ import annotations

from random import Random
from typing import Final, final

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.values.drop_reasons import PACKET_TOO_LARGE
from penstock.engine.values.limits import EngineLimits
from penstock.engine.wire.aliases import OutboundAliases
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

TOPICS: Final = ("plant/1/heat", "plant/2/heat", "plant/3/heat", "yard/gate", "yard/door", "a")


@final
class Reader:
    """A client that takes aliases, and holds the broker to what the specification says."""

    def __init__(self, bench: Bench, maximum: int, max_packet_size: int | None = None) -> None:
        self.bench = bench
        self.maximum = maximum
        self.max_packet_size = max_packet_size
        self.under_way: Commit | None = None
        self.topics: dict[int, str] = {}
        self.seen: list[tuple[str, bytes]] = []
        self.spelled_out = 0
        self.granted = TOPICS[:3]  # above QoS 0
        self.line: Line | None = None
        self.reconnect()

    def reconnect(self) -> None:
        """Aliases end with the connection [MQTT-3.3.2-7]."""
        if self.line is not None:
            self.line.cut()
        self.topics = {}
        self.line = self.bench.line()
        properties = Properties(
            topic_alias_maximum=self.maximum,
            session_expiry_interval=100,
            maximum_packet_size=self.max_packet_size,
        )
        self.line.send(
            Connect("reader", clean_start=False, properties=properties),
            Subscribe(1, [Subscription("plant/+/heat", 2), Subscription("#", 0)]),
        )

    def end_turn(self) -> None:
        """As the driver does it: what is ready leaves, then a commit may start."""
        self.bench.turns()
        self.bench.write_ready()
        if self.under_way is None:
            self.under_way = self.bench.seal()

    def committed(self) -> None:
        """The commit under way is durable."""
        if self.under_way is not None:
            commit, self.under_way = self.under_way, None
            self.bench.finish(commit)
        self.end_turn()

    def rest(self) -> None:
        """Until nothing is left to do."""
        for _ in range(5):
            self.committed()
            self.read()
        assert self.line is not None
        session = self.line.session
        for _ in range(2000):
            if session.window_length == session.queue_length == 0:
                return
            self.committed()
            self.read()
        raise AssertionError("it never comes to rest")

    def read(self) -> None:
        """Take what arrived, and answer it."""
        assert self.line is not None
        self.bench.write_ready()
        for packet in self.line.read():
            if isinstance(packet, Publish):
                self._take(packet)
            elif isinstance(packet, Pubrel):
                self._answer(Pubcomp(packet.packet_id))
            elif isinstance(packet, Connack):
                assert packet.reason_code == 0

    def _take(self, packet: Publish) -> None:
        properties = packet.properties
        alias = None if properties is None else properties.topic_alias
        topic = packet.topic
        self.spelled_out += topic != ""
        if alias is not None:
            assert 1 <= alias <= self.maximum, "[MQTT-3.1.2-26]"
            topic = topic or self.topics[alias]
            self.topics[alias] = topic
        self.seen.append((topic, packet.payload))
        if packet.qos == 1:
            self._answer(Puback(packet.packet_id))
        elif packet.qos == 2:
            self._answer(Pubrec(packet.packet_id))

    def _answer(self, packet: Packet) -> None:
        assert self.line is not None
        self.line.send(packet)


@pytest.mark.parametrize("seed", range(60))
def test_the_client_always_knows_which_topic_is_meant(seed: int) -> None:
    """[MQTT-3.1.2-26] [MQTT-3.3.2-7] [MQTT-3.3.2-11]; whatever overtakes whatever.

    QoS 0 leaves at once and overtakes what waits for a commit, waits behind other QoS 0 that
    does, and some packets are too large.
    """
    random = Random(seed)
    bench = Bench(EngineLimits(max_inflight=random.choice((1, 4, 32)), topic_alias_outbound_max=3))
    reader = Reader(bench, random.randint(1, 4), random.choice((None, None, 36)))
    source = bench.join("source")
    reader.rest()
    promised: list[tuple[str, bytes]] = []
    for number in range(1, 400):
        draw = random.random()
        if draw < 0.7:
            topic, qos = random.choice(TOPICS), random.choice((0, 0, 1, 2))
            payload = f"{topic}|{number}".encode()
            if qos > 0 and topic in reader.granted:
                promised.append((topic, payload))
            source.send(Publish(topic, payload, qos, packet_id=number if qos else 0))
            if qos == 2:
                source.send(Pubrel(number))
        elif draw < 0.8:
            reader.end_turn()
        elif draw < 0.9:
            reader.committed()
        elif draw < 0.99:
            reader.read()
        else:
            reader.reconnect()
    reader.rest()
    for topic, payload in reader.seen:
        assert topic == payload.decode().partition("|")[0]
    dropped = bench.server.drops.counts[PACKET_TOO_LARGE]
    assert len(set(promised) - set(reader.seen)) <= dropped
    assert reader.spelled_out < len(reader.seen)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_topic_is_spelled_out_once(qos: int) -> None:
    bench = Bench()
    reader = Reader(bench, 5)
    source = bench.join("source")
    reader.rest()
    for number in range(10):
        source.send(Publish("plant/1/heat", b"x", qos, packet_id=number + 1 if qos else 0))
        reader.rest()
    assert (len(reader.seen), reader.spelled_out) == (10, 1)
    reader.reconnect()
    source.send(Publish("plant/1/heat", b"x", qos, packet_id=99 if qos else 0))
    reader.rest()
    assert (len(reader.seen), reader.spelled_out) == (11, 2)


def test_qos_0_does_not_use_what_a_held_packet_defines() -> None:
    """It overtakes that packet, and so must spell the topic out; afterwards it may use it."""
    bench = Bench()
    reader = Reader(bench, 5)
    source = bench.join("source")
    reader.rest()
    source.send(Publish("plant/1/heat", b"1", 1, packet_id=1), Publish("plant/1/heat", b"2", 0))
    reader.read()
    assert reader.seen == [("plant/1/heat", b"2")]
    reader.rest()
    source.send(Publish("plant/1/heat", b"3", 0))
    reader.read()
    assert [payload for _, payload in reader.seen] == [b"2", b"1", b"3"]
    assert reader.spelled_out == 2


@pytest.mark.parametrize(("theirs", "ours"), [(0, 5), (5, 0)])
def test_no_aliases_where_one_side_wants_none(theirs: int, ours: int) -> None:
    """[MQTT-3.1.2-27]"""
    bench = Bench(EngineLimits(topic_alias_outbound_max=ours))
    reader = Reader(bench, theirs)
    source = bench.join("source")
    reader.rest()
    for _ in range(3):
        source.send(Publish("plant/1/heat", b"x", 0))
    reader.rest()
    assert reader.spelled_out == 3
    assert reader.topics == {}


def test_a_topic_in_use_keeps_its_alias() -> None:
    aliases = OutboundAliases(2)
    for topic in ("often", "once"):
        assert aliases.propose(topic, 0, 0)
        aliases.define(topic, 0, 0)
    for number in range(20):
        aliases.known("often", 0, 0)
        if aliases.propose(f"new {number}", 0, 0):
            aliases.define(f"new {number}", 0, 0)
    assert aliases.known("often", 0, 0)
    assert not aliases.known("once", 0, 0)


def test_an_alias_in_use_by_held_packets_is_not_given_away_at_once() -> None:
    aliases = OutboundAliases(1)
    assert aliases.propose("held", 1, 0)
    aliases.define("held", 1, 0)
    assert not aliases.known("held", 0, 0)
    assert [aliases.propose("other", 0, 0) for _ in range(3)] == [b"", b"", b""]
    assert aliases.known("held", 0, 1)
    assert not aliases.propose("other", 0, 1)  # it was used since the hand came
    assert aliases.propose("other", 0, 1)
