"""The brokers that are measured beside Penstock, those that this machine has or can install.

Mosquitto is Debian's package; amqtt (PyPI) and aedes (npm) are installed below `.cache/peers` when
they are asked for first. Each runs with its defaults, in memory, on loopback, and lets anonymous
clients in; what else is set stands here, with its reason.
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
"""QoS 1 and 2 messages on the way to a subscriber: as many as ``penstock bench`` asks for.

Mosquitto stops at 20 by default, Penstock at 32; a window that ends earlier in one would measure
that."""

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
"""  # its default of 1,000 would drop what waits for a window, and what is lost costs nothing


class NotInstalled(Exception):
    """A broker is not there and cannot be installed; why."""


@contextlib.contextmanager
def penstock(persistence: str) -> Iterator[Broker]:
    """Penstock, with a queue and a window as long as Mosquitto's."""
    settings = {"limits.max_mqueue_len": 0, "limits.max_inflight": WINDOW}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory), persistence, settings) as broker,
    ):
        yield broker


@contextlib.contextmanager
def mosquitto(tcp_nodelay: bool) -> Iterator[Broker]:
    """Mosquitto without persistence; `set_tcp_nodelay true` halves its speed."""
    program = mosquitto_program()
    if program is None:
        raise NotInstalled("Mosquitto is not installed (Debian: mosquitto)")
    lines = _MOSQUITTO + ("set_tcp_nodelay true\n" if tcp_nodelay else "")
    with _configured(lines, lambda path: [program, "-c", path]) as broker:
        yield broker


@contextlib.contextmanager
def amqtt() -> Iterator[Broker]:
    """amqtt, in an environment of its own."""
    program = CACHE / "amqtt" / "bin" / "amqtt"
    if not program.exists():
        _install([sys.executable, "-m", "venv", "--clear", str(CACHE / "amqtt")])
        pip = str(CACHE / "amqtt" / "bin" / "pip")
        _install([pip, "install", "--quiet", f"amqtt=={AMQTT_VERSION}"])
    with _configured(_AMQTT, lambda path: [str(program.absolute()), "-c", path]) as broker:
        yield broker


@contextlib.contextmanager
def aedes() -> Iterator[Broker]:
    """aedes, in Node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalled("aedes needs Node and npm (Debian: nodejs, npm)")
    modules = CACHE / "aedes"
    if not (modules / "node_modules" / "aedes").exists():
        modules.mkdir(parents=True, exist_ok=True)
        _install([npm, "install", "--silent", "--prefix", str(modules), f"aedes@{AEDES_VERSION}"])
    with _configured(_AEDES, lambda path: [node, path], modules.absolute()) as broker:
        yield broker


def _install(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise NotInstalled(f"{' '.join(command)} failed: {said.strip()[-300:]}") from error


@contextlib.contextmanager
def _configured(
    text: str, command: Callable[[str], list[str]], directory: Path | None = None
) -> Iterator[Broker]:
    """A broker with a configuration that has its port; it is ended by signal, and waited for."""
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
            said = log.read_text(encoding="utf-8", errors="replace")
            raise NotInstalled(f"the broker did not start: {said[-300:]}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
