"""Reads a database whatever is damaged about it. Its files are not changed.

::

    RocksDB would not get past it (``store.recyclable``) ─▶ links, mended copies, and on as follows
    opens as it is ────────────────────────────────────────────────▶ that
    CURRENT is missing or wrong ─▶ links to the files, CURRENT anew ─▶ that, or as follows
    a table is missing or cannot be opened ─▶ without RocksDB's check of it at the start
    MANIFEST is missing or damaged: the role of files is unknown    ─▶ rebuilt
    the write-ahead log is damaged in the middle ─▶ with the records behind the damage

*Rebuilt* is what RocksDB's repair makes of links to the tables and write-ahead logs: it reads the
files and writes a new MANIFEST. A table that it cannot read whole it leaves out. It knows only
column families that have a table, so each gets one with nothing in it; their numbers are in the
OPTIONS file, which lists them in the order in which they were made.

A gap in a column family is looked at once more in a database rebuilt without the damaged table, for
an iterator goes through all tables of level 0 at once: a damaged one holds up keys of the others.
A value found within the bounds of the damaged table may be older than the one in it, and a removed
one may come back; these are counted. A chunk of the log never changes.
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
    Rebuilt,
    Unreadable,
    number_of,
    open_undamaged,
    rebuild,
    table_and_log_files,
)
from penstock.store.recyclable import find_recyclable, mended_copy
from penstock.store.walk import Gap, walk
from penstock.store.watermark import Committed


@final
class SalvageReader:
    """Reads the readable keys and values of a store.

    Attributes:
        problems: sentences about files; none where the database opens as it is.
        notes: sentences about what a start mends, and is no damage by itself.
        removed_may_be_back: whether what was removed shortly before the damage may be there again.
        older: number of values, by column family, that may be older than the last ones written.
        size_bytes: size of the files, about.
    """

    def __init__(self, store: Path, scratch: Path) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.removed_may_be_back = False
        self.older: dict[str, int] = {}
        self.size_bytes = sum(path.stat().st_size for path in table_and_log_files(store))
        self._store = store
        self._scratch = scratch
        self._database: Rdict | None = None
        self._tables: dict[str, tuple[bytes, bytes, int]] = {}  # smallest, largest key, level
        self._rebuilt: dict[str, Rebuilt] = {}  # by the table that is left out

    def add_problem(self, problem: str) -> None:
        """Add a sentence to ``problems``, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def use(self, database: Rdict) -> None:
        """Read from ``database``."""
        self._database = database
        for entry in database.live_files():
            name = str(entry["name"]).lstrip("/")
            self._tables[name] = (entry["start_key"], entry["end_key"], int(entry["level"]))

    def walk(self, family: str) -> Iterator[tuple[bytes, bytes] | Gap]:
        """Yield all of a column family that can be read, in the order of the keys.

        What could be found in a gap comes after it.
        """
        self.older.pop(family, None)
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
            return  # nothing but what lies in that table
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
                self.older[family] = self.older.get(family, 0) + 1
            yield found

    def full_value(self, family: str, key: bytes, value: bytes) -> bytes:
        """Return the whole value under ``key``. ``value`` is the bytes stored there: the value, or
        the head of a large one (``store.parts.full_value``).

        Raises:
            StoreFormatError: parts of it are missing.
            StoreFailed: they cannot be read.
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
        """Close the databases; nothing may be read afterwards."""
        for rebuilt in self._rebuilt.values():
            rebuilt.database.close()
        if self._database is not None:
            self._database.close()
            self._database = None


def walk_family(database: Rdict, name: str) -> Iterator[tuple[bytes, bytes] | Gap]:
    """Yield the records and gaps of a column family (``walk``); nothing where there is no such
    family."""
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
    data_dir: Path, scratch: Path, claimed: Committed | None
) -> Iterator[SalvageReader]:
    """Open a reader of the database below ``data_dir``.

    Args:
        data_dir: the data directory, which is not changed.
        scratch: an empty directory; takes as much as the write-ahead logs hold.
        claimed: the watermark, if there is one.

    Raises:
        StoreError: nothing can be read, or not for damage.
    """
    store = data_dir / STORE_DIRECTORY
    found = find_recyclable(store)
    if found:
        mended_copy(store, found, scratch / STORE_DIRECTORY)
        store = scratch / STORE_DIRECTORY
    reader = SalvageReader(store, scratch)
    reader.notes += [f"{each}; a start mends it" for each in found]
    try:
        _Opening(reader, store, scratch, claimed).find()
        yield reader
    finally:
        reader.close()


@final
class _Opening:
    """The ways to open a damaged database, tried in turn: the most complete first."""

    def __init__(
        self, reader: SalvageReader, store: Path, scratch: Path, claimed: Committed | None
    ) -> None:
        self._reader = reader
        self._store = store
        self._scratch = scratch
        self._claimed = claimed

    def find(self) -> None:
        """Find a database that can be read, and let the reader use it."""
        if self._try_to_open(self._store):
            return
        source = self._store
        for manifest in sorted(self._store.glob("MANIFEST-*"), key=number_of, reverse=True):
            if _current(self._store) == manifest.name:
                continue  # that was tried
            linked = self._link(manifest)
            if self._try_to_open(linked):
                return
            source = linked if source == self._store else source
        reader = self._reader
        for directory in dict.fromkeys((source, self._store)):
            try:
                reader.use(open_undamaged(directory, is_paranoid=False))
                return
            except Unreadable as error:
                reader.add_problem(error.part)
        self._use_rebuilt(rebuild(self._store, self._scratch, None))

    def _use_rebuilt(self, rebuilt: Rebuilt) -> None:
        for name in rebuilt.left_out:
            self._reader.add_problem(f"its table file {name} is damaged")
        self._reader.add_problem(
            "without its MANIFEST it is not known whether tables are missing, and with them parts"
            " of sessions, subscriptions, queues, retained messages and wills"
        )
        self._reader.removed_may_be_back = True
        self._reader.use(rebuilt.database)

    def _try_to_open(self, store: Path) -> bool:
        """Open a database, also behind the damage of its write-ahead log; return whether it opened.

        A MANIFEST may have lost its end, and with it the names of tables.
        """
        reader = self._reader
        try:
            database = open_undamaged(store)
            behind = open_undamaged(store, DBRecoveryMode.skip_any_corrupted_record())
        except Unreadable as error:
            reader.add_problem(error.part)
            return False
        commits = _commits(behind)
        if commits > _commits(database):
            reader.add_problem("a part in the middle of its write-ahead log is damaged")
            reader.removed_may_be_back = True
        database.close()
        claimed = self._claimed
        known = {str(entry["name"]).lstrip("/") for entry in behind.live_files()}
        unknown = {path.name for path in self._store.glob("*.sst")} - known
        if claimed is not None and claimed.commits > commits and unknown:
            rebuilt = rebuild(self._store, self._scratch, None)
            if _commits(rebuilt.database) > commits:
                reader.add_problem("its MANIFEST, the list of its table files, is not whole")
                behind.close()
                self._use_rebuilt(rebuilt)
                return True
            rebuilt.database.close()
        reader.use(behind)
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
    except Exception:  # rocksdict raises bare Exception; a walk will tell
        return 0
    return 0 if value is None else decode_key(value)
