"""Mosquitto as a broker for a test: with persistence, killed and started again on its port."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final, final

import pytest

from penstock.transport.reserved_port import ReservedPort
from tests.support.broker import Address
from tests.support.deadline import DEADLINE_S, wait_for

_PROGRAM: Final = (
    os.environ.get("PENSTOCK_MOSQUITTO")  # another one: scripts/fetch_mosquitto.py
    or shutil.which("mosquitto")
    or shutil.which("mosquitto", path="/usr/sbin")
)

IS_INSTALLED: Final = _PROGRAM is not None

needed = pytest.mark.skipif(
    not IS_INSTALLED, reason="Mosquitto is not installed: apt-get install mosquitto"
)

_ALL_AT_ONCE: Final = "autosave_interval 1\nautosave_on_changes true\nmax_queued_messages 0\n"


@final
class Mosquitto:
    """One Mosquitto; whoever makes it closes it.

    Args:
        directory: an empty directory for its data and its settings.
        settings: more lines for its file of settings; without any everybody is let in.
        bridge: lines at the end of it, which describe a bridge.
        keeping: lines that say what it keeps, and when it saves that; all, at each change.
        second: of a second listener, if any: the scheme of its URL, and lines that describe it.
    """

    def __init__(
        self,
        directory: Path,
        settings: str = "allow_anonymous true\n",
        bridge: str = "",
        keeping: str = _ALL_AT_ONCE,
        second: tuple[str, str] = ("", ""),
    ) -> None:
        self._port = ReservedPort("127.0.0.1")
        self.address: Address = (self._port.host, self._port.port)
        listeners = f"listener {self.address[1]} 127.0.0.1\n"
        self.urls: list[str] = []
        scheme, lines = second
        if scheme:
            free = ReservedPort("127.0.0.1")
            free.close()  # libwebsockets takes no port that somebody holds
            listeners += f"listener {free.port} 127.0.0.1\n{lines}"
            self.urls.append(f"{scheme}://127.0.0.1:{free.port}")
        self.data_dir = directory / "data"
        self.data_dir.mkdir(mode=0o777)
        self._configuration = directory / "mosquitto.conf"
        self._configuration.write_text(
            f"{listeners}{settings}persistence true\n"
            f"persistence_location {self.data_dir}/\n{keeping}user root\n{bridge}"
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the present start."""
        assert self._process is not None, "Mosquitto was not started"
        return self._process

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert _PROGRAM is not None
        self._process = subprocess.Popen(
            [_PROGRAM, "-c", str(self._configuration)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(self.address, DEADLINE_S):
                return True
            return False

        wait_for("Mosquitto", answers)

    def stop(self) -> int:
        """Ask it to end, which it does when it has written its data; return its exit code."""
        return self._end(signal.SIGTERM)

    def close(self) -> None:
        """End it, if it runs."""
        self._port.close()
        if self._process is not None:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        self._process = None
        return code
