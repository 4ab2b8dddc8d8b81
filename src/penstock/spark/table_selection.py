"""Selects tables of a configuration by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.tables.declared import DeclaredTable

AnyTable = DeclaredTable | DerivedTable


def select_tables(settings: Settings, names: list[str]) -> list[AnyTable]:
    """Return the tables of these names; all, if no name is given: declared ones, then derived.

    Raises:
        ConfigError: there is no table of a name, or a declaration cannot be used.
    """
    declared = {table.name: table for table in settings.tables.declared}
    derived = {table.name: table for table in settings.tables.derived}
    every = [*declared, *derived]
    if not every:
        raise ConfigError(
            "no table is declared: give --config a file with [[tables.declared]], see"
            " docs/tables.md"
        )
    for name in names:
        if name not in every:
            raise ConfigError(f"there is no table {name!r}; declared are {', '.join(every)}")
    tables_dir = Path(settings.tables.dir)
    places = tables_dir, settings.tables.iceberg
    tables: dict[str, AnyTable] = {
        name: DeclaredTable(declared[name], *places)
        if name in declared
        else DerivedTable(derived[name], declared[derived[name].source], *places)
        for name in every
    }
    _check_places(list(tables.values()))
    return [tables[name] for name in names or every]


def _places(table: AnyTable) -> list[Path]:
    """Return the directories to which a table writes."""
    dead = [table.dead_letters_path] if isinstance(table, DeclaredTable) else []
    return [table.path, *dead]


def _check_places(tables: Sequence[AnyTable]) -> None:
    """Refuse tables that would write into each other, or have the same name in the catalog."""
    owners: dict[Path | str, str] = {}

    def claim(place: Path | str, name: str) -> None:
        other = owners.setdefault(place, name)
        if other != name:
            raise ConfigError(
                f"the tables {other} and {name} would both write to {place}: give one of them"
                " another name, or a path whose last part is another"
            )

    for table in tables:
        for path in _places(table):
            claim(path, table.name)
            if table.definition.format == "iceberg":
                claim(f"{path.name} in the Iceberg catalog", table.name)
    for table in tables:
        for path in _places(table):
            for above in path.parents:
                if above in owners:
                    raise ConfigError(
                        f"the table {table.name} would be inside that of {owners[above]}, in"
                        f" {above}: give one of them another path"
                    )
