"""Tables of every format in an object store: exactly once, whatever happens to a request.

The store is moto's S3 server; a proxy before it loses requests and answers, and refuses some.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table import IcebergNames
from penstock.errors import ConfigError
from penstock.spark.storage.clients import store_options, without_secrets
from penstock.spark.storage.location import Location, ObjectStoreError
from penstock.spark.storage.objects import ObjectLocation
from penstock.spark.storage.opening import check_creates, location_of
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.directory import ParquetDirectory
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import (
    Landed,
    LandedTable,
    Outcome,
    PlannedBatch,
    Span,
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
    rows,
    written,
)
from tests.support.object_store import KEYS, REGION, Fault, ObjectStore, object_store


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def store(server: ObjectStore) -> ObjectStore:
    server.spoil("")
    server.counts()
    return server


@pytest.fixture
def place(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectLocation:
    """A prefix of a bucket of its own."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    bucket = f"lake-{uuid4().hex[:12]}"
    store.make_bucket(bucket)
    settings = ObjectStoreSettings(endpoint=store.endpoint, retry_s=20)
    found = location_of(f"s3://{bucket}/bronze", settings)
    assert isinstance(found, ObjectLocation)
    return found


class Opener:
    """Opens the table once more, as another process would, and reads it as its readers do."""

    def __init__(self, kind: str, place: ObjectLocation, directory: Path) -> None:
        self.kind = kind
        self.location: Location = place / "readings"
        self.endpoint = place.settings.endpoint
        self._catalog = {"type": "sql", "uri": f"sqlite:///{directory / 'catalog.db'}"}

    def __call__(self, schema: pa.Schema = SCHEMA) -> LandedTable:
        match self.kind:
            case "delta":
                return DeltaMessageTable(self.location, schema, ("date", "line"))
            case "iceberg":
                names = IcebergNames(properties=self._catalog)
                return IcebergTable(self.location, schema, ("date", "line"), None, names)
            case _:
                return ParquetDirectory(self.location, schema, ("date", "line"))

    def offsets(self) -> list[int]:
        """The offsets of the rows, as the format's own reader finds them with its own client."""
        options = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "1"}
        match self.kind:
            case "delta":
                found = polars.read_delta(self.location.uri, storage_options=options).to_arrow()
                opened = DeltaTable(self.location.uri, storage_options=options)
                assert found.num_rows == opened.to_pyarrow_table().num_rows
            case "iceberg":
                s3 = {"s3.endpoint": self.endpoint, "s3.region": REGION}
                catalog = SqlCatalog("penstock", **self._catalog, **s3)
                found = catalog.load_table(("penstock", "readings")).scan().to_arrow()
            case _:
                files = pyarrow.fs.S3FileSystem(
                    endpoint_override=self.endpoint.removeprefix("http://"), scheme="http"
                )
                path = self.location.uri.removeprefix("s3://")
                found = ds.dataset(
                    path, filesystem=files, format="parquet", partitioning="hive"
                ).to_table()
        offsets: list[int] = found.column("offset").to_pylist()
        return sorted(offsets)


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def opener(request: pytest.FixtureRequest, place: ObjectLocation, tmp_path: Path) -> Opener:
    return Opener(request.param, place, tmp_path)


def test_each_batch_is_there_once(opener: Opener) -> None:
    table = opener()
    assert table.landed(SELECTION) is None
    assert table.contents() is None
    assert land(table, 0, 6) is Outcome.LANDED
    again = opener()
    assert land(again, 0, 6) is Outcome.OVERTAKEN
    assert land(again, 6, 9) is Outcome.LANDED
    assert table.landed(SELECTION) == Landed(0, 9)
    assert opener.offsets() == list(range(9))
    contents = table.contents()
    assert contents is not None
    assert (contents.rows, contents.epoch) == (9, EPOCH)


def test_rows_are_replaced_merged_and_given_columns(opener: Opener) -> None:
    table = opener()
    for n in range(0, 12, 3):
        land(table, n, n + 3)
    table.replace(Span(EPOCH, 2, 5), written(table, rows(3, 5)))
    assert opener.offsets() == [n for n in range(12) if n != 2]
    wider = opener(WIDER)
    wider.prepare(SELECTION)
    batch = PlannedBatch(SELECTION, 12, 15)
    assert wider.commit(batch, written(wider, rows(12, 15, unit="K"))) is Outcome.LANDED
    live = wider.live_files()
    assert live is not None
    by_partition: dict[object, list[str]] = {}
    for file in live:
        by_partition.setdefault(file.partition, []).append(file.path)
    assert wider.compact([paths for paths in by_partition.values() if len(paths) > 1], 1)
    assert opener.offsets() == [n for n in range(15) if n != 2]


def test_files_of_a_lost_attempt_are_removed_and_no_others(opener: Opener) -> None:
    table = opener()
    land(table, 0, 6)
    lost = {str(table.location / file.path) for file in written(table, rows(6, 9))}
    assert table.remove_orphans(24, remove=False) == []
    assert lost <= set(map(_full, table.remove_orphans(0, remove=False), [table] * 99))
    table.remove_orphans(0, remove=True)
    assert land(table, 6, 9) is Outcome.LANDED
    assert opener.offsets() == list(range(9))


def _full(path: str, table: LandedTable) -> str:
    return path if "://" in path else str(table.location / path)


@pytest.mark.parametrize("opener", ["delta", "iceberg"], indirect=True)
def test_files_that_a_merge_replaced_stay_for_their_readers(opener: Opener) -> None:
    """A directory of Parquet files has one version, and removes at once what a commit replaced."""
    table = opener()
    for n in range(4):
        land(table, 3 * n, 3 * n + 3)
    read_before = {str(one) for one in table.recent_files(timedelta.max)}
    live = table.live_files()
    assert live is not None
    lines: dict[object, list[str]] = {}
    for file in live:
        lines.setdefault(file.partition, []).append(file.path)
    assert table.compact([paths for paths in lines.values() if len(paths) > 1], 1)
    table.compact([], 1)
    table.remove_orphans(1, remove=True)
    there = {str(table.location / file.path) for file in table.location.files()}
    assert read_before <= there


@pytest.mark.parametrize("fault", ["slow down", "lost request", "lost answer"])
def test_a_spoilt_request_loses_and_repeats_nothing(
    opener: Opener, store: ObjectStore, fault: Fault
) -> None:
    """A request in three fails: with 503 SlowDown, before the store has it, or after it did it
    (iceberg#17340: such a commit's files were added a second time)."""
    store.spoil(fault, every=3)
    end = 0
    table = opener()
    while end < 24:
        try:
            land(table, end, end + 4)
        except TableError:
            table = opener()
        except OSError as error:
            pytest.fail(f"the client gives up: {error}")
        end = landed_end(opener())
    store.spoil("")
    assert opener.offsets() == list(range(24))
    assert store.counts()["PUT"] > 20, "requests were spoilt"


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_commit_of_which_the_store_says_nothing_is_not_known_or_found(
    place: ObjectLocation, store: ObjectStore, every: int
) -> None:
    """The first request is lost, or only one after the point of commit. It was a bare error of the
    store, which says nothing of the batch."""
    impatient = ObjectStoreSettings(endpoint=place.settings.endpoint, retry_s=0)
    location = ObjectLocation(place.bucket, f"{place.key}/readings", impatient)
    table = ParquetDirectory(location, SCHEMA, ("date", "line"))
    land(table, 0, 3)
    batch, files = PlannedBatch(SELECTION, 3, 6), written(table, rows(3, 6))
    store.spoil("lost request", every=every, times=1)
    if every == 1:
        with pytest.raises(TableCommitUnknown, match="it is not known whether commit 1 of the tab"):
            table.commit(batch, files)
    else:
        assert table.commit(batch, files) is Outcome.LANDED
    store.spoil("")
    found = landed_end(ParquetDirectory(location, SCHEMA, ("date", "line")))
    assert found == (3 if every == 1 else 6)
    assert table.commit(batch, files) is (Outcome.LANDED if every == 1 else Outcome.OVERTAKEN)
    assert Opener("parquet", place, Path()).offsets() == list(range(6))


@pytest.mark.parametrize("opener", ["parquet"], indirect=True)
def test_a_reader_asks_the_store_to_change_nothing(opener: Opener, store: ObjectStore) -> None:
    """Right to read is enough: a look at a directory of Parquet files copied its newest files."""
    land(opener(), 0, 6)
    store.counts()
    reader = opener()
    contents = reader.contents()
    assert contents is not None
    assert (contents.rows, landed_end(reader)) == (6, 6)
    assert len(reader.files()) == contents.files
    assert reader.remove_orphans(0, remove=False) == []
    reader.prepare(SELECTION, add=False)
    assert set(store.counts()) <= {"GET", "HEAD"}


@pytest.mark.parametrize("opener", ["delta"], indirect=True)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_change_whose_answer_is_lost_is_made_once(
    opener: Opener, store: ObjectStore, nth: int
) -> None:
    """The library asks once more, and is told that there is a commit of this number: its own. A
    replacement failed although it was done, a merge was said not to be."""
    table = opener()
    assert isinstance(table, DeltaMessageTable)
    version = -1

    @contextmanager
    def spoilt() -> Iterator[None]:
        nonlocal version
        store.spoil("lost answer", every=nth, times=1)
        yield
        store.spoil("")
        contents = table.contents()
        version += 1
        assert contents is not None
        assert contents.version == version

    for first in (0, 3, 6):
        with spoilt():
            assert land(table, first, first + 3) is Outcome.LANDED
    replaced, appended = written(table, rows(3, 5)), written(table, rows(20, 22))
    with spoilt():
        table.replace(Span(EPOCH, 2, 5), replaced)
    with spoilt():
        table.replace(Span(EPOCH, 20, 20), appended)
    lines: dict[object, list[str]] = {}
    for file in table.live_files() or ():
        lines.setdefault(file.partition, []).append(file.path)
    with spoilt():
        assert table.compact([paths for paths in lines.values() if len(paths) > 1], 1)
    with spoilt():
        opener(WIDER).prepare(SELECTION)
    assert opener.offsets() == [0, 1, *range(3, 9), 20, 21]


def test_a_replacement_of_which_the_store_says_nothing_is_not_known(
    place: ObjectLocation, store: ObjectStore
) -> None:
    """It was a bare error of the library."""
    impatient = ObjectStoreSettings(endpoint=place.settings.endpoint, retry_s=0)
    location = ObjectLocation(place.bucket, f"{place.key}/readings", impatient)
    table = DeltaMessageTable(location, SCHEMA, ("date", "line"))
    land(table, 0, 3)
    files = written(table, rows(3, 6))
    store.spoil("lost request", times=1)
    with pytest.raises(
        TableCommitUnknown, match=r"whether the replacement .* was committed to s3:"
    ):
        table.replace(Span(EPOCH, 3, 3), files)
    store.spoil("")
    table.replace(Span(EPOCH, 3, 3), files)
    assert Opener("delta", place, Path()).offsets() == list(range(6))


@pytest.mark.parametrize("opener", ["delta"], indirect=True)
def test_a_declaration_whose_answer_is_lost_is_made_once(
    opener: Opener, store: ObjectStore
) -> None:
    table = opener()
    assert isinstance(table, DeltaMessageTable)
    table.prepare(SELECTION)
    table.commit(PlannedBatch(SELECTION, 0, 5, start=0), [])
    anew = DeltaMessageTable(table.location, SCHEMA, ())
    store.spoil("lost answer", times=1)
    anew.prepare(SELECTION)
    store.spoil("")
    contents = anew.contents()
    assert contents is not None
    assert contents.version == 1
    assert land(anew, 5, 8) is Outcome.LANDED
    assert opener.offsets() == [5, 6, 7]


@pytest.mark.parametrize("opener", ["iceberg"], indirect=True)
def test_a_look_for_files_to_merge_asks_once_for_each_file(
    opener: Opener, store: ObjectStore
) -> None:
    """Files never change; each check asked for the time of every one."""
    table = opener()
    land(table, 0, 6)
    live = table.live_files()
    assert live is not None
    store.counts()
    assert table.live_files() == live
    assert "HEAD" not in store.counts()
    land(table, 6, 7)
    store.counts()
    assert len(table.live_files() or []) == len(live) + 1
    assert store.counts()["HEAD"] == 1


def test_a_place_in_a_store_is_a_value(place: ObjectLocation) -> None:
    assert pickle.loads(pickle.dumps(place / "x")) == place / "x"
    assert len({place / "x", place / "x"}) == 1
    assert "secret" not in repr(place)
    assert (place / "a/b").with_name("c") == place / "a/c"


def test_a_file_appears_whole_when_it_is_closed(place: ObjectLocation) -> None:
    file = (place / "one").open_output()
    file.write(b"a" * 1000)
    assert not (place / "one").exists()
    file.close()
    assert (place / "one").read() == b"a" * 1000
    forgotten = (place / "two").open_output()
    forgotten.write(b"half of it")
    del forgotten
    assert not (place / "two").exists(), "what its writer did not finish is nowhere"


def test_a_large_file_is_uploaded_in_parts_and_read_in_ranges(
    place: ObjectLocation, store: ObjectStore
) -> None:
    content = bytes(range(256)) * 4096 * 40  # 40 MiB
    with (place / "large").open_output() as file:
        file.write(content)
    assert store.counts()["POST"] == 2, "a start and an end of the upload"
    with (place / "large").open_input() as found:
        found.seek(1_000_003)
        assert found.read(1000) == content[1_000_003:1_001_003]
        found.seek(-16, 2)
        assert found.read(16) == content[-16:]


def test_names_and_files_of_a_directory(place: ObjectLocation) -> None:
    assert not place.has_files()
    for name in ("a", "sub/b", "sub/deeper/c"):
        (place / name).write(b"x")
    assert place.has_files()
    assert sorted(place.names()) == ["a"]
    assert sorted(file.path for file in place.files()) == ["a", "sub/b", "sub/deeper/c"]
    (place / "a").move(place / "z")
    (place / "a").move(place / "z")
    (place / "sub/b").remove()
    (place / "sub/b").remove()
    assert sorted(file.path for file in place.files()) == ["sub/deeper/c", "z"]
    with pytest.raises(FileNotFoundError, match="there is no s3://"):
        (place / "a").read()


def test_one_of_two_writers_creates_a_name(place: ObjectLocation, store: ObjectStore) -> None:
    assert (place / "commit").create(b"mine")
    assert not (place / "commit").create(b"another's")
    assert (place / "commit").create(b"mine"), "the answer to the first may have been lost"
    store.spoil("lost answer", times=1)
    assert (place / "next").create(b"mine")
    assert (place / "next").read() == b"mine"


def test_a_store_that_replaces_what_was_to_be_created_is_refused(
    place: ObjectLocation, store: ObjectStore
) -> None:
    check_creates(place)
    store.spoil("replaced")
    with pytest.raises(ConfigError, match=r"so two jobs could both commit: use one with"):
        check_creates(place)
    for table in (
        DeltaMessageTable(place / "delta", SCHEMA, ()),
        ParquetDirectory(place / "parquet", SCHEMA, ()),
    ):
        with pytest.raises(ConfigError, match="two jobs could both commit"):
            table.prepare(SELECTION)
    store.spoil("")
    assert not place.has_files(), "and the probes are gone"


def test_a_bucket_that_is_not_there_is_named(place: ObjectLocation) -> None:
    nowhere = ObjectLocation("s3://no-such-bucket", "x", place.settings)
    for ask in (lambda: nowhere.write(b"x"), nowhere.has_files, lambda: list(nowhere.names())):
        with pytest.raises(ObjectStoreError, match="there is no bucket s3://no-such-bucket: make"):
            ask()


def test_no_secret_is_in_an_error(place: ObjectLocation) -> None:
    refused = ObjectStoreSettings(endpoint="http://127.0.0.1:9", retry_s=0)
    with pytest.raises(ObjectStoreError) as error:
        ObjectLocation(place.bucket, "x", refused).read()
    assert not any(secret in str(error.value) for secret in KEYS.values())
    table = DeltaMessageTable(ObjectLocation(place.bucket, "x", refused), SCHEMA, ())
    with pytest.raises(TableError, match="cannot be read") as told:
        table.landed(SELECTION)
    assert not any(secret in str(told.value) for secret in KEYS.values())


def test_a_table_in_a_store_needs_a_catalog_that_others_can_ask(
    place: ObjectLocation, tmp_path: Path
) -> None:
    for catalog in (None, tmp_path / "iceberg.db"):
        with pytest.raises(ConfigError, match=r"set tables.iceberg.properties, such as \{ type ="):
            IcebergTable(place / "readings", SCHEMA, (), catalog)


def test_a_job_without_credentials_is_told_where_they_may_be() -> None:
    said = (
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s -"
        ' error sending request\n\nDebug source:\nGeneric { store: "S3" }'
    )
    told = without_secrets(said, {})
    assert told.startswith("no credentials are there: set AWS_ACCESS_KEY_ID and AWS_SECRET")
    assert "tables.object_store.credentials_file or profile" in told
    assert "Debug" not in told


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, r"cannot read \S+/credentials: No such file or directory"),
        ("no section", "is not written as ~/.aws/credentials is: a line .default., and below it"),
        ("[other]\n", r"has no section \[default\]; there: other"),
        ("[default]\naws_access_key_id = A\n", "has no aws_secret_access_key"),
    ],
)
def test_a_file_of_credentials_that_cannot_be_used_is_told(
    place: ObjectLocation, tmp_path: Path, content: str | None, error: str
) -> None:
    path = tmp_path / "credentials"
    if content is not None:
        path.write_text(content)
    settings = ObjectStoreSettings(endpoint=place.settings.endpoint, credentials_file=str(path))
    with pytest.raises(ConfigError, match=error):
        ObjectLocation(place.bucket, "x", settings).write(b"x")


def test_credentials_of_a_file_are_read_again_when_it_changes(
    place: ObjectLocation, tmp_path: Path
) -> None:
    path = tmp_path / "credentials"
    settings = ObjectStoreSettings(
        endpoint=place.settings.endpoint, credentials_file=str(path), profile="lake"
    )
    for number in (1, 2):
        path.write_text(
            f"[lake]\naws_access_key_id = KEY-{number}\naws_secret_access_key = SECRET-{number}\n"
        )
        options = store_options(place.bucket, settings)
        assert options["aws_access_key_id"] == f"KEY-{number}"
        (ObjectLocation(place.bucket, "x", settings)).write(b"%d" % number)
        hidden = without_secrets(f"key KEY-{number}, secret SECRET-{number}", options)
        assert hidden == "key …, secret …"


def test_a_profile_of_the_environment_is_used_with_its_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(
        "[lake]\naws_access_key_id = A-KEY\naws_secret_access_key = A-SECRET\n"
    )
    (tmp_path / "config").write_text("[profile lake]\nregion = eu-north-1\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    found = store_options("s3://lake", ObjectStoreSettings())
    assert found == {
        "aws_access_key_id": "A-KEY",
        "aws_secret_access_key": "A-SECRET",
        "aws_region": "eu-north-1",
        "aws_virtual_hosted_style_request": "true",
    }


@pytest.mark.parametrize(
    ("opener", "requests_max"),
    [("delta", 13), ("iceberg", 10), ("parquet", 8)],
    indirect=["opener"],
)
def test_a_commit_of_one_file_takes_few_requests(
    opener: Opener, store: ObjectStore, requests_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit to a Delta table took 226: deltalake read its whole log for each number."""
    monkeypatch.setattr("penstock.spark.tables.directory.COMMITS_KEPT", 3)  # old ones are removed
    table = opener()
    table.prepare(SELECTION)
    for n in range(0, 15, 3):
        land(table, n, n + 1, seen=max(0, n - 2))
    store.counts()
    for n in range(15, 30, 3):
        assert land(table, n, n + 1, seen=n - 2) is Outcome.LANDED
    assert sum(store.counts().values()) <= 5 * requests_max


def test_a_command_that_a_store_refuses_ends_with_one_sentence(tmp_path: Path) -> None:
    """It ended with a traceback."""
    nothing = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_REGION": REGION}
    nothing |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true"}
    nothing |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    told = subprocess.run(
        [sys.executable, "-m", "penstock", "table", "show", "s3://lake/readings"],
        env=nothing | KEYS | {"AWS_ACCESS_KEY_ID": "", "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert told.stderr.startswith("penstock: s3://lake/readings/_delta_log: ")
    assert len(told.stderr.splitlines()) == 1
