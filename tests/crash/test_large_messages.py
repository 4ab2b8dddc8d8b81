"""SIGKILL while a large message is written in parts: it is whole or not there.

The kill comes while RocksDB's write-ahead log grows by more than anything else can make it grow, so
the message's parts are being written, or are, and the commit that has their head is not
acknowledged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.packets import Publish
from penstock.store.database import open_database
from penstock.store.examination import examine
from penstock.store.parts import PART_BYTES, PARTS_FAMILY
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker

LONG_S: Final = 3600
LARGE_BYTES: Final = 24 * 1_048_576
SETTINGS: Final = {"limits.max_packet_size_bytes": 2 * LARGE_BYTES}


def payload(number: int) -> bytes:
    """That of one message: no part of it is a part of another."""
    places = range(LARGE_BYTES // PART_BYTES)
    return b"".join(b"%08d%08d" % (number, place) * (PART_BYTES // 16) for place in places)


def grown(broker: Broker, before: int, by: int) -> bool:
    """Whether so much more was written since."""
    return written(broker) - before >= by


def written(broker: Broker) -> int:
    """Bytes in all files of the database."""
    size_bytes = 0
    for path in (broker.data_dir / "store").iterdir():
        try:
            size_bytes += path.stat().st_size
        except FileNotFoundError:  # a table was replaced by another
            continue
    return size_bytes


@pytest.mark.parametrize(
    "parts",
    [
        12,
        pytest.param(1, marks=pytest.mark.torture("another moment of the same")),
        pytest.param(24, marks=pytest.mark.torture("another moment of the same")),
    ],
)
def test_a_large_message_is_whole_or_not_there(
    tmp_path: Path, clients: Clients, parts: int
) -> None:
    with running_broker(tmp_path, SETTINGS) as broker:
        subscriber = clients.join(broker, "s", clean_start=False, expiry_s=LONG_S)
        subscriber.subscribe("t")
        subscriber.disconnect()
        publisher = clients.join(broker, "p")
        publisher.publish("t", payload(0), 1)
        publisher.publish("t", b"small", 1)
        before = written(broker)
        publisher.send(Publish("t", payload(1), 1, packet_id=9))
        wait_for("parts", lambda: grown(broker, before, parts * PART_BYTES) or None)
        broker.kill()
        assert examine(broker.data_dir).problems == []
        broker.start()
        publisher = clients.join(broker, "p")
        publisher.publish("t", payload(2), 1)
        publisher.publish("t", b"end", 1)
        subscriber = clients.join(broker, "s", clean_start=False, expiry_s=LONG_S, present=True)
        received: list[bytes] = []
        while not received or received[-1] != b"end":
            received.append(subscriber.take().payload)
        never_acknowledged = [one for one in received if one == payload(1)]
        expected = [payload(0), b"small", *never_acknowledged, payload(2), b"end"]
        assert received == expected
        assert broker.stop() == 0
        database = open_database(broker.data_dir)
        keys = [key for key, _ in database.items(PARTS_FAMILY)]
        database.close()
        whole = 2 + len(never_acknowledged)
        assert len(keys) == whole * (LARGE_BYTES // PART_BYTES + 1)
