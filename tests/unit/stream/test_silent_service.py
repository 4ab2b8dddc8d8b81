"""A service that says nothing: one that vanished in the middle of a range, as a machine does whose
power fails; and a stranger that listens at its port.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.config.stream import StreamDefinition
from penstock.stream import client as client_module
from penstock.stream.client import StreamClient, StreamUnavailable
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess, serving
from tests.support.deadline import wait_for

ALL = StreamDefinition(name="messages", topic_filters=("#",))
CHUNKS, ROWS, LONG = 20, 50, ("t" * 60_000,)  # more than the buffers of a connection hold


PATIENCE_S, LATE_S_MAX = 3.0, 15.0  # far from the 26 and 40 s that it took


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(tmp_path, ALL) as started:
        yield started


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path, "e1") as writer:
        yield writer


def waited_s(action: Callable[[], object]) -> tuple[float, float]:
    """How long an action waited that finds no service, in seconds, and how long it says."""
    begun_s = time.monotonic()
    with pytest.raises(StreamUnavailable, match="no stream service answers at") as raised:
        action()
    told = re.search(r"Waited (\d+) s", str(raised.value))
    assert told, raised.value
    return time.monotonic() - begun_s, float(told[1])


def stop(pid: int) -> None:
    """Stop a process; return when each of its threads stands still, and can answer no more."""
    os.kill(pid, signal.SIGSTOP)
    states = Path("/proc", str(pid), "task").glob
    wait_for(
        "all threads to stand still",
        lambda: all(
            one.read_text().rpartition(")")[2].split()[0] == "T" for one in states("*/stat")
        ),
    )


def test_a_call_of_a_service_that_hangs_waits_no_longer_than_it_says(
    log: LogWriter, service: ServiceProcess
) -> None:
    """The time began at the first failure, and each call had 10 s: "Waited 5 s" came after 26."""
    log.append(1)
    with StreamClient(service.address, PATIENCE_S) as client:
        client.offsets("messages")
        stop(service.pid)
        took_s, told_s = waited_s(lambda: client.offsets("messages"))
    assert PATIENCE_S <= took_s < PATIENCE_S + LATE_S_MAX
    assert took_s - 5 < told_s <= took_s + 1


def test_a_range_is_not_asked_of_a_service_that_hangs(
    log: LogWriter, service: ServiceProcess
) -> None:
    """That call could not be ended, and had no time limit."""
    log.append(1)
    with StreamClient(service.address, PATIENCE_S) as client:
        stop(service.pid)
        took_s, _ = waited_s(lambda: list(client.read("messages", "e1", 0, 1)))
    assert took_s < PATIENCE_S + LATE_S_MAX


def test_a_reader_of_a_service_that_vanished_does_not_wait_for_ever(
    log: LogWriter, service: ServiceProcess
) -> None:
    """The time in which it said nothing did not count, and 3 s were 40 s."""
    for _ in range(CHUNKS):
        log.append(ROWS, topics=LONG)
    with StreamClient(service.address, PATIENCE_S) as client:
        rows = client.read("messages", "e1", 0, log.end)
        next(rows)
        stop(service.pid)  # connected, and silent
        took_s, told_s = waited_s(lambda: deque(rows, maxlen=0))
    assert took_s < 3 * PATIENCE_S + LATE_S_MAX
    assert took_s - 5 < told_s <= took_s + 1


def test_a_stranger_that_listens_and_says_nothing_is_suspected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "CALL_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        server = "{}:{}".format(*stranger.getsockname())
        with (
            StreamClient(server, connect_timeout_s=0) as client,
            pytest.raises(StreamUnavailable, match="is it its stream service that listens there"),
        ):
            client.streams()
