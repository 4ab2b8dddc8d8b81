"""Diagnosis: which file of the database is damaged, and what to do, in one sentence.

RocksDB's errors are texts that name a file by its path somewhere in the middle. An operator wants
to know what is broken and what helps::

    the store in data is damaged: its table file 000021.sst is missing; see with 'penstock store
    check --data-dir data' what is lost, then run 'penstock store repair --data-dir data' to go on
    with the rest, or restore a backup
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import StoreBroken
from penstock.store.paths import path_exists

REPAIR_FINISHED: Final = "repair.finished-"
"""Start of the name of a directory with what a repair has made, until it is in its place."""

_TABLE: Final = re.compile(r"(\d+\.sst)\b")
_MANIFEST: Final = re.compile(r"(MANIFEST-\d+)\b")


def damaged_part(error: object) -> str | None:
    """Return the part of a database that ``error`` of RocksDB calls damaged; None for other
    errors."""
    text = str(error)
    is_missing = "No such file" in text
    if not is_missing and "Corruption" not in text and "corrupt" not in text:
        return None
    state = "missing" if is_missing else "damaged"
    table = _TABLE.search(text)
    if table is not None:
        return f"its table file {table[1]} is {state}"
    if "CURRENT" in text:
        return f"its file CURRENT is {state}"
    manifest = _MANIFEST.search(text)
    if manifest is not None:
        return f"its file {manifest[1]} is {state}"
    return f"its files are damaged ({text.strip()})"


def damaged_table(text: str) -> str:
    """Return the name of the table that an error's ``text`` is about; empty where it names none."""
    table = _TABLE.search(text)
    return "" if table is None else table[1]


def lacks_current(store: Path) -> bool:
    """Return whether there are files of a database in ``store``, but not CURRENT, its first.

    RocksDB takes such a directory for an empty one, and would remove what is there. The creation of
    a database that was killed leaves no table and no log with anything in it.
    """
    if path_exists(store / "CURRENT") or not store.is_dir():
        return False
    return any(store.glob("*.sst")) or any(log.stat().st_size for log in store.glob("*.log"))


def unfinished_repair(data_dir: Path) -> Path | None:
    """Return the directory that an interrupted repair has finished, but not put in its place."""
    return max(data_dir.glob(f"{REPAIR_FINISHED}*"), default=None)


def broken_store(data_dir: Path, part: str) -> StoreBroken:
    """Return the error for a damaged ``part`` of the database below ``data_dir``."""
    return StoreBroken(
        f"the store in {data_dir} is damaged: {part}; see with 'penstock store check --data-dir"
        f" {data_dir}' what is lost, then run 'penstock store repair --data-dir {data_dir}' to go"
        " on with the rest, or restore a backup"
    )


@contextmanager
def damage_as_broken(data_dir: Path) -> Iterator[None]:
    """Turn RocksDB's errors about damage, and values that cannot be decoded, into StoreBroken."""
    try:
        yield
    except StoreBroken:
        raise
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise broken_store(data_dir, f"a value in it cannot be understood ({error})") from error
    except Exception as error:  # rocksdict raises bare Exception for every error
        part = damaged_part(error)
        if part is None:
            raise
        raise broken_store(data_dir, part) from error
