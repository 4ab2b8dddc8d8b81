"""Tables in a real S3 server that stores on disk, while it is killed and requests are spoiled.

For longer: ``make lake``; by hand ``python -m tests.crash.pipeline_torture --store``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from penstock.config.object_store import ObjectStoreSettings
from penstock.spark.storage.location import ObjectStoreError
from penstock.spark.storage.objects import ObjectLocation
from penstock.spark.storage.opening import check_creates, location_of
from tests.support.fixtures import running_broker
from tests.support.object_store import KEYS, Fault
from tests.support.pipeline_storm import KINDS, STORE, play, prepared
from tests.support.pipelines import TO_TABLE, LogToTable
from tests.support.s3_server import DiskStore, disk_store, needed
from tests.support.spark_cluster import SparkCluster
from tests.support.table_readers import read_back

MESSAGES: Final = 4000
WRITERS: Final = 8
KEYS_EACH: Final = 25
LARGE: Final = os.urandom(1_048_576) * 40

pytestmark = needed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    with disk_store(tmp_path / "store") as running:
        yield running


@pytest.fixture
def place(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> ObjectLocation:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    store.make_bucket("lake")
    settings = ObjectStoreSettings(endpoint=store.proxy.endpoint, retry_s=20, timeout_s=5)
    found = location_of("s3://lake/bronze", settings)
    assert isinstance(found, ObjectLocation)
    return found


def test_of_many_that_create_an_object_at_once_one_does(place: ObjectLocation) -> None:
    check_creates(place)
    with ThreadPoolExecutor(WRITERS) as threads:
        for number in range(KEYS_EACH):
            target = place / f"commits/{number}"
            created = threads.map(lambda n, to=target: to.create(b"%d" % n), range(WRITERS))
            winners = [writer for writer, is_first in enumerate(created) if is_first]
            assert [target.read()] == [b"%d" % writer for writer in winners]


@pytest.mark.parametrize("fault", ["lost request", "lost answer", "late answer", "slow down"])
def test_a_large_upload_is_whole_whatever_happens_to_its_parts(
    place: ObjectLocation, store: DiskStore, fault: Fault
) -> None:
    store.proxy.spoil(fault, every=2, times=3)
    file = (place / "large").open_output()
    file.write(LARGE)
    file.close()
    assert store.proxy.counts()[fault] >= 2
    assert (place / "large").read() == LARGE


def test_an_upload_that_is_cut_for_good_is_not_there(
    place: ObjectLocation, store: DiskStore
) -> None:
    file = (place / "large").open_output()
    file.write(LARGE)
    store.proxy.spoil("stale credentials", every=3)
    with pytest.raises(ObjectStoreError, match="ExpiredToken"):
        file.close()
    store.proxy.spoil("")
    assert not (place / "large").exists()
    assert [found.path for found in place.files()] == []


@pytest.mark.torture("starts a Spark cluster, and an S3 server")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_equal_acknowledgements_after_a_kill_of_each(
    tmp_path: Path, store: DiskStore, spark: SparkSession, kind: str
) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    (tmp_path / "broker").mkdir()
    rounds = len(KINDS) + 1
    with (
        running_broker(tmp_path / "broker", {"log.level": "info"}, stream=True) as broker,
        SparkCluster(tmp_path / "cluster") as cluster,
        prepared(
            TO_TABLE, tmp_path / "job", broker, seed, MESSAGES // rounds, kind, store
        ) as pipeline,
    ):
        log = tmp_path / "driver.log"
        verdict = play(
            pipeline, TO_TABLE, cluster, broker, log, seed, MESSAGES, rounds, store=store
        )
        print(f"{verdict}\n{log.read_text()}")
        assert verdict.killed == dict.fromkeys((STORE, *KINDS), 1)
        assert verdict.outcome.acknowledged == MESSAGES
        assert verdict.is_kept, verdict
        assert isinstance(pipeline, LogToTable)
        assert read_back(pipeline.table, spark).num_rows == MESSAGES
