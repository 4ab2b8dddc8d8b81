"""Messages for a session that has room for them or not: window, link, and what is dropped."""

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Puback,
    Publish,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.pair import Pair, numbered, payloads

# -- flow control --------------------------------------------------------------------------


def test_a_smaller_receive_maximum_after_a_reconnect_is_kept() -> None:
    pair = Pair()
    pair.publish(*numbered(10))
    pair.bench.commit()
    pair.line.cut()
    line = pair.rejoin(receive_maximum=2)
    seen = []
    while messages := publishes(line.read()):
        assert len(messages) <= 2
        for message in messages:
            seen.append(message.payload)
            line.send(Puback(message.packet_id))
        pair.bench.commit()
    assert seen == numbered(10)


def test_a_congested_link_gets_nothing_until_it_is_writable() -> None:
    pair = Pair()
    pair.line.connection.link.is_congested = True
    pair.publish(b"1", b"2")
    pair.publish(b"zero", qos=0)
    pair.bench.commit()
    assert pair.line.read() == []
    assert pair.bench.server.drops.counts[drop_reasons.SLOW_CONSUMER] == 1
    pair.line.connection.writable(pair.bench.now)
    pair.bench.commit()
    assert payloads(pair.line) == [b"1", b"2"]


# -- drops ---------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [True, False])
def test_qos_0_for_an_offline_session(keeps: bool) -> None:
    pair = Pair(EngineLimits(mqueue_store_qos0=keeps))
    pair.line.cut()
    pair.publish(b"zero", qos=0)
    pair.bench.commit()
    assert payloads(pair.rejoin()) == ([b"zero"] if keeps else [])
    assert pair.bench.server.drops.counts[drop_reasons.QOS0_OFFLINE] == (0 if keeps else 1)


def test_an_expired_message_is_not_sent() -> None:
    """[MQTT-3.3.2-5]"""
    pair = Pair()
    pair.line.cut()
    publisher = pair.bench.join("v5", 5)
    for body, expiry_s in ((b"brief", 5), (b"long", 50)):
        properties = Properties(message_expiry_interval=expiry_s)
        publisher.send(Publish("t", body, 1, packet_id=expiry_s, properties=properties))
    pair.bench.commit()
    pair.bench.pass_s(6)
    (message,) = publishes(pair.rejoin().read())
    assert message.payload == b"long"
    assert message.properties == Properties(message_expiry_interval=44)
    assert pair.bench.server.drops.counts[drop_reasons.EXPIRED] == 1


def test_a_refused_message_is_counted_and_frees_its_place() -> None:
    pair = Pair(EngineLimits(max_inflight=1))
    pair.publish(b"1", b"2")
    pair.bench.commit()
    pair.line.send(Puback(1, reasons.QUOTA_EXCEEDED))
    pair.bench.commit()
    assert payloads(pair.line) == [b"1", b"2"]
    assert pair.bench.server.drops.counts[drop_reasons.REJECTED] == 1


# -- acknowledgements ----------------------------------------------------------------------


def test_a_session_without_a_store_needs_no_log() -> None:
    bench = Bench(streams=())
    line = bench.join("c", 4)
    line.send(Subscribe(1, [Subscription("t", 2)]))
    bench.commit()
    line.read()
    bench.publish("t", b"x", 2)
    assert payloads(line) == [b"x"]
    assert bench.server.lowest_needed_offset(77) == 77
    assert bench.server.context.batch.next_offset == 0
