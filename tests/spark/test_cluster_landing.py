"""A landing job reads a cluster whose primary is lost: each message in the table once, with its
receipt."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.protocol.kinds import V5
from penstock.protocol.properties import Properties
from penstock.stream.client import StreamClient
from tests.spark.test_landing_process import Job
from tests.spark.waiting import DEADLINE_S, wait_until
from tests.support import nats_cluster
from tests.support.deadline import wait_for
from tests.support.members import Members
from tests.support.nats_cluster import NatsCluster
from tests.support.process_tree import alive, descendants
from tests.support.raw_client import NothingReceivedError, RawClient

pytestmark = nats_cluster.needed


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsCluster]:
    """Three servers that keep the log."""
    with nats_cluster.nats_cluster(tmp_path / "nats") as servers:
        yield servers


def publish(address: tuple[str, int], numbers: range) -> None:
    """Messages whose publisher wants to be told that a table has them."""
    with RawClient(address, V5) as publisher:
        publisher.connect("publisher")
        for number in numbers:
            asks = Properties(
                response_topic="receipts/p",
                correlation_data=b"%d" % number,
                user_properties=[("penstock-receipt", "readings")],
            )
            assert publisher.publish("plant/1", b"%d" % number, 1, properties=asks) == 0


def has_version(job: Job, version: int) -> bool:
    """Whether the job's table has come so far."""
    return job.version() >= version


@pytest.mark.torture("starts Spark, a cluster, and loses two primaries")
def test_a_table_has_each_message_once_whichever_primary_is_lost(
    nats: NatsCluster, tmp_path: Path
) -> None:
    settings = {"cluster.name": "landing", "limits.max_mqueue_len": 0}
    members = Members(tmp_path / "members", nats.urls, settings)
    job: Job | None = None
    receipts: Counter[bytes] = Counter()
    try:
        primary = members.start()
        addresses = [member.stream_address for member in members.all.values()]
        addresses.sort(key=lambda address: address != primary.stream_address)
        server = ",".join(f"{host}:{port}" for host, port in addresses)
        with RawClient(primary.address, V5) as receiver:
            receiver.connect("receiver", True, expiry_s=3600)
            receiver.subscribe("receipts/p", qos=1)
        publish(primary.address, range(100))
        job = Job(tmp_path / "readings", server)
        options = ("--trigger", "0", "--max-offsets", "10", "--topics", "plant/#")
        process = job.start(*options, "--group", "landing")
        for begin in (100, 200):
            wait_until(partial(has_version, job, job.version() + 3), "some commits")
            primary.kill()
            former, primary = primary, members.wait_for_primary(other_than=primary)
            publish(primary.address, range(begin, begin + 100))
            former.start()
            wait_for("the former's role", former.role)
            assert former.role() == "standby"

        def take() -> bool:
            with RawClient(primary.address, V5) as receiver:
                receiver.connect("receiver", False, expiry_s=3600)
                with contextlib.suppress(NothingReceivedError):
                    while True:
                        properties = receiver.take(1.0).properties
                        assert properties is not None
                        receipts[properties.correlation_data or b""] += 1
            return len(receipts) == 300

        wait_until(take, "every receipt")
        with StreamClient(server) as client:
            (table,) = client.tables()
            (reader,) = client.readers()
        assert (table.table, reader.group) == ("readings", "landing")
        assert table.offset == reader.offset
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
        found = DeltaTable(job.table).to_pyarrow_table(columns=["payload", "offset"])
        landed = sorted(int(payload) for payload in found["payload"].to_pylist())
        assert landed == list(range(300))
    finally:
        if job is not None and job.process is not None and job.process.poll() is None:
            started = descendants(job.process.pid)
            job.process.kill()
            job.process.communicate()
            wait_until(lambda: not alive(started), "Java and its workers to exit")
        members.close()
