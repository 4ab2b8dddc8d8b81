"""Rows that are published in batches outlive the primary: each once, in order, whoever was lost.

::

      staged ─ ✕ ─▶ refused, and staged again ─▶ published
      staged ─▶ decided ─ ✕ ─▶ the next primary publishes the rest ─▶ repeated: nothing more
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from penstock.errors import StoreError
from penstock.stream.client import StreamClient
from penstock.stream.requests import PublishBatchRequest, StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA
from tests.support import nats_cluster
from tests.support.deadline import wait_for
from tests.support.members import MemberBroker, Members
from tests.support.nats_cluster import NatsCluster
from tests.support.staged import staged_files

pytestmark = nats_cluster.needed

SINK: Final = "query"
FILES: Final = (range(30_000), range(30_000, 60_000))
"""The rows of batch 0, by file: many, so that its primary is lost on the way."""

LATER: Final = range(60_000, 60_100)
"""The rows of batch 1."""


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers that keep the log."""
    with nats_cluster.nats_cluster(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


def stage(client: StreamClient, batch: int, run: str, rows: range) -> tuple[str, int, int]:
    table = pa.Table.from_pylist(
        [
            {"topic": "out/1", "payload": b"%d" % number, "qos": 1, "retain": False}
            for number in rows
        ],
        PUBLISH_SCHEMA,
    )
    return client.stage(StageRowsRequest(SINK, batch, run, 0, rows.start), table)


def payloads(client: StreamClient) -> list[int]:
    log = client.offsets("messages")
    found: list[int] = []
    for batch in client.read("messages", log.epoch, 0, log.latest, columns=("payload",)):
        found += [int(payload) for payload in batch.column(0).to_pylist()]
    return found


def lose_primary(members: Members) -> MemberBroker:
    """Kill the primary, and start it again once another one serves; the other one is returned."""
    former = members.wait_for_primary()
    former.kill()
    successor = members.wait_for_primary(other_than=former)
    former.start()
    wait_for("the former as a standby", lambda: former.role() == "standby")
    return successor


def test_batches_are_published_once_whichever_primary_is_lost(
    nats: NatsCluster, tmp_path: Path
) -> None:
    members = Members(tmp_path, nats.urls, {"cluster.name": "sink"})
    try:
        members.start()
        addresses = (member.stream_address for member in members.all.values())
        server = ",".join(f"{host}:{port}" for host, port in addresses)
        with StreamClient(server, 120) as client, StreamClient(server, 120) as watching:
            files = tuple(stage(client, 0, "run", rows) for rows in FILES)
            request = PublishBatchRequest(SINK, 0, "run", "sink", files)
            with ThreadPoolExecutor(1) as executor:
                publishing = executor.submit(client.publish, request)
                wait_for("the first rows", lambda: watching.offsets("messages").latest > 0)
                second = lose_primary(members)
                assert publishing.result() == 0
            expected = [number for rows in FILES for number in rows]
            was_on_its_way = f"up to offset {len(expected)}" not in second.log()
            assert (f"continuing batch 0 of the sink {SINK}" in second.log()) == was_on_its_way
            assert payloads(watching) == expected
            files = (stage(client, 0, "again", range(3)),)  # as after a crash of Spark
            assert client.publish(PublishBatchRequest(SINK, 0, "again", "sink", files)) == 0
            files = (stage(client, 1, "run", LATER),)
            lose_primary(members)
            with pytest.raises(StoreError, match="staged at a machine of the cluster that is the"):
                client.publish(PublishBatchRequest(SINK, 1, "run", "sink", files))
            files = (stage(client, 1, "again", LATER),)
            assert client.publish(PublishBatchRequest(SINK, 1, "again", "sink", files)) == 0
            assert payloads(watching) == [*expected, *LATER]
        wait_for(
            "no staged rows of the primary",
            lambda: not staged_files(members.wait_for_primary().data_dir, ".arrow"),
        )
    finally:
        members.close()
