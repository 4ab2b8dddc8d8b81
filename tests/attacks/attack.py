"""What an attack is, how it is played, and what came of it.

::

      broker starts ─▶ others alone (before) ─▶ attack, for so many seconds (during) ─▶ SIGTERM
                                                     ╰─ what it made others wait, what it cost

An attack is a function of a ``Target``: it goes on until ``target.goes_on`` is false, as hard as it
can, and counts in ``target.did`` what it does. Where it is refused or closed it begins anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, final

import pytest
from _pytest.mark import ParameterSet

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connect, Packet
from penstock.protocol.properties import Properties
from tests.support.broker import Address, Broker
from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment
from tests.support.mosquitto_broker import Mosquitto

SECONDS: Final = float(os.environ.get("PENSTOCK_ATTACK_SECONDS", "1"))
BEFORE_S: Final = min(5.0, SECONDS)
TIMEOUT_S: Final = 240 + 10 * SECONDS  # of a test that plays an attack
_SMALLEST_WAIT_S: Final = 0.005
_PAUSE_S: Final = 0.02
_IP_BIND_ADDRESS_NO_PORT: Final = 24  # of ip(7); Python 3.12 has it in ``socket``

CLOSED: Final = "times closed or refused"


@final
class Target:
    """A broker under attack, as seen by whom attacks.

    Args:
        broker: it.
        seconds: how long the attack goes on.
    """

    def __init__(self, broker: Broker | Mosquitto, seconds: float) -> None:
        self.address: Address = broker.address
        self.urls = broker.urls
        self.admin_url = broker.admin_url if isinstance(broker, Broker) else ""
        self.stream_address = broker.stream_address if isinstance(broker, Broker) else ("", 0)
        self.data_dir = broker.data_dir
        self._pid = broker.process.pid
        self._ends_s = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self.did: Counter[str] = Counter()

    @property
    def goes_on(self) -> bool:
        """Whether the attack's time is not up."""
        return time.monotonic() < self._ends_s

    def dial(self, address: Address | None = None, source: str = "") -> socket.socket:
        """Return a new connection, closed with the attack. Raises OSError if it is refused.

        It comes from ``source``, an address of this machine, where that is given.
        """
        made = socket.socket()
        try:
            made.settimeout(10)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if source:
                # Else its port is taken from all others of this machine, for a minute and more:
                # 28,000 connections leave none for visitors.
                made.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                made.bind((source, 0))
            made.connect(address or self.address)
        except OSError:
            made.close()
            raise
        self._sockets.append(made)
        return made

    def log_in(
        self,
        client_id: str,
        version: int = V5,
        expiry_s: int = 0,
        clean: bool = True,
        source: str = "",
    ) -> socket.socket:
        """Return a connection that said CONNECT and heard CONNACK. Raises OSError if refused."""
        made = self.dial(source=source)
        properties = Properties(session_expiry_interval=expiry_s) if version == V5 else None
        connect = Connect(client_id, version, clean, 0, properties=properties)
        made.sendall(encode(connect, version))
        answer = made.recv(2)
        while 0 < len(answer) < 2 or (answer and len(answer) < 2 + answer[1]):
            piece = made.recv(2 + answer[1] - len(answer))
            if not piece:
                break
            answer += piece
        if len(answer) < 4 or answer[3] != 0:
            raise ConnectionRefusedError(f"CONNACK {answer.hex()}")
        return made

    def let_go(self, made: socket.socket) -> None:
        """Close one connection."""
        made.close()
        self._sockets.remove(made)

    def close(self) -> None:
        """Close all connections."""
        for made in self._sockets:
            made.close()
        self._sockets.clear()

    def memory_mib(self) -> int:
        """Return the broker's resident memory, in MiB."""
        return _status(self._pid, "VmRSS")


def send_all(made: socket.socket, *packets: Packet, version: int = V5) -> None:
    """Send packets in one write."""
    made.sendall(b"".join(encode(packet, version) for packet in packets))


def swallow(made: socket.socket, within_s: float = _SMALLEST_WAIT_S) -> int:
    """Read what has arrived and return how many bytes; raise ConnectionError at the end."""
    made.settimeout(within_s)
    count = 0
    try:
        while True:
            data = made.recv(1 << 20)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            count += len(data)
    except TimeoutError:
        return count
    finally:
        made.settimeout(10)


def mosquitto_by_default(
    directory: Path,
    settings: str = "allow_anonymous true\n",
    second: tuple[str, str] = ("", ""),
) -> Mosquitto:
    """Return a Mosquitto that keeps what it keeps by default, and saves it when it does."""
    return Mosquitto(directory, settings, keeping="", second=second)


@final
@dataclass(frozen=True)
class Attack:
    """One kind of attack.

    Args:
        name: a few words.
        size: what is sent, in numbers.
        play: the attack.
        settings: of the broker, beside the defaults.
        persistence: of the broker.
        prepare: called with an empty directory before the broker starts, for files of settings;
            returns more settings.
        user: name and password of the others, where the broker asks for them.
        mosquitto: makes a Mosquitto for the same attack, in an empty directory; or the reason why
            it is not played there.
    """

    name: str
    size: str
    play: Callable[[Target], None]
    settings: Mapping[str, object] = field(default_factory=dict)
    persistence: str = "file"
    prepare: Callable[[Path], Mapping[str, object]] | None = None
    user: tuple[str, str] = ("", "")
    mosquitto: Callable[[Path], Mosquitto] | str = mosquitto_by_default


@final
@dataclass(frozen=True)
class Waits:
    """How long others waited in one phase, in milliseconds."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    longest_visit_ms: float
    lost: int  # messages of the pair that never arrived
    turned_away: int  # visitors that were not let in, or never answered
    why: str


@final
@dataclass(frozen=True)
class Outcome:
    """What came of an attack."""

    attack: Attack
    before: Waits
    during: Waits
    memory_before_mib: int
    memory_mib: int  # the highest while it went on
    disk_mib: int
    stop_s: float  # from SIGTERM to the end of the process
    exit_code: int
    facts: Counter[str]
    log: str = ""

    def row(self) -> str:
        """Return a line of a table in Markdown."""
        facts = ", ".join(f"{count:,} {name}" for name, count in self.facts.items())
        before, during = self.before, self.during
        return (
            f"| {self.attack.name} | {self.attack.size}: {facts}"
            f" | {before.p50_ms:.1f} / {before.p99_ms:.0f} / {before.longest_ms:.0f}"
            f" | {during.p50_ms:.1f} / {during.p99_ms:.0f} / {during.longest_ms:.0f}"
            f" | {during.longest_visit_ms:.0f} | {self.memory_before_mib} → {self.memory_mib}"
            f" | {self.stop_s:.1f} | {self.verdict()} |"
        )

    def is_whole(self) -> bool:
        """Whether nothing was lost, nobody turned away, and the broker ended as asked."""
        during = self.during
        return during.lost == 0 and during.turned_away == 0 and self.exit_code == 0

    def verdict(self) -> str:
        """Return one word, or what was not kept."""
        broken: list[str] = []
        if self.during.lost:
            broken.append(f"{self.during.lost} messages lost")
        if self.during.turned_away:
            broken.append(f"{self.during.turned_away} turned away")
        if self.during.p99_ms > 50:
            broken.append("p99")
        if self.during.longest_ms > 500:
            broken.append("longest")
        if self.stop_s > 10:
            broken.append("SIGTERM")
        return ", ".join(broken) or "held"


HEAD: Final = """\
| attack | size | others before: p50 / p99 / longest, ms | during, ms | longest visit, ms \
| memory, MiB | stop, s | verdict |
|---|---|---|---|---|---|---|---|"""


def play(attack: Attack, directory: Path, seconds: float = SECONDS) -> Outcome:
    """Start a broker, let the others live, attack, and return what came of it."""
    settings: dict[str, object] = {"log.level": "info"} | dict(attack.settings)
    if attack.prepare is not None:
        settings |= attack.prepare(directory)
    broker = Broker(directory, settings, attack.persistence)
    outcome = _play(attack, broker, seconds)
    return replace(outcome, log=broker.log())


def play_mosquitto(attack: Attack, directory: Path, seconds: float) -> Outcome:
    """Do the same to Mosquitto, where the attack says how that is started."""
    assert callable(attack.mosquitto)
    return _play(attack, attack.mosquitto(directory), seconds)


def _play(attack: Attack, broker: Broker | Mosquitto, seconds: float) -> Outcome:
    try:
        broker.start()
        pid = broker.process.pid
        with _others(broker.address, attack.user) as others:
            time.sleep(BEFORE_S)  # the pair alone: what is measured is this time
            memory_before = _status(pid, "VmRSS")
            _forget_peak(pid)
            _next_phase(others)
            target = Target(broker, seconds)
            _go_on(attack, target)
            said, _ = others.communicate(timeout=DEADLINE_S * 3)
        assert others.returncode == 0, "the others lost their connection"
        phases = json.loads(said.splitlines()[-1])
        memory = _status(pid, "VmHWM")
        disk = sum(path.stat().st_size for path in broker.data_dir.rglob("*") if path.is_file())
        began_s = time.monotonic()
        exit_code = broker.stop()
        stop_s = time.monotonic() - began_s
    finally:
        broker.close()
    outcome = Outcome(
        attack,
        _waits(phases[0]),
        _waits(phases[1]),
        memory_before,
        memory,
        disk >> 20,
        stop_s,
        exit_code,
        target.did,
    )
    print(f"{HEAD}\n{outcome.row()}")
    return outcome


def _go_on(attack: Attack, target: Target) -> None:
    while target.goes_on:
        try:
            attack.play(target)
        except OSError:
            target.did[CLOSED] += 1
            time.sleep(_PAUSE_S)  # as a client that comes back soon
        finally:
            target.close()


def one_of(attacks: Sequence[Attack]) -> list[Attack | ParameterSet]:
    """Return the attacks of one kind as parameters of a test: `make test` plays the first alone."""
    first, *others = attacks
    mark = pytest.mark.torture("another attack of the same kind")
    return [first, *(pytest.param(attack, marks=mark) for attack in others)]


def check(outcome: Outcome) -> None:
    """Assert what every attack must leave whole: nothing lost, nobody turned away."""
    assert outcome.during.lost == 0, outcome.row()
    assert outcome.during.turned_away == 0, (outcome.row(), outcome.during.why)
    assert outcome.exit_code == 0, outcome.log[-2000:]


@contextlib.contextmanager
def _others(address: Address, user: tuple[str, str]) -> Iterator[subprocess.Popen[str]]:
    host, port = address
    command = [sys.executable, "-m", "tests.attacks.others", host, str(port), *user]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the others did not get in"
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _next_phase(others: subprocess.Popen[str]) -> None:
    assert others.stdin is not None
    others.stdin.write("\n")
    others.stdin.flush()


def _waits(phase: Mapping[str, object]) -> Waits:
    pair, visits = phase["pair_ms"], phase["visits_ms"]
    assert isinstance(pair, list)
    assert isinstance(visits, list)
    waits = sorted(wait for wait in pair if wait >= 0) or [0.0]
    return Waits(
        waits[len(waits) // 2],
        waits[min(len(waits) - 1, len(waits) * 99 // 100)],
        waits[-1],
        max(visits, default=0.0),
        sum(wait < 0 for wait in pair),
        sum(wait < 0 for wait in visits),
        str(phase["refused"]),
    )


def _status(pid: int, name: str) -> int:
    """Return a size of ``/proc/PID/status``, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) >> 10
    return 0


def _forget_peak(pid: int) -> None:
    """Let VmHWM begin anew."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
