"""The stream service as a process, and its client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange
from penstock.protocol.properties import Properties, encode_properties
from penstock.stream import service as service_module
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable
from penstock.stream.rows import STREAM_SCHEMA
from tests.contract.archived import ALARMS, ALL, publish_mixed, writing
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess, serving
from tests.support.deadline import DEADLINE_S


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "data") as writer:
        yield writer


@pytest.fixture
def service(log: LogWriter) -> Iterator[ServiceProcess]:
    streams = json.dumps(
        [
            {"name": "messages", "topic_filters": ["#"]},
            {"name": "pressures", "topic_filters": ["+/+/pressure"]},
        ]
    )
    process = ServiceProcess(log.data_dir, "--streams", streams)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[StreamClient]:
    with StreamClient(service.address, connect_timeout_s=DEADLINE_S) as made:
        yield made


def offsets(client: StreamClient, log: LogWriter, start: int, end: int, **how: object) -> list[int]:
    batches = client.read("messages", log.epoch, start, end, **how)  # type: ignore[arg-type]
    return [n for batch in batches for n in batch.column("offset").to_pylist()]


def test_streams_and_their_offsets_are_listed(
    log: LogWriter, service: ServiceProcess, client: StreamClient
) -> None:
    log.append(9)
    assert client.streams() == {"messages": ["#"], "pressures": ["+/+/pressure"]}
    mark = client.offsets("pressures").mark
    assert client.offsets("pressures") == StreamOffsets("pressures", log.epoch, 0, 9, mark=mark)
    with flight.FlightClient(f"grpc://{service.address}") as plain:
        found = list(plain.list_flights())
        assert [f.descriptor.path for f in found] == [[b"messages"], [b"pressures"]]
        assert found[0].schema == STREAM_SCHEMA
        assert plain.do_get(found[1].endpoints[0].ticket).read_all().num_rows == 3


def test_a_range_comes_with_its_offsets_and_only_with_matching_rows(
    log: LogWriter, client: StreamClient
) -> None:
    log.append(5)
    log.append(5)
    assert offsets(client, log, 2, 9) == list(range(2, 9))
    assert offsets(client, log, 0, 10, topic_filters=["plant/2/#"]) == [1, 4, 7]
    assert offsets(client, log, 4, 4) == []
    pressures = client.read("pressures", log.epoch, 0, 10, topic_filters=["plant/#"])
    assert [n for b in pressures for n in b.column("payload").to_pylist()] == [b"2", b"5", b"8"]


def test_rows_kept_for_a_session_only_are_in_no_stream(
    log: LogWriter, client: StreamClient
) -> None:
    log.append(2)
    log.append(2, internal=True)
    log.append(2)
    assert offsets(client, log, 0, 6) == [0, 1, 4, 5]


def test_nothing_above_the_watermark_is_served(log: LogWriter, client: StreamClient) -> None:
    log.append(5)
    log.append(5, commit=False)
    assert client.offsets("messages").latest == 5
    with pytest.raises(OffsetOutOfRange, match="the range ends at 6, and the log at 5"):
        offsets(client, log, 0, 6)


def test_small_chunks_are_joined_and_large_ones_split(log: LogWriter, client: StreamClient) -> None:
    for _ in range(200):
        log.append(1)
    log.append(2 * service_module.BLOCK_ROWS_MAX)
    sizes = [b.num_rows for b in client.read("messages", log.epoch, 0, log.end)]
    assert sum(sizes) == log.end
    assert max(sizes) <= service_module.BLOCK_ROWS_MAX
    assert len(sizes) <= 4


@pytest.mark.parametrize(
    ("stream", "epoch", "start", "kind", "sentence"),
    [
        ("nothing", "", 0, ConfigError, "there is no stream 'nothing'; there is: messages, press"),
        ("messages", "old", 0, EpochMismatch, "the offsets belong to epoch old, and the log is"),
        ("messages", "", 4, OffsetOutOfRange, "offset 4 is no longer in the stream, which now b"),
    ],
)
def test_a_refusal_is_our_own_error_on_the_other_side(
    log: LogWriter,
    client: StreamClient,
    stream: str,
    epoch: str,
    start: int,
    kind: type[Exception],
    sentence: str,
) -> None:
    log.append(5)
    log.append(5)
    log.trim(5)
    with pytest.raises(kind) as caught:
        list(client.read(stream, epoch or log.epoch, start, 10))
    assert str(caught.value).startswith(sentence)


def test_columns_can_be_chosen(log: LogWriter, client: StreamClient) -> None:
    log.append(3)
    batches = list(client.read("messages", log.epoch, 0, 3, columns=["payload", "qos"]))
    assert batches[0].schema.names == ["payload", "qos"]
    with pytest.raises(ConfigError, match="a stream has no column 'colour'"):
        list(client.read("messages", log.epoch, 0, 3, columns=["colour"]))


@pytest.mark.parametrize("column", ["payload", "properties"])
def test_a_block_that_a_reader_gets_at_once_is_bounded_in_bytes(
    log: LogWriter, client: StreamClient, column: str
) -> None:
    """Rows that take much, or of which much is made: properties."""
    megabyte = 2**20
    pairs = Properties(user_properties=[("a" * 20, "b" * 100)] * 10_000)
    log.append(40, payload=lambda _: bytes(megabyte), properties=encode_properties(pairs))
    batches = list(client.read("messages", log.epoch, 0, 40, columns=["offset", column]))
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) <= service_module.BLOCK_BYTES_MAX + 2 * megabyte
    small = list(client.read("messages", log.epoch, 0, 40, columns=["offset", "topic"]))
    assert len(small) == 1


def test_a_reader_goes_on_after_the_last_row_when_the_service_is_killed_in_between(
    log: LogWriter, service: ServiceProcess, client: StreamClient
) -> None:
    for _ in range(100):
        log.append(service_module.BLOCK_ROWS_MAX)
    found: list[int] = []
    for batch in client.read("messages", log.epoch, 0, log.end, columns=["offset"]):
        if not found:
            service.kill()
            threading.Timer(0.5, service.start).start()
        found += batch.column("offset").to_pylist()
    assert found == list(range(log.end))


def test_several_readers_at_once_each_get_everything(
    log: LogWriter, service: ServiceProcess
) -> None:
    for _ in range(20):
        log.append(5000)
    counts: list[int] = []

    def read() -> None:
        with StreamClient(service.address) as client:
            counts.append(len(offsets(client, log, 0, log.end)))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert counts == [log.end] * 4


@pytest.mark.parametrize(
    ("patience_s", "waited"), [(0.3, r"Waited (0\.[3-9]|\d+) s: "), (0, r"stream\.bind\? ")]
)
def test_a_service_that_is_away_too_long_is_named(
    service: ServiceProcess, patience_s: float, waited: str
) -> None:
    service.kill()
    with (
        StreamClient(service.address, connect_timeout_s=patience_s) as client,
        pytest.raises(StreamUnavailable) as raised,
    ):
        client.offsets("messages")
    assert f"no stream service answers at {service.address}" in str(raised.value)
    assert re.search(waited, str(raised.value))
    assert "Waited 0 s" not in str(raised.value)


def test_the_service_ends_on_sigterm_and_when_its_parent_is_gone(service: ServiceProcess) -> None:
    assert service.end() == 0
    service.start()
    assert service.end_input() == 0


def test_a_stream_reaches_further_back_than_the_log(tmp_path: Path) -> None:
    with (
        writing(tmp_path / "data") as writer,
        serving(writer.data_dir, ALL, ALARMS) as process,
        StreamClient(process.address, connect_timeout_s=DEADLINE_S) as client,
    ):
        alarms = publish_mixed(writer, 10)
        epoch = client.offsets("alarms").epoch
        for leaves in (15, 21, 27):  # while it is read
            writer.leave(leaves)
            assert client.offsets("alarms").earliest == 0
            batches = list(client.read("alarms", epoch, 0, 30))
            assert [n for b in batches for n in b.column("offset").to_pylist()] == alarms
            payloads = [n for b in batches for n in b.column("payload").to_pylist()]
            assert payloads == [b"%d" % n for n in alarms]
        assert client.offsets("messages").earliest == 27
        with pytest.raises(OffsetOutOfRange, match="no longer in the stream, which now b"):
            list(client.read("messages", epoch, 26, 30))


@pytest.mark.parametrize("wait", ["service", "landing"])
def test_a_signal_ends_a_wait_wherever_it_arrives(wait: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.interrupted", wait],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0
    assert int(ended.stdout.split()[-1]) >= 2, "behind the signs of life"


def test_a_reader_that_does_not_read_does_not_hold_up_the_end(
    log: LogWriter, service: ServiceProcess, client: StreamClient
) -> None:
    for _ in range(50):
        log.append(service_module.BLOCK_ROWS_MAX)
    rows = client.read("messages", log.epoch, 0, log.end)
    next(rows)
    assert service.end() == 0
    del rows


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--bind", "nonsense"], "HOST:PORT"),
        (["--streams", "[1]"], "stream service"),
        (["--bind", "TAKEN"], "cannot listen on"),
    ],
)
def test_a_mistake_ends_the_service_with_exit_code_2(
    log: LogWriter, service: ServiceProcess, arguments: list[str], sentence: str
) -> None:
    given = [service.address if part == "TAKEN" else part for part in arguments]
    command = [sys.executable, "-m", "penstock.stream.service", "--data-dir"]
    command += [str(log.data_dir), *given]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 2
    assert sentence in ended.stderr
