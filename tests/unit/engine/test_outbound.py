"""A session under limits: flow control, drops, acknowledgements that do not fit."""

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.pair import Pair, numbered, payloads

# -- flow control --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "peer", "window"), [(5, None, 5), (5, 3, 3), (0, 7, 7), (2, 9, 2), (0, None, 20)]
)
def test_the_smaller_of_both_limits_is_kept(own: int, peer: int | None, window: int) -> None:
    """[MQTT-3.3.4-9]"""
    pair = Pair(EngineLimits(max_inflight=own))
    line = pair.rejoin(receive_maximum=peer)
    pair.publish(*numbered(20))
    pair.bench.commit()
    assert len(publishes(line.read())) == window


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


def test_a_full_queue_is_counted() -> None:
    pair = Pair(EngineLimits(max_mqueue_len=3))
    pair.line.cut()
    pair.publish(*numbered(5))
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 2
    pair.bench.restart()
    assert payloads(pair.rejoin()) == numbered(5)[2:]


def test_a_queue_that_is_too_long_for_a_new_limit_is_counted() -> None:
    pair = Pair(EngineLimits(max_mqueue_len=5))
    pair.line.cut()
    pair.publish(*numbered(5))
    pair.bench.commit()
    pair.bench.limits = EngineLimits(max_mqueue_len=2)
    pair.bench.restart()
    assert (
        pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 0
    )  # not before it holds: on attach
    assert payloads(pair.rejoin()) == numbered(5)[3:]
    assert pair.bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 3


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


def test_a_refused_message_is_counted_and_frees_its_place() -> None:
    pair = Pair(EngineLimits(max_inflight=1))
    pair.publish(b"1", b"2")
    pair.bench.commit()
    pair.line.send(Puback(1, reasons.QUOTA_EXCEEDED))
    pair.bench.commit()
    assert payloads(pair.line) == [b"1", b"2"]
    assert pair.bench.server.drops.counts[drop_reasons.REJECTED] == 1


def test_messages_that_an_ended_session_held_are_counted() -> None:
    pair = Pair(EngineLimits(max_inflight=2))
    pair.publish(b"has it", qos=2)
    pair.publish(b"window", b"queue")
    pair.bench.commit()
    pair.line.send(Pubrec(1))
    pair.line.send(Disconnect(0, Properties(session_expiry_interval=0)))
    assert pair.bench.server.drops.counts[drop_reasons.SESSION_ENDED] == 2


# -- acknowledgements ----------------------------------------------------------------------


def test_an_acknowledgement_of_the_wrong_kind_closes_the_connection() -> None:
    pair = Pair()
    pair.publish(b"x", qos=1)
    pair.bench.commit()
    pair.line.send(Pubrec(1))
    farewell = pair.line.read()[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == reasons.PROTOCOL_ERROR


def test_unknown_packet_identifiers_are_answered() -> None:
    """MQTT 5 §3.6.2.1 §3.7.2.1"""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Puback(5), Pubcomp(6), Pubrec(7), Pubrel(8))
    bench.commit()
    assert line.read() == [
        Pubrel(7, reasons.PACKET_IDENTIFIER_NOT_FOUND),
        Pubcomp(8, reasons.PACKET_IDENTIFIER_NOT_FOUND),
    ]


def test_a_repeated_pubrec_is_answered_again() -> None:
    pair = Pair()
    pair.publish(b"x", qos=2)
    pair.bench.commit()
    pair.line.send(Pubrec(1), Pubrec(1))
    pair.bench.commit()
    assert pair.line.read()[1:] == [Pubrel(1), Pubrel(1)]


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
