"""Events read from a log of which retention, or a repair, has taken a part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config.address import Address
from penstock.config.events import STREAM_NAME
from penstock.config.stream import StreamDefinition
from penstock.engine.values.topics import EVENTS_PREFIX
from penstock.store.secondary import LogFollower
from penstock.stream.client import StreamClient
from penstock.stream.event_rows import newest_events, read_events
from penstock.stream.service import StreamServer
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.support.deadline import DEADLINE_S

STREAM = StreamDefinition(name=STREAM_NAME, topic_filters=(f"{EVENTS_PREFIX}#",))
ALL_US = (0, FIRST_RECEIVED_AT_US + 1_000_000_000)
ROWS = 5


def payload(n: int) -> bytes:
    return json.dumps({"events": [{"n": n, "at": FIRST_RECEIVED_AT_US + n * 1_000_000}]}).encode()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    """Three chunks of five rows, each with one event."""
    with LogWriter(tmp_path) as made:
        for _ in range(3):
            made.append(ROWS, topics=(f"{EVENTS_PREFIX}connected",), payload=payload)
        yield made


@pytest.fixture
def client(log: LogWriter) -> Iterator[StreamClient]:
    served = StreamServer(Address("127.0.0.1", 0), LogFollower(log.data_dir), [STREAM])
    with StreamClient(f"127.0.0.1:{served.port}", DEADLINE_S) as made:
        yield made
    served.shutdown()


def test_an_event_that_a_repair_has_given_up_is_left_out(
    log: LogWriter, client: StreamClient
) -> None:
    log.give_up(5, 10)
    found, rest = newest_events(client, [], None, ALL_US, None, 100, 5.0)
    assert rest is None
    assert [event.fields["n"] for event in found] == [*range(14, 9, -1), *range(4, -1, -1)]
    forward = [event.fields["n"] for event in read_events(client, [], *ALL_US)]
    assert forward == [*range(5), *range(10, 15)]


def test_behind_a_cursor_that_retention_has_passed_there_is_nothing(
    log: LogWriter, client: StreamClient
) -> None:
    log.trim(10)
    assert newest_events(client, [], None, ALL_US, (3, 0), 100, 5.0) == ([], None)
