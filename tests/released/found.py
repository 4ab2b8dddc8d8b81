"""What is found in a data directory that ``content.py`` filled: by clients that come back, by
readers of its streams, and by ``penstock store check``.

The answer is made of words and numbers, for JSON. What differs from day to day is left out: times,
and how much of an expiry is left.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, Final, TypeAlias

from penstock.protocol.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties
from penstock.store.examination import examine
from penstock.stream.client import StreamClient
from tests.released.content import (
    HALF,
    NEVER,
    OWNER,
    PRODUCER,
    log_in,
    penstock,
    released_broker,
    streams_of,
)
from tests.support.broker import Broker
from tests.support.fixtures import Clients
from tests.support.raw_client import RawClient

Facts: TypeAlias = dict[str, Any]

SHOWN_BYTES_MAX: Final = 64
IN_STREAMS: Final = ("messages", "alarms")
KEPT: Final = {"durability.producer_expiry_s": 0}
"""The settings with which nothing expires, however long ago it was written."""


def find_content(directory: Path) -> Facts:
    """Return what is in ``data`` and ``box`` of ``directory``; a broker starts there."""
    facts: Facts = {"store": _store(directory / "data")}
    clients = Clients()
    try:
        with released_broker(directory, KEPT) as broker:
            with streams_of(broker) as streams:
                facts |= _streams(streams, facts["store"]["end"])
            facts["retained"] = _retained(broker, clients)
            facts["sessions"] = {
                "waits": _session(clients.join(broker, "waits", **BACK), 7),
                "older": _session(clients.join(broker, "older", 4, **BACK), 3),
                "crew-1": _session(clients.join(broker, "crew-1", **BACK), 5),
                "owned": _owned(broker, clients),
            }
            facts["half received"] = _half_received(broker, clients)
            facts["producers"] = {PRODUCER: _producer(broker, clients)}
            facts["wills"] = _will(broker, clients)
            facts["outbox"] = _outbox(directory / "box", broker, clients)
    finally:
        clients.close()
    return facts


BACK: Final[Any] = {"clean_start": False, "expiry_s": NEVER, "present": True}


def _store(data_dir: Path) -> Facts:
    """What ``penstock store check`` and ``inspect`` say."""
    found = examine(data_dir)
    assert found.problems == []
    names = "format begin end messages sessions subscriptions queued in_flight retained wills"
    return {
        **{name: getattr(found, name) for name in names.split()},
        "epochs before": [end for _, end in found.lineage],
        "archives": {one.stream: [one.begin, one.end, one.messages] for one in found.archives},
    }


def _streams(streams: StreamClient, end: int) -> Facts:
    """All that was in the log and its archives when the broker ended."""
    facts: Facts = {}
    for name in IN_STREAMS:
        facts[f"stream {name}"] = rows = []
        log = streams.offsets(name)
        for batch in streams.read(name, log.epoch, log.earliest, end):
            rows += [_row(row) for row in batch.to_pylist() if not row["topic"].startswith("$")]
    log = streams.offsets("events")
    columns = ("topic",)
    topics = [
        row["topic"]
        for batch in streams.read("events", log.epoch, log.earliest, end, columns=columns)
        for row in batch.to_pylist()
    ]
    facts["events"] = dict(sorted(Counter(topics).items()))
    facts["readers"] = {
        one.group: [one.stream, list(one.topics), one.offset, one.about]
        for one in streams.readers()
    }
    facts["tables"] = {one.table: [one.stream, one.offset] for one in streams.tables()}
    return facts


def _row(row: dict[str, Any]) -> list[object]:
    return [row["offset"], row["topic"], _text(row["payload"]), row["qos"], row["retain"]]


def _retained(broker: Broker, clients: Clients) -> list[list[object]]:
    client = clients.join(broker, "asks")
    client.subscribe("keep/#", qos=2)
    return sorted(_shown(packet) for packet in client.settle())


def _session(client: RawClient, count: int) -> list[list[object]]:
    """What a client that comes back gets: so many packets, in this order, and no more."""
    packets = [client.receive() for _ in range(count)]
    return [_shown(packet) for packet in (*packets, *client.settle())]


def _owned(broker: Broker, clients: Clients) -> list[list[object]]:
    """A session belongs to the user that made it, and to nobody else."""
    refused = log_in(clients.open(broker), None, clean_start=False)
    owner = clients.open(broker)
    answer = log_in(owner, OWNER, clean_start=False)
    publisher = clients.join(broker, "publisher")
    publisher.publish("owned/1", b"now", 1)
    got = [_shown(packet) for packet in owner.settle()]
    return [["refused", refused.reason_code], ["present", answer.session_present], *got]


def _half_received(broker: Broker, clients: Clients) -> list[list[object]]:
    """The message that the client sends again is a repeat, and its PUBREL is answered."""
    watcher = clients.join(broker, "watcher")
    watcher.subscribe("half/#")
    sender = clients.join(broker, "sends", **BACK)
    again = Publish(HALF.topic, HALF.payload, HALF.qos, dup=True, packet_id=HALF.packet_id)
    sender.send(again)
    answers: list[Packet] = [sender.expect(Pubrec)]
    sender.send(Pubrel(HALF.packet_id))
    answers.append(sender.expect(Pubcomp))
    return [_shown(packet) for packet in (*answers, *watcher.settle())]


def _producer(broker: Broker, clients: Clients) -> int:
    """The number of the last message that is published, as the producer is told."""
    asking = Properties(user_properties=[("penstock-producer", PRODUCER)])
    client = clients.open(broker)
    answer = client.connect("press", properties=asking)
    told = answer.properties and answer.properties.user_properties
    return int(dict(told or [])["penstock-sequence"])


def _will(broker: Broker, clients: Clients) -> list[list[object]]:
    """The will of a client that stays away, as it is retained when its delay is over.

    It may be over at the start: that depends on how long ago the store was written.
    """
    mourner = clients.join(broker, "mourner")
    mourner.subscribe("wills/#")
    mourner.take()
    watcher = clients.join(broker, "watcher of wills")
    watcher.subscribe("wills/#")
    return [_shown(packet) for packet in watcher.settle()]


def _outbox(box: Path, broker: Broker, clients: Clients) -> list[list[object]]:
    """What a client of today sends that opens the outbox."""
    watcher = clients.join(broker, "reads")
    watcher.subscribe("outbox/#")
    assert penstock("pub", "--outbox", box, "-i", "boxed", "-p", str(broker.port)) == 0
    return [_shown(packet) for packet in watcher.settle()]


def _shown(packet: Packet) -> list[object]:
    """A packet as JSON has it: its name and what it says."""
    name = type(packet).__name__
    if isinstance(packet, Publish):
        flags = [word for word in ("dup", "retain") if getattr(packet, word)]
        return [
            name,
            packet.packet_id,
            packet.topic,
            _text(packet.payload),
            packet.qos,
            flags,
            _described(packet.properties),
        ]
    assert isinstance(packet, Puback | Pubrec | Pubrel | Pubcomp)
    return [name, packet.packet_id, packet.reason_code]


def _described(properties: Properties | None) -> Facts:
    """The properties there are; of an expiry only that there is one."""
    found: Facts = {}
    if properties is not None:
        for name in ("content_type", "payload_format_indicator", "response_topic"):
            found[name] = getattr(properties, name)
        found["correlation_data"] = (properties.correlation_data or b"").hex()
        found["user_properties"] = [list(pair) for pair in properties.user_properties or []]
        found["subscription_identifiers"] = properties.subscription_identifiers
        found["expires"] = properties.message_expiry_interval is not None
    return {name: value for name, value in found.items() if value not in (None, "", [], False)}


def _text(payload: bytes) -> str:
    """A payload, or of a long one its beginning, its size and its digest."""
    if len(payload) <= SHOWN_BYTES_MAX:
        return payload.decode()
    digest = hashlib.sha256(payload).hexdigest()[:16]
    return f"{payload[:4].decode()}… {len(payload)} bytes {digest}"
