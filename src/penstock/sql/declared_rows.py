"""Decodes messages to the rows of a declared table, without Spark and without landing them.

    messages ─▶ levels of the topic, decoded payload ─▶ rows, as `penstock tables run` lands them
                               ╰─ not decodable: a dead letter there, only counted here

The columns are those of the declaration, and epoch, offset, received_at, topic, client_id, qos and
retain of the message, unless the declaration has a column of that name. Repeats are not left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.table import TableDefinition
from penstock.decoding.factory import Births, Decoder, Messages, make_decoder, pin_schema
from penstock.decoding.sparkplug_births import birth_filters
from penstock.decoding.topic_pattern import TopicPattern
from penstock.sql.predicates import level_values
from penstock.stream.birth_store import DIRECTORY_NAME, BirthStore
from penstock.stream.client import StreamClient
from penstock.stream.pushed_filters import PushedFilters
from penstock.stream.rows import STREAM_SCHEMA

MESSAGE_COLUMNS: Final = ("epoch", "offset", "received_at", "topic", "client_id", "qos", "retain")


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows of some messages.

    Attributes:
        rows: the rows, in the order of the messages.
        undecoded_messages: the number of messages without a row.
    """

    rows: pa.Table
    undecoded_messages: int


class DeclaredRows:
    """Decodes messages to the rows of one declared table.

    Args:
        table: the declaration.
        path: the directory in which the table is kept, for the births of Sparkplug nodes that the
            log no longer has; None for those in the log alone.

    Attributes:
        schema: the columns of the rows.
        message_columns: the names of the columns that are copied from the message.
        topic_filter: the topic filter of the messages.

    Raises:
        ConfigError: the declaration cannot be used: it names a file that cannot be read, for
            example.
        RegistryUnavailable: the schema registry does not answer.
    """

    def __init__(self, table: TableDefinition, path: Path | None = None) -> None:
        self._definition = pin_schema(table.decoder)
        self._decoder = make_decoder(self._definition)
        self._pattern = TopicPattern.parse(table.topics)
        self.topic_filter = self._pattern.topic_filter
        self._births: BirthStore | None = None
        if table.decoder.kind == "sparkplug_b":
            directory = None if path is None else path / DIRECTORY_NAME
            self._births = BirthStore(directory, table.stream, birth_filters(self.topic_filter))
        own_fields = [*self._pattern.schema, *self._decoder.schema]
        taken = {field.name.lower() for field in own_fields}
        self.message_columns = tuple(name for name in MESSAGE_COLUMNS if name not in taken)
        self.schema = pa.schema(
            [*(STREAM_SCHEMA.field(name) for name in self.message_columns), *own_fields]
        )

    def narrow(self, predicate: pc.Expression | None, pushed: PushedFilters) -> PushedFilters:
        """Return filters of the log with the named levels to which a filter restricts rows."""
        values = level_values(predicate, self.schema, self._pattern.exact_levels)
        return pushed.with_levels(self._pattern.levels, values) or pushed

    def columns_read(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of messages that are needed for these columns of rows."""
        return tuple(
            name
            for name in STREAM_SCHEMA.names
            if name in ("topic", "payload", "offset")
            or (name in columns and name in self.message_columns)
        )

    def decoder(self, client: StreamClient) -> Decoder:
        """Return the decoder for a scan of the log, which knows the births that are needed.

        Raises:
            PenstockError: the log cannot be read.
        """
        if self._births is None:
            return self._decoder
        found = self._births.preview(client)
        return make_decoder(self._definition, Births(found.tables, found.gaps, found.end))

    def rows(
        self, decoder: Decoder, messages: pa.RecordBatch, columns: Sequence[str]
    ) -> DecodedRows:
        """Decode messages to rows with these columns, which are in the order of `schema`.

        Raises:
            DecodingPostponed: the schema registry does not answer.
        """
        topics = messages.column(messages.schema.get_field_index("topic"))
        levels, misfits, _ = self._pattern.columns(topics)
        fitting = pa.arange(0, messages.num_rows)
        if len(misfits):
            fitting = fitting.filter(pc.invert(pc.is_in(fitting, misfits)))
        payloads, offsets = (
            messages.column(messages.schema.get_field_index(name)) for name in ("payload", "offset")
        )
        decoded = decoder.decode(Messages(payloads, topics, offsets).take(fitting))
        sources = fitting.take(decoded.sources)
        columns_by_name = dict(zip(decoded.rows.column_names, decoded.rows.columns, strict=True))
        for name in columns:
            if name in self._pattern.schema.names:
                columns_by_name[name] = levels.column(name).take(sources)
            elif name in self.message_columns:
                column = messages.column(messages.schema.get_field_index(name))
                columns_by_name[name] = column.take(sources)
        schema = pa.schema([field for field in self.schema if field.name in columns])
        undecoded_messages = messages.num_rows - len(pc.unique(sources))
        if not schema.names:
            return DecodedRows(
                pa.table({"": pa.nulls(len(sources))}).select([]), undecoded_messages
            )
        arrays = [columns_by_name[field.name].cast(field.type) for field in schema]
        return DecodedRows(pa.Table.from_arrays(arrays, schema=schema), undecoded_messages)
