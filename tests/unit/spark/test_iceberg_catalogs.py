"""Iceberg tables and their catalog: what another job or installation does there, and silence."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Transaction
from sqlalchemy.engine import make_url

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table import IcebergNames
from penstock.errors import ConfigError
from penstock.spark.storage.location import ObjectStoreError
from penstock.spark.storage.opening import location_of
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.iceberg_catalog import with_limits
from penstock.spark.tables.iceberg_places import one_uri
from penstock.spark.tables.landed_table import (
    Landed,
    Outcome,
    PlannedBatch,
    Span,
    TableCommitFailed,
    TableCommitUnknown,
    TableError,
)
from tests.support.landed_tables import (
    EPOCH,
    SCHEMA,
    SELECTION,
    WIDER,
    land,
    landed_end,
    offsets,
    read,
    rows,
    written,
)
from tests.support.places import path_of

OTHER_TYPES = SCHEMA.set(3, pa.field("line", pa.int64())).set(4, pa.field("celsius", pa.string()))
"""Two columns have types to which Iceberg cannot change those of `SCHEMA`."""


def opened(
    directory: Path, schema: pa.Schema = SCHEMA, by: tuple[str, ...] = ("date",)
) -> IcebergTable:
    return IcebergTable(directory / "readings", schema, by, directory / "iceberg.db")


@pytest.mark.parametrize("by", [(), ("date",), ("line",), ("line", "date"), ("day(received_at)",)])
@pytest.mark.parametrize("schema", [SCHEMA, WIDER, OTHER_TYPES.remove(5)])
def test_a_table_without_rows_may_be_declared_anew_and_keeps_what_has_landed(
    tmp_path: Path, schema: pa.Schema, by: tuple[str, ...]
) -> None:
    opened(tmp_path, by=("date", "line")).commit(PlannedBatch(SELECTION, 0, 1000, start=700), [])
    by = tuple(name for name in by if name != "date" or "date" in schema.names)
    table = opened(tmp_path, schema, by)
    table.prepare(SELECTION)
    assert table.landed(SELECTION) == Landed(700, 1000)
    present = table.columns()
    assert present is not None
    assert [field.name for field in present] == schema.names
    values = rows(1000, 1002).to_pylist()
    for row in values:
        if schema.field("line").type == pa.int64():
            row |= {"line": 7, "celsius": "20.5 degC"}
    files = written(table, pa.Table.from_pylist(values, schema=schema))
    assert table.commit(PlannedBatch(SELECTION, 1000, 1002), files) is Outcome.LANDED
    assert offsets("iceberg", table) == [1000, 1001]
    more = opened(tmp_path, schema.append(pa.field("more", pa.string())), by)
    more.prepare(SELECTION)
    assert [row["more"] for row in read("iceberg", more)] == [None, None]
    assert [row["celsius"] for row in read("iceberg", more)] == [row["celsius"] for row in values]
    assert opened(tmp_path, schema, by).landed(SELECTION) == Landed(700, 1002)


def test_a_kill_while_a_table_is_declared_anew_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dropped and created again; what had landed was gone in between."""
    first = opened(tmp_path)
    first.commit(PlannedBatch(SELECTION, 0, 1000, start=700), [])
    for name in ("commit_table", "create_table_transaction"):
        with monkeypatch.context() as killed:
            killed.setattr(SqlCatalog, name, _kill)
            with suppress(KeyboardInterrupt):
                opened(tmp_path, by=("line",)).prepare(SELECTION)
            assert opened(tmp_path).landed(SELECTION) == Landed(700, 1000)


def _kill(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_rows_that_land_while_a_table_is_declared_anew_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened(tmp_path)
    other.commit(PlannedBatch(SELECTION, 0, 5, 0), [])
    table = opened(tmp_path, by=("line",))
    refresh = IcebergTable._refresh
    landed: list[Outcome] = []

    def then_another_lands(self: IcebergTable) -> object:
        found = refresh(self)
        if self is table and not landed:
            landed.append(land(other, 5, 10))
        return found

    monkeypatch.setattr(IcebergTable, "_refresh", then_another_lands)
    with pytest.raises(ConfigError, match="is partitioned by date, and line is declared"):
        table.prepare(SELECTION)
    assert landed == [Outcome.LANDED]
    assert other.landed(SELECTION) == Landed(0, 10)
    assert offsets("iceberg", other) == list(range(5, 10))


def test_a_table_that_lost_its_rows_keeps_its_columns(tmp_path: Path) -> None:
    """Readers of earlier versions know its files by the names of the columns."""
    table = opened(tmp_path)
    land(table, 0, 5)
    with table._refresh().transaction() as transaction:  # type: ignore[union-attr]
        transaction.delete("offset >= 0")
    assert offsets("iceberg", table) == []
    with pytest.raises(ConfigError, match="is partitioned by date, and line is declared"):
        opened(tmp_path, by=("line",)).prepare(SELECTION)


# -- the place of a table ---------------------------------------------------------------------


def test_two_installations_with_one_catalog_do_not_share_a_table(tmp_path: Path) -> None:
    """The second went on at the first one's end, and its rows went into the first one's table."""
    catalog = tmp_path / "iceberg.db"
    one = IcebergTable(tmp_path / "plant1/readings", SCHEMA, ("date",), catalog)
    two = IcebergTable(tmp_path / "plant2/readings", SCHEMA, ("date",), catalog)
    land(one, 0, 5)
    refused = pytest.raises(ConfigError, match=r"is in \S+/plant1/readings, not in \S+/plant2/read")
    for ask in (two.contents, two.columns, lambda: two.landed(SELECTION)):
        with refused:
            ask()
    with refused:
        land(two, 0, 3)
    assert landed_end(one) == 5
    names = IcebergNames(namespace="plant2")
    three = IcebergTable(tmp_path / "plant2/readings", SCHEMA, ("date",), catalog, names)
    assert land(three, 0, 3) is Outcome.LANDED
    assert landed_end(one) == 5


def test_a_table_is_the_same_through_a_link_and_none_of_its_files_is_swept(tmp_path: Path) -> None:
    """Its catalog names the files by the other path; all of them were removed as leftovers."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    land(opened(real), 0, 5)
    table = opened(link)
    assert landed_end(table) == 5
    assert table.remove_orphans(0, remove=True) == []
    land(table, 5, 8)
    for n in range(8, 12):
        land(table, n, n + 1)
    live = table.live_files()
    assert live is not None
    by_day: dict[object, list[str]] = {}
    for file in live:
        by_day.setdefault(file.partition, []).append(file.path)
    before = set(path_of(table).glob("date=*/*.parquet"))
    assert table.compact([paths for paths in by_day.values() if len(paths) > 1], 1)
    table.compact([], 1)
    for path in before:
        assert time.time() - path.stat().st_mtime < 600
    two_days_ago = time.time() - 48 * 3600
    for path in path_of(table).rglob("*.parquet"):
        os.utime(path, (two_days_ago, two_days_ago))
    table.remove_orphans(24, remove=True)
    assert offsets("iceberg", table) == list(range(12))
    assert offsets("iceberg", opened(real)) == list(range(12))
    url = IcebergTable(f"file://{real}/readings", SCHEMA, ("date",), real / "iceberg.db")
    assert landed_end(url) == 12


def test_a_table_that_was_moved_is_not_begun_anew_where_it_is_now(tmp_path: Path) -> None:
    """Iceberg's metadata name all files by their whole path."""
    before, after = tmp_path / "before", tmp_path / "after"
    land(opened(before), 0, 5)
    shutil.copytree(before, after)
    with pytest.raises(ConfigError, match="if it was moved, declare the path that the catalog has"):
        opened(after).landed(SELECTION)
    shutil.rmtree(before)
    with pytest.raises(TableError, match="cannot be read"):
        opened(after).landed(SELECTION)
    before.symlink_to(after)
    assert landed_end(opened(after)) == 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://lake/x/y", "s3://lake/x/y/"),
        ("s3n://lake/x", "s3://lake/x"),
        ("abfs://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
        ("file:/data/x", "/data/x"),
        ("file:///data/x", "/data/x/"),
        ("file:///data/line=b%20c", "/data/line=b%20c"),
        ("s3://lake/line=b%20c%3F", "s3://lake/line=b%20c%3F"),
    ],
)
def test_spellings_of_one_place(one: str, other: str) -> None:
    assert one_uri(one) == one_uri(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://lake/x", "s3://lake/y"),
        ("s3://lake/x", "s3://sea/x"),
        ("s3://lake/x", "gs://lake/x"),
        ("/lake/x", "s3://lake/x"),
        ("hdfs://lake/x", "s3://lake/x"),
        ("s3://lake/b%20c", "s3://lake/b c"),
    ],
)
def test_spellings_of_two_places(one: str, other: str) -> None:
    assert one_uri(one) != one_uri(other)


# -- readers ----------------------------------------------------------------------------------


def test_a_look_at_a_table_makes_no_catalog_and_no_namespace(tmp_path: Path) -> None:
    table = opened(tmp_path / "tables")
    assert table.contents() is None
    assert table.landed(SELECTION) is None
    assert table.recent_files(timedelta.max) == []
    assert not (tmp_path / "tables").exists()
    uri = f"sqlite:///{tmp_path / 'shared.db'}"
    names = IcebergNames(properties={"type": "sql", "uri": uri})
    shared = IcebergTable(tmp_path / "readings", SCHEMA, (), None, names)
    assert shared.contents() is None
    with closing(SqlCatalog("penstock", uri=uri)) as catalog:
        assert catalog.list_namespaces() == []
        land(shared, 0, 3)
        assert catalog.list_namespaces() == [("penstock",)]
    assert landed_end(shared) == 3


def test_an_error_of_the_catalog_in_a_commit_is_not_known_or_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    land(table, 0, 3)
    commit = Transaction.commit_transaction

    def lost(self: Transaction) -> object:
        commit(self)
        raise ConnectionError("no answer")

    monkeypatch.setattr(Transaction, "commit_transaction", lost)
    assert land(table, 3, 6) is Outcome.LANDED
    refresh = IcebergTable._refresh
    looks: list[int] = []

    def only_once(self: IcebergTable) -> object:
        looks.append(1)
        if len(looks) > 1:
            raise TableError("the table cannot be read")
        return refresh(self)

    monkeypatch.setattr(IcebergTable, "_refresh", only_once)
    with pytest.raises(TableCommitUnknown, match="it is not known whether the batch of offsets 6"):
        land(table, 6, 9)
    monkeypatch.undo()
    assert land(table, 6, 9) is Outcome.OVERTAKEN
    assert offsets("iceberg", table) == list(range(9))


def test_an_error_of_the_store_while_rows_are_replaced_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    land(table, 0, 6)

    def refused(*_: object) -> None:
        raise ObjectStoreError("s3://lake/readings: the store does not answer")

    monkeypatch.setattr(SqlCatalog, "commit_table", refused)
    with pytest.raises(TableCommitUnknown, match="not known whether rows were replaced in"):
        table.replace(Span(EPOCH, 0, 3), [])
    with pytest.raises(TableError, match="could not be given the declared columns: s3://lake"):
        opened(tmp_path, WIDER).prepare(SELECTION)
    with pytest.raises(TableCommitFailed, match="could not be created: s3://lake/readings: the"):
        land(opened(tmp_path / "other"), 0, 6)
    monkeypatch.undo()
    assert offsets("iceberg", table) == list(range(6))


# -- silence ----------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and says nothing."""
    accepted: list[socket.socket] = []
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)

        def accept() -> None:
            while True:
                try:
                    accepted.append(listening.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in accepted:
        one.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "credential", [{}, {"type": "rest", "credential": "me:secret"}], ids=["", "token"]
)
def test_a_rest_catalog_that_says_nothing_is_not_waited_for(
    silent: int, credential: dict[str, str]
) -> None:
    """pyiceberg waits for ever, also for a token."""
    url = f"http://127.0.0.1:{silent}"
    tokens = {"oauth2-server-uri": f"{url}/tokens"} if credential else {}
    names = IcebergNames(properties={"uri": url, **credential, **tokens})
    place = location_of("s3://lake/readings", ObjectStoreSettings(timeout_s=1))
    table = IcebergTable(place, SCHEMA, (), None, names)
    with pytest.raises(TableError, match=r"cannot be read: .*timed out"):
        table.landed(SELECTION)


def test_drivers_of_databases_get_the_limits_that_they_know() -> None:
    found = make_url(with_limits("postgresql+psycopg2://me:pass@host/lake?connect_timeout=9", 30))
    assert found.password == "pass"
    assert dict(found.query) == {
        "connect_timeout": "9",
        "tcp_user_timeout": "30000",
        "keepalives_idle": "15",
        "keepalives_interval": "5",
        "keepalives_count": "3",
    }
    mysql = make_url(with_limits("mysql+pymysql://host/lake", 30))
    assert mysql.query["read_timeout"] == "30"
    for other in ("sqlite:////tmp/x.db?timeout=60", "oracle+oracledb://host/lake"):
        assert with_limits(other, 30) == other


@pytest.mark.timeout(60)
def test_a_postgresql_that_says_nothing_is_not_waited_for(silent: int) -> None:
    pytest.importorskip("psycopg2")
    uri = f"postgresql+psycopg2://me@127.0.0.1:{silent}/lake"
    names = IcebergNames(properties={"type": "sql", "uri": uri})
    place = location_of("s3://lake/readings", ObjectStoreSettings(timeout_s=1))
    with pytest.raises(TableError, match=r"cannot be read: .*timeout"):
        IcebergTable(place, SCHEMA, (), None, names).landed(SELECTION)
