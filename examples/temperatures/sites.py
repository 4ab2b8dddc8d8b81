"""Where the broker runs, and what can happen to it: one process, or a cluster of three machines.

::

      OneBroker    broker ── SIGKILL, started again ─▶ ready
      Cluster      three machines: NATS server and broker each
                     ── the primary's is lost | cut off | stopped ─▶ another primary ─▶ it is back
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Final, Protocol, final

from examples.temperatures.programs import DemoFailed, Program, free_port
from tests.support.machines import Machine, Machines, wait_for_primary
from tests.support.members import NAMES
from tests.support.networks import Network, obstacle

HOST: Final = "127.0.0.1"
BROKER: Final = "broker"
LOST: Final = "machine of the primary lost"
CUT: Final = "cable of the primary pulled"
STOPPED: Final = "machine of the primary stopped"

Address = tuple[str, int]
Repair = Callable[[], None]


class Site(Protocol):
    """The broker, or the cluster.

    Attributes:
        description: one line for the screen, once it is started.
        addresses: HOST, PORT where devices reach it.
        stream: HOST:PORT of its stream service, several with commas.
        client: what stands before the command of a client's program.
        keep_alive_s: of the devices; after twice that they leave a broker that is silent.
        targets: what can be done to it.
        log: file or directory to look at.
    """

    description: str
    addresses: tuple[Address, ...]
    stream: str
    client: tuple[str, ...]
    keep_alive_s: int
    targets: tuple[str, ...]
    log: Path

    def inside(self) -> AbstractContextManager[None]:
        """Return a context in which this thread reaches the stream service."""

    def start(self) -> None:
        """Start it, and wait until it serves."""

    def check(self) -> None:
        """Raise DemoFailed where something ended by itself."""

    def strike(self, target: str) -> Repair:
        """Do it, wait until clients are served again; return what brings back what was struck."""

    def stop(self) -> None:
        """Stop it in order; raise DemoFailed where that fails."""

    def end(self) -> None:
        """End whatever is left."""


@final
class OneBroker:
    """One process.

    Args:
        directory: for its data and its log.
    """

    client: tuple[str, ...] = ()
    keep_alive_s = 30
    targets: tuple[str, ...] = (BROKER,)

    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.addresses: tuple[Address, ...] = ((HOST, port),)
        self.stream = f"{HOST}:{free_port()}"
        self.description = f"broker ready on port {port}"
        self.log = directory / "broker.log"
        serve = ["--bind", f"{HOST}:{port}", "--stream-bind", self.stream]
        serve += ["--data-dir", str(directory / "broker")]
        self._broker = Program(
            BROKER, [sys.executable, "-m", "penstock", "serve", *serve], self.log
        )

    def inside(self) -> AbstractContextManager[None]:
        """See ``Site``."""
        return nullcontext()

    def start(self) -> None:
        """See ``Site``."""
        self._broker.start()
        self._broker.wait_for_line("ready")

    def check(self) -> None:
        """See ``Site``."""
        self._broker.check()

    def strike(self, target: str) -> Repair:
        """See ``Site``; it is there again at once."""
        del target
        self._broker.kill()
        self.start()
        return _nothing

    def stop(self) -> None:
        """See ``Site``."""
        code = self._broker.stop()
        if code != 0:
            raise DemoFailed(f"{BROKER} ended with code {code} on SIGTERM")

    def end(self) -> None:
        """See ``Site``."""
        self._broker.end()


@final
class Cluster:
    """Three machines in network namespaces; on loopback, without the cable, where there are none.

    Args:
        directory: for the machines' data and logs.
    """

    keep_alive_s = 2

    def __init__(self, directory: Path) -> None:
        self.log = directory / "machines.log"
        self._stack = ExitStack()
        why = obstacle()
        network = None if why else self._stack.enter_context(Network(NAMES))
        home = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        self._machines = Machines(home, network)
        self._away: Machine | None = None
        members = [machine.member for machine in self._machines.all.values()]
        self.addresses: tuple[Address, ...] = tuple(member.address for member in members)
        self.stream = self._machines.streams
        self.client: tuple[str, ...] = self._machines.client.command
        self.targets: tuple[str, ...] = (LOST, STOPPED) if why else (LOST, CUT, STOPPED)
        place = f"on loopback, for {why}" if why else "in network namespaces"
        self.description = f"three brokers and three NATS servers {place}"

    def inside(self) -> AbstractContextManager[None]:
        """See ``Site``."""
        return self._machines.client.inside()

    def start(self) -> None:
        """See ``Site``."""
        with _told():
            self._stack.enter_context(self._closing())
            self._machines.__enter__()
            self._machines.wait_until_healthy()

    def check(self) -> None:
        """See ``Site``."""
        for name, machine in self._machines.all.items():
            if machine is not self._away and not machine.member.is_running:
                raise DemoFailed(
                    f"the broker of machine {name} ended:\n{machine.member.log()[-2000:]}"
                )

    def strike(self, target: str) -> Repair:
        """See ``Site``."""
        with _told():
            machine = self._away = wait_for_primary(self._machines)
            network = self._machines.network
            if target == LOST:
                machine.lose()
            elif target == STOPPED:
                machine.pause()
            else:
                assert network is not None
                machine.is_away = True
                network.cut(machine.name)
            wait_for_primary(self._machines, other_than=machine)

        def repair() -> None:
            if target == LOST:
                machine.come_back()
            elif target == STOPPED:
                machine.resume()
            else:
                assert network is not None
                network.mend(machine.name)
                machine.is_away = False
            self._away = None
            with _told():
                self._machines.wait_until_healthy()

        return repair

    def stop(self) -> None:
        """See ``Site``; the views of all machines must be equal."""
        with _told():
            self._machines.members.wait_until_level()
            first, *others = self._machines.views().values()
        if any(other != first for other in others):
            raise DemoFailed("the views of the machines differ")

    def end(self) -> None:
        """See ``Site``."""
        with self.log.open("a") as log, contextlib.redirect_stdout(log), _told():
            self._stack.close()

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._machines.__exit__()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn what the machines find wrong into a failure of the demonstration."""
    try:
        yield
    except AssertionError as error:
        raise DemoFailed(str(error)) from error


def _nothing() -> None:
    pass
