"""A machine is added to a cluster that runs, by the files of `penstock cluster init` and `add`."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from penstock.control.cluster_requests import ClusterState, MemberState
from penstock.errors import PenstockError
from tests.support.broker import SERVE
from tests.support.cluster_directories import (
    MACHINES,
    cluster_directories,
    needs_nats_server,
    run_cluster,
)
from tests.support.cluster_sessions import leave_session, publish, received, texts
from tests.support.deadline import wait_for
from tests.support.members import MemberBroker
from tests.support.networks import LOOPBACK
from tests.support.wall_clock import needs_the_kernels_clock

pytestmark = [needs_nats_server, needs_the_kernels_clock, pytest.mark.timeout(1200)]

ADDED: Final = {"d": "127.0.0.4", "e": "127.0.0.5"}
_MEMBERS: Final = re.compile("^members = .*$", re.MULTILINE)
WITHIN_S: Final = 120.0  # a first election, seeding, and servers that begin


class Directories:
    """The directories of a cluster's machines, and the brokers that run in them."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.directory = directory
        self.brokers: dict[str, MemberBroker] = {}
        self._home = home

    def start(self, name: str, host: str) -> MemberBroker:
        """Start the broker of a machine in its directory, as the files' README says."""
        machine = self.directory / name
        home = self._home / name
        home.mkdir()
        place = dataclasses.replace(LOOPBACK, host=host, command=("env", "-C", str(machine)))
        broker = MemberBroker(name, home, {}, (*SERVE, "--config", "penstock.toml"), place)
        for setting, (_, port) in (
            ("ADVERTISE", broker.address),
            ("STREAM_ADVERTISE", broker.stream_address),
        ):
            broker.set_environment(f"PENSTOCK_CLUSTER__{setting}", f"{host}:{port}")
        self.brokers[name] = broker
        broker.start()
        return broker

    def write(self, names: str, replicas: str = "") -> None:
        """Write what `penstock cluster add` says into the settings of each machine."""
        for config in self.directory.glob("*/penstock.toml"):
            text = config.read_text()
            config.write_text(
                _MEMBERS.sub(names if "\nreplicas" in text else names + replicas, text)
            )

    def restart(self) -> None:
        """Restart one after the other, the primary last."""
        for broker in sorted(self.brokers.values(), key=lambda one: one.role() == "primary"):
            assert broker.stop() == 0
            broker.start()
            wait_for(f"{broker.name} again", broker.role, WITHIN_S)
            self.wait_until_whole()

    def primary(self) -> MemberBroker:
        """The primary."""
        return wait_for(
            "a primary",
            lambda: next((one for one in self.brokers.values() if one.role() == "primary"), None),
            WITHIN_S,
        )

    def state(self) -> ClusterState:
        """The cluster as its primary sees it."""
        return self.primary().state()

    def member(self, name: str) -> MemberState | None:
        """What the primary knows of a member."""
        return next((one for one in self.state().members if one.node == name), None)

    def wait_until_whole(self) -> None:
        """Wait until one is the primary, all others stand by, and all servers are whole or
        spare."""

        def is_whole() -> bool:
            with contextlib.suppress(PenstockError):
                state = self.state()
                roles = sorted(one.role for one in state.members)
                health = {one.server_health for one in state.members}
                others = len(self.brokers) - 1
                return roles == ["primary", *["standby"] * others] and health <= {"whole", "spare"}
            return False

        wait_for("a whole cluster", is_whole, WITHIN_S)


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Directories]:
    """Three machines that run, and a session for which messages wait."""
    with cluster_directories(tmp_path, spare_hosts=tuple(ADDED.values())) as directory:
        made = Directories(directory, tmp_path)
        try:
            for name, host in MACHINES.items():
                made.start(name, host)
            made.wait_until_whole()
            leave_session(made.primary())
            publish(made.primary(), range(20))
            yield made
        finally:
            for broker in made.brokers.values():
                broker.close()


def add(directories: Directories, name: str) -> str:
    """Add a machine and start it; return what the command says of the others."""
    told = run_cluster("add", str(directories.directory), f"{name}={ADDED[name]}")
    directories.start(name, ADDED[name])
    directories.wait_until_whole()
    return told


def lines_of(told: str) -> Mapping[str, str]:
    """The settings in what the command printed, by name."""
    lines = [line.partition("#")[0].strip() for line in told.splitlines() if " = " in line]
    return {line.partition(" = ")[0]: line for line in lines}


def test_a_fourth_machine_is_a_standby_and_its_server_is_left_alone(
    directories: Directories,
) -> None:
    """The log keeps three copies: the fourth server has none, and is not filled anew for that."""
    told = add(directories, "d")
    added = directories.member("d")
    assert added is not None
    assert (added.role, added.server_health, added.server_note) == ("standby", "spare", "")
    directories.write(lines_of(told)["members"])
    directories.restart()
    primary = directories.primary()
    if primary.name != "d":
        told_switch = primary.penstock("cluster", "switch", "d")
        assert told_switch.returncode == 0, told_switch.stderr
    wait_for("d to be the primary", lambda: directories.brokers["d"].role() == "primary", WITHIN_S)
    assert received(directories.brokers["d"], 20) == texts(range(20))


@pytest.mark.torture("eight restarts more")
def test_a_cluster_of_three_becomes_one_of_five_that_outlives_two(
    directories: Directories,
) -> None:
    add(directories, "d")
    lines = lines_of(add(directories, "e"))
    directories.write(lines["members"], "\n" + lines["replicas"])
    directories.restart()

    def has_five_copies() -> bool:
        servers = directories.state().servers
        return len(servers) == 5 and all(one.is_current for one in servers)

    wait_for("five copies", has_five_copies, WITHIN_S)
    for name in ("a", "b"):
        directories.brokers.pop(name).close()
    publish(directories.primary(), range(20, 25))
    assert received(directories.primary(), 25) == texts(range(25))
