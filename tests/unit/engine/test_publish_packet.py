"""The PUBLISH packet of a delivery: with an alias where that helps, and never too large."""

from __future__ import annotations

import pytest

from penstock.engine.values import drop_reasons
from penstock.protocol.packets import (
    Publish,
)
from tests.unit.engine.bench import Bench
from tests.unit.engine.pair import Pair, payloads
from tests.unit.engine.test_aliases import Reader


def test_a_packet_too_large_for_the_receiver_is_passed_over() -> None:
    """[MQTT-3.1.2-24] [MQTT-3.1.2-25]"""
    pair = Pair()
    line = pair.rejoin(size=60)
    pair.publish(b"small", b"large" * 20, b"small too")
    pair.publish(b"large" * 20, qos=0)
    pair.bench.commit()
    assert payloads(line) == [b"small", b"small too"]
    assert pair.bench.server.drops.counts[drop_reasons.PACKET_TOO_LARGE] == 2
    assert line.session.window_length == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_leaves_with_an_alias_is_counted_as_sent(qos: int) -> None:
    bench = Bench()
    reader = Reader(bench, 5)
    source = bench.join("source")
    reader.rest()
    for number in range(10):
        source.send(Publish("plant/1/heat", b"four", qos, packet_id=number + 1 if qos else 0))
        reader.rest()
    counters = bench.server.context.turn.counters.total()
    assert (counters.publish_sent, counters.publish_bytes_sent) == (10, 40)


def test_a_packet_that_only_fits_without_an_alias_has_none() -> None:
    bench = Bench()
    topic = "plant/1/heat"
    size = len(topic) + 10  # with a payload of 5 bytes: the three of an alias are too many
    reader = Reader(bench, 5, size)
    source = bench.join("source")
    reader.rest()
    source.send(Publish(topic, b"12345", 0))
    source.send(Publish(topic, b"12", 0), Publish(topic, b"1234567", 0))
    reader.rest()
    assert [payload for _, payload in reader.seen] == [b"12345", b"12", b"1234567"]
    assert reader.spelled_out == 2
