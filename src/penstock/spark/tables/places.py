"""Finds the files of the tables of a configuration, their catalog, and their jobs' directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table import IcebergNames, Tables
from penstock.config.table_places import births_dir, is_remote, job_dir, table_place
from penstock.spark.storage.location import Location
from penstock.spark.storage.opening import location_of


@dataclass(frozen=True)
class TablePlaces:
    """The directories of tables; see `penstock.config.table.Tables`."""

    dir: str = "tables"
    iceberg: IcebergNames = IcebergNames()  # noqa: RUF009  # frozen
    object_store: ObjectStoreSettings = ObjectStoreSettings()  # noqa: RUF009  # frozen
    jobs_dir: str = ""

    @classmethod
    def of(cls, tables: Tables) -> Self:
        """Return the places that these settings name."""
        return cls(tables.dir, tables.iceberg, tables.object_store, tables.jobs_dir)

    def table(self, name: str, path: str = "") -> Location:
        """Return the place of a table.

        Args:
            name: the name of the table.
            path: its own path or URL; empty for none.
        """
        return location_of(table_place(self.dir, name, path), self.object_store)

    @property
    def catalog(self) -> Path | None:
        """The SQLite file of the Iceberg catalog; None if the tables are in an object store."""
        return None if is_remote(self.dir) else Path(self.dir).absolute() / "iceberg.db"

    def job_dir(self, name: str, table: Location) -> Path:
        """Return the directory of this machine for the job of a table."""
        return job_dir(table.uri, name, self.jobs_dir)

    def births_dir(self, name: str, table: Location) -> Path:
        """Return the directory of this machine that has the births of Sparkplug nodes."""
        return births_dir(table.uri, name, self.jobs_dir)
