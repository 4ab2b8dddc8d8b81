"""Readers of a cluster: they name all members, and lose none of its messages with the primary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.reader_requests import Lease
from penstock.protocol.kinds import V5
from penstock.stream.client import StreamClient
from tests.support.deadline import wait_for
from tests.support.members import Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers that keep the log."""
    servers = NatsCluster(tmp_path_factory.mktemp("nats"))
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


def publish(address: tuple[str, int], numbers: range) -> None:
    with RawClient(address, V5) as publisher:
        publisher.connect("writer")
        for number in numbers:
            publisher.publish("t/1", b"%d" % number, qos=1)


def test_a_reader_and_its_lease_outlive_the_primary(nats: NatsCluster, tmp_path: Path) -> None:
    members = Members(tmp_path, nats.urls, {"cluster.name": "read"})
    try:
        first = members.start()
        publish(first.address, range(20))
        places = [member.stream_address for member in members.all.values()]
        places.sort(key=lambda place: place != first.stream_address)
        server = ",".join(f"{host}:{port}" for host, port in places)
        with StreamClient(server, 120) as client:
            log = client.offsets("messages")
            lease = Lease("group", "messages", (), log.epoch, log.latest, 600.0)
            assert client.lease(lease).offset == log.latest
            first.kill()
            assert client.offsets("messages").latest >= log.latest
            rows = _payloads(client, log.epoch, log.latest)
            assert rows == [b"%d" % number for number in range(20)]
            second = members.wait_for_primary(other_than=first)
            publish(second.address, range(20, 30))
            assert [reader.group for reader in client.readers()] == ["group"]
            lease = Lease("group", "messages", (), log.epoch, log.latest + 1, 600.0)
            assert client.lease(lease).offset == log.latest + 1
            wait_for("the later messages", lambda: _payloads(client, log.epoch)[20:])
            first.start()
            wait_for("the first as a standby", lambda: first.role() == "standby")
        host, port = first.stream_address
        with StreamClient(f"{host}:{port}", 120) as client:  # what a standby has, it shows
            wait_for(
                "all at the standby",
                lambda: _payloads(client, log.epoch) == [b"%d" % number for number in range(30)],
            )
    finally:
        members.close()


def _payloads(client: StreamClient, epoch: str, end: int | None = None) -> list[bytes]:
    log = client.offsets("messages")
    assert log.epoch == epoch
    found: list[bytes] = []
    for batch in client.read(
        "messages", epoch, log.earliest, log.latest if end is None else end, columns=("payload",)
    ):
        found += batch.column(0).to_pylist()
    return found
