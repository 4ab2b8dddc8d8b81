"""Events read for traces: what a service that goes away in between has not sent is read later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.config.address import Address
from penstock.config.events import STREAM_FILTER, STREAM_NAME
from penstock.config.stream import StreamDefinition
from penstock.engine.values.topics import EVENTS_PREFIX
from penstock.otlp.event_feed import EventFeed
from penstock.store.secondary import LogFollower
from penstock.stream.client import StreamClient, StreamUnavailable
from penstock.stream.service import StreamServer
from tests.spark.log_writer import LogWriter

STREAM = StreamDefinition(name=STREAM_NAME, topic_filters=(STREAM_FILTER,))
TOPICS = (f"{EVENTS_PREFIX}queued",)


def payload(n: int) -> bytes:
    return json.dumps({"events": [{"n": n}]}).encode()


def test_a_service_that_goes_away_loses_no_events(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.append(3, topics=TOPICS, payload=payload)
        served = StreamServer(Address("127.0.0.1", 0), LogFollower(tmp_path), [STREAM])
        address = Address("127.0.0.1", served.port)
        with StreamClient(str(address), 0.0) as client:
            feed = EventFeed(client)
            assert feed.refresh()
            log.append(3, topics=TOPICS, payload=payload)
            assert not feed.refresh()
            served.shutdown()
            with pytest.raises(StreamUnavailable):
                list(feed.read())
            served = StreamServer(address, LogFollower(tmp_path), [STREAM])
            assert not feed.refresh()
            assert [event["n"] for _, event in feed.read()] == [3, 4, 5]
            assert not list(feed.read())
            assert feed.missed == 0
        served.shutdown()
