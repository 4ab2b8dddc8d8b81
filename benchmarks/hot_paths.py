"""The hot paths of the broker whose instructions are counted.

Clients answer what they receive, and that must not be counted. So each path runs twice on equal
brokers (``turned_broker``)::

      path ─▶ Recording: plays the clients, writes down what they send ─▶ script
                                                                            │
                    new broker ◀─ replay: feeds the script, counted ◀───────╯

Both brokers answer the same number of bytes, or the count is refused. In one step of a script each
client named in it sends its bytes, all in one turn of the loop; then the loop turns until nothing
is left.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, final

from benchmarks.callgrind import requests
from benchmarks.turned_broker import Transport, TurnedBroker, stop_clocks
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
    Disconnect,
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

VERSION: Final = 5
BLOCK: Final = 20  # messages that a publisher sends at once
PAYLOAD: Final = b"x" * 64
_DAY_S: Final = 86_400
_PACKET_BYTES_MAX: Final = 2**28
_STORED: Final = 2000  # messages of a queue that is drained
_CONNECTS: Final = 200
_CODED_BLOCKS: Final = 100  # of packets that are decoded or encoded

Step = list[tuple[int, bytes]]
"""What clients send in one turn, by their numbers; no bytes: the client's connection is lost."""


_begin_requests, _end_count = requests()


def _begin_count() -> None:
    """Begin to count, always at the same point between two collections of garbage."""
    gc.collect()
    gc.freeze()
    _begin_requests()


@dataclass
class Script:
    """What the clients of a path send.

    Attributes:
        steps: the steps, in order.
        counted_from: the index of the first step that is counted.
        answered_bytes: the bytes that the broker sent in all steps.
    """

    steps: list[Step] = field(default_factory=list)
    counted_from: int = 0
    answered_bytes: int = 0


@final
class Recording:
    """Plays the clients of a path against a broker, and writes down what they send.

    Args:
        broker: a new broker.

    Attributes:
        script: what they sent up to now.
    """

    def __init__(self, broker: TurnedBroker) -> None:
        self.script = Script()
        self._broker = broker
        self._transports: list[Transport] = []
        self._decoders: dict[Transport, Decoder] = {}

    def send(self, step: Step) -> None:
        """Send the bytes of a step, then what the clients answer, until nobody answers."""
        while step:
            self.script.steps.append(step)
            answered: Step = []
            on_step = partial(self._answer, answered)
            size_bytes = feed(self._broker, self._transports, [step], on_step)
            self.script.answered_bytes += size_bytes
            step = answered

    def begin(self) -> None:
        """Count what follows."""
        self.script.counted_from = len(self.script.steps)

    def _answer(self, answered: Step) -> None:
        for transport in self._broker.answered:
            decoder = self._decoders.get(transport)
            if decoder is None:
                decoder = Decoder(_PACKET_BYTES_MAX, VERSION, server=False)
                self._decoders[transport] = decoder
            decoder.feed(b"".join(transport.pieces))
            if answer := b"".join(answers(decoder)):
                answered.append((self._transports.index(transport), answer))


def feed(
    broker: TurnedBroker,
    transports: list[Transport],
    steps: list[Step],
    on_step: Callable[[], None] | None = None,
) -> int:
    """Send what clients send in some steps to a broker; return the number of bytes it answered.

    Args:
        broker: the broker.
        transports: those of its clients, by number; a client connects when it first sends.
        steps: what the clients send.
        on_step: called after each step, before what the broker answered is forgotten.
    """
    answered_bytes = 0
    settle = broker.loop.settle
    for step in steps:
        for number, data in step:
            if number == len(transports):
                transports.append(Transport())
                broker.connect(transports[number])
            if data:
                transports[number].wire.data_received(data)
            else:
                transports[number].wire.connection_lost(None)
        settle()
        if on_step is not None:
            on_step()
        for transport in broker.answered:
            answered_bytes += sum(map(len, transport.pieces))
            transport.pieces.clear()
        broker.answered.clear()
    return answered_bytes


def answers(decoder: Decoder) -> Iterator[bytes]:
    """Yield the packets with which a client answers what its decoder has."""
    while (packet := decoder.next_packet()) is not None:
        answer: Packet | None = None
        if isinstance(packet, Publish) and packet.qos:
            kind = Puback if packet.qos == 1 else Pubrec
            answer = kind(packet.packet_id)
        elif isinstance(packet, Pubrec):
            answer = Pubrel(packet.packet_id)
        elif isinstance(packet, Pubrel):
            answer = Pubcomp(packet.packet_id)
        if answer is not None:
            yield encode(answer, VERSION)


# -- what clients do -----------------------------------------------------------------------


def connect(client_id: str, is_persistent: bool = False) -> bytes:
    """Return a CONNECT."""
    properties = Properties(session_expiry_interval=_DAY_S) if is_persistent else None
    packet = Connect(client_id, VERSION, not is_persistent, 0, properties=properties)
    return encode(packet, VERSION)


def subscribe(topic_filter: str, qos: int) -> bytes:
    """Return a SUBSCRIBE."""
    return encode(Subscribe(1, [Subscription(topic_filter, qos)]), VERSION)


def block(topic: str, qos: int, messages: int = BLOCK) -> bytes:
    """Return PUBLISH packets of one topic."""
    return b"".join(
        encode(Publish(topic, PAYLOAD, qos, packet_id=number if qos else 0), VERSION)
        for number in range(1, messages + 1)
    )


def publish(
    play: Recording, qos: int, publishers: int, subscribers: int, is_persistent: bool, rounds: int
) -> int:
    """Publish in rounds, each of a block from each publisher; return the counted messages.

    Subscribers and publishers share topics one to one, or all subscribers have the one topic.
    """
    topics = [f"plant/line-{number}/temperature" for number in range(publishers)]
    for number in range(subscribers):
        play.send([(number, connect(f"subscriber-{number}", is_persistent))])
        play.send([(number, subscribe(topics[number % publishers], qos))])
    for number in range(publishers):
        play.send([(subscribers + number, connect(f"publisher-{number}"))])
    load = [(subscribers + number, block(topic, qos)) for number, topic in enumerate(topics)]
    for _ in range(rounds // 4):
        play.send(load)
    play.begin()
    for _ in range(rounds):
        play.send(load)
    return rounds * publishers * BLOCK


def commit(play: Recording, at_once: int, rounds: int) -> int:
    """Publish messages that only a stream reads, so many in a commit; return their number."""
    play.send([(0, connect("publisher"))])
    load = [(0, block("plant/line-0/temperature", 1, at_once))]
    for _ in range(rounds // 4):
        play.send(load)
    play.begin()
    for _ in range(rounds):
        play.send(load)
    return rounds * at_once


def drain(play: Recording) -> int:
    """Connect a client whose stored queue is long; return the number of its messages."""
    play.send([(0, connect("subscriber", is_persistent=True))])
    play.send([(0, subscribe("plant/+/temperature", 1))])
    play.send([(0, b"")])
    play.send([(1, connect("publisher"))])
    for _ in range(_STORED // BLOCK):
        play.send([(1, block("plant/line-0/temperature", 1))])
    play.begin()
    play.send([(2, connect("subscriber", is_persistent=True))])
    return _STORED


def connects(play: Recording) -> int:
    """Connect clients that subscribe, one after the other; return their number."""
    for number in range(_CONNECTS * 2):
        if number == _CONNECTS:
            play.begin()
        play.send([(number, connect(f"client-{number}"))])
        play.send([(number, subscribe(f"commands/{number}", 1))])
    return _CONNECTS


def disconnects(play: Recording) -> int:
    """Disconnect clients with a subscription, one after the other; return their number."""
    connects(play)
    play.begin()
    for number in range(_CONNECTS):
        play.send([(number, encode(Disconnect(), VERSION))])
        play.send([(number, b"")])
    return _CONNECTS


@dataclass(frozen=True)
class HotPath:
    """One path.

    Attributes:
        name: its name in tables and in the history.
        unit: what the instructions are counted for.
        play: plays the clients; returns how often the unit was counted.
        is_durable: whether the store is on disk.
    """

    name: str
    unit: str
    play: Callable[[Recording], int]
    is_durable: bool = False


def _publishing(
    qos: int, publishers: int, subscribers: int, rounds: int, is_durable: bool = False
) -> HotPath:
    kind = "durable, " if is_durable else ""
    return HotPath(
        f"{kind}publish QoS {qos}, {publishers} → {subscribers}",
        "message",
        lambda play: publish(play, qos, publishers, subscribers, is_durable, rounds),
        is_durable,
    )


BROKER_PATHS: Final = (
    *(_publishing(qos, 1, 1, 100) for qos in (0, 1, 2)),
    *(_publishing(qos, 10, 10, 20) for qos in (0, 1, 2)),
    *(_publishing(qos, 1, 50, 10) for qos in (0, 1, 2)),
    _publishing(1, 10, 10, 20, is_durable=True),
    HotPath("durable, 500 in a commit", "message", lambda play: commit(play, 500, 10), True),
    HotPath("durable, 1 in a commit", "message", lambda play: commit(play, 1, 100), True),
    HotPath("drain a stored queue", "message", drain, True),
    HotPath("connect and subscribe", "connection", connects),
    HotPath("disconnect", "connection", disconnects),
)


def count_broker(path: HotPath) -> int:
    """Run a path twice, and count the second run; return how often its unit came."""
    with contextlib.ExitStack() as stack:
        recording = Recording(stack.enter_context(_broker(path.is_durable)))
        units = path.play(recording)
        script = recording.script
        broker = stack.enter_context(_broker(path.is_durable))
        transports: list[Transport] = []
        answered_bytes = feed(broker, transports, script.steps[: script.counted_from])
        counted = script.steps[script.counted_from :]
        _begin_count()
        answered_bytes += feed(broker, transports, counted)
        _end_count()
    if answered_bytes != script.answered_bytes:
        raise RuntimeError(
            f"{path.name}: the broker answered {answered_bytes:,} bytes to a script that it had"
            f" answered with {script.answered_bytes:,} bytes; what was counted is not the path"
        )
    return units


@contextlib.contextmanager
def _broker(is_durable: bool) -> Iterator[TurnedBroker]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        broker = TurnedBroker(Path(directory) if is_durable else None)
        yield broker
        broker.close()


def count_decoding() -> int:
    """Decode PUBLISH packets and count; return their number."""
    data = block("plant/line-0/temperature", 1)
    decoder = Decoder(_PACKET_BYTES_MAX, VERSION)
    for is_counted in (False, True):
        if is_counted:
            _begin_count()
        for _ in range(_CODED_BLOCKS):
            decoder.feed(data)
            packets: list[Packet] = []  # all of a block are in memory together
            while (packet := decoder.next_packet()) is not None:
                packets.append(packet)
    _end_count()
    return _CODED_BLOCKS * BLOCK


def count_encoding() -> int:
    """Encode PUBLISH packets and count; return their number."""
    topic = "plant/line-0/temperature"
    packets = [Publish(topic, PAYLOAD, 1, packet_id=number) for number in range(1, BLOCK + 1)]
    for is_counted in (False, True):
        if is_counted:
            _begin_count()
        for _ in range(_CODED_BLOCKS):
            frames = [encode(packet, VERSION) for packet in packets]
    _end_count()
    del frames
    return _CODED_BLOCKS * BLOCK


def _counter(path: HotPath) -> Callable[[], int]:
    return lambda: count_broker(path)


PATHS: Final[dict[str, tuple[str, Callable[[], int]]]] = {
    **{path.name: (path.unit, _counter(path)) for path in BROKER_PATHS},
    "decode PUBLISH": ("packet", count_decoding),
    "encode PUBLISH": ("packet", count_encoding),
}
"""All paths by name: the unit, and the function that runs and counts the path."""


def main() -> None:
    """Run paths, each in a process of its own, all of which start alike.

    For each path a line is printed: the process, how often the unit came, and the path's name.
    """
    stop_clocks()
    for name in sys.argv[1:]:
        _, count = PATHS[name]
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            print(os.getpid(), count(), name, flush=True)
            os._exit(0)  # without Python's end, in which threads could wait
        _, status = os.waitpid(process, 0)
        if status != 0:
            sys.exit(f"{name} could not be run: see above")


if __name__ == "__main__":
    main()
