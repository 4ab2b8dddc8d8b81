"""A message that was sent and cannot be sent again: its packet identifier must not stay behind.

A receiver of QoS 2 keeps the packet identifier until PUBREL. Were it given to another message
before that, the receiver would take that one for the first one again, and lose it.
"""

import pytest

from penstock.engine.values import drop_reasons
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Puback, Pubcomp, Pubrec, Pubrel
from tests.unit.engine.bench import publishes
from tests.unit.engine.pair import Pair


def received_and_cut(version: int, qos: int) -> Pair:
    """A message reached the subscriber; its answer was lost with the connection."""
    pair = Pair(version=version)
    pair.publish(b"first" * 20, qos=qos)
    pair.bench.commit()
    assert [message.packet_id for message in publishes(pair.line.read())] == [1]
    pair.line.cut()
    pair.bench.commit()
    return pair


def test_a_qos_2_message_too_large_by_now_is_released() -> None:
    """[MQTT-3.1.2-24], [MQTT-4.3.3-7]"""
    pair = received_and_cut(V5, 2)
    line = pair.rejoin(size=50)
    assert pair.bench.server.drops.counts[drop_reasons.PACKET_TOO_LARGE] == 1
    assert line.read() == [Pubrel(1)]
    line.send(Pubcomp(1, 0x92))
    pair.bench.commit()
    assert line.session.window_length == 0
    assert pair.bench.server.drops.counts[drop_reasons.PACKET_TOO_LARGE] == 1


@pytest.mark.parametrize("version", [V311, V5])
def test_a_qos_2_message_that_retention_took_is_released(version: int) -> None:
    pair = received_and_cut(version, 2)
    pair.bench.store.trim_log(1 << 62, 0, 1 << 62)
    line = pair.rejoin()
    pair.bench.commit()
    assert pair.bench.server.drops.counts[drop_reasons.RETENTION] == 1
    assert line.read() == [Pubrel(1)]
    line.send(Pubcomp(1))
    pair.bench.commit()
    assert line.session.window_length == 0


def test_a_packet_identifier_stays_taken_over_a_crash() -> None:
    pair = received_and_cut(V5, 2)
    pair.rejoin(size=50)
    pair.bench.commit()
    pair.bench.restart()
    pair.line = pair.rejoin()
    pair.publisher = pair.bench.join("p", 4)
    pair.publish(b"second", qos=2)
    pair.bench.commit()
    released, second = pair.line.read()
    assert released == Pubrel(1)
    assert [message.packet_id for message in publishes([second])] == [2]


def test_a_late_pubrec_ends_it_too() -> None:
    pair = received_and_cut(V5, 2)
    line = pair.rejoin(size=50)
    line.send(Pubrec(1), Pubcomp(1))
    pair.bench.commit()
    assert line.read() == [Pubrel(1), Pubrel(1)]
    assert line.session.window_length == 0


def test_a_qos_1_message_needs_nothing_more() -> None:
    pair = received_and_cut(V5, 1)
    line = pair.rejoin(size=50)
    assert line.read() == []
    assert line.session.window_length == 0
    line.send(Puback(1))
    assert not line.connection.link.is_closed
