"""Opens a damaged database for reading, and rebuilds a database from its table and log files.

``store.salvage_reader`` says when each is done, and why.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

from penstock.errors import StoreError
from penstock.store.database import COLUMN_FAMILIES
from penstock.store.diagnosis import corrupt_store, damaged_part
from penstock.store.parts import PARTS_FAMILY

_FAMILY: Final = re.compile(r'^\[CFOptions "(.*)"\]$', re.MULTILINE)


class DatabaseUnreadable(Exception):
    """A database cannot be opened, because a part of it is damaged.

    part is a clause about the damage, for instance "its file CURRENT is missing".
    """

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


@dataclass(frozen=True, slots=True)
class RebuiltDatabase:
    """A database that RocksDB's repair made from links to the files of a damaged one.

    Attributes:
        database: the database, open for reading.
        left_out: names of the table files that RocksDB left out, because they are damaged.
    """

    database: Rdict
    left_out: list[str]


def open_undamaged(
    store: Path, recovery: DBRecoveryMode | None = None, is_paranoid: bool = True
) -> Rdict:
    """Open the database in the directory ``store`` for reading, with the column families it has.

    Args:
        store: directory of the database.
        recovery: how RocksDB treats damage in the write-ahead log; by default it stops there.
        is_paranoid: whether RocksDB checks all table files when it opens the database.

    Raises:
        DatabaseUnreadable: a part of the database is damaged.
        StoreError: the database cannot be opened for another reason.
    """
    options = Options(raw_mode=True)
    options.set_paranoid_checks(is_paranoid)
    options.set_wal_recovery_mode(recovery or DBRecoveryMode.point_in_time())
    try:
        there = set(Rdict.list_cf(str(store)))
        families: dict[str, Options] = {
            name: Options(raw_mode=True)
            for name in (*COLUMN_FAMILIES, PARTS_FAMILY)
            if name in there
        }
        return Rdict(
            str(store), options, column_families=families, access_type=AccessType.read_only()
        )
    except Exception as error:  # rocksdict raises bare Exception for every error
        part = damaged_part(error)
        if part is None:
            raise StoreError(f"the store in {store.parent} cannot be opened: {error}") from error
        raise DatabaseUnreadable(part) from error


def rebuild(store: Path, scratch: Path, tables: set[str] | None) -> RebuiltDatabase:
    """Rebuild a database in a new directory in ``scratch``, from links to the files in ``store``.

    Args:
        store: directory of the damaged database, which is not changed.
        scratch: a directory with room for the content of the write-ahead logs.
        tables: names of the table files to use; None for all.

    Raises:
        StoreError: the database cannot be rebuilt.
    """
    rebuilt = Path(tempfile.mkdtemp(prefix="rebuilt-", dir=scratch))
    highest = 0
    for path in table_and_log_files(store):
        highest = max(highest, int(path.stem))
        if path.suffix == ".log" or tables is None or path.name in tables:
            (rebuilt / path.name).symlink_to(path.absolute())
    given = {path.name for path in rebuilt.iterdir()}
    for path in _empty_tables(store, rebuilt.with_suffix(".empty")):
        highest += 1
        path.rename(rebuilt / f"{highest:06}.sst")
    data_dir = store.parent
    try:
        Rdict.repair(str(rebuilt), Options(raw_mode=True))
        database = open_undamaged(rebuilt)
    except DatabaseUnreadable as error:
        raise corrupt_store(data_dir, error.part) from error
    except StoreError:
        raise
    except Exception as error:  # rocksdict raises bare Exception for every error
        raise corrupt_store(data_dir, f"nothing of it can be read ({error})") from error
    left_out = {path.name for path in (rebuilt / "lost").glob("*.sst")} & given
    return RebuiltDatabase(database, sorted(left_out))


def table_and_log_files(store: Path) -> list[Path]:
    """Return the paths of the table files and write-ahead logs in ``store``."""
    return [
        path for path in store.iterdir() if path.suffix in (".sst", ".log") and path.stem.isdigit()
    ]


def number_of(path: Path) -> int:
    """Return the number in a name such as MANIFEST-000027; 0 where there is none."""
    number = path.name.partition("-")[2]
    return int(number) if number.isdigit() else 0


def _empty_tables(store: Path, skeleton: Path) -> list[Path]:
    """Create an empty table file for each column family of ``store``; return their paths.

    They are created in the new directory ``skeleton``, and the column families get the same numbers
    as in ``store``.
    """
    options_file = max(store.glob("OPTIONS-*"), default=None, key=number_of)
    if options_file is None:
        return []
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(skeleton), options)
    families = []
    for name in _FAMILY.findall(options_file.read_text(errors="replace")):
        if name != "default":
            family = database.create_column_family(name, Options(raw_mode=True))
            family.delete(b"")
            family.flush()
            families.append(family)
    for family in families:
        family.close()
    database.close()
    return sorted(skeleton.glob("*.sst"))
