"""Databases that Mosquitto 2.0.11 and 2.1.2 themselves saved when they were stopped.

Their clients: alice-1 (MQTT 5) subscribed to plant/# with identifier 7 and to other/+, and was gone
after the PUBREC of the first message; old (3.1.1) subscribed to plant/n; feeder published the rest,
and was gone before its last PUBREL. All expires in the year 2153.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

import pytest

from penstock.engine.values.records import ids_in
from penstock.mosquitto.database import QUEUED, WAIT_FOR_PUBCOMP, WAIT_FOR_PUBREL, read_database
from penstock.mosquitto.importing import ImportRequest, import_mosquitto
from penstock.store.examination import examine
from penstock.store.rocks import RocksStore

HERE: Final = Path(__file__).parent / "data"
FILES: Final = sorted(HERE.glob("*.db"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_all_that_they_tell_is_read(file: Path) -> None:
    found = read_database(file)
    assert (found.format, found.is_final) == (6, True)
    payloads = {number: one.payload for number, one in found.messages.items()}
    assert [payloads[number] for number in found.retained] == [b"running"]
    alice, old, feeder = (found.clients[name] for name in ("alice-1", "old", "feeder"))
    waiting = [(payloads[one.number], one.packet_id, one.qos, one.state) for one in alice.outgoing]
    assert waiting == [
        (b"first", 1, 2, WAIT_FOR_PUBCOMP),
        *((b"%d" % number, number + 2, 1 + number % 2, QUEUED) for number in range(4)),
        (b"running", 6, 1, QUEUED),
    ]
    assert {one.subscription_id for one in alice.outgoing} == {7}
    assert [dataclasses.astuple(one) for one in alice.subscriptions] == [
        ("plant/#", 2, False, False, 0, 7),
        ("other/+", 1, True, True, 0, 0),
    ]
    assert (alice.username, old.username) == ("alice", "bob")
    assert (alice.expiry_interval_s, old.expiry_interval_s) == (4_000_000_000, 4_294_967_295)
    (half,) = feeder.incoming
    assert (payloads[half.number], half.packet_id, half.state) == (b"half", 99, WAIT_FOR_PUBREL)
    second = found.messages[alice.outgoing[1].number]
    assert second.properties is not None
    assert second.properties.user_properties == [("number", "0")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_store_is_made_of_them(file: Path, tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text("listener 1883 127.0.0.1\nallow_anonymous true\n")
    request = ImportRequest(tmp_path / "mosquitto.conf", tmp_path / "to", database=file)
    import_mosquitto(request, print)
    data_dir = tmp_path / "to" / "data"
    assert examine(data_dir).problems == []
    store = RocksStore(data_dir, ())
    try:
        found = store.recover()
        bodies = {offset: one.payload for offset, one in store.read(range(20)).items()}
    finally:
        store.close()
    numbers = {one.client_id: one.number for one in found.sessions}
    queues = {
        name: [bodies[offset] for run in found.queues[number] for offset in run.offsets]
        for name, number in numbers.items()
        if number in found.queues
    }
    queued = [b"0", b"1", b"2", b"3"]
    assert queues == {"alice-1": [*queued, b"running", b"half"], "old": queued}
    (in_flight,) = found.progress[numbers["alice-1"]].in_flight()
    assert in_flight[:2] == (1, 3)  # its packet identifier, and PUBREL is what is sent
    assert list(ids_in(found.progress[numbers["feeder"]].inbound)) == [99]
    assert [one.payload for one in found.retained] == [b"running"]
