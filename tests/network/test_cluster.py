"""A cluster: members on servers of NATS or etcd; the primary is lost, and comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.cluster.connecting import connector_for
from penstock.config.cluster import Cluster
from penstock.control.client import ask
from penstock.control.cluster_requests import HandOver, HandOverStarted
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Disconnect, Publish, Will
from tests.support import etcd_cluster, nats_cluster
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.etcd_cluster import EtcdCluster
from tests.support.members import Members, level_contents
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient

LEASE_S: Final = 20.0


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


def test_a_lost_primary_costs_no_message_and_no_session(
    servers: NatsCluster | EtcdCluster, tmp_path: Path
) -> None:
    members = Members(tmp_path, servers.urls, {"cluster.name": "lost"})
    try:
        first = members.start()
        subscriber = RawClient(first.address, V5)
        subscriber.connect("reader", clean_start=True, expiry_s=3600)
        subscriber.subscribe("t/#")
        subscriber.drop()
        publisher = RawClient(first.address, V5)
        publisher.connect("writer", clean_start=True)
        for number in range(20):
            publisher.publish("t/1", b"%d" % number, qos=1 + number % 2)
        publisher.drop()
        first.kill()
        second = members.wait_for_primary(other_than=first)
        first.start()
        again = RawClient(second.address, V5)
        answer = again.connect("reader", clean_start=False, expiry_s=3600)
        assert answer.session_present
        assert again.take_payloads(20) == [b"%d" % number for number in range(20)]
        again.drop()
        members.wait_until_level()
        wait_for("the first as a standby", lambda: first.role() == "standby")
        for member in members.all.values():
            assert member.stop() == 0
        log = connector_for(Cluster(log=servers.urls, name="lost")).log("test")
        try:
            log.open(DEADLINE_S)
            views = [level_contents(member.data_dir, log) for member in members.all.values()]
        finally:
            log.close()
        assert views[0] == views[1] == views[2]
    finally:
        members.close()


def test_a_primary_hands_over_without_waiting_for_the_lease(
    servers: NatsCluster | EtcdCluster, tmp_path: Path
) -> None:
    settings = {"cluster.name": "over", "cluster.lease_s": 50}  # longer than a test waits
    members = Members(tmp_path, servers.urls, settings, ("a", "b"))
    try:
        first = members.start()
        (second,) = (member for member in members.all.values() if member is not first)
        publisher = RawClient(first.address, V5)
        publisher.connect("writer")
        publisher.publish("t/1", b"before")
        members.wait_for_standbys(first)
        told = ask(first.data_dir, HandOver(), HandOverStarted)
        assert told == HandOverStarted(second.name, 1)
        assert members.wait_for_primary(other_than=first) is second
        after = RawClient(second.address, V5)
        after.connect("writer")
        after.publish("t/1", b"after")
        wait_for("the first as a standby", lambda: first.role() == "standby")
        after.drop()
        publisher.drop()
    finally:
        members.close()


def test_a_primary_that_is_told_to_end_hands_over_and_refers_its_clients(
    servers: NatsCluster | EtcdCluster, tmp_path: Path
) -> None:
    """As `penstock cluster switch` does: a restart of the primary's service costs no lease."""
    settings = {"cluster.name": "term", "cluster.lease_s": LEASE_S}
    members = Members(tmp_path, servers.urls, settings, ("a", "b"))
    try:
        first = members.start()
        (second,) = (member for member in members.all.values() if member is not first)
        members.wait_for_standbys(first)
        with RawClient(first.address, V5) as client:
            client.connect("stays", clean_start=True, expiry_s=3600)
            client.publish("t/1", b"before")
            first.process.send_signal(signal.SIGTERM)
            told = client.expect(Disconnect)
            assert told.reason_code == reasons.USE_ANOTHER_SERVER
            assert told.properties is not None
            assert told.properties.server_reference == "{}:{}".format(*second.address)
        wait_for("the next primary", lambda: second.role() == "primary", 0.9 * LEASE_S)
        assert first.process.wait(DEADLINE_S) == 0
        with RawClient(second.address, V5) as client:
            assert client.connect("stays", clean_start=False, expiry_s=3600).session_present
            client.publish("t/1", b"after")
        second.process.send_signal(signal.SIGTERM)  # nobody is left to take over
        assert second.process.wait(DEADLINE_S) == 0
    finally:
        members.close()


def test_a_will_comes_once_at_qos_2_and_may_come_again_at_qos_1_after_a_failover(
    servers: NatsCluster | EtcdCluster, tmp_path: Path
) -> None:
    """It is published and deleted in one commit. One whose client was connected to the lost primary
    comes when the next one serves; one that was delivered and not acknowledged comes again."""
    members = Members(tmp_path, servers.urls, {"cluster.name": "wills"}, ("a", "b"))
    try:
        first = members.start()
        members.wait_for_standbys(first)
        clients = {name: RawClient(first.address, V5) for name in ("once", "again", "w1", "w2")}
        for name, client in clients.items():
            will = Will(f"wills/{name}", name.encode(), 2, False) if name[0] == "w" else None
            client.connect(name, clean_start=True, expiry_s=3600 if will is None else 0, will=will)
        assert clients["once"].subscribe("wills/#", qos=2) == [2]
        assert clients["again"].subscribe("wills/#", qos=1) == [1]
        clients["w1"].drop()
        assert clients["once"].take_payloads(1) == [b"w1"]
        assert not clients["again"].expect(Publish).dup  # and no PUBACK
        clients["once"].publish("t", b"so the acknowledgement is committed", 1)
        first.kill()
        for name in ("once", "again", "w2"):
            clients[name].drop()
        second = members.wait_for_primary(other_than=first)
        seen: dict[str, list[tuple[bytes, bool]]] = {}
        for name in ("once", "again"):
            with RawClient(second.address, V5) as client:
                assert client.connect(name, clean_start=False, expiry_s=3600).session_present
                count = 1 if name == "once" else 2
                taken = [client.take() for _ in range(count)]
                seen[name] = [(message.payload, message.dup) for message in taken]
                assert [one for one in client.settle() if isinstance(one, Publish)] == []
        assert seen["once"] == [(b"w2", False)]
        assert seen["again"] == [(b"w1", True), (b"w2", False)]
    finally:
        members.close()
