"""Reads the undamaged part of a damaged database, without changing its files.

How the database is opened depends on the damage::

    records that RocksDB reads endlessly     links to the files, with mended copies
      (``store.recyclable``)                   of some, then as follows
    none that prevents opening               as it is
    CURRENT missing or wrong                 links to the files, with a new CURRENT
    a table missing or unreadable            without RocksDB's check of tables at the start
    MANIFEST missing or damaged              a rebuilt database
    write-ahead log damaged in the middle    including the records behind the damage

RocksDB's repair *rebuilds* a database from links to the tables and write-ahead logs: it reads the
files, writes a new MANIFEST, and leaves out tables that it cannot read completely. It recognises
only column families that have a table, so an empty table is added for each; the numbers of the
families follow from the OPTIONS file, which lists them in the order of their creation.

An iterator merges all tables of level 0, so a damaged table also hides keys of the others.
Therefore a gap in a column family is read again from a database rebuilt without the damaged table.
A value found there within the bounds of the damaged table may be outdated, and a removed value may
come back; such values are counted. Chunks of the log never change, so they are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from rocksdict import DBRecoveryMode, Rdict

from penstock.store.chunk import decode_key
from penstock.store.database import STORE_DIRECTORY
from penstock.store.diagnosis import damaged_table
from penstock.store.identity import COMMITS
from penstock.store.parts import PARTS_FAMILY, full_value, read_head
from penstock.store.rebuild import (
    DatabaseUnreadable,
    RebuiltDatabase,
    number_of,
    open_undamaged,
    rebuild,
    table_and_log_files,
)
from penstock.store.recyclable import find_recyclable_records, mended_copy
from penstock.store.walk import Gap, walk
from penstock.store.watermark import Watermark


@final
class SalvageReader:
    """Reads the undamaged keys and values of a store.

    Attributes:
        problems: sentences about damaged files; empty where the database opens normally.
        notes: sentences about records that the next start of a broker mends, which is no damage.
        may_restore_removed: whether records removed shortly before the damage may be there again.
        stale_counts: by column family, the number of values that may be outdated.
        size_bytes: total size of tables and write-ahead logs.

    Args:
        store: directory of the database.
        scratch: a directory for rebuilt databases.
    """

    def __init__(self, store: Path, scratch: Path) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.may_restore_removed = False
        self.stale_counts: dict[str, int] = {}
        self.size_bytes = sum(path.stat().st_size for path in table_and_log_files(store))
        self._store = store
        self._scratch = scratch
        self._database: Rdict | None = None
        self._tables: dict[str, tuple[bytes, bytes, int]] = {}  # smallest, largest key, level
        self._rebuilt: dict[str, RebuiltDatabase] = {}  # by the table that is left out

    def add_problem(self, problem: str) -> None:
        """Add a sentence to ``problems``, unless it is there already."""
        if problem not in self.problems:
            self.problems.append(problem)

    def use_database(self, database: Rdict) -> None:
        """Read from ``database`` from now on."""
        self._database = database
        for entry in database.live_files():
            name = str(entry["name"]).lstrip("/")
            self._tables[name] = (entry["start_key"], entry["end_key"], int(entry["level"]))

    def walk(self, family: str) -> Iterator[tuple[bytes, bytes] | Gap]:
        """Yield the readable entries of a column family in the order of the keys, and its gaps.

        Entries that a rebuilt database has in a gap follow that gap.
        """
        self.stale_counts.pop(family, None)
        assert self._database is not None
        for found in walk_family(self._database, family):
            yield found
            if isinstance(found, Gap):
                yield from self._fill(family, found)

    def _fill(self, family: str, gap: Gap) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries of a ``gap``, from a database rebuilt without the damaged table."""
        table = damaged_table(gap.reason)
        smallest, largest, level = self._tables.get(table, (b"", b"", 0))
        if family == "log" and gap.after is not None and (level > 0 or gap.after >= smallest):
            return  # all chunks in the gap are in the damaged table
        if table not in self._rebuilt:
            self._rebuilt[table] = rebuild(self._store, self._scratch, set(self._tables) - {table})
        rebuilt = self._rebuilt[table]
        bounds = [(smallest, largest), *(self._tables[name][:2] for name in rebuilt.left_out)]
        for found in walk_family(rebuilt.database, family):
            if isinstance(found, Gap):
                continue
            key = found[0]
            if gap.after is not None and key <= gap.after:
                continue
            if gap.before is not None and key >= gap.before:
                return
            if family != "log" and any(first <= key <= last for first, last in bounds):
                self.stale_counts[family] = self.stale_counts.get(family, 0) + 1
            yield found

    def full_value(self, family: str, key: bytes, value: bytes) -> bytes:
        """Return the whole value under ``key``.

        Args:
            family: column family of the key.
            key: the key.
            value: the bytes stored under it: the whole value, or the head of a large one.

        Raises:
            StoreFormatError: parts of the value are missing.
            StoreUnavailable: parts cannot be read.
        """
        if read_head(value) is None:
            return value
        assert self._database is not None
        try:
            parts = self._database.get_column_family(PARTS_FAMILY)
        except Exception:  # rocksdict raises bare Exception where there is none
            parts = None
        try:
            return full_value(family, key, value, parts)
        finally:
            if parts is not None:
                parts.close()

    def close(self) -> None:
        """Close the databases; the reader cannot be used afterwards."""
        for rebuilt in self._rebuilt.values():
            rebuilt.database.close()
        if self._database is not None:
            self._database.close()
            self._database = None


def walk_family(database: Rdict, name: str) -> Iterator[tuple[bytes, bytes] | Gap]:
    """Yield the entries and gaps of a column family (``store.walk``); nothing if it does not
    exist."""
    try:
        family = database.get_column_family(name)
    except Exception:  # rocksdict raises bare Exception where there is none
        return
    try:
        yield from walk(family)
    finally:
        family.close()


@contextmanager
def open_salvage_reader(
    data_dir: Path, scratch: Path, watermark: Watermark | None
) -> Iterator[SalvageReader]:
    """Open a reader of the database below ``data_dir``; close it after the ``with`` block.

    Args:
        data_dir: the data directory, which is not changed.
        scratch: an empty directory with room for the content of the write-ahead logs.
        watermark: the watermark of the store; None if it has none.

    Raises:
        StoreError: nothing can be read, or the database cannot be opened for another reason than
            damage.
    """
    store = data_dir / STORE_DIRECTORY
    found = find_recyclable_records(store)
    if found:
        mended_copy(store, found, scratch / STORE_DIRECTORY)
        store = scratch / STORE_DIRECTORY
    reader = SalvageReader(store, scratch)
    reader.notes += [f"{each}; a start mends it" for each in found]
    try:
        _Opening(reader, store, scratch, watermark).open()
        yield reader
    finally:
        reader.close()


@final
class _Opening:
    """Tries the ways to open a damaged database in turn, and the most complete ones first."""

    def __init__(
        self, reader: SalvageReader, store: Path, scratch: Path, watermark: Watermark | None
    ) -> None:
        self._reader = reader
        self._store = store
        self._scratch = scratch
        self._watermark = watermark

    def open(self) -> None:
        """Open the database in the first way that works, and let the reader use it.

        Raises:
            StoreError: no way works.
        """
        if self._try_to_open(self._store):
            return
        source = self._store
        for manifest in sorted(self._store.glob("MANIFEST-*"), key=number_of, reverse=True):
            if _current(self._store) == manifest.name:
                continue  # tried above
            linked = self._link(manifest)
            if self._try_to_open(linked):
                return
            source = linked if source == self._store else source
        reader = self._reader
        for directory in dict.fromkeys((source, self._store)):
            try:
                reader.use_database(open_undamaged(directory, is_paranoid=False))
                return
            except DatabaseUnreadable as error:
                reader.add_problem(error.part)
        self._use_rebuilt(rebuild(self._store, self._scratch, None))

    def _use_rebuilt(self, rebuilt: RebuiltDatabase) -> None:
        for name in rebuilt.left_out:
            self._reader.add_problem(f"its table file {name} is damaged")
        self._reader.add_problem(
            "without its MANIFEST it is not known whether tables are missing, and with them parts"
            " of sessions, subscriptions, queues, retained messages and wills"
        )
        self._reader.may_restore_removed = True
        self._reader.use_database(rebuilt.database)

    def _try_to_open(self, store: Path) -> bool:
        """Open a database, including records behind damage of its write-ahead log.

        A MANIFEST may have lost its end, and with it the names of tables. If a rebuilt database has
        more commits, the reader uses the rebuilt one.

        Returns:
            Whether the reader has a database now.
        """
        reader = self._reader
        try:
            database = open_undamaged(store)
            behind = open_undamaged(store, DBRecoveryMode.skip_any_corrupted_record())
        except DatabaseUnreadable as error:
            reader.add_problem(error.part)
            return False
        commits = _commits(behind)
        if commits > _commits(database):
            reader.add_problem("a part in the middle of its write-ahead log is damaged")
            reader.may_restore_removed = True
        database.close()
        watermark = self._watermark
        known = {str(entry["name"]).lstrip("/") for entry in behind.live_files()}
        unknown = {path.name for path in self._store.glob("*.sst")} - known
        if watermark is not None and watermark.commits > commits and unknown:
            rebuilt = rebuild(self._store, self._scratch, None)
            if _commits(rebuilt.database) > commits:
                reader.add_problem("its MANIFEST, the list of its table files, is not whole")
                behind.close()
                self._use_rebuilt(rebuilt)
                return True
            rebuilt.database.close()
        reader.use_database(behind)
        return True

    def _link(self, manifest: Path) -> Path:
        linked = self._scratch / f"with-{manifest.name}"
        linked.mkdir()
        for path in table_and_log_files(self._store):
            (linked / path.name).symlink_to(path.absolute())
        (linked / manifest.name).symlink_to(manifest.absolute())
        (linked / "CURRENT").write_text(f"{manifest.name}\n")
        return linked


def _current(store: Path) -> str:
    try:
        return (store / "CURRENT").read_text(errors="replace").removesuffix("\n")
    except OSError:
        return ""


def _commits(database: Rdict) -> int:
    try:
        meta = database.get_column_family("meta")
        value: bytes | None = meta.get(COMMITS)
        meta.close()
    except Exception:  # rocksdict raises bare Exception; ``walk`` reports the damage
        return 0
    return 0 if value is None else decode_key(value)
