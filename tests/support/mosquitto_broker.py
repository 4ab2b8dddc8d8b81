"""Mosquitto as a broker for a test: with persistence, killed and started again on its port."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final, final

import pytest

from penstock.transport.held_port import HeldPort
from tests.support.broker import Address
from tests.support.deadline import DEADLINE_S, wait_for

_PROGRAM: Final = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")

IS_INSTALLED: Final = _PROGRAM is not None

needed = pytest.mark.skipif(
    not IS_INSTALLED, reason="Mosquitto is not installed: apt-get install mosquitto"
)


@final
class Mosquitto:
    """One Mosquitto; whoever makes it closes it.

    Args:
        directory: an empty directory for its data and its settings.
        settings: more lines for its file of settings; without any everybody is let in.
        bridge: lines at the end of it, which describe a bridge.
    """

    def __init__(
        self, directory: Path, settings: str = "allow_anonymous true\n", bridge: str = ""
    ) -> None:
        self._port = HeldPort("127.0.0.1")
        self.address: Address = (self._port.host, self._port.port)
        data = directory / "data"
        data.mkdir(mode=0o777)
        self._configuration = directory / "mosquitto.conf"
        self._configuration.write_text(
            f"listener {self.address[1]} 127.0.0.1\n{settings}persistence true\n"
            f"persistence_location {data}/\nautosave_interval 1\nautosave_on_changes true\n"
            f"max_queued_messages 0\nuser root\n{bridge}"
        )
        self._process: subprocess.Popen[bytes] | None = None

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

    def stop(self) -> None:
        """Ask it to end; it writes its data first."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """End it, if it runs."""
        self._port.close()
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(DEADLINE_S)
            self._process = None
