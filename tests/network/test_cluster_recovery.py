"""A cluster whose log is lost, or whose members have other stores than the log: nobody begins a new
history without an operator's word, and each remedy that a message names works."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.cluster.etcd import etcd_client
from penstock.cluster.etcd_client import to_base64
from penstock.cluster.jetstream import nats_client
from penstock.config.cluster import Cluster
from penstock.store.backup import back_up_offline
from penstock.store.database import STORE_DIRECTORY
from tests.support import etcd_cluster, nats_cluster
from tests.support.cluster_sessions import (
    is_told,
    leave_session,
    notes,
    publish,
    received,
    recover,
    restore,
    texts,
    wait_until_healthy,
)
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.etcd_cluster import EtcdCluster
from tests.support.members import Members
from tests.support.nats_cluster import NatsCluster

pytestmark = pytest.mark.timeout(1200)

LEVEL: dict[str, object] = {"log.level": "info"}


@pytest.fixture(
    params=[
        pytest.param(NatsCluster, marks=nats_cluster.needed),
        pytest.param(
            EtcdCluster,
            marks=[etcd_cluster.needed, pytest.mark.torture("the same on another kind of server")],
        ),
    ],
    scope="module",
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NatsCluster | EtcdCluster]:
    """Three servers that keep the log."""
    made: NatsCluster | EtcdCluster = request.param(tmp_path_factory.mktemp("servers"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def members(servers: NatsCluster | EtcdCluster, tmp_path: Path) -> Iterator[Members]:
    """Three members with equal views, and a session for which twenty messages wait."""
    made = Members(tmp_path, servers.urls, {**LEVEL, "cluster.name": tmp_path.name[-32:]})
    try:
        first = made.start()
        leave_session(first)
        publish(first, range(20))
        made.wait_until_level()
        yield made
    finally:
        made.close()


def lose_log(servers: NatsCluster | EtcdCluster, members: Members) -> None:
    """Remove the log of the members from its servers."""
    name = members["a"].data_dir.parent.parent.name[-32:]
    settings = Cluster(log=servers.urls, name=name)
    ends_s = time.monotonic() + DEADLINE_S
    if isinstance(servers, NatsCluster):
        with contextlib.closing(nats_client(settings, "test")) as nats:
            nats.request(f"$JS.API.STREAM.DELETE.{name}", b"", ends_s)
    else:
        keys = {"key": to_base64(f"{name}/".encode()), "range_end": to_base64(f"{name}0".encode())}
        with contextlib.closing(etcd_client(settings)) as etcd:
            etcd.change("/v3/kv/deleterange", keys, ends_s)


def lose_all(members: Members) -> None:
    """Kill all members, whose views are level."""
    members.wait_until_level()
    for member in members.all.values():
        member.kill()


def test_an_empty_member_begins_no_history_while_another_one_has_a_store(
    servers: NatsCluster | EtcdCluster, members: Members
) -> None:
    """The log is lost, and the store of one member: the others have all that was acknowledged."""
    lose_all(members)
    lose_log(servers, members)
    shutil.rmtree(members["a"].data_dir)
    for member in members.all.values():
        member.start()
    wait_for(
        "the reason of the empty member",
        lambda: "a: the view of b has come to entry" in notes(members["a"]),
    )
    assert "'penstock cluster recover' on its machine" in notes(members["a"])
    wait_for("a lost log", lambda: "the view has come to entry" in notes(members["b"]))
    assert members.primary() is None
    assert members["b"].penstock("cluster", "status").returncode == 1
    refused = members["b"].penstock("cluster", "recover")
    assert "runs: stop it first" in refused.stderr

    assert members["b"].stop() == 0
    told = recover(members["b"])
    assert "the log is empty" in told
    assert "a has no store, and takes a copy" in told
    assert "c has nothing that this store lacks" in told
    members["b"].start()
    assert members.wait_for_primary() is members["b"]
    wait_until_healthy(members)
    (kept,) = members["c"].data_dir.glob(f"{STORE_DIRECTORY}.kept-*")
    wait_until_logged(members["c"], str(kept))
    publish(members["b"], range(20, 25))
    members["b"].kill()
    again = members.wait_for_primary(other_than=members["b"])
    publish(again, range(25, 30))
    assert received(again, 30) == texts(range(30))


@pytest.mark.torture("another way back, by real processes")
def test_a_log_that_is_lost_under_its_members_is_begun_anew_by_an_operator(
    servers: NatsCluster | EtcdCluster, members: Members
) -> None:
    """And the primary, which could not write, ends as one when it hears of the new history."""
    former = members.wait_for_primary()
    other = members["a"] if former is not members["a"] else members["b"]
    lose_log(servers, members)
    assert other.stop() == 0
    recover(other)
    other.start()
    assert members.wait_for_primary(other_than=former) is other
    wait_until_healthy(members)
    publish(other, range(20, 25))
    assert received(other, 25) == texts(range(25))


def test_a_second_word_is_refused_while_the_first_begins(
    servers: NatsCluster | EtcdCluster, members: Members
) -> None:
    """A second operator, or one who does not wait: the remedy that is named works."""
    former = members.wait_for_primary()
    first, second = (one for one in members.all.values() if one is not former)
    lose_log(servers, members)
    former.kill()
    assert first.stop() == second.stop() == 0
    recover(first)
    first.start()
    assert members.wait_for_primary(other_than=former) is first
    publish(first, range(20, 25))
    for options in ((), ("--yes",)):
        refused = second.penstock("cluster", "recover", *options)
        assert refused.returncode == 1, refused.stdout
        assert f"{first.name} is the primary, at entry" in refused.stderr
    second.start()
    former.start()
    wait_until_healthy(members)
    assert received(first, 25) == texts(range(25))


def test_a_new_history_is_not_begun_on_a_log_that_went_on_since_the_word(
    members: Members,
) -> None:
    """The others were quicker, and have acknowledged more; the remedy that is named works."""
    former = members.wait_for_primary()
    late, *others = sorted(members.all.values(), key=lambda one: one is former)
    for member in members.all.values():
        assert member.stop() == 0
    recover(late)
    for member in others:
        member.start()
    primary = members.wait_for_primary()
    publish(primary, range(20, 25))
    with contextlib.suppress(AssertionError):  # it ends before it is ready, or soon after
        late.start()
    assert late.process.wait(DEADLINE_S) == 1
    assert "the log has gone on since 'penstock cluster recover' was told so" in late.log()
    told = late.penstock("cluster", "reseed")
    assert told.returncode == 0, told.stderr
    late.start()
    wait_until_healthy(members)
    assert received(primary, 25) == texts(range(25))


@pytest.mark.torture("another way back, by real processes")
def test_a_view_that_the_new_history_lacks_is_replaced_by_an_operator_alone(
    servers: NatsCluster | EtcdCluster, members: Members
) -> None:
    """The operator recovers from a store that is not the newest, and is told so."""
    primary = members.wait_for_primary()
    behind = members["a"] if primary is not members["a"] else members["b"]
    assert behind.stop() == 0
    publish(primary, range(20, 25))
    members.wait_until_level()
    lose_log(servers, members)
    told = recover(behind)
    assert f"of the view of {primary.name}, which is newer than this store" in told
    behind.start()
    assert members.wait_for_primary(other_than=primary) is behind
    newer = [member for member in members.all.values() if member is not behind]
    for member in newer:
        wait_for("its refusal", partial(is_told, member, "penstock cluster reseed"))
        ended = member.stop()
        assert ended == 0 or member is primary, "which may have ended: it cannot write"
        told_again = member.penstock("cluster", "reseed")
        assert told_again.returncode == 0, told_again.stderr
        assert "the old store is kept as" in told_again.stdout
        member.start()
    wait_until_healthy(members)
    assert received(behind, 20) == texts(range(20))


@pytest.mark.torture("another way back, by real processes")
def test_a_restored_backup_begins_the_log_when_all_others_are_empty(
    servers: NatsCluster | EtcdCluster, members: Members
) -> None:
    lose_all(members)
    backup = members["a"].data_dir.parent / "backup"
    back_up_offline(members["b"].data_dir, backup)
    lose_log(servers, members)
    for member in members.all.values():
        shutil.rmtree(member.data_dir)
    restore(members["c"], backup)
    for member in members.all.values():
        member.start()
    assert members.wait_for_primary() is members["c"]
    assert received(members["c"], 20) == texts(range(20))
    wait_until_healthy(members)


def test_a_restored_backup_does_not_begin_a_log_that_other_members_have_views_of(
    servers: NatsCluster | EtcdCluster, members: Members
) -> None:
    """A member with a backup is no newer than one that never lost its store."""
    primary = members.wait_for_primary()
    lose_all(members)
    backup = members["a"].data_dir.parent / "backup"
    back_up_offline(members["c"].data_dir, backup)
    for member in members.all.values():
        member.start()
    primary = members.wait_for_primary()
    publish(primary, range(20, 25))
    lose_all(members)
    lose_log(servers, members)
    shutil.rmtree(members["c"].data_dir)
    restore(members["c"], backup)
    for member in members.all.values():
        member.start()
    wait_for("its reason", lambda: "c: the view of a has come to entry" in notes(members["c"]))
    assert members.primary() is None
    assert members["a"].stop() == 0
    assert "given up: the store of c, of another history" in recover(members["a"])
    members["a"].start()
    assert members.wait_for_primary() is members["a"]
    wait_for("the refusal", lambda: not members["c"].is_running)
    wait_until_logged(members["c"], "'penstock cluster reseed' replaces it")
    assert members["c"].penstock("cluster", "reseed").returncode == 0
    members["c"].start()
    wait_until_healthy(members)
    assert received(members["a"], 25) == texts(range(25))


@pytest.mark.torture("another way back, by real processes")
def test_a_backup_begins_a_new_history_when_all_views_are_gone(members: Members) -> None:
    """The log is there, and cannot be made into views: `--from` names the backup."""
    lose_all(members)
    backup = members["a"].data_dir.parent / "backup"
    back_up_offline(members["b"].data_dir, backup)
    for member in members.all.values():
        shutil.rmtree(member.data_dir)
    told = recover(members["a"], "--from", str(backup))
    assert "begins: the store of epoch" in told
    for member in members.all.values():
        member.start()
    assert members.wait_for_primary() is members["a"]
    assert received(members["a"], 20) == texts(range(20))
    wait_until_healthy(members)


def test_a_new_cluster_begins_when_all_its_members_are_heard(
    servers: NatsCluster | EtcdCluster, tmp_path: Path
) -> None:
    """Or when an operator says that one of them is gone."""
    members = Members(tmp_path, servers.urls, {**LEVEL, "cluster.name": "new"})
    try:
        members["a"].start()
        members["b"].start()
        wait_for("the wait for c", lambda: "waits for c" in notes(members["a"]))
        assert members.primary() is None
        assert members["a"].stop() == 0
        refused = members["a"].penstock("cluster", "recover", "--yes")
        assert "or begin with nothing: --empty" in refused.stderr
        assert "not known: what c has, which is not heard" in recover(members["a"], "--empty")
        members["a"].start()
        assert members.wait_for_primary() is members["a"]
        publish(members["a"], range(3))
        members["c"].start()
        wait_until_healthy(members)
    finally:
        members.close()
