"""Machines of a cluster: a NATS server and a broker on each, that are lost, cut off and come back.

::

      machine a        machine b        machine c        client
      nats-server      nats-server      nats-server      the test's devices
      penstock         penstock         penstock           (``Roaming``)
           ╰──────── ``networks.Network`` ───────╯           │
                        ╰───────────────────────────────────╯

Without a network all is on loopback, and machines are lost as their processes are.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from penstock.cluster.connecting import connector_for
from penstock.cluster.log import LogUnavailable, ReplicatedLog
from penstock.config.cluster import Cluster
from penstock.errors import PenstockError
from penstock.protocol.packets import Connack
from penstock.stream.client import StreamClient
from tests.support.broker import Address
from tests.support.child_servers import ACCOUNTS, ChildServer
from tests.support.cluster_operator import Operator
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.etcd_cluster import EtcdCluster, EtcdServer
from tests.support.members import NAMES, MemberBroker, Members, level_contents, problems_of
from tests.support.nats_cluster import NatsCluster, NatsServer
from tests.support.networks import CLIENT, LOOPBACK, Network, Place
from tests.support.raw_client import ConnectionEndedError, NothingReceivedError, RawClient
from tests.support.wall_clock import WallClock

RunBy: TypeAlias = Literal["test", "brokers", "etcd"]

CLUSTER: Final = "storm"
SMALL_DISK_MIB: Final = 512
_HEALTHY_S: Final = 120.0  # a server that was away reads all that it missed, on a busy machine
_FILLED_S: Final = 400.0  # a damaged one is restarted first, and all have to be whole
_PATIENT: Final = (
    *("--heartbeat-interval", "300", "--election-timeout", "3000"),  # a busy machine
    *("--snapshot-count", "200"),  # so that there are snapshots
)
_DIAL_S: Final = 0.5
_USE_ANOTHER_SERVER: Final = (0x9C, 0x9D, 0x88, 0x89, 0x97, 3)


@final
class Roaming:
    """The way of one device to a cluster: the next address, until one serves it.

    Args:
        addresses: the brokers'.
        place: where the device is.
        answer_s: how long a broker may take to answer before the connection is lost, seconds.
    """

    losses: tuple[type[BaseException], ...] = (
        ConnectionEndedError,
        NothingReceivedError,
        OSError,
    )

    def __init__(self, addresses: Sequence[Address], place: Place, answer_s: float = 3.0) -> None:
        self._addresses = tuple(addresses)
        self._place = place
        self._answer_s = answer_s
        self._next = 0

    def dial(self, version: int) -> RawClient:
        """Connect to the next; raise OSError where nobody listens."""
        address = self._addresses[self._next % len(self._addresses)]
        self._next += 1
        with self._place.inside():
            connection = socket.create_connection(address, _DIAL_S)
        for option, value in (
            (socket.TCP_NODELAY, 1),
            (socket.TCP_KEEPIDLE, 1),  # a cable that was pulled is noticed by those who listen
            (socket.TCP_KEEPINTVL, 1),
            (socket.TCP_KEEPCNT, 2),
            (socket.TCP_USER_TIMEOUT, int(self._answer_s * 1000)),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(self._answer_s)
        return RawClient(address, version, connection, self._answer_s)

    def serves(self, answer: Connack) -> bool:
        """Return whether this is the primary."""
        if answer.reason_code == 0:
            self._next -= 1  # once more, if it is only the connection that is lost
            return True
        assert answer.reason_code in _USE_ANOTHER_SERVER, answer
        return False


@final
class Machine:
    """One machine."""

    def __init__(
        self,
        name: str,
        place: Place,
        nats: NatsServer | ChildServer | EtcdServer,
        member: MemberBroker,
        net: Network | None,
    ) -> None:
        self.name = name
        self.place = place
        self.nats = nats
        self.member = member
        self.wall_clock: WallClock | None = None  # of the member; None for the machine's
        self.is_away = False  # lost, paused, or cut off
        self._network = net

    def give_clock(self) -> None:
        """Give the member a wall clock of its own, before its first start."""
        self.wall_clock = WallClock(self.member.data_dir.parent / "wall_clock")
        for name, value in self.wall_clock.environment.items():
            self.member.set_environment(name, value)

    def lose(self) -> None:
        """Lose it: no end hears of it, and nothing of it runs."""
        self.is_away = True
        if self._network is not None:
            self._network.cut(self.name)
        if self.nats.is_running:
            self.nats.kill()
        self.member.kill()

    def come_back(self) -> None:
        """Start it after a loss."""
        if self._network is not None:
            self._network.mend(self.name)
        self.nats.start()
        self.member.start()
        self.is_away = False

    def pause(self) -> None:
        """Stop all its processes."""
        self.is_away = True
        self.nats.pause()
        self.member.pause()

    def resume(self) -> None:
        """Let them go on."""
        self.member.resume()
        self.nats.resume()
        self.is_away = False


@final
class Machines:
    """Three machines and a host for clients; a context manager that starts them and ends them.

    Args:
        directory: an empty directory.
        network: where they are; None for loopback.
        settings: "group.name" to value, for all brokers.
        names: their names.
        run_by: who runs the servers of the log: "test", NATS servers; "brokers", each broker that
            of its machine, as in the directories of `penstock cluster init`; "etcd", etcd servers
            that the test runs, on loopback.
    """

    def __init__(
        self,
        directory: Path,
        network: Network | None = None,
        settings: Mapping[str, object] | None = None,
        names: Sequence[str] = NAMES,
        run_by: RunBy = "test",
    ) -> None:
        places = {name: network.place(name) if network else LOOPBACK for name in names}
        self.network = network
        self.client = network.place(CLIENT) if network else LOOPBACK
        self.run_by = run_by
        self.nats: NatsCluster | EtcdCluster
        if run_by == "etcd":
            self.nats = EtcdCluster(directory / "etcd", options=_PATIENT, names=names)
        else:
            self.nats = NatsCluster(
                directory / "nats",
                lines=ACCOUNTS,
                places=places,
                has_store_dir=run_by == "test",
            )
        token_file = directory / "seed.token"
        token_file.touch(mode=0o600)
        token_file.write_text(secrets.token_hex(32))
        chosen = {
            "cluster.name": CLUSTER,
            "cluster.seed_token_file": token_file,
            "log.level": "info",
            **(settings or {}),
        }
        try:
            urls = {name: self._own_first(name) for name in names}
            self.members = Members(directory / "members", urls, chosen, names, places)
        except BaseException:
            self.nats.close()
            raise
        self.all: dict[str, Machine] = {}
        for name in names:
            member, server = self.members[name], self.nats.server(name)
            nats: NatsServer | ChildServer | EtcdServer = server
            if run_by == "brokers":
                assert isinstance(server, NatsServer)
                nats = ChildServer(server, member.data_dir, places[name])
                member.set_environment("PENSTOCK_CLUSTER__SERVER_CONFIG", str(server.config_file))
            self.all[name] = Machine(name, places[name], nats, member, network)
        self.operator = Operator(self)
        self.has_missed = False  # the last fault found no file of its kind
        self.small: Machine | None = None  # its NATS server has a disk of its own
        if network is not None and run_by == "test":
            assert isinstance(self.nats, NatsCluster)
            self.small = self.all[names[-1]]
            self.small.nats.store_dir.mkdir()
            network.give_disk(names[-1], self.small.nats.store_dir, SMALL_DISK_MIB)

    def __enter__(self) -> Machines:
        """Start all, and wait for a primary."""
        try:
            if self.run_by != "brokers":
                self.nats.start()
            self.members.start(_FILLED_S if self.is_damaged else DEADLINE_S)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all."""
        self._close()

    @property
    def is_damaged(self) -> bool:
        """Whether files of the servers of the log may be damaged, and have to be whole again."""
        return self.run_by != "test"

    @property
    def addresses(self) -> list[Address]:
        """Where the brokers are."""
        return [machine.member.address for machine in self.all.values()]

    @property
    def streams(self) -> str:
        """The stream services of all brokers, as readers name them."""
        addresses = (machine.member.stream_address for machine in self.all.values())
        return ",".join(f"{host}:{port}" for host, port in addresses)

    def entrance(self, answer_s: float = 3.0, only: str = "") -> Roaming:
        """Return the way of one device to whoever is the primary, or to one machine ``only``."""
        addresses = [self.all[only].member.address] if only else self.addresses
        return Roaming(addresses, self.client, answer_s)

    def primary(self) -> Machine | None:
        """Return the machine of the primary; None while there is none, or more than one says so."""
        found = [
            machine
            for machine in self.all.values()
            if not machine.is_away
            and machine.member.is_running
            and machine.member.role() == "primary"
        ]
        return found[0] if len(found) == 1 else None

    def others(self, than: Machine) -> list[Machine]:
        """Return the other machines."""
        return [machine for machine in self.all.values() if machine is not than]

    @contextlib.contextmanager
    def log(self) -> Iterator[ReplicatedLog]:
        """Yield the log of the cluster, as a client sees it."""
        with self.client.inside():
            settings = Cluster(log=self.nats.urls, name=CLUSTER)
            log = connector_for(settings).log("test")
            try:
                yield log
            finally:
                log.close()

    def log_leader(self) -> Machine | None:
        """Return the machine that leads the log; None while none does."""
        with self.log() as log, contextlib.suppress(LogUnavailable):
            log.open(2)
            leader = log.state(2).leader
            return next((one for one in self.all.values() if one.nats.name == leader), None)
        return None

    def lose_log(self) -> None:
        """Remove all files of all servers, which do not run."""
        if isinstance(self.nats, EtcdCluster):
            self.nats.begin_new()
            return
        for machine in self.all.values():
            shutil.rmtree(machine.nats.store_dir)
            machine.nats.store_dir.mkdir()

    def epoch(self) -> str:
        """Return the epoch of the log that the primary serves: which history it is."""
        with self.client.inside():

            def found() -> str:
                primary = self.primary()
                if primary is not None:
                    host, port = primary.member.stream_address
                    with contextlib.suppress(PenstockError), StreamClient(f"{host}:{port}") as one:
                        [stream] = one.streams()
                        return one.offsets(stream).epoch
                return ""

            return wait_for("the log's epoch", found)

    def wait_until_healthy(self) -> None:
        """Wait until all servers are whole, one broker is the primary and the others stand by."""
        ends_s = time.monotonic() + (_FILLED_S if self.is_damaged else _HEALTHY_S)
        missing = ""
        while time.monotonic() < ends_s:
            missing = self._missing()
            if not missing:
                return
            if self.is_damaged:
                self.operator.act()
            time.sleep(0.1)  # asking costs the machine something
        raise AssertionError(f"waited in vain, and still {missing}")

    def views(self) -> dict[str, dict[tuple[str, bytes], bytes]]:
        """Stop all brokers, and return every key and value of each view, by machine."""
        if self.run_by == "brokers":
            self._take_servers_over()
        for machine in self.all.values():
            if machine.member.is_running:
                assert machine.member.stop() == 0, machine.name
        with self.log() as log:
            log.open(DEADLINE_S)
            return {
                name: level_contents(machine.member.data_dir, log)
                for name, machine in self.all.items()
            }

    def _take_servers_over(self) -> None:
        """End the brokers, and run their servers."""
        for machine in self.all.values():
            machine.member.kill()
        for machine in self.all.values():  # one may have been about to start
            wait_for("the end of its server", partial(_has_ended, machine.nats))
            server = self.nats.server(machine.name)
            server.command = [*server.command, "--store_dir", str(machine.nats.store_dir)]
        self.nats.start()

    def _own_first(self, name: str) -> list[str]:
        """Return the URLs of the NATS servers, that of this machine first, as ``init`` does."""
        own = self.nats.server(name).url
        return [own, *(url for url in self.nats.urls if url != own)]

    def _missing(self) -> str:
        for machine in self.all.values():
            if not machine.nats.is_running or machine.nats.ask("/healthz").get("status") != "ok":
                return f"the NATS server of {machine.name} is not healthy"
        roles = {machine.name: machine.member.role() for machine in self.all.values()}
        if sorted(roles.values()) != ["primary", *["standby"] * (len(roles) - 1)]:
            return f"roles are {roles}"
        primary = self.primary()
        if primary is None:
            return "there is no primary"
        try:
            state = primary.member.state()
        except PenstockError as error:
            return f"the primary does not answer: {error}"
        if self.is_damaged:
            for one in state.members:
                if one.server_health != "whole":
                    return f"the server of {one.node} is {one.server_health or 'not judged'}"
        return "; ".join(problems_of(state))

    def _close(self) -> None:
        try:
            self.members.close()
        finally:
            for machine in self.all.values():
                if self.run_by == "brokers":
                    machine.nats.kill()
            self.nats.close()


def _has_ended(server: NatsServer | ChildServer | EtcdServer) -> bool:
    """End a server, and return whether it has."""
    server.kill()
    return not server.is_running


def wait_for_primary(machines: Machines, other_than: Machine | None = None) -> Machine:
    """Wait for the primary on a machine that is there."""

    def found() -> Machine | None:
        primary = machines.primary()
        return None if primary is other_than else primary

    return wait_for("a primary", found)
