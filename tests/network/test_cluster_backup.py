"""A backup of a running member, and the cluster of other machines that begins with it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from penstock.control.client import ask_for_backup
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Publish
from penstock.store.manifest import read_manifest
from penstock.stream.client import StreamClient
from tests.support import nats_cluster
from tests.support.cluster_sessions import (
    back_up,
    leave_session,
    publish,
    received,
    recover,
    restore,
    texts,
    wait_until_healthy,
)
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.members import MemberBroker, Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient

pytestmark = [nats_cluster.needed, pytest.mark.timeout(1200)]

NEW = ("d", "e", "f")
LARGE, LARGE_BYTES = 150, 200_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers that keep the logs of all clusters."""
    with nats_cluster.nats_cluster(tmp_path_factory.mktemp("servers")) as made:
        yield made


@contextlib.contextmanager
def cluster(servers: NatsCluster, directory: Path, names: tuple[str, ...]) -> Iterator[Members]:
    """The members of a cluster, not started yet; nothing of it runs afterwards."""
    name = f"{directory.parent.name[-20:]}-{directory.name}"
    settings = {"cluster.name": name, "log.level": "info"}
    members = Members(directory, servers.urls, settings, names)
    try:
        yield members
    finally:
        members.close()


def standby_of(members: Members) -> MemberBroker:
    """A member that stands by."""
    primary = members.wait_for_primary()
    members.wait_for_standbys(primary)
    return next(one for one in members.all.values() if one is not primary)


def retained(member: MemberBroker) -> list[tuple[str, bytes]]:
    """The retained messages below state/."""
    with RawClient(member.address, V5) as client:
        client.connect("looks")
        client.subscribe("state/#")
        packets = [packet for packet in client.settle() if isinstance(packet, Publish)]
        return [(packet.topic, packet.payload) for packet in packets]


def backed_up(servers: NatsCluster, directory: Path) -> Path:
    """Make a backup of a standby of a cluster that goes on after it, and is lost; return it."""
    backup = directory / "backup"
    with cluster(servers, directory / "old", ("a", "b", "c")) as old:
        primary = old.start()
        leave_session(primary)
        publish(primary, range(20))
        with RawClient(primary.address, V5) as client:
            client.connect("keeper")
            client.publish("state/1", b"kept", 1, retain=True)
        standby = standby_of(old)
        assert "offsets 0 to 21 (excluded)" in back_up(standby, backup)
        assert standby.is_running
        publish(primary, range(20, 25))
    return backup


def test_a_backup_of_a_running_standby_is_restored_to_a_cluster_of_other_machines(
    servers: NatsCluster, tmp_path: Path
) -> None:
    backup = backed_up(servers, tmp_path)
    manifest = read_manifest(backup)
    assert manifest is not None
    with cluster(servers, tmp_path / "new", NEW) as new:
        told = restore(new["d"], backup)
        assert (
            f"as it was at {manifest.made_at}: what was acknowledged since then is not in it"
            in told
        )
        assert new.start() is new["d"]
        wait_until_healthy(new)
        new.wait_for_standbys(new["d"])
        with StreamClient("{}:{}".format(*new["e"].stream_address)) as client:
            [stream] = client.streams()
            offsets = client.offsets(stream)
        assert (offsets.earliest, offsets.latest) == (0, 21)
        new["d"].kill()
        second = new.wait_for_primary(other_than=new["d"])
        assert retained(second) == [("state/1", b"kept")]
        publish(second, range(30, 33))
        assert received(second, 23) == texts(range(20)) + texts(range(30, 33))


@pytest.mark.torture("the same where a machine is missing")
def test_a_backup_begins_a_cluster_of_which_one_machine_is_not_there(
    servers: NatsCluster, tmp_path: Path
) -> None:
    backup = backed_up(servers, tmp_path)
    with cluster(servers, tmp_path / "new", NEW) as new:
        told = recover(new["d"], "--from", str(backup))
        assert "begins: the store of epoch" in told
        assert "not known: what f has, which is not heard" in told
        new["d"].start()
        new["e"].start()
        assert new.wait_for_primary() is new["d"]
        assert received(new["d"], 20) == texts(range(20))


def test_a_backup_of_a_standby_has_all_that_was_acknowledged_before_it(
    servers: NatsCluster, tmp_path: Path
) -> None:
    """However far its view is behind when it is asked."""
    with cluster(servers, tmp_path / "behind", ("a", "b")) as members:
        primary = members.start()
        standby = standby_of(members)
        standby.pause()
        with RawClient(primary.address, V5) as client:
            client.connect("writer")
            for _ in range(LARGE):
                assert client.publish("t/1", random.randbytes(LARGE_BYTES)) == 0
        with ThreadPoolExecutor() as pool:  # it is asked before it reads on
            asked = pool.submit(ask_for_backup, standby.data_dir, tmp_path / "backup")
            standby.resume()
            assert asked.result(DEADLINE_S).end == LARGE


def test_a_backup_of_a_standby_is_refused_while_nobody_knows_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    """The servers of the log do not answer; stopped, the member gives what it has."""
    with (
        nats_cluster.nats_cluster(tmp_path / "nats") as own,
        cluster(own, tmp_path / "alone", ("a", "b")) as members,
    ):
        publish(members.start(), range(3))
        standby = standby_of(members)
        for server in own.servers[:2]:
            server.kill()

        directories = map(str, (tmp_path / f"backup-{number}" for number in count()))

        def refusal() -> str:
            told = standby.penstock("store", "backup", next(directories))
            return told.stderr if told.returncode else ""

        assert "nobody knows whether this view has all" in wait_for("a refusal", refusal)
        assert standby.stop() == 0
        assert "offsets 0 to 3 (excluded)" in back_up(standby, tmp_path / "backup")
