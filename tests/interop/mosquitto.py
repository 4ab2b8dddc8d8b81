"""Mosquitto's command line clients as a test uses them.

``mosquitto_sub`` writes to a terminal of its own (a pseudo-terminal), because it only flushes each
line to one; with ``-d`` it says there when its subscription stands.
"""

import os
import pty
import selectors
import shutil
import subprocess
import time
from types import TracebackType
from typing import Final, Self, final

import pytest

from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S

VERSIONS: Final = ("mqttv31", "mqttv311", "mqttv5")
_MISSING: Final = (
    "mosquitto_pub and mosquitto_sub are not installed: apt-get install mosquitto-clients"
)

needed = pytest.mark.skipif(
    shutil.which("mosquitto_pub") is None or shutil.which("mosquitto_sub") is None, reason=_MISSING
)


def publish(
    broker: Broker,
    version: str,
    topic: str,
    *options: str,
    lines: str | None = None,
    at: list[str] | None = None,
) -> None:
    """Run ``mosquitto_pub`` to its end, which is after the last acknowledgement.

    ``lines`` is what it reads on standard input, for its option ``-l``; ``at`` the options that
    name another listener than the main one.
    """
    where = _where(broker) if at is None else at
    result = subprocess.run(
        ["mosquitto_pub", *where, "-V", version, "-t", topic, *options],
        input=lines,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert result.returncode == 0, result
    assert result.stderr == "", result


def receive(broker: Broker, version: str, count: int, *options: str) -> list[str]:
    """Run ``mosquitto_sub`` until it has ``count`` messages; what it printed of them."""
    result = subprocess.run(
        ["mosquitto_sub", *_where(broker), "-V", version, "-C", str(count), "-W", "15", *options],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert result.returncode == 0, result
    return result.stdout.splitlines()


@final
class Subscriber:
    """A running ``mosquitto_sub`` whose subscriptions stand."""

    def __init__(
        self, broker: Broker | None, version: str, *options: str, at: list[str] | None = None
    ) -> None:
        where = at or []
        if broker is not None and at is None:
            where = _where(broker)
        command = ["mosquitto_sub", *where, "-V", version, "-d", *options]
        self._terminal, inner = pty.openpty()
        self._process = subprocess.Popen(command, stdout=inner, stderr=inner)
        os.close(inner)
        self._text = ""
        try:
            self.wait_for_line("Subscribed ")
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def wait_for_line(self, start: str) -> str:
        """The next line that starts so; those before it are passed over."""
        return self.lines(1, start)[0]

    def lines(self, count: int, start: str) -> list[str]:
        """The next ``count`` lines that start so."""
        found: list[str] = []
        ends_s = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._terminal, selectors.EVENT_READ)
            while True:
                *whole, self._text = self._text.split("\n")
                while whole:
                    line = whole.pop(0).rstrip("\r")
                    if line.startswith(start):
                        found.append(line)
                        if len(found) == count:
                            self._text = "\n".join([*whole, self._text])
                            return found
                readable = selector.select(max(0.0, ends_s - time.monotonic()))
                assert readable, f"{len(found)} of {count} lines {start!r} in {DEADLINE_S:g} s"
                self._text += os.read(self._terminal, 65_536).decode()

    def kill(self) -> None:
        """End it without a DISCONNECT."""
        self._process.kill()
        self._process.wait(DEADLINE_S)
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


def _where(broker: Broker) -> list[str]:
    return ["-h", broker.host, "-p", str(broker.port)]
