"""Producers that lose their memory and connections, and a broker that crashes, seed by seed.

Each producer publishes ``MESSAGES`` messages, in order, a few of them ahead of their
acknowledgements. It crashes, and afterwards knows only what CONNACK says; its connection is cut;
the broker crashes before or after it wrote; queues that ``reject`` are full. Whatever happens,
the log has each message once, in order, and all that were acknowledged.

Seeds are as in ``test_simulation``.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.engine.values.producer_properties import PRODUCER, SEQUENCE
from penstock.protocol.packets import (
    Connack,
    Connect,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.model.seeds import TIMEOUT_S, play_seeds, replay
from tests.support.waiting import check_waiting
from tests.unit.engine.bench import Bench, Line, publishes

STEPS: Final = 250
MESSAGES: Final = 40
AHEAD_MAX: Final = 8
ROUNDS_TO_REST: Final = 2000


@final
class Producer:
    """A program that publishes ``MESSAGES`` messages, and may forget how far it got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line: Line | None = None
        self.following = 1  # to be sent
        self.acknowledged = 0
        self.refusals = 0
        self.connections = 0
        self._open: dict[int, int] = {}  # packet identifier to number
        self._packet_id = 0

    def connect(self, bench: Bench) -> None:
        """Connect with another client identifier each time, so that there is no session to
        resume."""
        self.connections += 1
        self.line = bench.line()
        asking = Properties(user_properties=[(PRODUCER, self.name)])
        self.line.send(Connect(f"{self.name}-{self.connections}", 5, properties=asking))
        self._open = {}
        self._packet_id = 0
        self.following = 0  # not known before CONNACK

    def send(self, random: Random) -> None:
        """Publish the next message, if there may be one more ahead."""
        ahead = len(self._open)
        if self.line is None or ahead >= AHEAD_MAX or not 0 < self.following <= MESSAGES:
            return
        self._packet_id += 1
        self._open[self._packet_id] = self.following
        pairs = [(PRODUCER, self.name), (SEQUENCE, str(self.following))]
        properties = Properties(user_properties=pairs)
        payload = f"{self.name} {self.following}".encode()
        qos = random.choice((1, 2))
        packet = Publish("t", payload, qos, packet_id=self._packet_id, properties=properties)
        self.following += 1
        self.line.send(packet)

    def read(self) -> None:
        """Handle acknowledgements; after a refusal, go back to the refused message."""
        if self.line is None:
            return
        for packet in self.line.read():
            if isinstance(packet, Connack):
                assert packet.properties is not None
                pairs = dict(packet.properties.user_properties or [])
                latest = int(pairs[SEQUENCE])
                assert latest >= self.acknowledged, "acknowledged, and forgotten"
                self.following = latest + 1
            elif isinstance(packet, Puback | Pubrec):
                number = self._open.pop(packet.packet_id)
                if packet.reason_code < 0x80:
                    self.acknowledged = max(self.acknowledged, number)
                    if isinstance(packet, Pubrec):
                        self.line.send(Pubrel(packet.packet_id))
                else:
                    self.refusals += 1
                    self.following = min(self.following, number)

    def lose_connection(self) -> None:
        """Cut the connection, with whatever is on its way."""
        if self.line is not None:
            self.line.cut()
            self.line = None

    def is_done(self) -> bool:
        """Return whether all its messages were acknowledged."""
        return self.acknowledged == MESSAGES


@final
class Plant:
    """One broker, its producers, and a reader with a small queue."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench(EngineLimits(mqueue_overflow=REJECT, max_mqueue_len=5, max_inflight=3))
        self.producers = [Producer(name) for name in ("p", "q")]
        self.reader: Line | None = None
        self.sealed: Commit | None = None
        reader = self.bench.subscriber("reader", "t", 1)
        reader.cut()
        self.bench.commit()

    def run(self) -> None:
        """Make trouble, then come to rest and check."""
        for _ in range(STEPS):
            self.step()
            check_waiting(self.bench.server)
        self.settle()
        self.check()

    def step(self) -> None:
        random = self.random
        dice = random.random()
        producer = random.choice(self.producers)
        if producer.line is None:
            producer.connect(self.bench)
        elif dice < 0.5:
            producer.send(random)
        elif dice < 0.7:
            producer.read()
        elif dice < 0.73:
            producer.lose_connection()
        elif dice < 0.86:
            self.commit()
        elif dice < 0.94:
            self.read()
        elif dice < 0.96 and self.reader is not None:
            self.reader.cut()
            self.reader = None
        elif dice < 0.98:
            self.crash()

    def commit(self) -> None:
        """Do one step of a commit: seal, or write and release."""
        if self.sealed is None:
            self.sealed = self.bench.seal()
        else:
            self.bench.finish(self.sealed)
            self.sealed = None

    def read(self) -> None:
        """Let the reader take what is there, so that its queue has room again."""
        if self.reader is None:
            self.reader = self.bench.line()
            properties = Properties(session_expiry_interval=3600)
            self.reader.send(Connect("reader", 5, False, properties=properties))
            self.reader.send(Subscribe(1, [Subscription("t", 1)]))
        for packet in publishes(self.reader.read()):
            self.reader.send(Puback(packet.packet_id))

    def crash(self) -> None:
        """Crash the broker; a commit under way is on disk, or not."""
        if self.sealed is not None and self.random.random() < 0.5:
            self.bench.store.commit(self.sealed)
        self.sealed = None
        for producer in self.producers:
            producer.line = None
        self.reader = None
        self.bench.restart()

    def settle(self) -> None:
        """Let everyone reconnect until all is published."""
        for _ in range(ROUNDS_TO_REST):
            for producer in self.producers:
                if producer.line is None:
                    producer.connect(self.bench)
                producer.send(self.random)
                producer.read()
            self.commit()
            self.read()
            if all(producer.is_done() for producer in self.producers):
                return
        raise AssertionError("not all was published in time")

    def check(self) -> None:
        """Check that the log has each message once and in order."""
        end = self.bench.store.log_extent().end
        log = self.bench.store.read(range(end))
        for producer in self.producers:
            mine = [
                int(log[offset].payload.split()[1])
                for offset in sorted(log)
                if log[offset].payload.startswith(f"{producer.name} ".encode())
            ]
            assert mine == list(range(1, MESSAGES + 1)), f"{producer.name}: {mine}"


def play(seed: int) -> Plant:
    """Play one run; a failure names its seed."""
    plant = Plant(seed)
    try:
        plant.run()
    except Exception as failure:
        raise AssertionError(f"{replay(seed)}: {failure}") from failure
    return plant


@pytest.mark.timeout(TIMEOUT_S)
def test_each_message_is_in_the_log_once_and_in_order() -> None:
    play_seeds(play, 100)


def test_the_runs_are_hard_enough() -> None:
    """Refusals and reconnections happen, or the proof above proves nothing."""
    plants = [play(seed) for seed in range(10)]
    producers = [producer for plant in plants for producer in plant.producers]
    assert sum(producer.refusals for producer in producers) > 50
    assert sum(producer.connections for producer in producers) > 50
