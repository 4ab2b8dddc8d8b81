"""The stream service as the broker runs it: a process of its own, on a port of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import penstock
from penstock.config.stream import StreamDefinition
from penstock.transport.reserved_port import ReservedPort


class ServiceProcess:
    """A running stream service; `start` starts it again at the same address."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self._data_dir = data_dir
        self._arguments = arguments
        self._port = ReservedPort("127.0.0.1")
        self.address = str(self._port)
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "penstock.stream.service", "--data-dir"]
        self._process = subprocess.Popen(
            [*command, str(self._data_dir), "--bind", self.address, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
        )
        assert self._process.stdout is not None
        scheme = "grpc+tls" if "--certificate" in self._arguments else "grpc"
        assert self._process.stdout.readline() == f"ready {scheme}://{self.address}\n"

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop the process with a signal; returns its exit code."""
        assert self._process is not None
        self._process.send_signal(how)
        return self._close()

    def end_input(self) -> int:
        """Let its standard input end, as when the broker dies; returns its exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._close()

    def _close(self) -> int:
        assert self._process is not None
        code = self._process.wait(20)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None
        return code

    def stop(self) -> None:
        self._port.close()
        if self._process is not None:
            self.kill()


@contextmanager
def serving(data_dir: Path, *streams: StreamDefinition) -> Iterator[ServiceProcess]:
    """A service of the log below ``data_dir``, told of its streams as the broker tells it."""
    told = [{"name": stream.name, "topic_filters": stream.topic_filters} for stream in streams]
    process = ServiceProcess(data_dir, "--streams", json.dumps(told))
    process.start()
    try:
        yield process
    finally:
        process.stop()
