"""The outlet of a session is asked once about a message: when it comes, or when it waited."""

from __future__ import annotations

from typing import final

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Permissions
from penstock.protocol.packets import Puback, Subscribe, Subscription
from tests.unit.engine.bench import Bench, Line, publishes


@final
class Counting(Permissions):
    """Allows what it is told to, and counts how often it is asked what may be received."""

    def __init__(self) -> None:
        self.asked = 0
        self.allows = True

    def may_receive(self, topic: str) -> bool:
        del topic
        self.asked += 1
        return self.allows


def counted(bench: Bench, qos: int) -> tuple[Line, Counting]:
    """A subscriber with a window of one message, whose permissions count."""
    line = bench.join("c", durable=True, receive_maximum=1)
    line.send(Subscribe(1, [Subscription("t", qos)]))
    permissions = Counting()
    line.session.set_user(None, permissions)
    bench.commit()
    line.read()
    return line, permissions


def payloads(line: Line) -> list[bytes]:
    line.bench.commit()
    return [packet.payload for packet in publishes(line.read())]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_sent_when_it_comes_is_asked_about_once(qos: int) -> None:
    bench = Bench()
    line, permissions = counted(bench, qos)
    bench.publish("t", b"x", qos)
    assert payloads(line) == [b"x"]
    assert permissions.asked == 1


def test_a_message_that_waited_is_asked_about_again() -> None:
    """What its client may receive may have changed."""
    bench = Bench()
    line, permissions = counted(bench, 1)
    bench.publish("t", b"sent")
    bench.publish("t", b"waits")
    bench.commit()
    (sent,) = publishes(line.read())
    assert permissions.asked == 2
    permissions.allows = False
    line.send(Puback(sent.packet_id))
    assert payloads(line) == []
    assert permissions.asked == 3
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1
