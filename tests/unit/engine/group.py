"""A group of a shared subscription, for tests of who of it gets a message."""

from __future__ import annotations

from typing import Final

from penstock.protocol.packets import Puback, Publish, Subscribe, Subscription
from tests.unit.engine.bench import Bench, Line, publishes

SHARED: Final = "$share/g/t/+"


def member(
    bench: Bench, name: str, qos: int = 2, *, durable: bool = True, window: int | None = None
) -> Line:
    """A member of the group."""
    line = bench.join(name, durable=durable, receive_maximum=window)
    line.send(Subscribe(1, [Subscription(SHARED, qos)]))
    bench.commit()
    line.read()
    return line


def publish(bench: Bench, count: int, qos: int = 1, topic: str = "t/1", first: int = 0) -> None:
    for number in range(first, first + count):
        bench.publish(topic, str(number).encode(), qos)


def got(line: Line) -> list[int]:
    return [int(packet.payload) for packet in publishes(line.read())]


def queued(bench: Bench, name: str = SHARED) -> int:
    """How many messages wait for the group."""
    return bench.server.router.sharing.groups[name].queue.queue_length


def acknowledge(bench: Bench, line: Line, packets: list[Publish]) -> None:
    line.send(*[Puback(packet.packet_id) for packet in packets])
    bench.commit()
