"""Where tests keep tables on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from penstock.spark.storage.local import LocalLocation
from penstock.spark.storage.location import Location
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.places import TablePlaces


class _HasLocation(Protocol):
    @property
    def location(self) -> Location: ...


def places_in(directory: Path) -> TablePlaces:
    """Return the places of tables below this directory."""
    return TablePlaces(str(directory))


def path_of(table: _HasLocation) -> Path:
    """Return the directory of a table that is kept on this machine."""
    return local_path(table.location)


def dead_letters_path_of(table: DeclaredTable) -> Path:
    """Return the directory of a table's dead letters."""
    return local_path(table.dead_letters_location)


def local_path(location: Location) -> Path:
    """Return the path of a place on this machine."""
    assert isinstance(location, LocalLocation)
    return location.path
