"""Iceberg tables by a real REST catalog: each batch once, whatever happens to its requests.

Iceberg's own sink wrote 111,927 rows twice where an answer of the catalog was lost (iceberg#17340).
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table import IcebergNames
from penstock.spark.storage.opening import location_of
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import Landed, Outcome, PlannedBatch, TableError
from tests.support.landed_tables import SCHEMA, SELECTION, WIDER, land, rows, written
from tests.support.object_store import KEYS, REGION, Fault, ObjectStore, object_store
from tests.support.rest_catalog import RestCatalog, needed, rest_catalog

BUCKET = "lake"

pytestmark = needed


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture(scope="module")
def catalog(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    directory = tmp_path_factory.mktemp("catalog") / "server"
    with rest_catalog(directory, store.endpoint, f"s3://{BUCKET}/warehouse") as running:
        yield running


class Opener:
    """Opens one table again and again, as other processes would."""

    def __init__(self, store: ObjectStore, catalog: RestCatalog) -> None:
        self._settings = ObjectStoreSettings(endpoint=store.endpoint, retry_s=20, timeout_s=5)
        self._uri = catalog.proxy.endpoint
        self._namespace = f"plant_{uuid4().hex[:8]}"

    def __call__(
        self, schema: pa.Schema = SCHEMA, partition_by: tuple[str, ...] = ("date", "line")
    ) -> IcebergTable:
        names = IcebergNames(
            namespace=self._namespace, properties={"type": "rest", "uri": self._uri}
        )
        location = location_of(f"s3://{BUCKET}/{self._namespace}/readings", self._settings)
        return IcebergTable(location, schema, partition_by, None, names)

    def offsets(self) -> list[int]:
        """The offsets, as pyiceberg reads them with its own access to files."""
        properties = {"type": "rest", "uri": self._uri, "s3.endpoint": self._settings.endpoint}
        keys = {
            "s3.region": REGION,
            "s3.access-key-id": KEYS["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": KEYS["AWS_SECRET_ACCESS_KEY"],
        }
        found = load_catalog("reader", **properties, **keys)
        rows = found.load_table((self._namespace, "readings")).scan().to_arrow()
        offsets: list[int] = rows.column("offset").to_pylist()
        return sorted(offsets)


@pytest.fixture
def opener(
    store: ObjectStore, catalog: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opener]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    yield Opener(store, catalog)
    catalog.proxy.spoil("")


def test_a_table_is_made_and_each_batch_is_there_once(opener: Opener) -> None:
    table = opener()
    table.prepare(SELECTION)
    assert table.landed(SELECTION) is None
    assert land(table, 0, 6) is Outcome.LANDED
    again = opener()
    assert land(again, 0, 6) is Outcome.OVERTAKEN
    assert land(again, 6, 9) is Outcome.LANDED
    assert table.landed(SELECTION) == Landed(0, 9)
    assert opener.offsets() == list(range(9))


@pytest.mark.parametrize("fault", ["lost answer", "late answer", "lost request", "slow down"])
def test_a_spoilt_request_to_the_catalog_loses_and_repeats_nothing(
    opener: Opener, catalog: RestCatalog, fault: Fault
) -> None:
    """A job that does not know begins its batch again, with the table opened anew."""
    land(opener(), 0, 3)
    for every in (1, 2, 3):
        begin = 3 * every
        catalog.proxy.spoil(fault, every=every, times=1)
        try:
            outcome = land(opener(), begin, begin + 3)
        except TableError:
            catalog.proxy.spoil("")
            outcome = land(opener(), begin, begin + 3)
        assert outcome in (Outcome.LANDED, Outcome.OVERTAKEN)
    catalog.proxy.spoil("")
    assert catalog.proxy.counts()[fault] >= 2, "it happened"
    assert opener.offsets() == list(range(12))


def test_a_catalog_that_was_killed_has_all_that_it_had_said(
    opener: Opener, catalog: RestCatalog
) -> None:
    table = opener()
    for begin in range(0, 9, 3):
        assert land(table, begin, begin + 3) is Outcome.LANDED
        catalog.server.restart()
    assert opener.offsets() == list(range(9))


def test_a_table_without_rows_is_declared_anew_and_a_column_is_added(opener: Opener) -> None:
    table = opener()
    table.prepare(SELECTION)
    assert land(table, 0, 0) is Outcome.LANDED
    anew = opener(partition_by=("date",))
    anew.prepare(SELECTION)
    assert anew.landed(SELECTION) == Landed(0, 0)
    assert land(anew, 0, 3) is Outcome.LANDED
    wider = opener(WIDER, ("date",))
    wider.prepare(SELECTION)
    files = written(wider, rows(3, 6, unit="K"))
    assert wider.commit(PlannedBatch(SELECTION, 3, 6), files) is Outcome.LANDED
    columns = wider.columns()
    assert columns is not None
    assert "unit" in columns.names
    assert opener.offsets() == list(range(6))
