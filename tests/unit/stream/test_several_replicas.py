"""A reader of several replicas of one log: real services over equal logs, some of them worse."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.control.reader_requests import Lease
from penstock.control.role_requests import ReadRole, Role
from penstock.errors import EpochMismatch, OffsetOutOfRange
from penstock.services.control import Control
from penstock.stream import client as client_module
from penstock.stream import replicas as replicas_module
from penstock.stream.client import NotPrimary, StreamClient, StreamUnavailable
from penstock.stream.replicas import ReplicaHealth
from penstock.stream.requests import StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.raw_client import RawClient

LONG = ("t" * 60_000,)  # more rows than the buffers of a connection hold

Replicate = Callable[..., tuple[LogWriter, ServiceProcess]]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of other tests are not remembered: ports are used again."""
    monkeypatch.setattr(client_module, "_HEALTH", ReplicaHealth())


@pytest.fixture
def replicate(tmp_path: Path) -> Iterator[Replicate]:
    """Make a log of so many rows, equal to the others, and its service."""
    with ExitStack() as open_ones:

        def make(rows: int, epoch: str = "e1", **how: object) -> tuple[LogWriter, ServiceProcess]:
            data_dir = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            log = open_ones.enter_context(LogWriter(data_dir, epoch))
            append(log, rows, **how)
            service = ServiceProcess(data_dir, "--publishing", PUBLISHING)
            open_ones.callback(service.stop)
            service.start()
            return log, service

        yield make


PUBLISHING = '{"topic_levels_max": 99, "packet_bytes_max": 1000, "staged_bytes_max": 1000000}'


def append(log: LogWriter, rows: int, **how: object) -> None:
    while log.end < rows:
        log.append(min(50, rows - log.end), **how)  # type: ignore[arg-type]


def read(client: StreamClient, start: int, end: int) -> list[int]:
    batches = client.read("messages", "e1", start, end, columns=("offset",))
    return [n for batch in batches for n in batch.column(0).to_pylist()]


def reach(*services: ServiceProcess, patience_s: float = 30.0) -> StreamClient:
    return StreamClient(",".join(f"grpc://{one.address}" for one in services), patience_s)


def test_a_range_goes_on_at_another_replica_when_one_is_killed(replicate: Replicate) -> None:
    log, first = replicate(400, topics=LONG)
    _, second = replicate(400, topics=LONG)
    with reach(first, second) as client:
        found = []
        for batch in client.read("messages", "e1", 0, log.end):
            found += batch.column(1).to_pylist()
            if first.address:
                first.kill()
                first.address = ""
        assert found == list(range(400))
        assert client.addresses.startswith(second.address)


def test_a_range_goes_on_when_a_machine_vanishes_and_says_nothing(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENT_S_MAX", 0.5)
    monkeypatch.setattr(client_module, "CALL_TIMEOUT_S", 1.0)
    log, first = replicate(400, topics=LONG)
    _, second = replicate(400, topics=LONG)
    with reach(first, second) as client:
        found: list[int] = []
        for batch in client.read("messages", "e1", 0, log.end):
            if not found:
                os.kill(first.pid, signal.SIGSTOP)
            found += batch.column(1).to_pylist()
        assert found == list(range(400))
    monkeypatch.setattr(client_module, "_HEALTH", ReplicaHealth())
    with reach(first, second) as client:  # connected by the kernel, and no more
        assert read(client, 0, 100) == list(range(100))


def test_a_replica_that_lags_is_passed_over_and_waited_for(replicate: Replicate) -> None:
    _, first = replicate(100)
    slow, second = replicate(60)
    with reach(second, first) as client:
        assert read(client, 0, 100) == list(range(100))
        assert client.received_between("messages", "e1", (0, 100), 0, 10**16) == [(0, 100)]
    at_99_us = FIRST_RECEIVED_AT_US + 99_000_000
    with reach(second, first) as client:
        assert client.offset_at("messages", "e1", at_99_us, 100) == 99
    first.kill()
    with reach(second, first, patience_s=0) as client:
        with pytest.raises(StreamUnavailable, match="the range ends at 100, and the log at 60"):
            read(client, 0, 100)
        with pytest.raises(StreamUnavailable):
            client.offset_at("messages", "e1", at_99_us, 100)
    with reach(second, first) as client:
        waiting = threading.Timer(0.2, append, (slow, 100))
        waiting.start()
        assert read(client, 0, 100) == list(range(100))
        waiting.join()


def test_the_newest_offset_never_goes_back(replicate: Replicate) -> None:
    _, first = replicate(100)
    slow, second = replicate(60)
    with reach(first, second) as client:
        assert client.offsets("messages").latest == 100
        first.kill()
        assert client.offsets("messages").latest == 100
        append(slow, 130)
        assert client.offsets("messages").latest == 130


def test_one_that_has_less_than_is_known_is_not_believed(replicate: Replicate) -> None:
    _, first = replicate(100)
    _, second = replicate(60)
    with reach(second, first) as client:
        assert client.offsets("messages", at_least=("e1", 100)).latest == 100
    with reach(second, first, patience_s=0) as client:
        assert client.offsets("messages", at_least=("e1", 101)).latest == 100  # all answered
        first.kill()
        with pytest.raises(StreamUnavailable, match="its log ends at 60, before offset 100"):
            client.offsets("messages", at_least=("e1", 100))


def test_one_that_was_cut_off_from_the_log_does_not_hide_what_is_new(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "COMPARE_S", 0)
    log, first = replicate(60)
    _, second = replicate(60)
    with reach(second, first) as client:
        assert client.offsets("messages").latest == 60
        append(log, 100)
        wait_for("the newer end", lambda: client.offsets("messages").latest == 100)


def test_a_replica_of_another_epoch_is_refused(
    replicate: Replicate, caplog: pytest.LogCaptureFixture
) -> None:
    _, foreign = replicate(200, "e2")
    _, first = replicate(100)
    with reach(foreign, first) as client:
        assert read(client, 0, 100) == list(range(100))
        assert read(client, 0, 50) == list(range(50))
        assert caplog.text.count(f"{foreign.address} is not read, for it is no replica") == 1
        assert client.offsets("messages", at_least=("e1", 50)).epoch == "e1"
        first.kill()
        with reach(foreign, first, patience_s=0) as impatient:
            with pytest.raises(StreamUnavailable, match="of epoch e2"):
                read(impatient, 0, 100)
            with pytest.raises(StreamUnavailable, match="of epoch e2, and not of e1"):
                impatient.offsets("messages", at_least=("e1", 50))
    with reach(foreign) as client, pytest.raises(EpochMismatch):
        read(client, 0, 100)


def test_a_range_that_one_replica_has_lost_another_has(replicate: Replicate) -> None:
    log, first = replicate(150)
    log.give_up(50, 100)
    log.reopen()
    _, second = replicate(150)
    first.kill()
    first.start()
    with reach(first, second) as client:
        assert read(client, 0, 150) == list(range(150))
    second.kill()
    with reach(first, second, patience_s=0) as client, pytest.raises(StreamUnavailable):
        read(client, 0, 150)
    with reach(first) as client, pytest.raises(OffsetOutOfRange, match="50 to 99 are lost"):
        read(client, 0, 150)


def test_a_dead_address_is_not_tried_by_each_request(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "BACKOFF_S_MIN", 1000.0)
    monkeypatch.setattr(replicas_module, "BACKOFF_S_MAX", 1000.0)
    _, first = replicate(100)
    with _hanging_up() as (address, counted):
        for _ in range(5):  # as tasks of Spark do
            with StreamClient(f"{address},{first.address}", DEADLINE_S) as client:
                assert read(client, 0, 100) == list(range(100))
                assert client.offsets("messages").latest == 100
        assert len(counted) == 1


@contextmanager
def _hanging_up() -> Iterator[tuple[str, list[object]]]:
    """Listen, and close each connection; give the address and the connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connected: list[object] = []

        def take() -> None:
            while True:
                try:
                    one, peer = listening.accept()
                except OSError:
                    return
                connected.append(peer)
                one.close()

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield "{}:{}".format(*listening.getsockname()), connected
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_copy_of_a_stopped_store_is_a_replica_and_only_the_primary_changes_something(
    tmp_path: Path,
) -> None:
    with ExitStack() as open_ones:
        broker = Broker(tmp_path, {"stream.allow_publish": True}, stream=True)
        open_ones.callback(broker.close)
        broker.start()
        with RawClient(broker.address) as publisher:
            publisher.connect("publisher")
            for n in range(10):
                publisher.publish("plant/1", str(n).encode(), qos=1)
        broker.stop()
        copied = tmp_path / "copied"
        shutil.copytree(broker.data_dir, copied)
        broker.start()
        standby = ServiceProcess(copied, "--publishing", PUBLISHING)
        open_ones.callback(standby.stop)
        standby.start()
        open_ones.enter_context(_standby_at(copied))
        host, port = broker.stream_address
        with StreamClient(f"{standby.address},{host}:{port}", DEADLINE_S) as client:
            log = client.offsets("messages")
            assert log.latest == 10
            assert client.addresses.startswith(standby.address)
            lease = Lease("group", "messages", (), log.epoch, 3, 60.0)
            assert client.lease(lease).offset == 3
            assert [reader.group for reader in client.readers()] == ["group"]
            assert client.addresses.startswith(standby.address)  # reads stay where they were
        with StreamClient(standby.address, 0) as client:
            with pytest.raises(NotPrimary, match="a standby and changes nothing; the primary is m"):
                client.lease(lease)
            with pytest.raises(NotPrimary):
                client.stage(StageRowsRequest("sink", 0, "run", 0), _one_row())


def _one_row() -> pa.Table:
    row = {"topic": "a", "payload": b"b", "qos": 1, "retain": False, "properties": None}
    return pa.Table.from_pylist([row], PUBLISH_SCHEMA)


@contextmanager
def _standby_at(data_dir: Path) -> Iterator[None]:
    """Answer on the control socket as the broker of a standby does."""
    loop = asyncio.new_event_loop()
    control = Control(data_dir)

    async def role(_request: ReadRole) -> Role:
        return Role(is_primary=False, primary="machine-1")

    control.on(ReadRole, role)
    loop.run_until_complete(control.open())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(control.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
