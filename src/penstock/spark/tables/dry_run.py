"""Lands the latest messages of the log in temporary tables, as a dry run of a declaration.

The dry run uses the code of tasks and driver, so messages that it accepts would land.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

import pyarrow as pa

from penstock.spark.parquet_files import NewFile, file_writer
from penstock.spark.tables.births import preview_births
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.decoding_split import MESSAGE_ID, SEEN_AT
from penstock.spark.tables.evolving import with_present_types
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS, PlannedBatch
from penstock.spark.tables.landing_target import files_of_table
from penstock.spark.tables.places import TablePlaces
from penstock.spark.tables.sample import newest_messages
from penstock.stream.client import StreamClient
from penstock.stream.rows import STREAM_SCHEMA


def land_sample(table: DeclaredTable, client: StreamClient, count: int) -> Mapping[str, pa.Table]:
    """Return the rows and dead letters of the last `count` messages of the table's topics.

    Raises:
        ConfigError: the table exists, and contradicts the declaration.
        PenstockError: the stream service cannot be read, or the rows cannot be written.
    """
    table = with_present_types(table)
    epoch = client.offsets(table.stream).epoch
    for present in table.open().values():
        if present.location.has_files():
            present.prepare(table.selection(epoch), add=False)
    messages = newest_messages(client, table.stream, table.topic_filter, count)
    with tempfile.TemporaryDirectory(prefix="penstock-validate-") as directory:
        definition = table.definition.model_copy(update={"path": ""})
        temporary = DeclaredTable(definition, TablePlaces(directory))
        preview_births(temporary, table.births_dir, client)
        return land_messages(temporary, epoch, messages.select(columns_read(table)))


def land_messages(table: DeclaredTable, epoch: str, messages: pa.Table) -> Mapping[str, pa.Table]:
    """Land messages in new tables; return the rows of each table, by name.

    Args:
        table: the declaration, whose tables do not exist.
        epoch: the epoch of the log.
        messages: the messages in order of offset, with the columns of `columns_read`.
    """
    tables = table.open()
    if table.definition.repeats is not None:
        no_times = pa.nulls(messages.num_rows, pa.timestamp("us", tz="UTC"))
        messages = messages.append_column(MESSAGE_ID, table.split.message_ids(messages))
        messages = messages.append_column(SEEN_AT, no_times)
    parts: dict[str, list[pa.Table]] = {name: [] for name in tables}

    def split(batch: pa.Table) -> Mapping[str, pa.Table]:
        found = table.split(batch)
        for name, part in found.items():
            parts[name].append(part)
        return found

    layouts = {name: one.layout for name, one in tables.items()}
    files = [
        NewFile(**file)
        for file_rows in file_writer(layouts, split, 0)(iter(messages.to_batches()))
        for file in file_rows.to_pylist()
    ]
    if files:
        end = max(file.last_offset for file in files) + 1
        batch = PlannedBatch(table.selection(epoch), 0, end)
        for name in (DEAD_LETTERS, ROWS):
            tables[name].commit(batch, files_of_table(files, name))
    return {name: pa.concat_tables(found) for name, found in parts.items() if found}


def columns_read(table: DeclaredTable) -> list[str]:
    """Return the columns of messages that landing a table reads."""
    return table.split.columns if table.definition.repeats is None else STREAM_SCHEMA.names
