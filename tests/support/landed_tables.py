"""Tables of every format that messages land in, without Spark: rows, and what readers find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from penstock.spark.parquet_files import NewFile, write_files
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.directory import ParquetDirectory
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import ROWS, LandedTable, Outcome, PlannedBatch, Selection
from tests.support.places import path_of

EPOCH = "20261121T000000-00000001"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SELECTION = Selection(EPOCH, "messages", ("plant/+/temp",))

SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("received_at", pa.timestamp("us", tz="UTC")),
        pa.field("line", pa.string()),
        pa.field("celsius", pa.float64()),
        pa.field("date", pa.date32()),
    ]
)
WIDER = SCHEMA.insert(5, pa.field("unit", pa.string()))
LINES = ("a", "b c/ü%", None)

Open = Callable[..., LandedTable]


def opener(kind: str, directory: Path) -> Open:
    """Opens the table once more, as another process would."""

    def opened(
        schema: pa.Schema = SCHEMA, partition_by: tuple[str, ...] = ("date", "line")
    ) -> LandedTable:
        path = directory / "readings"
        match kind:
            case "delta":
                return DeltaMessageTable(path, schema, partition_by)
            case "iceberg":
                return IcebergTable(path, schema, partition_by, directory / "iceberg.db")
            case _:
                return ParquetDirectory(path, schema, partition_by)

    return opened


def rows(start: int, end: int, celsius: float = 20.5, **others: Any) -> pa.Table:
    values = [
        {
            "epoch": EPOCH,
            "offset": n,
            "received_at": NOON + timedelta(hours=n),
            "line": LINES[n % 3],
            "celsius": celsius,
            "date": (NOON + timedelta(hours=n)).date(),
            **others,
        }
        for n in range(start, end)
    ]
    return pa.Table.from_pylist(values, schema=WIDER if others else SCHEMA)


def written(table: LandedTable, found: pa.Table) -> list[NewFile]:
    return list(write_files({ROWS: table.layout}, "part", [{ROWS: found}]))


def land(table: LandedTable, start: int, end: int, seen: int | None = None) -> Outcome:
    """Rows of these offsets, on top of what the table is thought to end at: at the first, unless
    something else is given."""
    batch = PlannedBatch(SELECTION, start if seen is None else seen, end)
    return table.commit(batch, written(table, rows(start, end)))


def landed_end(table: LandedTable, selection: Selection = SELECTION) -> int:
    landed = table.landed(selection)
    return 0 if landed is None else landed.end


def landed_start(table: LandedTable, selection: Selection = SELECTION) -> int | None:
    landed = table.landed(selection)
    return None if landed is None else landed.start


def read(kind: str, table: LandedTable) -> list[dict[str, Any]]:
    """The rows as the format's own reader sees them."""
    match kind:
        case "delta":
            found = DeltaTable(path_of(table)).to_pyarrow_table()
        case "iceberg":
            found = iceberg_at(path_of(table)).scan().to_arrow()
        case _:
            found = polars.read_parquet(f"{path_of(table)}/**/*.parquet", hive_partitioning=True)
            found = found.to_arrow()
    listed: list[dict[str, Any]] = found.to_pylist()
    return sorted(listed, key=lambda row: row["offset"])


def iceberg_at(path: Path) -> StaticTable:
    catalog = SqlCatalog("penstock", uri=f"sqlite:///{path.parent}/iceberg.db")
    return StaticTable.from_metadata(catalog.load_table(("penstock", path.name)).metadata_location)


def offsets(kind: str, table: LandedTable) -> list[int]:
    return [row["offset"] for row in read(kind, table)]
