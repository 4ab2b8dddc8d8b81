"""The rows of a landed table, as independent readers of its format find them.

========= ==========================================================================
delta     delta-rs, Polars; DuckDB and Spark read the files that the table's log names
iceberg   pyiceberg, Polars; DuckDB and Spark read the files that its snapshot names
parquet   Polars, DuckDB, Spark and Arrow, all by the names in the directory
========= ==========================================================================

Neither Spark 4.3 nor DuckDB has a reader of Delta and Iceberg tables without an extension that it
would have to load from somewhere.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from penstock.spark.tables.declared import DeclaredTable
from tests.support.places import path_of

Reader = Callable[[], pa.Table]

_ORDER: Final = [("epoch", "ascending"), ("offset", "ascending")]


def read_back(table: DeclaredTable, spark: SparkSession) -> pa.Table:
    """The rows in their order, once all readers agree on each value of each.

    Raises:
        AssertionError: they do not.
    """
    schema = table.schema
    found = {
        name: read().select(schema.names).cast(schema).sort_by(_ORDER)
        for name, read in _readers(table, spark).items()
    }
    names = list(found)
    for name in names[1:]:
        assert found[name].equals(found[names[0]]), f"{name} and {names[0]} differ"
    return found[names[0]]


def _readers(table: DeclaredTable, spark: SparkSession) -> dict[str, Reader]:
    match table.definition.format:
        case "delta":
            delta = DeltaTable(path_of(table))
            return {
                "delta-rs": delta.to_pyarrow_table,
                "Polars": lambda: polars.read_delta(str(path_of(table))).to_arrow(),
                **_of_files(path_of(table), delta.file_uris(), spark),
            }
        case "iceberg":
            catalog = SqlCatalog(
                "penstock", uri=f"sqlite:///{Path(table.location.uri).parent / 'iceberg.db'}"
            )
            opened = catalog.load_table(("penstock", path_of(table).name))
            files = [task.file.file_path for task in opened.scan().plan_files()]
            return {
                "pyiceberg": opened.scan().to_arrow,
                "Polars": lambda: (
                    polars.scan_iceberg(opened.metadata_location).collect().to_arrow()
                ),
                **_of_files(None, files, spark),
            }
        case _:
            everything = f"{path_of(table)}/**/*.parquet"
            return {
                "Polars": lambda: polars.read_parquet(
                    everything, hive_partitioning=True
                ).to_arrow(),
                "Arrow": lambda: _by_arrow(table),
                "DuckDB": lambda: _by_duckdb(repr(everything)),
                "Spark": lambda: spark.read.parquet(str(path_of(table))).toArrow(),
            }


def _of_files(base: Path | None, uris: list[str], spark: SparkSession) -> dict[str, Reader]:
    files = [uri.removeprefix("file://") for uri in uris]
    read = spark.read if base is None else spark.read.option("basePath", str(base))
    return {
        "DuckDB": lambda: _by_duckdb(repr(files)),
        "Spark": lambda: read.parquet(*files).toArrow(),
    }


def _by_arrow(table: DeclaredTable) -> pa.Table:
    """By names alone, as others do; the directory says the partition, the declaration its type."""
    keys = pa.schema([table.schema.field(name) for name in table.definition.partition_by])
    partitioning = ds.partitioning(keys, flavor="hive")
    files = [str(path) for path in path_of(table).rglob("*.parquet") if path.name[0] not in "._"]
    return ds.dataset(
        files, partitioning=partitioning, partition_base_dir=str(path_of(table))
    ).to_table()


def _by_duckdb(files: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.sql(f"from read_parquet({files}, hive_partitioning = true)")
        return found.to_arrow_table()
