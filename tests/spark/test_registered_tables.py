"""A table whose schemas are in a registry: while that is away the table waits, and loses none."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.spark.jobs.progress import Progress
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import ROWS
from tests.spark.log_writer import LogWriter
from tests.spark.test_declared_tables import offsets
from tests.spark.test_isolated_tables import Begin, declared, failure_of, run
from tests.spark.waiting import wait_until
from tests.support.places import dead_letters_path_of, path_of
from tests.support.schema_registry import schema_registry

__all__ = ["run"]  # a fixture

SCHEMA: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


LATER: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "unit", "type": ["null", "string"], "default": None},
    ],
}
FIRST: dict[str, Any] = {**SCHEMA, "fields": [{"name": "id", "type": "int"}]}


def avro(schema_id: int, number: int, schema: Any = SCHEMA, **others: Any) -> bytes:
    stream = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    stream.seek(5)
    value = {"id": number, **others}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_a_table_waits_for_its_registry_and_no_message_is_a_dead_letter(
    log: LogWriter, run: Begin, tmp_path: Path
) -> None:
    with schema_registry() as registry:
        known = registry.register("readings-value", json.dumps(SCHEMA))
        log.append(10, topics=("plant/1",), payload=lambda n: avro(known, n))
        log.append(1, topics=("plant/1",), payload=lambda n: avro(77, n))
        place = {"url": registry.url, "cache_dir": str(tmp_path / "schemas")}
        decoder = {
            "kind": "avro",
            "framing": "confluent",
            "registry": place,
            "columns": {"id": "int"},
        }
        table = declared(tmp_path, "registered", decoder=decoder)
        other = declared(tmp_path, "other", decoder={"kind": "raw"})
        registry.fails_with = 503
        running = run([table, other], False)
        wait_until(lambda: running.progress.get("other", Progress()).rows_landed == 11, "other")
        wait_until(lambda: failure_of(table) is not None, "it says why")
        failure = failure_of(table)
        assert failure is not None
        assert failure.sentence.startswith(
            f"the schema registry {registry.url} does not say what /schemas/ids/"
        )
        assert not (tmp_path / "tables" / "registered_dead_letters").exists()
        registry.fails_with = 0
        wait_until(lambda: running.progress["registered"].rows_landed == 10, "it lands")
        running.stop()
    assert offsets(path_of(table)) == list(range(10))
    (dead,) = DeltaTable(dead_letters_path_of(table)).to_pyarrow_table().to_pylist()
    assert (dead["offset"], "knows no schema with the id 77" in dead["reason"]) == (10, True)


@pytest.mark.parametrize(
    "form",
    [
        "delta",
        pytest.param("iceberg", marks=pytest.mark.torture("the same in another format")),
        pytest.param("parquet", marks=pytest.mark.torture("the same in another format")),
    ],
)
def test_new_fields_of_a_schema_become_columns_while_the_table_is_landed(
    log: LogWriter,
    run: Begin,
    tmp_path: Path,
    form: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is registered before it is published is in the batch that has the first such message."""

    def table() -> DeclaredTable:
        place = {"url": registry.url, "cache_dir": str(tmp_path / "s"), "subject": "readings-value"}
        decoder = {"kind": "avro", "framing": "confluent", "registry": place}
        return declared(tmp_path, "evolving", decoder=decoder, evolve="add", format=form)

    with schema_registry() as registry:
        first = registry.register("readings-value", json.dumps(FIRST))
        log.append(5, topics=("plant/1",), payload=lambda n: avro(first, n, FIRST))
        running = run([table()], False)
        wait_until(lambda: running.progress.get("evolving", Progress()).rows_landed == 5, "old")
        second = registry.register("readings-value", json.dumps(LATER))
        log.append(5, topics=("plant/1",), payload=lambda n: avro(second, n, LATER, unit="K"))
        wait_until(lambda: running.progress["evolving"].rows_landed == 10, "new")
        running.stop()
        assert not running.error
        told = [one.getMessage() for one in caplog.records if one.name.endswith("evolving")]
        widens = form == "iceberg"
        stays = "the column id stays int32, though its field is int64"
        if widens:
            stays = "the column id is int64 now, and was int32"
        new = "the column unit of type string is new"
        tail = "by version 2 of its schema"
        assert told == [f"table evolving: {change}, {tail}" for change in (stays, new)]
        log.append(1, topics=("plant/1",), payload=lambda _: avro(second, 2**40, LATER, unit="K"))
        log.append(1, topics=("plant/1",), payload=lambda n: avro(second, n, LATER, unit="F"))
        again = run([table()], True)
        again.join()
        assert not again.error
        files = table().open()[ROWS].recent_files(timedelta.max)
    parts = [pq.ParquetFile(file).read() for file in files]
    found = pa.concat_tables(parts, promote_options="permissive").to_pylist()
    units = {row["offset"]: (row["id"], row["unit"]) for row in found}
    expected = {n: (n, None if n < 5 else "F" if n == 11 else "K") for n in (*range(10), 11)}
    assert units == (expected | {10: (2**40, "K")} if widens else expected)
