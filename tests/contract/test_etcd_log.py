"""A server of etcd whose data are not those of the others: what it alone took is not in the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cluster.etcd import EtcdLog
from penstock.cluster.log import AppendRefused, AppendUnknown, LogUnavailable
from penstock.cluster.record import Position
from penstock.cluster.writer import LogWriter
from penstock.config.cluster import Cluster
from tests.support import etcd_cluster
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.etcd_cluster import EtcdCluster, say_another_end
from tests.support.patient_log import PatientLog

pytestmark = etcd_cluster.needed

ENTRIES = 9
CALL_S = 3.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    servers = EtcdCluster(tmp_path)
    try:
        servers.start()
        servers.wait_until_whole()
        yield servers
    finally:
        servers.close()


def log_of(cluster: EtcdCluster, end: int = 0) -> EtcdLog:
    """A log whose calls go to a server by whose data the log ends there."""
    log = EtcdLog(Cluster(log=cluster.urls, name="test"))
    log.open(DEADLINE_S)

    def is_there() -> bool:
        if log.bounds(CALL_S).last != end:
            log.leave_server()
            return False
        return True

    wait_for("the server that says so", is_there)
    return log


def test_an_entry_that_one_server_alone_took_is_not_acknowledged(cluster: EtcdCluster) -> None:
    """A storm found it: a thousand commits were acknowledged that two of three servers refused."""
    other = cluster.servers[2]
    log = log_of(cluster)
    for sequence in range(ENTRIES):
        PatientLog(log).append(b"entry %d" % sequence, sequence, DEADLINE_S)
    log.close()
    say_another_end(other, "test", ENTRIES, ENTRIES + 1)
    cluster.wait_until_whole()

    log = log_of(cluster, ENTRIES + 1)
    with pytest.raises(AppendUnknown, match=r"[01] of 3 etcd servers has the entry 11"):
        log.append(b"never", ENTRIES + 1, CALL_S)
    assert log.bounds(CALL_S).last == ENTRIES  # another one's
    log.append(b"next", ENTRIES, CALL_S)
    log.append(b"and next", ENTRIES + 1, CALL_S)
    log.close()


def test_an_append_is_not_settled_by_the_server_that_alone_has_it(cluster: EtcdCluster) -> None:
    """A storm found it: an append that was not confirmed was made again, and found at its place."""
    log = log_of(cluster)
    for sequence in range(ENTRIES):
        PatientLog(log).append(b"entry %d" % sequence, sequence, DEADLINE_S)
    log.close()
    say_another_end(cluster.servers[2], "test", ENTRIES, ENTRIES + 1)
    cluster.wait_until_whole()

    with (
        closing(log_of(cluster, ENTRIES + 1)) as log,
        pytest.raises(LogUnavailable, match="takes no records"),
    ):
        LogWriter(log, 4 * CALL_S).claim(Position(ENTRIES + 1), b"")
    with (
        closing(log_of(cluster, ENTRIES + 2)) as log,  # of the server that took it
        pytest.raises(LogUnavailable, match=r"[01] of 3 etcd servers has the entry 11"),
    ):
        log.entry_at(ENTRIES + 2, CALL_S)


def test_a_server_that_lacks_what_the_others_have_is_left(cluster: EtcdCluster) -> None:
    other = cluster.servers[2]
    log = log_of(cluster)
    for sequence in range(ENTRIES):
        PatientLog(log).append(b"entry %d" % sequence, sequence, DEADLINE_S)
    say_another_end(other, "test", ENTRIES, ENTRIES - 1)
    cluster.wait_until_whole()
    log.close()

    log = log_of(cluster, ENTRIES - 1)
    with pytest.raises(AppendRefused, match="the log ends at 8, not at 9"):
        log.append(b"next", ENTRIES, CALL_S)

    def is_appended() -> bool:
        try:
            log.append(b"next", ENTRIES, CALL_S)
        except (AppendRefused, LogUnavailable):
            return log.bounds(CALL_S).last == ENTRIES + 1
        return True

    wait_for("another server", is_appended)
    log.close()


def test_a_server_is_not_removed_while_another_one_is_away(cluster: EtcdCluster) -> None:
    """What is said of a damaged server begins with `etcdctl member remove`, because etcd refuses
    it then: stopped first, that server would have taken the majority with it."""
    damaged, away = cluster.servers[1:]
    away.kill()
    assert not cluster.fill_anew(damaged.name), "the operator sees it"
    assert not any(cluster.remove(damaged) for _ in range(3)), "and etcd does"
    assert cluster.servers[0].is_healthy(), "the two that are left still agree"
    away.start()
    cluster.wait_until_whole()
    assert cluster.fill_anew(damaged.name)
    cluster.wait_until_whole()
