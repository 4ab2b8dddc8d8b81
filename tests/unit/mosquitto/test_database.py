"""Mosquitto's database, read from bytes as Mosquitto 1.6, 2.0 and 2.1 write them."""

from __future__ import annotations

import contextlib
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.mosquitto.database import QUEUED, WAIT_FOR_PUBCOMP, WAIT_FOR_PUBREL, read_database
from tests.support.budget import budget
from tests.support.mosquitto_database import (
    client,
    client_message,
    database,
    message,
    retained,
    subscription,
    unknown_chunk,
)

WHOLE = database(
    6,
    message(1, "plant/state", b"running", 1, retain=True, client_id="feeder", user="f"),
    message(2, "plant/n", b"", 2, expires_at_s=4_000_000_000, properties=b"\x26\x00\x01a\x00\x01b"),
    client("alice", 3600, expires_at_s=5_000_000_000, port=1884, user="alice"),
    client_message("alice", 2, 7, 2, WAIT_FOR_PUBCOMP),
    client_message("alice", 1, 8, 1, QUEUED, is_retained=True, identifier=300),
    client_message("alice", 2, 9, 2, WAIT_FOR_PUBREL, is_incoming=True),
    subscription("alice", "plant/#", 2, no_local=True, as_published=True, identifier=300),
    retained(1),
)


def read(path: Path, data: bytes):  # type: ignore[no-untyped-def]
    file = path / "mosquitto.db"
    file.write_bytes(data)
    return read_database(file)


def refused(path: Path, data: bytes) -> str:
    with pytest.raises(ConfigError) as told:
        read(path, data)
    text = str(told.value)
    assert "\n" not in text
    return text


def test_everything_that_format_6_tells(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert (found.format, found.is_final, found.retained) == (6, True, [1])
    first, second = found.messages[1], found.messages[2]
    assert (first.topic, first.payload, first.qos, first.retain) == (
        "plant/state",
        b"running",
        1,
        True,
    )
    assert (first.client_id, first.properties, first.expires_at_s) == ("feeder", None, 0)
    assert second.expires_at_s == 4_000_000_000
    assert second.properties.user_properties == [("a", "b")]
    alice = found.clients["alice"]
    assert (alice.username, alice.port, alice.expiry_interval_s) == ("alice", 1884, 3600)
    assert alice.expires_at_s == 5_000_000_000
    released, queued = alice.outgoing
    assert (released.packet_id, released.state, released.qos) == (7, WAIT_FOR_PUBCOMP, 2)
    assert (queued.number, queued.retain, queued.subscription_id) == (1, True, 300)
    assert [entry.packet_id for entry in alice.incoming] == [9]
    (asked,) = alice.subscriptions
    assert (asked.topic_filter, asked.qos, asked.identifier) == ("plant/#", 2, 300)
    assert (asked.no_local, asked.retain_as_published, asked.retain_handling) == (True, True, 0)


@pytest.mark.parametrize("padding", [0, 4])
def test_the_padding_of_another_machine_is_passed_over(tmp_path: Path, padding: int) -> None:
    data = database(6, client("alice", 60, user="a", padding=padding), client("bob", 60))
    assert list(read(tmp_path, data).clients) == ["alice", "bob"]


def test_format_5_names_no_user(tmp_path: Path) -> None:
    found = read(tmp_path, database(5, client("alice", 60, version=5), is_final=False))
    assert found.clients["alice"].username is None
    assert not found.is_final


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    assert "is not a database of Mosquitto's" in refused(tmp_path, b"SQLite format 3\0" * 10)
    assert "is empty" in refused(tmp_path, b"")
    assert "has format 4" in refused(tmp_path, database(4))
    assert "Mosquitto 2.0" in refused(tmp_path, database(4))
    assert "a later version than Mosquitto 2.1" in refused(tmp_path, database(7))
    assert "unknown kind 99" in refused(tmp_path, database(6, unknown_chunk(99)))
    assert "cannot be read" in refused_missing(tmp_path)


def refused_missing(path: Path) -> str:
    with pytest.raises(ConfigError) as told:
        read_database(path / "missing.db")
    return str(told.value)


def ends_of_chunks() -> Iterator[int]:
    at = 23
    while at <= len(WHOLE):
        yield at
        if at == len(WHOLE):
            return
        at += 8 + struct.unpack_from(">I", WHOLE, at + 4)[0]


def test_a_database_that_is_cut_off_is_refused_at_every_byte(tmp_path: Path) -> None:
    whole_at = set(ends_of_chunks())
    for size in range(1, len(WHOLE)):
        if size not in whole_at:  # what ends with a chunk is a database with less in it
            assert re.search("cut off|not a database", refused(tmp_path, WHOLE[:size])), size


def test_garbage_is_refused_or_read_and_never_more_than_that(tmp_path: Path) -> None:
    for seed in range(budget(300)):
        choose = random.Random(seed)
        data = bytearray(WHOLE)
        for _ in range(choose.randint(1, 8)):
            data[choose.randrange(15, len(data))] = choose.randrange(256)
        file = tmp_path / "mosquitto.db"
        file.write_bytes(bytes(data))
        with contextlib.suppress(ConfigError):
            read_database(file)  # nothing else is raised
