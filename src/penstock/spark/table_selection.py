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
    locations = tables_dir, settings.tables.iceberg
    tables: dict[str, AnyTable] = {
        name: DeclaredTable(declared[name], *locations)
        if name in declared
        else DerivedTable(derived[name], declared[derived[name].source], *locations)
        for name in every
    }
    _check_paths(list(tables.values()))
    return [tables[name] for name in names or every]


def _paths(table: AnyTable) -> list[Path]:
    """Return the directories to which a table writes."""
    dead = [table.dead_letters_path] if isinstance(table, DeclaredTable) else []
    return [table.path, *dead]


def _check_paths(tables: Sequence[AnyTable]) -> None:
    """Refuse tables that would write into each other, or have the same name in the catalog."""
    owners: dict[Path | str, str] = {}

    def claim(target: Path | str, name: str) -> None:
        other = owners.setdefault(target, name)
        if other != name:
            raise ConfigError(
                f"the tables {other} and {name} would both write to {target}: give one of them"
                " another name, or a path whose last part is another"
            )

    for table in tables:
        for path in _paths(table):
            claim(path, table.name)
            if table.definition.format == "iceberg":
                claim(f"{path.name} in the Iceberg catalog", table.name)
    for table in tables:
        for path in _paths(table):
            for above in path.parents:
                if above in owners:
                    raise ConfigError(
                        f"the table {table.name} would be inside that of {owners[above]}, in"
                        f" {above}: give one of them another path"
                    )
