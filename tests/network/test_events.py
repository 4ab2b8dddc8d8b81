"""The stream of events, from the broker through its stream service."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.packets import Puback, Publish
from penstock.stream.client import StreamClient
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients

Events = list[dict[str, Any]]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Broker]:
    settings = {"events.enabled": "true", "events.topic_filters": '["plant/#"]'}
    broker = Broker(tmp_path, settings, stream=True)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def events(broker: Broker) -> Events:
    host, port = broker.stream_address
    found: Events = []
    with StreamClient(f"{host}:{port}") as client:
        log = client.offsets("events")
        for batch in client.read("events", log.epoch, log.earliest, log.latest):
            for row in batch.to_pylist():
                kind = row["topic"].removeprefix("$events/")
                payload = json.loads(row["payload"])
                found += [{"kind": kind, **event} for event in payload["events"]]
    return found


def until(broker: Broker, enough: Callable[[Events], bool]) -> Events:
    def look() -> Events | None:
        found = events(broker)
        return found if enough(found) else None

    return wait_for("the events to be in the stream", look)


def test_a_message_is_followed_from_its_publisher_to_its_subscriber(
    told: Broker, clients: Clients
) -> None:
    receiver = clients.join(told, "receiver")
    receiver.subscribe("#", qos=1)
    publisher = clients.join(told, "publisher")
    publisher.publish("plant/1", b"21.5", qos=1)
    publisher.publish("elsewhere", b"1", qos=1)
    for _ in range(2):
        receiver.take()
    found = until(told, lambda found: any(e["kind"] == "acknowledged" for e in found))
    received = [event for event in found if event["kind"] == "received"]
    assert [(e["client"], e["topic"], e["sessions"]) for e in received] == [
        ("publisher", "plant/1", 1)
    ]
    offset = received[0]["offset"]
    times = {
        event["kind"]: event["at"]
        for event in found
        if event.get("offset") == offset or offset in event.get("offsets", ())
    }
    assert list(dict(sorted(times.items(), key=lambda item: item[1]))) == [
        "received", "committed", "sent", "acknowledged",
    ]  # fmt: skip
    host, port = told.stream_address
    with StreamClient(f"{host}:{port}") as client:
        log = client.offsets("messages")
        rows = [
            row
            for batch in client.read("messages", log.epoch, log.earliest, log.latest)
            for row in batch.to_pylist()
        ]
    assert [row["offset"] for row in rows if row["topic"] == "plant/1"] == [offset]
    assert {row["topic"] for row in rows} == {"plant/1", "elsewhere"}


def test_a_broker_that_stops_has_told_all_and_one_that_starts_says_so(
    told: Broker, clients: Clients
) -> None:
    clients.join(told, "alice")
    told.stop()
    told.start()
    found = until(told, lambda found: sum(e["kind"] == "started" for e in found) == 2)
    assert [event["kind"] for event in sorted(found, key=lambda e: (e["at"], e["n"]))] == [
        "started", "connected", "disconnected", "stopped", "started",
    ]  # fmt: skip
    ended = next(event for event in found if event["kind"] == "disconnected")
    assert (ended["client"], ended["by"]) == ("alice", "broker")


def test_a_broker_that_stops_tells_of_its_last_commit(told: Broker, clients: Clients) -> None:
    """Of each message that it has received it says that it is on disk."""
    publisher = clients.join(told, "publisher")
    publisher.send(*(Publish("plant/1", bytes(2000), 1, packet_id=1 + n) for n in range(1000)))
    publisher.expect(Puback)
    told.stop()
    told.start()
    found = until(told, lambda found: sum(e["kind"] == "started" for e in found) == 2)
    received = {event["offset"] for event in found if event["kind"] == "received"}
    committed = {
        offset for event in found if event["kind"] == "committed" for offset in event["offsets"]
    }
    assert received
    assert received == committed
