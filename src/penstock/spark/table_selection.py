"""Selects declared and derived tables of a configuration by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.storage.location import Location
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.places import TablePlaces

AnyTable = DeclaredTable | DerivedTable


def select_tables(settings: Settings, names: list[str]) -> list[AnyTable]:
    """Return the tables of these names, or all if there are none: declared ones, then derived.

    Raises:
        ConfigError: there is no table of a name, or a declaration cannot be used.
    """
    declared = {table.name: table for table in settings.tables.declared}
    derived = {table.name: table for table in settings.tables.derived}
    all_names = [*declared, *derived]
    if not all_names:
        raise ConfigError(
            "no table is declared: give --config a file with [[tables.declared]], see"
            " docs/tables.md"
        )
    for name in names:
        if name not in all_names:
            raise ConfigError(f"there is no table {name!r}; declared are {', '.join(all_names)}")
    places = TablePlaces.of(settings.tables)
    tables: dict[str, AnyTable] = {
        name: DeclaredTable(declared[name], places)
        if name in declared
        else DerivedTable(derived[name], declared[derived[name].source], places)
        for name in all_names
    }
    _check_paths(list(tables.values()))
    return [tables[name] for name in names or all_names]


def _locations(table: AnyTable) -> list[Location]:
    """Return the directories to which a table writes."""
    dead = [table.dead_letters_location] if isinstance(table, DeclaredTable) else []
    return [table.location, *dead]


def _check_paths(tables: Sequence[AnyTable]) -> None:
    """Raise ConfigError if two tables would write to one directory or have one catalog name."""
    owners: dict[str, str] = {}

    def claim(target: str, name: str) -> None:
        other = owners.setdefault(target, name)
        if other != name:
            raise ConfigError(
                f"the tables {other} and {name} would both write to {target}: give one of them"
                " another name, or a path whose last part is another"
            )

    for table in tables:
        for location in _locations(table):
            claim(location.uri, table.name)
            if table.definition.format == "iceberg":
                claim(f"{location.name} in the Iceberg catalog", table.name)
    for table in tables:
        for location in _locations(table):
            for parent in _directories_above(location.uri):
                if parent in owners:
                    raise ConfigError(
                        f"the table {table.name} would be inside that of {owners[parent]}, in"
                        f" {parent}: give one of them another path"
                    )


def _directories_above(uri: str) -> Iterator[str]:
    while uri := uri.rpartition("/")[0]:
        yield uri
