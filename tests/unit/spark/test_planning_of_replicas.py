"""What Spark's planner is told where `server` names several replicas, and what tasks read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, OffsetOutOfRange
from penstock.spark.options import parse_options
from penstock.spark.source import BatchReader, Range, StreamReader
from penstock.stream import client as client_module
from penstock.stream.client import StreamUnavailable
from penstock.stream.replicas import ReplicaHealth
from tests.spark.log_writer import LogWriter
from tests.spark.positions import unmarked
from tests.spark.service_process import ServiceProcess

IMPATIENT = {"connectTimeoutSeconds": "4"}
"""Options of who asks a machine that is away, and waits so long each time."""


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_HEALTH", ReplicaHealth())


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[LogWriter]]:
    """The log at two machines, of which the first one lags."""
    with LogWriter(tmp_path / "slow", "e1") as slow, LogWriter(tmp_path / "new", "e1") as new:
        for log in (slow, new):
            log.append(10)
        new.append(20)
        yield [slow, new]


@pytest.fixture
def services(logs: list[LogWriter]) -> Iterator[list[ServiceProcess]]:
    made = [ServiceProcess(log.data_dir) for log in logs]
    for service in made:
        service.start()
    yield made
    for service in made:
        service.stop()


@pytest.fixture
def given(services: list[ServiceProcess]) -> dict[str, str]:
    return {
        "server": ",".join(service.address for service in services),
        "connectTimeoutSeconds": "60",
        "minPartitions": "2",
    }


def at(offset: int) -> dict[str, Any]:
    return {"0": offset, "epoch": "e1", "selection": "stream messages, all topics"}


def read(reader: StreamReader | BatchReader, parts: Any) -> list[int]:
    reader = pickle.loads(pickle.dumps(reader))
    return [n for part in parts for batch in reader.read(part) for n in batch[0].to_pylist()]


def test_a_replica_with_less_than_the_checkpoint_is_not_believed(given: dict[str, str]) -> None:
    planner = StreamReader(parse_options(given), ["offset"])
    end = planner.latestOffset(at(25), planner.getDefaultReadLimit())
    assert unmarked(end) == at(30)
    parts = planner.partitions(at(5), at(30))
    assert {part.address for part in parts if isinstance(part, Range)} == {
        ",".join(reversed(given["server"].split(",")))  # the one that answered comes first
    }
    assert read(planner, parts) == list(range(5, 30))
    planner.stop()


def test_a_query_waits_where_only_a_replica_with_less_is_left_and_never_goes_back(
    logs: list[LogWriter], services: list[ServiceProcess], given: dict[str, str]
) -> None:
    planner = StreamReader(parse_options({**given, **IMPATIENT}), ["offset"])
    limit = planner.getDefaultReadLimit()
    assert unmarked(planner.latestOffset(at(25), limit)) == at(30)
    services[1].kill()
    with pytest.raises(StreamUnavailable, match="its log ends at 10, before offset 30"):
        planner.latestOffset(at(30), limit)
    assert unmarked(planner.latestOffset(at(5), limit)) == at(30)  # the former end
    with pytest.raises(StreamUnavailable, match="the range ends at 30, and the log at 10"):
        read(planner, [Range(given["server"], "e1", 5, 30)])
    logs[0].append(20)
    assert planner.latestOffset(at(30), limit) == at(30)
    assert read(planner, planner.partitions(at(5), at(30))) == list(range(5, 30))
    planner.stop()


def test_an_offset_that_no_replica_has_is_missing(given: dict[str, str]) -> None:
    planner = StreamReader(parse_options({**given, **IMPATIENT}), ["offset"])
    with pytest.raises(OffsetOutOfRange, match="at offset 31, and the log ends at 30"):
        planner.latestOffset(at(31), planner.getDefaultReadLimit())
    planner.stop()


def test_rows_of_a_machine_that_is_away_are_not_accepted_as_lost(
    services: list[ServiceProcess], given: dict[str, str]
) -> None:
    options = parse_options({**given, **IMPATIENT, "failOnDataLoss": "false"})
    planner = StreamReader(options, ["offset"])
    parts = planner.partitions(at(0), at(30))
    services[1].kill()
    with pytest.raises(StreamUnavailable):
        read(planner, parts)
    planner.stop()


def test_an_end_that_is_given_is_looked_for_at_each_replica(given: dict[str, str]) -> None:
    options = parse_options({**given, "endingOffsets": '{"0": 30}'})
    batch = BatchReader(options, ["offset"])
    assert read(batch, batch.partitions()) == list(range(30))


def test_the_machines_of_a_cluster_are_not_several_brokers(given: dict[str, str]) -> None:
    options = parse_options({"servers": given["server"]})
    with pytest.raises(ConfigError, match="have the same log, which would be read twice"):
        BatchReader(options, ["offset"]).partitions()
