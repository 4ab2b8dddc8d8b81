"""Converts record batches of Spark to rows to publish: adds defaults, and casts to exact types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError
from penstock.spark.sink_options import SinkOptions
from penstock.stream.rows import PROPERTIES_TYPE, PUBLISH_SCHEMA


def rows_to_publish(batch: pa.RecordBatch, names: list[str], options: SinkOptions) -> pa.Table:
    """Return the rows of `batch` with the columns of `PUBLISH_SCHEMA`.

    Args:
        batch: rows of a DataFrame whose columns were checked (`sink_options.check_columns`).
        names: the names of the batch's columns, in order.
        options: the defaults for missing columns and for null.

    Raises:
        ConfigError: a value cannot be cast, such as a number that is too large.
    """
    columns_by_name = {name: batch.column(position) for position, name in enumerate(names)}
    defaults = {"topic": options.topic, "qos": options.qos, "retain": options.retain}
    columns: list[Any] = []
    for field in PUBLISH_SCHEMA:
        values = columns_by_name.get(field.name)
        if field.name == "properties":
            columns.append(_properties(values, batch.num_rows))
            continue
        default = pa.scalar(defaults.get(field.name), field.type)
        if values is None:
            columns.append(pa.repeat(default, batch.num_rows))
            continue
        values = _cast(field.name, values, field.type)
        columns.append(pc.fill_null(values, default) if default.is_valid else values)
    return pa.Table.from_arrays(columns, schema=PUBLISH_SCHEMA)


def _properties(values: Any, count: int) -> Any:
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(count, PROPERTIES_TYPE)
    fields: list[Any] = []
    for field in PROPERTIES_TYPE:
        position = values.type.get_field_index(field.name)
        if position < 0:
            fields.append(pa.nulls(count, field.type))
        else:
            fields.append(_cast(field.name, values.field(position), field.type))
    return pa.StructArray.from_arrays(fields, fields=list(PROPERTIES_TYPE), mask=values.is_null())


def _cast(name: str, values: Any, kind: pa.DataType) -> Any:
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"a value of {name!r} cannot be published: {error}") from error
