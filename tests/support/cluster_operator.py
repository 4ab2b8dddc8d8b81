"""The operator of a storm's machines: does what `penstock cluster status` says, and nothing else.

::

      status says                               the operator
      `etcdctl member remove`                   removes that server, adds it again with empty data,
                                                once no other one is away
      `penstock cluster recover`, and no        waits whether it passes, and lets the member with
      member is the primary                     the newest view begin a new history
      `penstock cluster reseed`, beside a       replaces that member's view
      primary; or a member ended with it
      a process ended                           starts it, as a service manager does
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from typing import TYPE_CHECKING, Final, final

from penstock.control.cluster_requests import ClusterState, MemberState
from penstock.errors import PenstockError
from penstock.store.database import STORE_DIRECTORY
from tests.support.child_servers import SYSTEM_LOGIN
from tests.support.deadline import wait_for
from tests.support.etcd_cluster import EtcdCluster

if TYPE_CHECKING:
    from tests.support.machines import Machine, Machines

FILL_ANEW: Final = "`etcdctl member remove`"
RECOVER: Final = "penstock cluster recover"
RESEED: Final = "penstock cluster reseed"
HAS_BEGUN: Final = re.compile("is the primary, at entry|has begun a newer history")

_SURE_S: Final = 20.0  # what an election or a start explains has passed by then
_FILLED_S: Final = 400.0
_SET_ASIDE: Final = ("nats.set-aside-*", f"{STORE_DIRECTORY}.kept-*")


@final
class Operator:
    """One operator.

    Args:
        machines: the machines.

    Attributes:
        histories: how many histories were begun by this operator's word.
    """

    def __init__(self, machines: Machines) -> None:
        self.histories = 0
        self._machines = machines
        self._filled_anew = 0
        self._reseeded_s: dict[str, float] = {}  # when members were reseeded, by name
        self._lost_since_s = 0.0  # since when `recover` is advised; 0 while it is not

    def act(self) -> None:
        """Do the next thing that is asked for."""
        self._start_ended()
        primary = self._machines.primary()
        if primary is None:
            self._recover()
            return
        self._lost_since_s = 0.0
        with contextlib.suppress(PenstockError):
            for one in primary.member.state().members:
                if FILL_ANEW in one.server_note:
                    self._fill_anew(one)
                    return
                said_s = time.monotonic() - one.heard_s
                is_new = said_s > self._reseeded_s.get(one.node, 0.0)
                if RESEED in one.note and is_new and one.node != primary.name:
                    self._reseed(self._machines.all[one.node])
                    return

    def remove_server(self, name: str) -> None:
        """Say that the server of this name will not come back, as soon as the others elected."""
        member = next(one.member for one in self._machines.all.values() if one.nats.name != name)
        login = member.data_dir.parent / "system.login"
        login.write_text(SYSTEM_LOGIN)
        login.chmod(0o600)
        command = ("cluster", "remove", name, "--system-login", str(login))

        def is_removed() -> bool:
            return member.penstock(*command, names_data=False).returncode == 0

        wait_for(f"the server {name} to be removed", is_removed, _FILLED_S)

    def clean_up(self) -> int:
        """Remove what members have set aside; return how many servers of the log were filled anew
        since the last call."""
        filled, self._filled_anew = self._filled_anew, 0
        for machine in self._machines.all.values():
            for pattern in _SET_ASIDE:
                for aside in machine.member.data_dir.glob(pattern):
                    shutil.rmtree(aside)
                    filled += aside.name.startswith("nats")
        return filled

    def _start_ended(self) -> None:
        machines = self._machines
        for server in machines.nats.servers if machines.run_by == "etcd" else ():
            if server.is_running and server.process.poll() is not None:
                server.kill()
                server.start()
        for machine in machines.all.values():
            member = machine.member
            if member.is_running or machine.is_away:
                continue
            if RESEED in member.log().rpartition("--- start")[2]:
                self._reseed(machine)
            else:
                member.start()

    def _recover(self) -> None:
        """Let the newest view begin a new history, if that is advised for long enough, and all
        members are heard."""
        advised = self._advised()
        if advised is None:
            self._lost_since_s = 0.0
            return
        now_s = time.monotonic()
        self._lost_since_s = self._lost_since_s or now_s
        heard = [one for one in advised.members if not one.is_silent]
        if now_s - self._lost_since_s < _SURE_S or len(heard) < len(self._machines.all):
            return
        newest = max(heard, key=lambda one: one.applied)
        member = self._machines.all[newest.node].member
        member.stop()
        told = member.penstock("cluster", "recover")
        if told.returncode == 0 and "newer than this store" not in told.stdout:
            told = member.penstock("cluster", "recover", "--yes")
            self.histories += told.returncode == 0
        assert told.returncode == 0 or HAS_BEGUN.search(told.stderr), told.stderr
        member.start()
        self._lost_since_s = 0.0

    def _advised(self) -> ClusterState | None:
        """Return the state at a member that advises to recover; None without."""
        for machine in self._machines.all.values():
            with contextlib.suppress(PenstockError):
                state = machine.member.state()
                if any(RECOVER in problem for problem in state.problems):
                    return state
        return None

    def _reseed(self, machine: Machine) -> None:
        member = machine.member
        if member.is_running:
            member.stop()
        told = member.penstock("cluster", "reseed")
        assert told.returncode == 0, told.stderr
        member.start()
        self._reseeded_s[machine.name] = time.monotonic()

    def _fill_anew(self, one: MemberState) -> None:
        assert isinstance(self._machines.nats, EtcdCluster)
        if not self._machines.nats.fill_anew(one.node):
            return  # another server is away: it comes back first
        self._filled_anew += 1
        wait_for("another judgement", lambda: self._note_of(one.node) == "", _FILLED_S)

    def _note_of(self, node: str) -> str:
        """Return what the primary says of a server; a word of its own while there is none."""
        primary = self._machines.primary()
        with contextlib.suppress(PenstockError):
            state = None if primary is None else primary.member.state()
            for one in () if state is None else state.members:
                if one.node == node:
                    return one.server_note
        return "nobody says"
