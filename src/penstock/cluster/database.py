"""The database of a primary: each batch of the store is appended to the replicated log first.

::

      Database.write(batch) ─▶ a record appended, synced on a majority ─▶ RocksDB, not synced
                                   │ no answer                               │ disk full
                                   ▼                                         ▼
                         CommitUnknown: the store is opened again, and applies the log's records

All threads that write (committer, retention, services) share one lock, so one append is in flight
at a time. Parts of large values are records of their own, before the commit that has their head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import final

from penstock.cluster.log import LogUnavailable
from penstock.cluster.operations import NotedBatch, encode_operations
from penstock.cluster.reading import READ_S, catch_up
from penstock.cluster.record import encode_position
from penstock.cluster.tally import Tally
from penstock.cluster.view import View
from penstock.cluster.writer import Fenced, LogWriter
from penstock.errors import CommitUnknown, StoreUnavailable
from penstock.store.batch import StoreBatch
from penstock.store.database import (
    CLUSTER_POSITION_KEY,
    STORE_DIRECTORY,
    Database,
    open_database_as,
)
from penstock.store.faults import probe
from penstock.store.parts import LargeValue


class ClusterDatabase(Database):
    """The open database of a primary's view; see ``Database``.

    ``append_through`` must be called before the first write.
    """

    is_replicated = True

    def append_through(self, writer: LogWriter, view: View) -> None:
        """Append batches to the log through ``writer`` from now on.

        Args:
            writer: the writer of the claimed term.
            view: the view that has this database.
        """
        self._writer = writer
        self._view = view
        self._is_behind = False

    def new_batch(self) -> StoreBatch:
        """Return an empty batch that records its operations for the log."""
        return NotedBatch(self.rocks_batch(), self.handles)

    def write(self, batch: StoreBatch, sync: bool = True) -> None:
        """Append ``batch`` to the log, then write it to RocksDB; see ``Database.write``.

        Raises:
            CommitUnknown: it is unknown whether the log has the batch; or the log has it, and
                RocksDB could not be written.
            Fenced: another member is the primary.
        """
        del sync  # the record in the log is synced
        assert isinstance(batch, NotedBatch), "new_batch of this database made it"
        if batch.is_empty():
            return
        with self._writer.one_at_a_time:
            self.settle()
            position = self._writer.append(encode_operations(batch.operations))
            batch.rocks.put(CLUSTER_POSITION_KEY, encode_position(position), self.handles["meta"])
            self._is_behind = True
            self.write_here(batch.rocks, sync=False)
            self._is_behind = False
            self._view.note_appended(position)

    def settle(self) -> None:
        """Resolve appends without an answer: apply those records that are in the log.

        The committer resolves them by opening the store again. But an idle committer writes
        nothing, and the other writers (leases of readers, batches of sinks) must not wait for it.

        Raises:
            CommitUnknown: the log does not answer, or the store must be opened again first.
        """
        with self._writer.one_at_a_time:
            if self._is_behind:
                raise CommitUnknown("the view is behind the replicated log")
            if self._writer.is_in_doubt and not self._writer.fenced_by:
                self._catch_up()

    def _catch_up(self) -> None:
        self._is_behind = True
        try:
            catch_up(self._view, self._writer.log)
        except LogUnavailable as error:
            self._is_behind = False
            raise CommitUnknown(f"an earlier record is in doubt: {error}") from error
        self._writer.resume(self._view.end)
        self._is_behind = False

    def write_parts(self, large: LargeValue) -> None:
        """Append the parts of a large value to the log, and write them; see
        ``Database.write_parts``."""
        handle = self._parts_handle()
        for key, part in large.parts():
            batch = self.new_batch()
            batch.put(key, part, handle)
            self.write(batch)


open_cluster_database = partial(open_database_as, ClusterDatabase)
"""Open the database of a view below a data directory, or create it; see ``open_database_as``."""


@final
class ViewOpener:
    """Opens the database of a primary: a view to which all records of the log are applied.

    Args:
        writer: the writer of the claimed term.
        opened: called with each database that is opened again, and its view.
        database: the open database of the standby that became the primary.
        view: its view, to which all records before the claim are applied.
        open_database: opens the database again.
        tally: counts skipped records and damaged entries; None to count nothing.
        disk_fails: called with the reason when this machine's disk, and not the log, refuses
            writes; None for no callback.
    """

    acknowledged_when = "quorum"
    trusts_watermark = False
    """The log has all that was acknowledged; after a power cut a view may be older than its
    watermark."""

    def __init__(
        self,
        writer: LogWriter,
        opened: Callable[[ClusterDatabase, View], None],
        database: ClusterDatabase,
        view: View,
        open_database: Callable[[Path], ClusterDatabase] = open_cluster_database,
        tally: Tally | None = None,
        disk_fails: Callable[[str], None] | None = None,
    ) -> None:
        self._disk_fails = disk_fails
        self._writer = writer
        self._opened = opened
        self._open_database = open_database
        self._first: tuple[ClusterDatabase, View] | None = (database, view)
        self._tally = tally

    def verify_complete(self, data_dir: Path) -> None:
        """Do nothing: a reopened view may lack acknowledged entries; `open` applies them from the
        replicated log."""

    def probe(self, data_dir: Path) -> None:
        """Raise unless the disk accepts writes and the log has a leader.

        Raises:
            StoreUnavailable: the disk refuses writes, or the log does not answer.
            Fenced: another member is the primary.
        """
        writer = self._writer
        if not writer.fenced_by:
            try:
                probe(data_dir, data_dir / STORE_DIRECTORY)
            except StoreUnavailable as error:
                if self._disk_fails is not None:
                    self._disk_fails(str(error))
                if not writer.fenced_by:
                    raise
        if writer.fenced_by:
            raise Fenced(writer.fenced_by)
        with writer.one_at_a_time:
            writer.log.bounds(READ_S)

    def open(self, data_dir: Path) -> Database:
        """Return the database of the standby the first time; later open it again, and apply the
        records that it lacks. The writer continues behind the last record.

        Raises:
            StoreError: the database cannot be opened, or records cannot be applied.
            StoreUnavailable: the log cannot be read.
            Fenced: another member is the primary.
        """
        if self._first is not None:
            database, view = self._first
            view.pass_claim(self._writer.position)
            database.append_through(self._writer, view)
            self._first = None
            return database
        database = self._open_database(data_dir)
        try:
            view = View(database, tally=self._tally)
            catch_up(view, self._writer.log)
            self._writer.resume(view.end)
            database.append_through(self._writer, view)
        except BaseException:
            database.close()
            raise
        self._opened(database, view)
        return database

    def close(self) -> None:
        """Close the writer's log, and the standby's database if ``open`` was never called."""
        first, self._first = self._first, None
        if first is not None:
            first[0].close()
        self._writer.log.close()
