"""A stock client in a program of its own, which publishes through stops and kills of its broker.

::

      fill ─▶ publish 0, 1, 2 … with WINDOW under way ─▶ "ok N" or "failed N why"
      standard input closed ─▶ wait for what is under way ─▶ exit

It says what a user of the client sees: a message that it calls failed will be published again.
"""

import json
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import pytest

from tests.interop.mqttjs import install
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment

WINDOW: Final = 20
_ENDS_S: Final = 2 * DEADLINE_S  # for what is under way; paho C looks again every few seconds
_HERE: Final = Path(__file__).resolve().parent


@final
class Outcomes:
    """What a program has said of its messages.

    Attributes:
        ok: the numbers of those that were delivered, as the client says.
        failed: why a message was not delivered, as the client says, by its number.
    """

    def __init__(self) -> None:
        self.ok: set[int] = set()
        self.failed: dict[int, str] = {}

    def note(self, line: str) -> None:
        """Note a line of the program."""
        word, number, *why = line.split(maxsplit=2)
        if word == "ok":
            self.ok.add(int(number))
        elif word == "failed":
            self.failed[int(number)] = " ".join(why)
        else:
            assert word == "unsent", line


@final
class PublisherProgram:
    """A running program; see the text on top of this file.

    Args:
        command: the program with its arguments.
        node_path: of a program for Node.js, the folder with its packages.
    """

    def __init__(self, command: Sequence[str], node_path: str = "") -> None:
        environ = environment()
        if node_path:
            environ["NODE_PATH"] = node_path
        self.outcomes = Outcomes()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def wait_for_more(self, count: int) -> None:
        """Wait until ``count`` more messages were delivered, as the client says."""
        wanted = len(self.outcomes.ok) + count
        ends_s = time.monotonic() + DEADLINE_S
        while len(self.outcomes.ok) < wanted:
            assert self._process.poll() is None, "the program ended"
            self.outcomes.note(self._lines.get(timeout=max(0.0, ends_s - time.monotonic())))

    def finish(self) -> None:
        """Publish no more, and wait for what is under way."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(_ENDS_S)
        self._reader.join(DEADLINE_S)
        while not self._lines.empty():
            self.outcomes.note(self._lines.get())
        assert code == 0

    def close(self) -> None:
        """End it for certain."""
        self._process.kill()
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def start(client: str, broker: Broker, topic: str, version: int, qos: int) -> PublisherProgram:
    """Start a program of ``client``: "mqttjs", "paho", "paho_c" or "aiomqtt".

    The test is skipped where the client cannot be had.
    """
    asked = json.dumps(
        {
            "host": broker.host,
            "port": broker.port,
            "client_id": f"{client}{version}{qos}",
            "topic": topic,
            "version": version,
            "qos": qos,
            "window": WINDOW,
        }
    )
    if client == "mqttjs":
        modules = install()
        return PublisherProgram(
            ["node", str(_HERE / "node" / "publisher.cjs"), asked], str(modules)
        )
    if client == "paho_c":
        name = f"{client}{version}{qos}"
        where = (broker.host, str(broker.port), name, topic)
        program = _compiled(broker.data_dir.parent)
        return PublisherProgram([program, *where, str(version), str(qos), str(WINDOW)])
    module = f"tests.interop.publishers.{client}_publisher"
    return PublisherProgram([sys.executable, "-m", module, asked])


def _compiled(directory: Path) -> str:
    """The program for paho C, compiled if need be."""
    program = directory / "paho_publisher"
    if program.exists():
        return str(program)
    if shutil.which("gcc") is None or not Path("/usr/include/MQTTAsync.h").exists():
        pytest.skip("paho C cannot be compiled here: apt-get install gcc libpaho-mqtt-dev")
    source = str(_HERE / "publishers" / "paho_publisher.c")
    command = ["gcc", "-Wall", "-Werror", "-o", str(program), source, "-lpaho-mqtt3as", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return str(program)
