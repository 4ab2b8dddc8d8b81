"""The tables that a configuration declares, by their names."""

from __future__ import annotations

from pathlib import Path

from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.tables.declared import DeclaredTable

AnyTable = DeclaredTable | DerivedTable


def chosen_tables(settings: Settings, names: list[str]) -> list[AnyTable]:
    """The tables of these names; all, where none is named: declared ones, then derived ones.

    Raises:
        ConfigError: there is none of a name, or a declaration cannot be used.
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
    return [
        DeclaredTable(declared[name], tables_dir)
        if name in declared
        else DerivedTable(derived[name], declared[derived[name].source], tables_dir)
        for name in names or every
    ]
