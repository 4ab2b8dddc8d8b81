"""A service that says nothing: one that vanished in the middle of a range, as a machine does whose
power fails; and a stranger that listens at its port.
"""

from __future__ import annotations

import os
import signal
import socket
from collections import deque
from pathlib import Path

import pytest

from penstock.config.stream import StreamDefinition
from penstock.stream import client as client_module
from penstock.stream import connections as connections_module
from penstock.stream.client import StreamClient, StreamUnavailable
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import serving

ALL = StreamDefinition(name="messages", topic_filters=("#",))
CHUNKS, ROWS, LONG = 20, 50, ("t" * 60_000,)  # more than the buffers of a connection hold


def test_a_reader_of_a_service_that_vanished_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = [
        (name, 2000 if name.endswith("_ms") else value)
        for name, value in connections_module._CHANNEL
    ]
    assert impatient != connections_module._CHANNEL
    monkeypatch.setattr(connections_module, "_CHANNEL", impatient)
    with LogWriter(tmp_path, "e1") as log, serving(tmp_path, ALL) as service:
        for _ in range(CHUNKS):
            log.append(ROWS, topics=LONG)
        with StreamClient(service.address, connect_timeout_s=0) as client:
            rows = client.read("messages", "e1", 0, log.end)
            next(rows)
            os.kill(service.pid, signal.SIGSTOP)  # connected, and silent
            with pytest.raises(StreamUnavailable, match="no stream service answers at"):
                deque(rows, maxlen=0)


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
