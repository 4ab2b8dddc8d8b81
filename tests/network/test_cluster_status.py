"""What `penstock cluster status` says about a log that is gone, and about servers that are."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.jetstream import nats_client
from penstock.cluster.reading import UNREACHABLE
from penstock.config.cluster import Cluster
from penstock.control.cluster_requests import ClusterState
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from tests.support import etcd_cluster, nats_cluster
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.etcd_cluster import EtcdCluster
from tests.support.members import MemberBroker, Members
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.timeout(1200)

GONE = "the servers of the cluster's log have no log of this name"


@contextlib.contextmanager
def started(members: Members) -> Iterator[MemberBroker]:
    """The primary of the started members; they are ended afterwards."""
    try:
        yield members.start()
    finally:
        members.close()


def publish(member: MemberBroker) -> None:
    with RawClient(member.address, V5) as client:
        client.connect("publisher")
        assert client.publish("t/1", b"x", 1) == reasons.SUCCESS


def told(member: MemberBroker, *sentences: str) -> subprocess.CompletedProcess[str]:
    """What the command prints once it has the sentences."""

    def probe() -> subprocess.CompletedProcess[str] | None:
        run = member.penstock("cluster", "status")
        assert "Traceback" not in run.stderr, run.stderr
        return run if all(sentence in run.stdout for sentence in sentences) else None

    return wait_for(f"{sentences} in the status", probe)


def told_once(member: MemberBroker) -> None:
    """Assert that a log that is gone is one problem, also when a member has a note about it."""

    def probe() -> ClusterState | None:
        state = member.state()
        has_note = any(UNREACHABLE in one.note for one in state.members)
        return state if has_note and not any(one.is_silent for one in state.members) else None

    state = wait_for("a member that cannot read the log", probe)
    (told,) = (one for one in state.problems if UNREACHABLE in one or GONE in one)
    assert GONE in told


@etcd_cluster.needed
def test_an_etcd_server_that_is_down_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    servers = EtcdCluster(tmp_path / "etcd")
    try:
        servers.start()
        members = Members(tmp_path, servers.urls, {"cluster.name": "dead"}, ("a",))
        with started(members) as member:
            servers.servers[0].kill()
            dead = "the server e1 of the cluster's log does not answer"
            run = told(member, dead, "a majority is available")  # after an election, if e1 led
            assert run.returncode == 1
            publish(member)
    finally:
        servers.close()


@nats_cluster.needed
def test_a_log_that_is_gone_is_told_by_both_members_and_not_created_again(tmp_path: Path) -> None:
    with nats_cluster.nats_cluster(tmp_path / "nats") as servers:
        members = Members(tmp_path, servers.urls, {"cluster.name": "gone"}, ("a", "b"))
        with started(members) as primary:
            publish(primary)
            wait_for("a standby", lambda: len(primary.state().members) == 2)
            members.wait_until_level()
            client = nats_client(Cluster(log=servers.urls), "test")
            deadline_s = time.monotonic() + DEADLINE_S
            with contextlib.closing(client):
                client.request("$JS.API.STREAM.DELETE.gone", b"", deadline_s)
                for member in members.all.values():
                    run = told(
                        member,
                        f"{GONE} (JetStream: stream not found (10059))",
                    )
                    assert run.returncode == 1
                    assert "a majority is available" not in run.stdout
                told_once(primary)
                answer = client.request("$JS.API.STREAM.INFO.gone", b"", deadline_s)
                assert b"stream not found" in answer.data
