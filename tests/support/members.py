"""Members of a cluster for a test: real brokers on one log, each killed, paused and started again.

::

      Members(dir, urls) ── start ─▶ one primary, others standbys ── kill, pause ─▶ another primary
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

from penstock.cli.cluster_reseed import TRY_S_MAX
from penstock.cluster.log import ReplicatedLog
from penstock.cluster.reading import catch_up
from penstock.cluster.view import View
from penstock.control.client import ask
from penstock.control.cluster_requests import AskCluster, ClusterState
from penstock.errors import PenstockError
from penstock.store.database import open_database
from penstock.transport.reserved_port import ReservedPort
from tests.support import left_behind
from tests.support.broker import SERVE, Address, address_of, processes_of
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.environment import environment
from tests.support.networks import LOOPBACK, Place
from tests.support.processes import Process, run_penstock, start_process

NAMES: Final = ("a", "b", "c")
SLOW: Final = "an append to the cluster's log takes"
COMMAND_S: Final = TRY_S_MAX + DEADLINE_S
"""Time of a command, seconds: `reseed` alone tries for a minute."""

START_S: Final = 2 * DEADLINE_S
"""Time of the first start of a cluster, seconds: several programs at once, and an election."""

_READY: Final = "penstock ready "
_STANDBY: Final = "penstock standby"
_START: Final = b"--- start"


@final
class MemberBroker:
    """One member, over all its starts; its ports stay the same.

    Args:
        name: name of the member.
        directory: an empty directory for its data and its output.
        settings: "group.name" to value, beside those that make it a member.
        command: what is started, before its options.
        place: where it runs.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        settings: Mapping[str, object],
        command: Sequence[str] = SERVE,
        place: Place = LOOPBACK,
    ) -> None:
        self.name = name
        self.data_dir = directory / "data"
        self._output = directory / "output.log"
        self._place = place
        self._command = (*place.command, *command)
        self._held = [ReservedPort("127.0.0.1"), ReservedPort("127.0.0.1")]
        self.address: Address = (place.host, self._held[0].port)
        self.stream_address: Address = (place.host, self._held[1].port)
        self._environment = environment({"cluster.node": name, **settings})
        self._process: Process | None = None
        self._groups: list[int] = []
        self._role = ""  # as its output says up to here:
        self._read_bytes = 0

    def set_environment(self, name: str, value: str) -> None:
        """Set one more variable for the starts to come."""
        self._environment[name] = value

    @property
    def process(self) -> Process:
        """The process of the present start."""
        assert self._process is not None, "the member was not started"
        return self._process

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; it is a standby, or the primary, some time later."""
        command = [
            *self._command,
            *("--bind", f"{self.address[0]}:{self.address[1]}"),
            *("--stream-bind", f"{self.stream_address[0]}:{self.stream_address[1]}"),
            *("--data-dir", str(self.data_dir)),
        ]
        with self._output.open("ab") as output:
            output.write(_START + b"\n")
            output.flush()
            told = output.fileno()
            self._process = start_process(command, self._environment, told, told)
        self._groups.append(self._process.pid)
        left_behind.watch(self._process.pid)

    def use_build(self, package: Path | None) -> None:
        """Run another Penstock from the next start on: the one in the directory ``package``; None
        for that of the tests."""
        paths = [] if package is None else [str(package)]
        own = environment().get("PYTHONPATH", "")
        self._environment["PYTHONPATH"] = os.pathsep.join([*paths, own]) if own else "".join(paths)

    def log(self) -> str:
        """What it wrote, over all starts."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def role(self) -> str:
        """What it said last: "primary", "standby", or nothing since its start."""
        if self._output.exists():
            with self._output.open("rb") as output:
                output.seek(self._read_bytes)
                whole, _, _ = output.read().rpartition(b"\n")
            self._read_bytes += len(whole) + 1 if whole else 0
            for line in whole.splitlines():
                if line.startswith(_READY.encode()):
                    self._role = "primary"
                elif line.startswith(_STANDBY.encode()):
                    self._role = "standby"
                elif line == _START:
                    self._role = ""
        return self._role

    def urls(self) -> list[str]:
        """The addresses in the line with which it said that it is ready, or a standby."""
        lines = [line for line in self.log().splitlines() if line.startswith((_READY, _STANDBY))]
        return [word for word in lines[-1].split() if "://" in word] if lines else []

    def admin_address(self) -> Address:
        """Where its admin process listens."""
        return address_of(next(url for url in self.urls() if url.startswith("http")))

    def state(self) -> ClusterState:
        """The cluster as it sees it."""
        return ask(self.data_dir, AskCluster(), ClusterState)

    def kill(self) -> None:
        """End it as a crash would, with all its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def pause(self) -> None:
        """Stop all its processes for a while."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def penstock(
        self, *arguments: str, names_data: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of an operator on its machine, with its settings, to its end.

        ``names_data`` is whether the command is told the data directory.
        """
        data = ("--data-dir", str(self.data_dir)) if names_data else ()
        return run_penstock(
            *arguments,
            *data,
            variables=self._environment,
            before=self._place.command,
            within_s=COMMAND_S,
        )

    def close(self) -> None:
        """End all that is left, and look for defects in what it wrote."""
        for held in self._held:
            held.close()
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)
                os.killpg(group, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(DEADLINE_S)
            wait_for("all processes of the member to end", lambda: not processes_of(self._groups))
        for group in self._groups:
            left_behind.forget(group)
        print(f"--- output of member {self.name}\n{self.log()[-20_000:]}")
        assert "Traceback" not in self.log(), f"member {self.name} logged a traceback"


@final
class Members:
    """The members of one cluster.

    Args:
        directory: an empty directory.
        urls: the servers of the log; or those of each member, in its order.
        settings: "group.name" to value for all of them.
        names: their names.
        places: where each runs; on loopback without.
    """

    def __init__(
        self,
        directory: Path,
        urls: Sequence[str] | Mapping[str, Sequence[str]],
        settings: Mapping[str, object] | None = None,
        names: Sequence[str] = NAMES,
        places: Mapping[str, Place] | None = None,
    ) -> None:
        chosen: dict[str, object] = {
            "cluster.members": json.dumps(list(names)),
            "listener.allow_anonymous": "true",
            "log.level": "debug",
        }
        chosen.update(settings or {})
        self.all: dict[str, MemberBroker] = {}
        for name in names:
            home = directory / name
            home.mkdir(parents=True)
            place = places[name] if places else LOOPBACK
            own_urls = urls[name] if isinstance(urls, Mapping) else urls
            own = {"cluster.log": json.dumps(list(own_urls)), **chosen}
            self.all[name] = MemberBroker(name, home, own, place=place)

    def __getitem__(self, name: str) -> MemberBroker:
        """The member of this name."""
        return self.all[name]

    def start(self, within_s: float = START_S) -> MemberBroker:
        """Start all of them and wait for the primary; it is returned."""
        for member in self.all.values():
            member.start()
        return self.wait_for_primary(within_s=within_s)

    def primary(self) -> MemberBroker | None:
        """The member that serves as the primary; None while there is none."""
        for member in self.all.values():
            if member.is_running and member.role() == "primary":
                return member
        return None

    def wait_for_primary(
        self, other_than: MemberBroker | None = None, within_s: float = DEADLINE_S
    ) -> MemberBroker:
        """Wait until a member serves as the primary; it is returned."""

        def found() -> MemberBroker | None:
            others = (member for member in self.all.values() if member is not other_than)
            running = (member for member in others if member.is_running)
            return next((member for member in running if member.role() == "primary"), None)

        return wait_for("a primary", found, within_s)

    def wait_for_standbys(self, primary: MemberBroker) -> None:
        """Wait until the primary hears all others as standbys, and sees no problem but that this
        machine is busy."""

        def are_ready() -> bool:
            state = primary.state()
            roles = [one.role for one in state.members if one.node != primary.name]
            is_complete = roles == ["standby"] * (len(self.all) - 1)
            return is_complete and not problems_of(state)

        wait_for("level standbys", are_ready, START_S)

    def wait_until_level(self) -> None:
        """Wait until the views of all members that run have all that the log has."""

        def is_level() -> bool:
            running = [member for member in self.all.values() if member.is_running]
            try:
                states = [member.state() for member in running]
            except PenstockError:
                return False
            applied = {
                one.applied for state in states for one in state.members if one.node == state.node
            }
            return len(applied) == 1 and applied == {states[0].last}

        wait_for("level views", is_level)

    def close(self) -> None:
        """End all of them."""
        for member in self.all.values():
            member.close()


def problems_of(state: ClusterState) -> list[str]:
    """The problems of a cluster, but for slow appends: these are of the machine that runs tests."""
    return [problem for problem in state.problems if SLOW not in problem]


def level_contents(data_dir: Path, log: ReplicatedLog) -> dict[tuple[str, bytes], bytes]:
    """Every key and value of the view of a member that does not run, with all that ``log`` has."""
    database = open_database(data_dir)
    try:
        catch_up(View(database), log)
        return {
            (family, key): value
            for family in database.families
            for key, value in database.items(family)
        }
    finally:
        database.close()
