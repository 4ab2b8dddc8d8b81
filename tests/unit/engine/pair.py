"""A publisher and a durable subscriber, for tests of what happens between them."""

from __future__ import annotations

from penstock.engine.values.limits import EngineLimits
from penstock.protocol.packets import Publish
from tests.unit.engine.bench import Bench, Line, publishes


def payloads(line: Line) -> list[bytes]:
    return [message.payload for message in publishes(line.read())]


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


class Pair:
    """A durable subscriber of ``t`` at QoS 2, and a publisher that stays."""

    def __init__(self, limits: EngineLimits | None = None, version: int = 5) -> None:
        self.bench = Bench(limits)
        self.version = version
        self.line = self.bench.subscriber("s", "t", 2, version)
        self.publisher = self.bench.join("p", 4)
        self._ids = 0

    def publish(self, *bodies: bytes, qos: int = 1) -> None:
        """Messages in one turn; nothing is committed."""
        for body in bodies:
            self._ids = self._ids % 60000 + 1
            self.publisher.send(Publish("t", body, qos, packet_id=self._ids if qos else 0))

    def rejoin(self, receive_maximum: int | None = None, size: int | None = None) -> Line:
        """The subscriber is back."""
        self.line = self.bench.join(
            "s",
            self.version,
            durable=True,
            receive_maximum=receive_maximum,
            max_packet_size=size,
        )
        return self.line
