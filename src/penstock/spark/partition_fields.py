"""The partition fields of a table: a column, or a transform of one (for Iceberg).

    machine                the column itself
    hour(received_at)      hour, day, month or year of a time or a date, UTC
    bucket[16](device)     one of sixteen buckets, by a hash: for columns with many values

The field of a transform has the name that Iceberg's own tools give it: received_at_hour,
device_bucket_16. Its value is that of https://iceberg.apache.org/spec/#partition-transforms: hours,
days, months or years since 1970, or the number of the bucket.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError

BUCKETS_MAX: Final = 10_000
"""Most buckets of one field."""

PARTITIONS_MAX: Final = 1000
"""Most partitions in which one commit may have files, by default."""

_FORM: Final = re.compile(r"(year|month|day|hour|bucket\[([1-9]\d{0,8})\])\(([^()\[\]]+)\)")
_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field: all rows of a file have the same value of it.

    Attributes:
        column: the source column.
        transform: identity, year, month, day, hour, or bucket[N].
        buckets: the N of bucket[N]; 0 for other transforms.
    """

    column: str
    transform: str = "identity"
    buckets: int = 0

    @property
    def is_column(self) -> bool:
        """True if the field is the column itself."""
        return self.transform == "identity"

    @property
    def name(self) -> str:
        """The name of the field in the table, and in the names of directories."""
        if self.is_column:
            return self.column
        kind = f"bucket_{self.buckets}" if self.buckets else self.transform
        return f"{self.column}_{kind}"

    def check(self, table: str, kind: pa.DataType) -> None:
        """Raise ConfigError if the transform does not take this type, or has too many buckets.

        Args:
            table: the name of the table, for errors.
            kind: the type of the source column.
        """
        is_time = pa.types.is_timestamp(kind)
        if self.buckets:
            fits = not (pa.types.is_floating(kind) or pa.types.is_nested(kind))
            fits = fits and not pa.types.is_boolean(kind)
        else:
            fits = is_time or (pa.types.is_date(kind) and self.transform != "hour")
        if not fits:
            raise ConfigError(
                f"table {table} is partitioned by {self.transform}({self.column}), and"
                f" {self.column} is {kind}, which has no {self.transform}"
            )
        if self.buckets > BUCKETS_MAX:
            raise ConfigError(
                f"table {table} is partitioned by {self.transform}({self.column}); at most"
                f" {BUCKETS_MAX} buckets are allowed"
            )

    def values(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the value of the field for each value of the source column; null for null."""
        if self.is_column:
            return column
        if self.buckets:
            return self._buckets(column)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        if self.transform in ("year", "month"):
            years = pc.subtract(pc.year(column).cast(pa.int32()), 1970)
            if self.transform == "year":
                return years
            months = pc.subtract(pc.month(column).cast(pa.int32()), 1)
            return pc.add(pc.multiply(years, 12), months)
        floor = pc.floor_temporal(column, unit=self.transform).cast(pa.int64())
        return pc.divide(floor, _HOUR_US if self.transform == "hour" else _DAY_US).cast(pa.int32())

    def _buckets(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        from pyiceberg.transforms import BucketTransform

        bucket = BucketTransform(self.buckets).transform(_iceberg_type(column.type))
        encoded = pc.dictionary_encode(column.combine_chunks())
        found = pa.array([bucket(value) for value in encoded.dictionary.to_pylist()], pa.int32())
        return pa.chunked_array([found.take(encoded.indices)])


def too_many_partitions(
    directory: object, partition_by: Sequence[str], partitions_max: int
) -> ConfigError:
    """Return the error for a commit that would have files in too many partitions."""
    return ConfigError(
        f"one batch of the table in {directory} has rows in more than {partitions_max} partitions"
        f" by {', '.join(partition_by)}, and each would get a file of its own: partition by what"
        " has fewer values (with format iceberg a bucket[16](…) of it), let commit_offsets_max be"
        " smaller, or partitions_max larger"
    )


def parse_partition(text: str) -> PartitionField:
    """Parse the text of a field: `machine`, `hour(received_at)` or `bucket[16](device)`."""
    found = _FORM.fullmatch(text)
    if found is None:
        return PartitionField(text)
    return PartitionField(found[3], found[1], int(found[2] or 0))


def _iceberg_type(kind: pa.DataType) -> Any:
    from pyiceberg import types

    if pa.types.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return types.TimestamptzType()
    if pa.types.is_date(kind):
        return types.DateType()
    if pa.types.is_integer(kind):
        return types.LongType()
    return types.BinaryType() if pa.types.is_binary(kind) else types.StringType()
