"""Births of Sparkplug nodes beside a table: found when the log no longer has them, whatever was
restored, lost or begun anew. A real stream service, no Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.config.stream import StreamDefinition
from penstock.decoding.sparkplug_births import Births
from penstock.errors import StoreError
from penstock.stream.birth_store import FILES_MAX, BirthStore, LoggedBirths
from penstock.stream.client import StreamClient
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess, serving
from tests.unit.decoding.sparkplug_payloads import metric, payload

BIRTH = "spBv1.0/plant/NBIRTH/{}"
DATA = "spBv1.0/plant/NDATA/{}"
FILTERS = ("spBv1.0/+/NBIRTH/+", "spBv1.0/+/DBIRTH/+/+")


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[StreamClient]:
    with StreamClient(service.address, connect_timeout_s=0) as connected:
        yield connected


@pytest.fixture
def births(tmp_path: Path) -> BirthStore:
    return BirthStore(tmp_path / "table" / "_births", "messages", FILTERS)


@contextmanager
def client_of(log: LogWriter) -> Iterator[StreamClient]:
    everything = StreamDefinition(name="messages", topic_filters=("#",))
    with (
        serving(log.data_dir, everything) as service,
        StreamClient(service.address, connect_timeout_s=0) as connected,
    ):
        yield connected


def publish(log: LogWriter, *topics: str) -> None:
    for topic in topics:
        number = log.end
        made = payload(metric("m", "Int32", int_value=number))
        log.append(1, topics=(topic,), payload=lambda _, made=made: made)  # type: ignore[misc]


def birth_of(found: LoggedBirths, topic: str, offset: int) -> int | str:
    """The offset of the birth that defines a message, or why there is none."""
    births = Births(found.tables, found.gaps, found.end)
    defining = births.find(topic, offset)
    return defining.missing if defining.own is None else defining.own.offset


A, B = BIRTH.format("a"), BIRTH.format("b")
DATA_A, DATA_B = DATA.format("a"), DATA.format("b")


def test_a_birth_is_found_though_retention_has_removed_it_from_the_log(
    log: LogWriter, client: StreamClient, births: BirthStore
) -> None:
    publish(log, A, B, DATA_A)
    births.update(client)
    publish(log, DATA_A, B)
    log.trim(3)
    births.update(client)
    found = births.load()
    assert found.end == 5
    assert [birth_of(found, DATA_A, offset) for offset in (3, 4)] == [0, 0]
    assert [birth_of(found, DATA_B, offset) for offset in (3, 4)] == [1, 1]


def test_a_birth_that_left_the_log_unseen_is_a_gap(
    log: LogWriter, client: StreamClient, births: BirthStore
) -> None:
    publish(log, A, DATA_A, B, DATA_A)
    log.trim(1)
    births.update(client)
    unknown = "no NBIRTH of its node is known (messages before offset 1 are unknown)"
    assert birth_of(births.load(), DATA_A, 3) == unknown
    assert birth_of(births.load(), DATA_B, 3) == 2
    publish(log, B, DATA_B, B)
    log.trim(6)
    births.update(client)
    assert "before offset 6" in str(birth_of(births.load(), DATA_B, 6)), "B may be born at 4"


def test_a_range_that_a_repair_has_given_up_is_a_gap(
    log: LogWriter, client: StreamClient, births: BirthStore
) -> None:
    publish(log, A, DATA_A, A, DATA_A, B, DATA_A)
    log.give_up(2, 3)
    births.update(client)
    found = births.load()
    assert birth_of(found, DATA_A, 1) == 0
    assert "before offset 3" in str(birth_of(found, DATA_A, 3))
    assert birth_of(found, DATA_B, 5) == 4


def test_a_log_that_was_put_back_has_the_births_before_it_parts(
    log: LogWriter, births: BirthStore, tmp_path: Path
) -> None:
    publish(log, A, DATA_A, B, A)
    with client_of(log) as first:
        births.update(first)
    with LogWriter(tmp_path / "restored", "20261128T000000-00000002") as restored:
        restored.follow(log.epoch, 2)
        publish(restored, A, DATA_A, DATA_A, DATA_B, DATA_A)
        restored.trim(2)
        with client_of(restored) as second:
            assert births.preview(second).epoch == restored.epoch
            births.update(second)
        found = births.load()
        assert found.epoch == restored.epoch
        assert birth_of(found, DATA_A, 2) == 0
        assert birth_of(found, DATA_B, 3) == "no NBIRTH of its node is known", "B at 2 was another"
        assert birth_of(found, DATA_A, 4) == 0, "not the one at offset 3 of the other epoch"
        assert found.fit(log.epoch, 1)
        assert not found.fit(log.epoch, 2)
    with LogWriter(tmp_path / "new", "20261129T000000-00000003") as new:
        publish(new, DATA_A)
        with client_of(new) as third:
            births.update(third)
        assert birth_of(births.load(), DATA_A, 0) == "no NBIRTH of its node is known"


def test_files_are_merged_and_keep_what_messages_in_the_log_need(
    log: LogWriter, client: StreamClient, births: BirthStore, tmp_path: Path
) -> None:
    directory = tmp_path / "table" / "_births"
    publish(log, B)
    for _ in range(FILES_MAX - 1):
        publish(log, A)
        births.update(client)
    before = births.load()
    for path in directory.glob("*.arrow"):
        os.utime(path, (0, 0))
    log.trim(log.end - 2)
    for _ in range(FILES_MAX + 2):
        publish(log, A)
        births.update(client)
    found = births.load()
    assert len(found.tables) <= FILES_MAX
    assert sum(table.num_rows for table in found.tables) == 1 + 1 + 2 + FILES_MAX + 2
    for offset in range(log.earliest, before.end):
        for topic in (DATA_A, DATA_B):
            assert birth_of(found, topic, offset) == birth_of(before, topic, offset)
    assert len(list(directory.glob("*.arrow"))) < 3 * FILES_MAX


def test_a_preview_has_what_an_update_would_have_and_changes_nothing(
    log: LogWriter, client: StreamClient, births: BirthStore, tmp_path: Path
) -> None:
    publish(log, A, DATA_A)
    assert birth_of(births.preview(client), DATA_A, 1) == 0
    assert not (tmp_path / "table").exists()
    births.update(client)
    publish(log, B, DATA_B)
    log.trim(2)
    assert birth_of(births.preview(client), DATA_B, 3) == 2
    assert birth_of(births.preview(client), DATA_A, 3) == 0
    assert births.load().end == 2


@pytest.mark.parametrize("damage", ["births.json", "*.arrow"])
def test_a_damaged_directory_is_made_anew_from_the_log(
    damage: str,
    log: LogWriter,
    client: StreamClient,
    births: BirthStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish(log, A, DATA_A, B)
    births.update(client)
    (path,) = (tmp_path / "table" / "_births").glob(damage)
    path.unlink() if damage == "*.arrow" else path.write_bytes(b"{")
    with pytest.raises(StoreError):
        births.load()
    log.trim(2)
    births.update(client)
    assert "are damaged" in caplog.text
    assert "before offset 2" in str(birth_of(births.load(), DATA_A, 2))


def test_the_births_of_other_topics_are_not_taken(
    log: LogWriter, client: StreamClient, births: BirthStore, tmp_path: Path
) -> None:
    publish(log, A, DATA_A)
    births.update(client)
    others = BirthStore(tmp_path / "table" / "_births", "messages", ["spBv1.0/other/NBIRTH/+"])
    with pytest.raises(StoreError):
        others.load()
    others.update(client)
    assert pa.concat_tables(others.load().tables or [pa.table({})]).num_rows == 0
