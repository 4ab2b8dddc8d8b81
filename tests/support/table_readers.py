"""The rows of a landed table, as independent readers of its format find them.

========= ==========================================================================
delta     delta-rs, Polars; DuckDB and Spark read the files that the table's log names
iceberg   pyiceberg, Polars; DuckDB and Spark read the files that its snapshot names
parquet   Polars, DuckDB, Spark and Arrow, all by the names in the directory
========= ==========================================================================

Neither Spark 4.3 nor DuckDB has a reader of Delta and Iceberg tables, or of an object store,
without an extension that it would have to load from somewhere: they read copies of what is in a
store.
"""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from penstock.spark.storage.clients import store_options
from penstock.spark.storage.opening import delta_options, location_in, settings_of
from penstock.spark.tables.declared import DeclaredTable
from tests.support.places import path_of

os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own is a package more

Reader = Callable[[], pa.Table]

_ORDER: Final = [("epoch", "ascending"), ("offset", "ascending")]


def read_back(table: DeclaredTable, spark: SparkSession) -> pa.Table:
    """The rows in their order, once all readers agree on each value of each.

    Raises:
        AssertionError: they do not.
    """
    schema = table.schema
    with TemporaryDirectory() as directory:
        found = {
            name: read().select(schema.names).cast(schema).sort_by(_ORDER)
            for name, read in _readers(table, spark, Path(directory)).items()
        }
    names = list(found)
    for name in names[1:]:
        assert found[name].equals(found[names[0]]), f"{name} and {names[0]} differ"
    return found[names[0]]


def read_by_its_own(table: DeclaredTable) -> pa.Table:
    """The rows of a Delta or Iceberg table, as delta-rs or pyiceberg finds them."""
    if table.definition.format == "delta":
        return _delta(table).to_pyarrow_table()
    return _iceberg(table).scan().to_arrow()


def _polars_options(table: DeclaredTable) -> dict[str, str]:
    settings = settings_of(table.location)
    if settings is None:
        return {}
    return store_options(table.location.uri, settings) | {"aws_allow_http": "true"}


def _delta(table: DeclaredTable) -> DeltaTable:
    location = table.location
    return DeltaTable(location.uri, storage_options=delta_options(location))


def _iceberg(table: DeclaredTable) -> Table:
    """Opened with pyiceberg's own access to files."""
    settings, places = settings_of(table.location), table.places
    properties = dict(places.iceberg.properties)
    if settings is None:
        properties = {"type": "sql", "uri": f"sqlite:///{places.catalog}"}
    else:
        keys = store_options(table.location.uri, settings)
        properties |= {
            "s3.endpoint": settings.endpoint,
            "s3.region": keys["aws_region"],
            "s3.access-key-id": keys["aws_access_key_id"],
            "s3.secret-access-key": keys["aws_secret_access_key"],
        }
    catalog = load_catalog(places.iceberg.catalog, **properties)
    return catalog.load_table((places.iceberg.namespace, table.location.name))


def _copied(table: DeclaredTable, uris: list[str], directory: Path) -> tuple[Path, list[str]]:
    """The files, and the directory of the table: those of this machine, or copies."""
    base = Path(table.location.uri)
    if settings_of(table.location) is None:
        return base, [uri.removeprefix("file://") for uri in uris]
    paths = []
    for uri in uris:
        path = directory / uri.removeprefix(f"{table.location.uri}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(location_in(table.location, uri).read())
        paths.append(str(path))
    return directory, paths


def _readers(table: DeclaredTable, spark: SparkSession, copies: Path) -> dict[str, Reader]:
    options = _polars_options(table)
    match table.definition.format:
        case "delta":
            delta = _delta(table)
            base, paths = _copied(table, delta.file_uris(), copies)
            return {
                "delta-rs": delta.to_pyarrow_table,
                "Polars": lambda: polars.read_delta(
                    table.location.uri, storage_options=options
                ).to_arrow(),
                **_of_files(base, paths, spark),
            }
        case "iceberg":
            opened = _iceberg(table)
            files = [task.file.file_path for task in opened.scan().plan_files()]
            _, paths = _copied(table, files, copies)
            return {
                "pyiceberg": opened.scan().to_arrow,
                "Polars": lambda: (
                    polars.scan_iceberg(opened, storage_options=options).collect().to_arrow()
                ),
                **_of_files(None, paths, spark),
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


def _of_files(base: Path | None, files: list[str], spark: SparkSession) -> dict[str, Reader]:
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
