"""The rows of a declared table, decoded from messages without Spark and without landing them.

    messages ─▶ levels of the topic, decoded payload ─▶ rows, as `penstock tables run` lands them
                               ╰─ no row: a dead letter there, counted here

The columns are those of the declaration, and epoch, offset, received_at, topic, client_id, qos and
retain of the message, unless the declaration has one of that name. Repeats are not looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.table import TableDefinition
from penstock.decoding.api import make_decoder, pin_schema
from penstock.decoding.topic_pattern import TopicPattern
from penstock.stream.rows import STREAM_SCHEMA

OF_MESSAGE: Final = ("epoch", "offset", "received_at", "topic", "client_id", "qos", "retain")


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows of some messages.

    Attributes:
        rows: the rows, in the order of the messages.
        lost: how many messages are no row.
    """

    rows: pa.Table
    lost: int


class DeclaredRows:
    """Makes the rows of one declared table.

    Args:
        table: the declaration.

    Attributes:
        schema: the columns of the rows.
        of_message: the names among them that are columns of the log.
        topic_filter: the messages.

    Raises:
        ConfigError: the declaration names a file that cannot be used, for example.
    """

    def __init__(self, table: TableDefinition) -> None:
        self._decoder = make_decoder(pin_schema(table.decoder))
        self._pattern = TopicPattern.parse(table.topics)
        self.topic_filter = self._pattern.topic_filter
        own = [*self._pattern.schema, *self._decoder.schema]
        taken = {field.name.lower() for field in own}
        self.of_message = tuple(name for name in OF_MESSAGE if name not in taken)
        self.schema = pa.schema([*(STREAM_SCHEMA.field(name) for name in self.of_message), *own])

    def columns_read(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of messages that these columns of rows need."""
        return tuple(
            name
            for name in STREAM_SCHEMA.names
            if name in ("topic", "payload") or (name in wanted and name in self.of_message)
        )

    def __call__(self, messages: pa.RecordBatch, wanted: Sequence[str]) -> DecodedRows:
        """Decode messages to rows with the columns ``wanted``, in the order of `schema`.

        Raises:
            DecodingPostponed: not now, for a reason outside of the messages.
        """
        topics = messages.column(messages.schema.get_field_index("topic"))
        levels, misfits, _ = self._pattern.columns(topics)
        fitting = pa.arange(0, messages.num_rows)
        if len(misfits):
            fitting = fitting.filter(pc.invert(pc.is_in(fitting, misfits)))
        payloads = messages.column(messages.schema.get_field_index("payload"))
        decoded = self._decoder.decode(payloads.take(fitting), topics.take(fitting))
        sources = fitting.take(decoded.sources)
        found = dict(zip(decoded.rows.column_names, decoded.rows.columns, strict=True))
        for name in wanted:
            if name in self._pattern.schema.names:
                found[name] = levels.column(name).take(sources)
            elif name in self.of_message:
                column = messages.column(messages.schema.get_field_index(name))
                found[name] = column.take(sources)
        schema = pa.schema([field for field in self.schema if field.name in wanted])
        lost = messages.num_rows - len(pc.unique(sources))
        if not schema.names:
            return DecodedRows(pa.table({"": pa.nulls(len(sources))}).select([]), lost)
        columns = [found[field.name].cast(field.type) for field in schema]
        return DecodedRows(pa.Table.from_arrays(columns, schema=schema), lost)
