"""By what tables are partitioned: transforms of columns, and a bound for one commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from penstock.config.table import IcebergNames, TableDefinition
from penstock.errors import ConfigError
from penstock.spark.parquet_files import Layout, write_files
from penstock.spark.partition_fields import PartitionField, parse_partition
from penstock.spark.storage.local import LocalLocation
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import ROWS, Landed, Outcome, PlannedBatch, Selection, Span
from tests.support.places import places_in

SELECTION = Selection("20261121T000000-00000001", "messages", ("plant/#",))
START = datetime(2026, 11, 25, 22, 30, tzinfo=UTC)
NAMES = IcebergNames()
TIMESTAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("received_at", TIMESTAMP),
        pa.field("device", pa.string()),
    ]
)


def rows(count: int, step: timedelta = timedelta(minutes=1)) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "epoch": SELECTION.epoch,
                "offset": n,
                "received_at": START + n * step,
                "device": None if n == 50 else f"device {n % 20}",
            }
            for n in range(count)
        ],
        SCHEMA,
    )


def opened(path: Path, *partition_by: str, names: IcebergNames = NAMES) -> IcebergTable:
    return IcebergTable(path / "readings", SCHEMA, partition_by, path / "iceberg.db", names)


def values(text: str, *given: Any, kind: pa.DataType) -> list[Any]:
    field = parse_partition(text)
    found: list[Any] = field.values(pa.chunked_array([pa.array(given, kind)])).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "field", "name"),
    [
        ("device", PartitionField("device"), "device"),
        ("hour(at)", PartitionField("at", "hour"), "at_hour"),
        ("year(a.b)", PartitionField("a.b", "year"), "a.b_year"),
        ("bucket[16](device)", PartitionField("device", "bucket[16]", 16), "device_bucket_16"),
        ("bucket[0](device)", PartitionField("bucket[0](device)"), "bucket[0](device)"),
        ("minute(at)", PartitionField("minute(at)"), "minute(at)"),
    ],
)
def test_a_field_is_a_column_or_a_transform_of_one(
    text: str, field: PartitionField, name: str
) -> None:
    assert parse_partition(text) == field
    assert field.name == name


def test_times_have_the_values_of_icebergs_specification() -> None:
    """Appendix B of https://iceberg.apache.org/spec/: parts of time since 1970, floored."""
    times = [datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), None,
             datetime(1969, 12, 31, 23, tzinfo=UTC)]  # fmt: skip
    assert values("year(x)", *times, kind=TIMESTAMP) == [47, None, -1]
    assert values("month(x)", *times, kind=TIMESTAMP) == [574, None, -1]
    assert values("day(x)", *times, kind=TIMESTAMP) == [17486, None, -1]
    assert values("hour(x)", *times, kind=TIMESTAMP) == [419686, None, -1]
    assert values("day(x)", date(2017, 11, 16), kind=pa.date32()) == [17486]
    assert values("month(x)", date(2017, 11, 16), kind=pa.date32()) == [574]


def test_buckets_have_the_hashes_of_icebergs_specification() -> None:
    """Appendix B: hash_int(34), hash_string("iceberg"), hash_bytes(00 01 02 03), and others."""
    most = 10_000

    def bucket(hashed: int) -> int:
        return (hashed & 0x7FFFFFFF) % most

    assert values(f"bucket[{most}](x)", 34, None, 34, kind=pa.int32()) == [
        bucket(2017239379), None, bucket(2017239379),
    ]  # fmt: skip
    assert values(f"bucket[{most}](x)", 34, 0, kind=pa.int64())[0] == bucket(2017239379)
    assert values(f"bucket[{most}](x)", "iceberg", kind=pa.string()) == [bucket(1210000089)]
    assert values(f"bucket[{most}](x)", b"\0\1\2\3", kind=pa.binary()) == [bucket(-188683207)]
    assert values(f"bucket[{most}](x)", date(2017, 11, 16), kind=pa.date32()) == [
        bucket(-653330422)
    ]
    time = datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)
    assert values(f"bucket[{most}](x)", time, kind=TIMESTAMP) == [bucket(-2047944441)]
    price = Decimal("14.20")
    assert values(f"bucket[{most}](x)", price, kind=pa.decimal128(9, 2)) == [bucket(-500754589)]


@pytest.mark.parametrize("partition_by", [("day(received_at)",), ("hour(received_at)", "device"),
                                          ("day(received_at)", "bucket[4](device)")])  # fmt: skip
def test_an_iceberg_table_by_transforms_is_read_by_others_and_passes_over_files(
    tmp_path: Path, partition_by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own is another package
    table = opened(tmp_path, *partition_by)
    wanted = rows(180)
    parts = [{ROWS: wanted.slice(0, 100)}, {ROWS: wanted.slice(100)}]
    files = list(write_files({ROWS: table.layout}, "part", parts))
    assert table.commit(PlannedBatch(SELECTION, 0, 180), files) is Outcome.LANDED
    again = opened(tmp_path, *partition_by)
    again.prepare(SELECTION)
    with pytest.raises(ConfigError, match=r"is partitioned by .*, and device is declared"):
        opened(tmp_path, "device").prepare(SELECTION)

    catalog = SqlCatalog("penstock", uri=f"sqlite:///{tmp_path}/iceberg.db")
    loaded = catalog.load_table("penstock.readings")
    expected = wanted.sort_by("offset")
    assert loaded.scan().to_arrow().sort_by("offset").cast(SCHEMA) == expected
    for condition, chosen in (
        ("device == 'device 7'", [n for n in range(180) if n % 20 == 7]),
        ("received_at >= '2026-11-26T00:00:00+00:00'", list(range(90, 180))),
    ):
        scan = loaded.scan(row_filter=condition)
        assert sorted(scan.to_arrow().column("offset").to_pylist()) == chosen
        if len(partition_by) > 1 or "received_at" in condition:
            assert len(list(scan.plan_files())) < len(files)
    some = again.layout
    new = list(write_files({ROWS: some}, "new", [{ROWS: wanted.slice(40, 5)}]))
    again.replace(Span(SELECTION.epoch, 40, 60), new)
    left = loaded.refresh().scan().to_arrow().sort_by("offset").cast(SCHEMA)
    assert left == pa.concat_tables([wanted.slice(0, 45), wanted.slice(60)])
    again.replace(Span(SELECTION.epoch, 40, 40), list(
        write_files({ROWS: some}, "new", [{ROWS: wanted.slice(45, 15)}])
    ))  # fmt: skip
    live = again.live_files()
    assert live is not None
    groups: dict[Any, list[str]] = {}
    for file in live:
        groups.setdefault(file.partition, []).append(file.path)
    assert again.compact([paths for paths in groups.values() if len(paths) > 1], 10)
    assert len(again.live_files() or []) == len(groups) < len(live)
    loaded.refresh()
    assert polars.scan_iceberg(loaded).collect().sort("offset").to_arrow().num_rows == 180
    assert loaded.scan().to_arrow().sort_by("offset").cast(SCHEMA) == expected


def test_catalog_and_namespace_have_any_name(tmp_path: Path) -> None:
    names = IcebergNames(catalog="lake", namespace="bronze")
    table = opened(tmp_path, names=names)
    files = list(write_files({ROWS: table.layout}, "part", [{ROWS: rows(3)}]))
    table.commit(PlannedBatch(SELECTION, 0, 3), files)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/iceberg.db")
    assert catalog.load_table("bronze.readings").scan().to_arrow().num_rows == 3
    assert opened(tmp_path, names=names).landed(SELECTION) == Landed(0, 3)


def declared(**settings: Any) -> DeclaredTable:
    given = {
        "name": "readings",
        "topics": "plant/{device}",
        "format": "iceberg",
        "decoder": {"kind": "json", "columns": {"at": "timestamp", "value": "float"}},
        **settings,
    }
    return DeclaredTable(TableDefinition.model_validate(given), places_in(Path("tables")))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"format": "delta", "partition_by": ["hour(at)"]}, "which only format iceberg has"),
        ({"partition_by": ["hour(when)"]}, "is partitioned by when, but has no such column"),
        ({"partition_by": ["hour(device)"]}, "device is string, which has no hour"),
        ({"partition_by": ["bucket[4](value)"]}, "value is double, which has no bucket[4]"),
        ({"partition_by": ["bucket[20000](device)"]}, "at most 10000 buckets are allowed"),
        ({"partition_by": ["day(at)", "hour(at)"]}, "is partitioned by at twice"),
        ({"partition_by": ["at"]}, "with format iceberg also hour(…) of it"),
    ],
)
def test_an_impossible_partition_is_told_in_one_sentence(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        declared(**settings)
    assert sentence in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_commit_that_would_touch_thousands_of_partitions_is_refused(tmp_path: Path) -> None:
    """5,000 topics as partitions made 5,001 files in one commit."""
    layout = Layout(LocalLocation(tmp_path), SCHEMA, ("device",), partitions_max=30)
    few = rows(40)
    many = few.set_column(3, "device", pa.array([f"device {n}" for n in range(40)]))

    def write(parts: Sequence[pa.Table]) -> list[Any]:
        return list(write_files({ROWS: layout}, "part", [{ROWS: part} for part in parts]))

    assert len({json.loads(file.partition)["device"] for file in write([few])}) == 20
    for parts in ([many], [many.slice(0, 20), many.slice(20)]):
        with pytest.raises(ConfigError, match="in more than 30 partitions by device, and each wou"):
            write(parts)
    left = list(tmp_path.glob("*/*"))
    assert len(left) <= 100
    assert all(pq.read_metadata(path).num_rows for path in left), "none is half written"
    layout.check_partitions(30)
    assert declared(partitions_max=7).open()[ROWS].layout.partitions_max == 7
