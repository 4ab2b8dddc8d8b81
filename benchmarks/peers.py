"""Runs other MQTT brokers, to compare them with Penstock.

Mosquitto is Debian's package; amqtt (PyPI) and aedes (npm) are installed below `.cache/peers` at
their first use. Each runs with its defaults, in memory, on loopback, and accepts anonymous clients;
settings that differ from the defaults have a comment with the reason.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.broker import START_TIMEOUT_S, Broker, mosquitto_program, penstock_in

CACHE: Final = Path(".cache") / "peers"

WINDOW: Final = 100
"""Most unacknowledged messages for a subscriber: the receive maximum of ``penstock bench``.

The default is 20 in Mosquitto and 32 in Penstock; with unequal windows the benchmark would compare
these defaults."""

AMQTT_VERSION: Final = "0.12.1"
AEDES_VERSION: Final = "1.2.0"

_AMQTT: Final = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
    max_connections: 0
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""
_AEDES: Final = """\
const {{ Aedes }} = require('aedes');
Aedes.createBroker().then((broker) =>
  require('net').createServer(broker.handle).listen({port}, '127.0.0.1'));
"""
_MOSQUITTO: Final = f"""\
listener {{port}} 127.0.0.1
allow_anonymous true
max_inflight_messages {WINDOW}
max_queued_messages 0
"""  # the default of 1,000 would drop messages, and dropped messages take no CPU time


class NotInstalled(Exception):
    """A broker is missing and cannot be installed; the message says why."""


@contextlib.contextmanager
def penstock(persistence: str) -> Iterator[Broker]:
    """Run Penstock with Mosquitto's queue limit and window."""
    settings = {"limits.max_mqueue_len": 0, "limits.max_inflight": WINDOW}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory), persistence, settings) as broker,
    ):
        yield broker


@contextlib.contextmanager
def mosquitto(tcp_nodelay: bool) -> Iterator[Broker]:
    """Run Mosquitto without persistence; ``tcp_nodelay`` halves its speed.

    Raises:
        NotInstalled: Mosquitto is missing or did not start.
    """
    program = mosquitto_program()
    if program is None:
        raise NotInstalled("Mosquitto is not installed (Debian: mosquitto)")
    lines = _MOSQUITTO + ("set_tcp_nodelay true\n" if tcp_nodelay else "")
    with _run_with_configuration(lines, lambda path: [program, "-c", path]) as broker:
        yield broker


@contextlib.contextmanager
def amqtt() -> Iterator[Broker]:
    """Run amqtt, in its own virtual environment.

    Raises:
        NotInstalled: amqtt could not be installed or did not start.
    """
    program = CACHE / "amqtt" / "bin" / "amqtt"
    if not program.exists():
        _install([sys.executable, "-m", "venv", "--clear", str(CACHE / "amqtt")])
        pip = str(CACHE / "amqtt" / "bin" / "pip")
        _install([pip, "install", "--quiet", f"amqtt=={AMQTT_VERSION}"])
    with _run_with_configuration(
        _AMQTT, lambda path: [str(program.absolute()), "-c", path]
    ) as broker:
        yield broker


@contextlib.contextmanager
def aedes() -> Iterator[Broker]:
    """Run aedes in Node.

    Raises:
        NotInstalled: Node is missing, or aedes could not be installed or did not start.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalled("aedes needs Node and npm (Debian: nodejs, npm)")
    modules = CACHE / "aedes"
    if not (modules / "node_modules" / "aedes").exists():
        modules.mkdir(parents=True, exist_ok=True)
        _install([npm, "install", "--silent", "--prefix", str(modules), f"aedes@{AEDES_VERSION}"])
    with _run_with_configuration(_AEDES, lambda path: [node, path], modules.absolute()) as broker:
        yield broker


def _install(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        raise NotInstalled(f"{' '.join(command)} failed: {output.strip()[-300:]}") from error


@contextlib.contextmanager
def _run_with_configuration(
    text: str, command: Callable[[str], list[str]], directory: Path | None = None
) -> Iterator[Broker]:
    """Run ``command`` with a configuration file: ``text`` with its ``{port}`` replaced.

    On exit the process is terminated, and killed after 10 s.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory) as scratch:
        port = _free_port()
        path = Path(scratch) / "broker.conf.js"
        path.write_text(text.format(port=port), encoding="utf-8")
        with (Path(scratch) / "log").open("w+b") as log:
            process = subprocess.Popen(command(str(path)), stdout=log, stderr=log)
            try:
                _wait_until_it_answers(process, port, Path(scratch) / "log")
                yield Broker(port, process.pid)
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            output = log.read_text(encoding="utf-8", errors="replace")
            raise NotInstalled(f"the broker did not start: {output[-300:]}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
