"""An object store is reached as the settings, files and environment say, whatever is in them."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table_places import parse_place
from penstock.errors import ConfigError
from penstock.spark.storage import credential_files
from penstock.spark.storage.clients import delta_options, store_options, without_secrets
from penstock.spark.storage.location import ObjectStoreError
from penstock.spark.storage.objects import ObjectLocation
from penstock.spark.storage.opening import check_creates
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landed_table import PlannedBatch, TableError
from tests.support.landed_tables import SCHEMA, SELECTION, land, rows, written
from tests.support.object_store import KEYS, ObjectStore, object_store

GOOD = "[default]\naws_access_key_id = A-KEY\naws_secret_access_key = A-SECRET\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def bucket(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; the environment has keys and no endpoint."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    name = f"lake-{uuid4().hex[:12]}"
    server.make_bucket(name)
    return f"s3://{name}"


def at(bucket: str, key: str, **settings: object) -> ObjectLocation:
    return ObjectLocation(bucket, key, ObjectStoreSettings.model_validate(settings))


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_of_the_environment_is_one_as_that_of_the_settings(
    server: ObjectStore, bucket: str, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path
) -> None:
    """The bucket vanished from the path, and http:// was refused."""
    monkeypatch.setenv(name, server.endpoint)
    table = at(bucket, "bronze/readings")
    land(DeltaMessageTable(table, SCHEMA, ("date",)), 0, 6)
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "table", "show", table.uri],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "celsius" in shown.stdout
    by_settings = at(bucket, "bronze/readings", endpoint=server.endpoint)
    assert list(by_settings.files())


@pytest.mark.parametrize("endpoint", ["https://minio.plant:9000", "https://lake.minio.plant:9000"])
def test_a_bucket_that_is_no_part_of_the_path_is_one_of_the_host_name(endpoint: str) -> None:
    """Objects went into another bucket, named as the first part of the path."""
    settings = ObjectStoreSettings(endpoint=endpoint, path_style=False)
    for options in (store_options("s3://lake", settings), delta_options("s3://lake/x", settings)):
        assert options["aws_endpoint"] == "https://lake.minio.plant:9000"
        assert options["aws_virtual_hosted_style_request"] == "true"


def test_a_file_of_authorities_that_is_not_there_is_no_missing_object(
    bucket: str, tmp_path: Path
) -> None:
    """Nothing was there, and nothing was removed, without an error."""
    missing = str(tmp_path / "ca.pem")
    place = at(bucket, "x", endpoint="https://127.0.0.1:9", ca_file=missing)
    for ask in (place.exists, place.remove, place.read, lambda: place.move(place)):
        with pytest.raises(ConfigError, match=r"cannot read \S+ca.pem: No such file"):
            ask()


def test_a_file_that_is_being_written_anew_counts_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    settings = ObjectStoreSettings(credentials_file=str(path))
    path.write_text("")
    with pytest.raises(ConfigError, match="has no section"):
        store_options("s3://lake", settings)
    path.write_text(GOOD)
    assert store_options("s3://lake", settings)["aws_access_key_id"] == "A-KEY"
    for content in ("", "[default]\naws_access_", "[default]\naws_access_key_id = B\n"):
        path.write_text(content)
        assert store_options("s3://lake", settings)["aws_access_key_id"] == "A-KEY"
    monkeypatch.setattr(credential_files, "_KEPT_S", 0.0)
    with pytest.raises(ObjectStoreError, match="has no aws_secret_access_key"):
        store_options("s3://lake", settings)
    path.write_text(GOOD.replace("A-", "B-"))
    assert store_options("s3://lake", settings)["aws_access_key_id"] == "B-KEY"


def test_a_session_token_of_other_keys_is_not_sent_with_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    settings = ObjectStoreSettings(credentials_file=str(path))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of others")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OTHERS")
    path.write_text(GOOD)
    with pytest.raises(ConfigError, match="AWS_SESSION_TOKEN, is of other keys: unset it"):
        store_options("s3://lake", settings)
    path.write_text(f"{GOOD}aws_session_token = mine\n")
    assert store_options("s3://lake", settings)["aws_session_token"] == "mine"
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    path.write_text(f"{GOOD}aws_session_token =\n")
    assert "aws_session_token" not in store_options("s3://lake", settings)
    assert without_secrets("an error", {"aws_session_token": ""}) == "an error"


def test_a_store_that_may_not_create_is_told_in_a_sentence(
    server: ObjectStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with pytest.raises(ObjectStoreError, match=bucket):
        check_creates(at(bucket, "readings", endpoint=server.endpoint))


def test_a_token_that_the_store_tells_back_is_in_no_error_of_a_table(
    server: ObjectStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in what caused it: errors of deltalake have all that the store answered."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "THE-TOKEN-OF-A-SESSION")
    location = at(bucket, "readings", endpoint=server.endpoint, retry_s=0)
    table = DeltaMessageTable(location, SCHEMA, ("date",))
    land(table, 0, 3)
    files = written(table, rows(3, 6))
    server.spoil("stale credentials")
    try:
        with pytest.raises(TableError, match="ExpiredToken") as told:
            table.commit(PlannedBatch(SELECTION, 3, 6), files)
    finally:
        server.spoil("")
    assert "THE-TOKEN-OF-A-SESSION" not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize("path", ["a//b", "../b", "a/./b"])
def test_a_url_has_names_in_its_path(path: str) -> None:
    """It ended with a traceback when the store was asked."""
    with pytest.raises(ConfigError, match="a URL without empty parts"):
        parse_place(f"s3://lake/{path}")
    assert parse_place("s3://lake/a/b/") == "s3://lake/a/b"
