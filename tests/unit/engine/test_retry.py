"""MQTT 3.1 sends again by time what was not acknowledged (v3.1 §4.1); later versions do not."""

from __future__ import annotations

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Authorize, Permissions
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.protocol.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.pair import payloads

LIMITS = EngineLimits(retry_interval_s=20)


class Revocable(Permissions):
    """Everything may be received but what was revoked."""

    def __init__(self) -> None:
        self.revoked = ""

    def may_receive(self, topic: str) -> bool:
        return topic != self.revoked


class Directory(Authorize):
    """The same permissions for everyone."""

    def __init__(self) -> None:
        self.common = Revocable()

    def permissions(self, _username: str | None, _client_id: str) -> Permissions | None:
        return self.common


def test_only_mqtt_31_gets_it_again_by_time() -> None:
    """v3.1 §4.1, and [MQTT-4.4.0-1] for later versions; each time after the interval."""
    for version in (3, 4, 5):
        bench = Bench(LIMITS)
        line = bench.subscriber("s", "t", 2, version)
        bench.publish("t", b"x", 2)
        assert [packet.dup for packet in publishes(line.read())] == [False]
        bench.pass_s(19)
        bench.commit()
        assert line.read() == []
        for _ in range(3):
            bench.pass_s(20)
            bench.commit()
            again = publishes(line.read())
            assert [packet.dup for packet in again] == ([True] if version == 3 else [])


def test_a_pubrel_is_sent_again_by_time_until_pubcomp() -> None:
    bench = Bench(LIMITS)
    line = bench.subscriber("s", "t", 2, 3)
    bench.publish("t", b"x", 2)
    (packet,) = publishes(line.read())
    bench.pass_s(15)
    line.send(Pubrec(packet.packet_id))
    bench.commit()
    assert line.read() == [Pubrel(packet.packet_id)]
    bench.pass_s(19)
    bench.commit()
    assert line.read() == []
    bench.pass_s(1)
    bench.commit()
    assert line.read() == [Pubrel(packet.packet_id, dup=True)]
    line.send(Pubcomp(packet.packet_id))
    bench.pass_s(100)
    bench.commit()
    assert line.read() == []


def test_a_client_that_does_not_read_gets_nothing_more_until_it_does() -> None:
    bench = Bench(LIMITS)
    line = bench.subscriber("s", "t", 2, 3)
    bench.publish("t", b"0", 2)
    bench.publish("t", b"1", 1)
    first, second = publishes(line.read())
    line.send(Pubrec(first.packet_id))
    bench.commit()
    assert line.read() == [Pubrel(first.packet_id)]
    line.connection.link.is_congested = True
    bench.pass_s(100)
    bench.commit()
    assert line.read() == []
    line.connection.writable(bench.now)
    bench.pass_s(1)
    bench.commit()
    released, again = line.read()
    assert released == Pubrel(first.packet_id, dup=True)
    assert publishes([again]) == [Publish("t", b"1", 1, dup=True, packet_id=second.packet_id)]


def test_a_message_not_permitted_any_more_is_dropped_once_and_gives_up_its_place() -> None:
    """To what waits for it, here and at a publisher."""
    directory = Directory()
    limits = EngineLimits(
        retry_interval_s=20, max_inflight=1, max_mqueue_len=1, mqueue_overflow=REJECT
    )
    bench = Bench(limits, authorize=directory)
    line = bench.subscriber("s", "+", 1, 3)
    publisher = bench.join("p", 4)
    for number, topic in enumerate(("revoked", "a", "b"), 1):
        publisher.send(Publish(topic, topic.encode(), 1, packet_id=number))
    bench.commit()
    assert payloads(line) == [b"revoked"]
    assert publisher.read() == [Puback(1), Puback(2)]
    directory.common.revoked = "revoked"
    bench.pass_s(20)
    bench.commit()
    (message,) = publishes(line.read())
    assert message.payload == b"a"
    assert publisher.read() == [Puback(3)]
    line.send(Puback(message.packet_id))
    for _ in range(3):
        bench.commit()
        bench.pass_s(20)
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


@pytest.mark.parametrize("crash", [False, True])
def test_of_qos_2_pubrel_goes_in_place_of_what_it_may_not_have_any_more(crash: bool) -> None:
    """The client may have the message and keep its identifier (``window``)."""
    directory = Directory()
    bench = Bench(LIMITS, authorize=directory)
    line = bench.subscriber("s", "+", 2, 3)
    bench.publish("revoked", b"x", 2)
    (message,) = publishes(line.read())
    directory.common.revoked = "revoked"
    bench.pass_s(20)
    bench.commit()
    assert line.read() == [Pubrel(message.packet_id, dup=True)]
    if crash:
        bench.restart()
        line = bench.join("s", 3, durable=True)
        assert line.read() == [Pubrel(message.packet_id, dup=True)]
    line.send(Pubcomp(message.packet_id))
    bench.commit()
    assert line.session.window_length == 0
    bench.pass_s(20)
    bench.commit()
    assert line.read() == []
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == (0 if crash else 1)
