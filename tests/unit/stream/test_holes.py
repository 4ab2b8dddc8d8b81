"""A log with a hole, left by the repair of a damaged store: its readers are told, each time."""

from __future__ import annotations

from pathlib import Path

import pyarrow.flight as flight
import pytest

from penstock.errors import OffsetOutOfRange
from penstock.spark.options import parse_options
from penstock.spark.source import BatchReader, Range
from penstock.store.chunk import encode_key
from penstock.store.database import open_database
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from penstock.store.secondary import Extent, LogFollower
from penstock.stream.client import StreamClient, StreamOffsets
from tests.contract.test_store import rows
from tests.spark.service_process import ServiceProcess
from tests.support.deadline import DEADLINE_S

ROWS = 10
END = 4 * ROWS
HOLE = (ROWS, 2 * ROWS)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A repaired store that has lost its second chunk."""
    store = RocksStore(tmp_path)
    for number in range(4):
        store.commit(rows(number * ROWS, ROWS))
    store.close()
    lose_the_second_chunk(tmp_path)
    repaired = repair(tmp_path)
    assert repaired.examination is not None
    assert repaired.examination.lost_ranges == [HOLE]
    return tmp_path


def lose_the_second_chunk(data_dir: Path) -> None:
    database = open_database(data_dir)
    database.families["log"].delete(encode_key(HOLE[0]))
    database.close()


def offsets(follower: LogFollower, start: int, end: int) -> list[int]:
    return [offset for part in follower.rows(start, end) for offset in part.offsets.to_pylist()]


def test_a_follower_knows_the_hole_and_never_passes_over_it(data_dir: Path) -> None:
    follower = LogFollower(data_dir)
    extent = follower.extent()
    assert extent == Extent(extent.epoch, 0, END, (HOLE,))
    assert offsets(follower, 0, 10) == list(range(10))
    assert offsets(follower, 20, END) == list(range(20, END))
    for start in (0, 10, 15):
        with pytest.raises(OffsetOutOfRange, match="the offsets 10 to 19 are lost, a repair of"):
            offsets(follower, start, END)
    follower.close()


def test_a_follower_of_the_damaged_store_finds_the_repaired_one(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    for number in range(4):
        store.commit(rows(number * ROWS, ROWS))
    store.close()
    follower = LogFollower(tmp_path)
    before = follower.extent()
    lose_the_second_chunk(tmp_path)
    repaired = repair(tmp_path)
    after = follower.extent()
    assert after == Extent(repaired.epoch, 0, END, (HOLE,))
    assert before.epoch != after.epoch
    follower.close()


def test_the_service_refuses_a_range_with_a_hole_before_its_first_row(data_dir: Path) -> None:
    process = ServiceProcess(data_dir)
    process.start()
    try:
        with StreamClient(process.address, connect_timeout_s=DEADLINE_S) as client:
            log = client.offsets("messages")
            assert log == StreamOffsets(
                "messages", log.epoch, 0, END, (HOLE,), log.mark, log.lineage
            )
            with pytest.raises(OffsetOutOfRange, match="the log goes on at offset 20"):
                next(client.read("messages", log.epoch, 0, END))
            (batch,) = client.read("messages", log.epoch, 20, END)
            assert batch.column("offset").to_pylist() == list(range(20, END))
        with flight.FlightClient(f"grpc://{process.address}") as plain:
            (found,) = plain.list_flights()
            assert found.total_records == END - ROWS
            parts = [plain.do_get(end.ticket).read_all() for end in found.endpoints]
            assert [part.num_rows for part in parts] == [10, 20]
    finally:
        process.stop()


def test_a_spark_task_names_the_hole_or_reads_around_it(data_dir: Path) -> None:
    process = ServiceProcess(data_dir)
    process.start()
    try:
        with StreamClient(process.address, connect_timeout_s=DEADLINE_S) as client:
            epoch = client.offsets("messages").epoch
        options = {"server": process.address, "stream": "messages"}
        careful = BatchReader(parse_options(options), ["offset"])
        with pytest.raises(OffsetOutOfRange, match=r"10 to 19 are lost, .*failOnDataLoss to false"):
            next(careful.read(Range(process.address, epoch, 5, END)))
        accepting = BatchReader(parse_options({**options, "failOnDataLoss": "false"}), ["offset"])
        batches = list(accepting.read(Range(process.address, epoch, 5, END)))
        read = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert read == [*range(5, 10), *range(20, END)]
        assert (
            sum(batch.num_rows for batch in accepting.read(Range(process.address, epoch, 12, 18)))
            == 0
        )
    finally:
        process.stop()


def test_retention_passes_the_hole(data_dir: Path) -> None:
    store = RocksStore(data_dir)
    assert store.trim_log(0, 0, 1 * ROWS) == 2 * ROWS
    assert store.log_extent().earliest == 2 * ROWS
    store.commit(rows(END, ROWS))
    assert sorted(store.read(range(END + ROWS))) == list(range(2 * ROWS, END + ROWS))
    store.close()
    follower = LogFollower(data_dir)
    extent = follower.extent()
    assert extent == Extent(extent.epoch, 2 * ROWS, END + ROWS)
    follower.close()
