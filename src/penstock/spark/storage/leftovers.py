"""Removes files that no version of a table names, by their age since the last one that did.

    named by a version ──release──▶ named by none ──after `leftovers_h` hours──▶ removed

Readers that opened the table earlier still read such a file. On a disk its time of modification is
set when it is released. An object keeps the time of its upload; there each release is an object:

    TABLE/_penstock/released/<ns since the Unix epoch>.json     the paths, relative to the table
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from penstock.spark.storage.local import LocalLocation
from penstock.spark.storage.location import FoundFile, Location

RELEASED_NAME: Final = "_penstock/released"
"""The directory of releases in that of a table."""

_NS: Final = 1_000_000_000
_PATHS: Final = msgspec.json.Decoder(list[str])


def release(table: Location, paths: Collection[str]) -> None:
    """Note that files are about to be named by no version of the table any more.

    Args:
        table: the directory of the table.
        paths: the files, relative to it.
    """
    if isinstance(table, LocalLocation):
        for path in paths:
            (table / path).touch()
    elif paths:
        at = table / f"{RELEASED_NAME}/{time.time_ns()}.json"
        at.create(msgspec.json.encode(sorted(paths)))


def remove_leftovers(
    table: Location, found: Iterable[FoundFile], older_than_h: int, *, remove: bool
) -> list[str]:
    """Return the names of files that were released at least this long ago, or never named.

    Args:
        table: the directory of the table.
        found: the files that no version names.
        older_than_h: their least age, in hours.
        remove: True to remove them, too.
    """
    newest_s = time.time() - older_than_h * 3600
    released = (
        set() if isinstance(table, LocalLocation) else _released(table, newest_s, remove=remove)
    )
    old = [one.path for one in found if one.modified_at_s <= newest_s and one.path not in released]
    for path in old if remove else []:
        (table / path).remove()
    return [str(table / path) for path in old]


def _released(table: Location, after_s: float, *, remove: bool) -> set[str]:
    """Return the files that were released after a time; with `remove`, remove earlier notes."""
    paths: set[str] = set()
    directory = table / RELEASED_NAME
    for name in list(directory.names()):
        if int(name.partition(".")[0]) / _NS > after_s:
            paths.update(_PATHS.decode((directory / name).read()))
        elif remove:
            (directory / name).remove()
    return paths
