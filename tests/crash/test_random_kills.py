"""A broker killed at random moments, and the ledgers of its clients against each other.

The seed is printed; ``CRASH_SEED=... pytest tests/crash/test_random_kills.py`` draws the same
moments again (what happens in them is up to the machine).
"""

import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Final

from penstock.protocol.kinds import V5, V311
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import running_broker
from tests.support.ledger import Device, Publisher, Subscriber

KILLS: Final = 6
IN_FULL_FLOW: Final = 0.7
MOMENT_S: Final = 0.4
ALL_DELIVERED_S: Final = 60.0


def test_nothing_acknowledged_is_lost_and_qos2_is_exactly_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    draw = random.Random(seed)
    # Subscribers may fall behind; what is dropped for a full queue is not this test's subject.
    settings = {"limits.max_mqueue_len": 0, "log.level": "info"}
    with running_broker(tmp_path, settings, stream=True) as broker:
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
            kill_at_random(broker, draw, publishers, devices)
            finish(publishers)
            wait_until_delivered(publishers, subscribers)
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


def kill_at_random(
    broker: Broker, draw: random.Random, publishers: list[Publisher], devices: list[Device]
) -> None:
    """Kill at moments drawn by the seed: often in full flow, sometimes while all come back."""
    for _ in range(KILLS):
        if draw.random() < IN_FULL_FLOW:
            wait_for(
                "new acknowledgements", partial(moved_on, acknowledged(publishers), publishers)
            )
        ends_s = time.monotonic() + draw.uniform(0, MOMENT_S)
        while time.monotonic() < ends_s:  # the moment itself is what is drawn
            assert all(device.failure is None for device in devices)
            time.sleep(0.005)
        broker.restart()


def acknowledged(publishers: list[Publisher]) -> list[int]:
    return [len(publisher.acknowledged) for publisher in publishers]


def moved_on(before: list[int], publishers: list[Publisher]) -> bool:
    now = acknowledged(publishers)
    return all(count > earlier for count, earlier in zip(now, before, strict=True))


def finish(publishers: list[Publisher]) -> None:
    """Let every publisher get its last acknowledgements."""
    for publisher in publishers:
        publisher.ending.set()
    for publisher in publishers:
        publisher.join()


def wait_until_delivered(publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    def delivered(publisher: Publisher, subscriber: Subscriber) -> bool:
        received = subscriber.received.get(publisher.topic, ())
        return subscriber.failure is not None or publisher.acknowledged <= set(received)

    for publisher in publishers:
        for subscriber in subscribers:
            what = f"all of {publisher.topic} at {subscriber.client_id}"
            wait_for(what, partial(delivered, publisher, subscriber), ALL_DELIVERED_S)


def compare(publisher: Publisher, subscriber: Subscriber) -> None:
    received = subscriber.received[publisher.topic]
    distinct = list(dict.fromkeys(received))
    assert set(distinct) >= publisher.acknowledged
    assert distinct == sorted(distinct), "the order of the topic was not kept"
    if publisher.topic.startswith("ledger/2/"):
        assert received == distinct, "a QoS 2 message came twice"
