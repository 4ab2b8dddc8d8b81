"""Faults of processes under load, drawn by a seed, and the ledgers of the clients at the end.

============ ==============================================================
``broker``   SIGKILL to the broker, which is started again
``stream``   SIGKILL to the stream service, which the broker starts again
``both``     SIGKILL to both in one moment
``pause``    SIGSTOP to one of them, and SIGCONT a moment later
============ ==============================================================
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from penstock.protocol.kinds import V5, V311
from penstock.stream.client import StreamClient
from tests.support.broker import Address, Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import running_broker
from tests.support.ledger import Device, Publisher, Subscriber

FAULTS: Final = ("broker", "stream", "both", "pause")
IN_FULL_FLOW: Final = 0.7
MOMENT_S: Final = 0.4
PAUSE_S_MAX: Final = 1.0
ALL_DELIVERED_S: Final = 60.0


class Played(NamedTuple):
    """One round: messages acknowledged, and how often each fault happened."""

    acknowledged: int
    faults: dict[str, int]


def play(directory: Path, seed: int, faults: int, broker_only: bool = False) -> Played:
    """Run a load, do ``faults`` faults at random moments, and compare the ledgers.

    Raises:
        AssertionError: something acknowledged is lost, or a QoS 2 message came twice.
    """
    draw = random.Random(seed)
    directory.mkdir(exist_ok=True)
    done: dict[str, int] = {}
    # Subscribers may fall behind; what is dropped for a full queue is not this test's subject.
    settings = {"limits.max_mqueue_len": 0, "log.level": "info"}
    with running_broker(directory, settings, stream=True) as broker:
        subscribers = [
            Subscriber(broker, f"s{version}", version, draw.randrange(2**32))
            for version in (V311, V5)
        ]
        publishers = [
            Publisher(broker, f"p{version}{qos}", version, qos, draw.randrange(2**32))
            for version in (V311, V5)
            for qos in (1, 2)
        ]
        devices: list[Device] = [*subscribers, *publishers]
        try:
            for subscriber in subscribers:
                subscriber.start()
                assert subscriber.ready.wait(10), subscriber.failure
            for publisher in publishers:
                publisher.start()
            for _ in range(faults):
                wait_for_moment(draw, publishers, devices)
                fault = "broker" if broker_only else draw.choice(FAULTS)
                do(fault, broker, draw)
                done[fault] = done.get(fault, 0) + 1
            finish(publishers)
            wait_until_delivered(publishers, subscribers)
            compare_log(broker.stream_address, publishers)
        finally:
            for device in devices:
                device.ending.set()
            for device in devices:
                device.join()
    for publisher in publishers:
        assert len(publisher.acknowledged) == publisher.sent > 0
        print(f"{publisher.client_id}: {publisher.sent} messages, {publisher.connections} times")
        for subscriber in subscribers:
            compare(publisher, subscriber)
    return Played(sum(len(publisher.acknowledged) for publisher in publishers), done)


def do(fault: str, broker: Broker, draw: random.Random) -> None:
    """One fault."""
    service = [pid for pid in broker.family() if pid != broker.process.pid]
    if fault in ("stream", "both"):
        for pid in service:  # the broker may be starting it just now
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if fault in ("broker", "both"):
        broker.restart()
    if fault == "pause":
        pid = draw.choice([broker.process.pid, *service])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(draw.uniform(0, PAUSE_S_MAX))  # the time it stands still
            finally:
                os.kill(pid, signal.SIGCONT)


def wait_for_moment(
    draw: random.Random, publishers: list[Publisher], devices: list[Device]
) -> None:
    """A moment drawn by the seed: often in full flow, sometimes while all come back."""
    if draw.random() < IN_FULL_FLOW:
        wait_for("new acknowledgements", partial(moved_on, acknowledged(publishers), publishers))
    ends_s = time.monotonic() + draw.uniform(0, MOMENT_S)
    while time.monotonic() < ends_s:  # the moment itself is what is drawn
        assert all(device.failure is None for device in devices)
        time.sleep(0.005)


def acknowledged(publishers: list[Publisher]) -> list[int]:
    """How many messages of each."""
    return [len(publisher.acknowledged) for publisher in publishers]


def moved_on(before: list[int], publishers: list[Publisher]) -> bool:
    """Whether each has more than ``before``."""
    now = acknowledged(publishers)
    return all(count > earlier for count, earlier in zip(now, before, strict=True))


def finish(publishers: list[Publisher]) -> None:
    """Let every publisher get its last acknowledgements."""
    for publisher in publishers:
        publisher.ending.set()
    for publisher in publishers:
        publisher.join()


def wait_until_delivered(publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    """Everything acknowledged has reached every subscriber."""

    def delivered(publisher: Publisher, subscriber: Subscriber) -> bool:
        received = subscriber.received.get(publisher.topic, ())
        return subscriber.failure is not None or publisher.acknowledged <= set(received)

    for publisher in publishers:
        for subscriber in subscribers:
            what = f"all of {publisher.topic} at {subscriber.client_id}"
            wait_for(what, partial(delivered, publisher, subscriber), ALL_DELIVERED_S)


def compare(publisher: Publisher, subscriber: Subscriber) -> None:
    """Everything, in order, at QoS 2 once."""
    received = subscriber.received[publisher.topic]
    judge(publisher, received, f"at {subscriber.client_id}")


def compare_log(stream_address: Address, publishers: Sequence[Publisher]) -> dict[str, list[int]]:
    """Compare the log, as the stream service shows it after all that; return its numbers by topic
    of the ledgers."""
    rows: dict[str, list[int]] = {}
    host, port = stream_address
    with StreamClient(f"{host}:{port}") as client:
        [stream] = client.streams()
        offsets = client.offsets(stream)
        for batch in client.read(stream, offsets.epoch, offsets.earliest, offsets.latest):
            columns = batch.to_pydict()
            for topic, payload in zip(columns["topic"], columns["payload"], strict=True):
                if topic.startswith("ledger/"):
                    rows.setdefault(topic, []).append(int(payload))
    for publisher in publishers:
        judge(publisher, rows.get(publisher.topic, []), "in the log")
    return rows


def judge(publisher: Publisher, numbers: list[int], where: str, qos: int = 2) -> None:
    """What arrived of one publisher's messages."""
    distinct = list(dict.fromkeys(numbers))
    lost = publisher.acknowledged - set(distinct)
    assert not lost, f"{publisher.topic} {where}: acknowledged and lost: {sorted(lost)[:5]}"
    assert distinct == sorted(distinct), f"{publisher.topic} {where}: the order was not kept"
    if qos == 2 and publisher.topic.startswith("ledger/2/"):
        assert numbers == distinct, f"{publisher.topic} {where}: a QoS 2 message is there twice"
