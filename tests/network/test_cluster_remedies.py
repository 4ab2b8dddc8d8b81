"""What a member says an operator is to do, done: afterwards the cluster is whole, and nothing that
was acknowledged is missing. Others are in the tests of the commands: `recover`, `reseed`, `remove`.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from penstock.protocol.kinds import V5
from penstock.store.database import STORE_DIRECTORY
from tests.support import nats_cluster
from tests.support.cluster_sessions import (
    is_told,
    leave_session,
    notes,
    publish,
    received,
    recover,
    texts,
    wait_until_healthy,
)
from tests.support.damage_faults import flip_bit
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.machines import Machines
from tests.support.members import MemberBroker, Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient

pytestmark = [nats_cluster.needed, pytest.mark.timeout(1200)]

BY_HAND_S = 150.0
LARGE, LARGE_BYTES = 400, 40_000


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[NatsCluster]:
    """Three servers that keep the log."""
    with nats_cluster.nats_cluster(tmp_path / "nats") as made:
        yield made


@contextlib.contextmanager
def cluster(
    servers: NatsCluster, directory: Path, more: Mapping[str, object] | None = None
) -> Iterator[Members]:
    """The members of a cluster, not started yet; nothing of it runs afterwards."""
    settings: dict[str, object] = {"cluster.name": "remedies", "log.level": "info", **(more or {})}
    members = Members(directory, servers.urls, settings, ("a", "b"))
    try:
        yield members
    finally:
        members.close()


def alone(name: str, directory: Path, numbers: range) -> None:
    """Make a data directory that a single broker has used: a history of its own."""
    home = directory / f"alone-{name}"
    home.mkdir()
    broker = MemberBroker(name, home, {"listener.allow_anonymous": "true"})
    try:
        broker.start()
        wait_for("the broker", lambda: broker.role() == "primary")
        leave_session(broker)
        publish(broker, numbers)
        assert broker.stop() == 0
    finally:
        broker.close()


def test_data_of_the_logs_servers_that_are_put_back_are_gone_on_with(
    servers: NatsCluster, tmp_path: Path
) -> None:
    """All three came up without their disks: "put back the data"."""
    with cluster(servers, tmp_path) as members:
        primary = members.start()
        leave_session(primary)
        publish(primary, range(20))
        members.wait_until_level()
        aside = {server.name: server.store_dir.with_name("unmounted") for server in servers.servers}
        for server in servers.servers:
            server.kill()
            server.store_dir.rename(aside[server.name])
        servers.start()
        for member in members.all.values():
            wait_for("the lost log", partial(is_told, member, "Put back the data of its servers"))
        for server in servers.servers:
            server.kill()
            shutil.rmtree(server.store_dir)
            aside[server.name].rename(server.store_dir)
        servers.start()
        again = wait_for("a primary that is told no problem", lambda: untroubled(members))
        publish(again, range(20, 25))
        assert received(again, 25) == texts(range(25))
        wait_until_healthy(members)


def untroubled(members: Members) -> MemberBroker | None:
    """The primary, if its state has no problem."""
    primary = members.primary()
    return None if primary is None or notes(primary) else primary


def test_servers_that_are_missing_for_a_majority_are_started(
    servers: NatsCluster, tmp_path: Path
) -> None:
    with cluster(servers, tmp_path) as members:
        primary = members.start()
        leave_session(primary)
        publish(primary, range(20))
        lost = servers.servers[:2]
        for server in lost:
            server.kill()
        wait_for(
            "the sentence",
            lambda: "Start the servers" in notes(primary) or "do not answer" in notes(primary),
        )
        for server in lost:
            server.start()
        again = wait_for("a primary that is told no problem", lambda: untroubled(members))
        publish(again, range(20, 25))
        assert received(again, 25) == texts(range(25))


def test_one_of_two_stores_of_different_histories_begins_the_log_by_an_operators_word(
    servers: NatsCluster, tmp_path: Path
) -> None:
    """Each of two machines had a broker of its own; the other's store is kept beside."""
    for name, numbers in (("a", range(20)), ("b", range(100, 105))):
        alone(name, tmp_path, numbers)
    with cluster(servers, tmp_path) as members:
        for member in members.all.values():
            (tmp_path / f"alone-{member.name}" / "data").rename(member.data_dir)
            member.start()
        for name, other in (("a", "b"), ("b", "a")):
            sentence = f"the stores of this member and of {other} are of different histories"
            wait_for("both names", partial(is_told, members[name], sentence))
        assert members.primary() is None
        assert members["a"].stop() == 0
        assert "given up: the store of b, of another history" in recover(members["a"])
        members["a"].start()
        assert members.wait_for_primary() is members["a"]
        wait_for("the refusal of b", lambda: not members["b"].is_running)
        wait_until_logged(members["b"], "'penstock cluster reseed' replaces it")
        told = members["b"].penstock("cluster", "reseed")
        assert told.returncode == 0, told.stderr
        assert list(members["b"].data_dir.glob(f"{STORE_DIRECTORY}.kept-*"))
        members["b"].start()
        wait_until_healthy(members)
        assert received(members["a"], 20) == texts(range(20))


def test_a_log_of_members_that_are_not_named_is_begun_by_an_operator(
    servers: NatsCluster, tmp_path: Path
) -> None:
    with cluster(servers, tmp_path, {"cluster.members": "[]"}) as members:
        for member in members.all.values():
            member.start()
        sentence = "name all machines in cluster.members, or begin the log with"
        wait_for("the sentence", partial(is_told, members["a"], sentence))
        assert members["a"].stop() == 0
        recover(members["a"], "--empty")
        members["a"].start()
        assert members.wait_for_primary() is members["a"]
        publish(members["a"], range(3))
        wait_until_healthy(members)


def test_a_view_is_replaced_by_that_of_the_member_that_an_operator_names(
    servers: NatsCluster, tmp_path: Path
) -> None:
    """As the line says that names no other member: with --from."""
    with cluster(servers, tmp_path) as members:
        primary = members.start()
        other = next(one for one in members.all.values() if one is not primary)
        publish(primary, range(3))
        members.wait_until_level()
        assert other.stop() == 0
        shutil.rmtree(other.data_dir / STORE_DIRECTORY)
        wait_for("the primary's stream service", lambda: "stream service ready" in primary.log())
        host, port = primary.stream_address
        told = other.penstock("cluster", "reseed", "--from", f"{host}:{port}")
        assert told.returncode == 0, told.stderr
        other.start()
        wait_until_healthy(members)


def test_a_machine_with_the_name_of_another_is_given_its_own(
    servers: NatsCluster, tmp_path: Path
) -> None:
    with cluster(servers, tmp_path) as members:
        primary = members.start()
        members.wait_for_standbys(primary)
        home = tmp_path / "namesake"
        home.mkdir()
        settings = {
            "cluster.name": "remedies",
            "cluster.log": "[" + ",".join(f'"{url}"' for url in servers.urls) + "]",
            "listener.allow_anonymous": "true",
        }
        twin = MemberBroker(primary.name, home, settings)
        try:
            twin.start()
            sentence = f"another machine is named {primary.name}, too"
            wait_for("the sentence", partial(is_told, primary, sentence))
            assert twin.stop() == 0
            twin.set_environment("PENSTOCK_CLUSTER__NODE", "c")
            twin.start()
            wait_for("a standby of its own name", lambda: is_standby(primary, "c"))
            wait_for("no problem", lambda: not notes(primary), 90)
            publish(primary, range(3))
        finally:
            twin.close()


def is_standby(primary: MemberBroker, name: str) -> bool:
    """Whether the primary hears a standby of this name."""
    return any(one.node == name and one.role == "standby" for one in primary.state().members)


@pytest.mark.torture("more commits than the log keeps for a member that is away")
def test_a_log_that_is_not_trimmed_is_when_the_member_that_is_away_is_started(
    servers: NatsCluster, tmp_path: Path
) -> None:
    with cluster(servers, tmp_path, {"cluster.log_entries_max": 1000}) as members:
        primary = members.start()
        members.wait_for_standbys(primary)
        other = next(one for one in members.all.values() if one is not primary)
        other.kill()
        with RawClient(primary.address, V5) as client:
            client.connect("writer")
            for _ in range(1100):
                client.publish("t/1", b"x")
        wait_for("the sentence", partial(is_told, primary, "start the members that are away"))
        other.start()
        wait_until_healthy(members)
        assert primary.state().first > 1


@pytest.mark.torture("a server that the broker does not run: judged for a minute")
def test_a_damaged_server_that_the_broker_does_not_run_is_whole_again_when_the_advice_is_followed(
    tmp_path: Path,
) -> None:
    with Machines(tmp_path, run_by="test") as machines:
        machines.wait_until_healthy()
        primary = wait_for("a primary", machines.primary)
        leader = wait_for("a leader", machines.log_leader)
        damaged = next(one for one in machines.all.values() if one not in (primary, leader))
        damaged.member.pause()  # the log keeps what its view lacks
        with RawClient(primary.member.address, V5) as client:
            client.connect("writer")
            for _ in range(LARGE):  # more than after what the server compacts its Raft log
                assert client.publish("t/1", random.randbytes(LARGE_BYTES)) == 0
        damaged.nats.kill()
        flip_bit(min(damaged.nats.store_dir.glob("**/streams/*/msgs/*.blk")))
        damaged.nats.start()
        damaged.member.resume()
        sentence = "stop it, move its data directory aside, and start it again"
        wait_for("the advice", partial(is_told, primary.member, sentence), BY_HAND_S)
        damaged.nats.kill()
        damaged.nats.store_dir.rename(damaged.nats.store_dir.with_name("aside"))
        damaged.nats.start()
        wait_for("no problem", lambda: not notes(primary.member), BY_HAND_S)
        publish(primary.member, range(5))
