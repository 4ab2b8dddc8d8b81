"""A table whose schemas are in a registry: while that is away the table waits, and loses none."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
from deltalake import DeltaTable

from penstock.spark.jobs.progress import Progress
from tests.spark.log_writer import LogWriter
from tests.spark.test_declared_tables import offsets
from tests.spark.test_isolated_tables import Begin, declared, failure_of, run
from tests.spark.waiting import wait_until
from tests.support.schema_registry import schema_registry

__all__ = ["run"]  # a fixture

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def avro(schema_id: int, number: int) -> bytes:
    stream = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), {"id": number})
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
    assert offsets(table.path) == list(range(10))
    (dead,) = DeltaTable(table.dead_letters_path).to_pyarrow_table().to_pylist()
    assert (dead["offset"], "knows no schema with the id 77" in dead["reason"]) == (10, True)
