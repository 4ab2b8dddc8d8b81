"""The view: the database of one member, to which the records of the replicated log are applied.

Records are applied in the same way on a standby and on a primary that catches up. The position in
the log is written in the same batch as the changes of the record. So at any moment, and after any
crash, the view is a function of a prefix of the log, and needs no sync of its own::

      entries ─▶ checksums, chain, term ─▶ operations of many records ─▶ one write: with position
                     │ wrong                                                    │
                     ▼                                                          ▼
               LogDamaged: another replica is asked              watermark: readers see the rows

The pieces of a large commit are held in memory until the last one is read; then the commit is
applied. So a view has two positions: ``position``, up to which records are applied, and ``end``, up
to which they are read. Between them may be pieces without a last one, whose writer has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.cluster.histories import BEGINS_KEY, read_former, read_word
from penstock.cluster.log import Entry
from penstock.cluster.operations import (
    DELETE,
    DELETE_RANGE,
    FAMILIES,
    PUT,
    Operation,
    decode_operations,
)
from penstock.cluster.record import (
    CLAIM,
    FIRST_PART,
    GENESIS,
    LAST_PART,
    MIDDLE_PART,
    Claim,
    Position,
    Record,
    RecordDamaged,
    decode_claim,
    decode_position,
    decode_record,
    encode_position,
)
from penstock.cluster.refilling import GRANT_KEY, Grant, decode_grant, encode_grant
from penstock.cluster.tally import Tally
from penstock.errors import HistoryMismatch, StoreError
from penstock.store.chunk import decode_key, summarize_chunk
from penstock.store.database import CLUSTER_POSITION_KEY, FORMAT_KEY, Database
from penstock.store.identity import (
    COMMITS,
    EPOCH,
    find_begin,
    find_end,
    read_counter,
    refuse_format,
)
from penstock.store.parts import PARTS_FAMILY
from penstock.store.watermark import Watermark, WatermarkFile
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

WRITE_BYTES: Final = 1_048_576
"""Records are applied in one write until their bodies have this size."""

_LOG: Final = FAMILIES.index("log")
_META: Final = FAMILIES.index("meta")
_PARTS: Final = FAMILIES.index(PARTS_FAMILY)


class LogDamaged(StoreError):
    """A replica returned entries that differ from the appended ones, or lacks some; ``sequence`` is
    the first wrong one."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(
            f"a replica of the log gave a wrong entry at sequence {sequence}: {why}; its machine's"
            " disk may be damaged"
        )
        self.sequence = sequence


class ForeignView(HistoryMismatch):
    """The view is of another history than the log, and must be replaced by a copy of a peer's.

    Attributes:
        is_empty: whether the view is empty, so that it can be replaced without an operator.
        term: term of the claim that began the log's history, or went on with it.
    """

    def __init__(self, epoch: str, claim: Claim, term: int) -> None:
        of = f"the store of epoch {claim.epoch}" if claim.epoch else "an empty store"
        has = f"the epoch {epoch}" if epoch else "no epoch: it is empty"
        super().__init__(
            f"the cluster's log begins with {of}; the view of this member has {has}. 'penstock"
            " cluster reseed' replaces it by another member's, and keeps it beside"
        )
        self.is_empty = not epoch
        self.term = term


class Superseded(StoreError):
    """An operator began a new history of the cluster, and the view is of the one before: it is
    replaced by a copy of a peer's that has come to ``term``, which is of the new history."""

    def __init__(self, why: str, term: int) -> None:
        super().__init__(why)
        self.term = term


def read_position(database: Database) -> Position:
    """Return the position in the log up to which records were applied to ``database``."""
    found: bytes | None = database.families["meta"].get(CLUSTER_POSITION_KEY)
    return Position() if found is None else decode_position(found)


@final
class View:
    """Applies records to a database.

    Args:
        database: a database that is open for writing; nothing else may write to it.
        on_write: called with the operations of each write, after it; None for no callback.
        tally: counts skipped records and damaged entries; None to count nothing.

    Attributes:
        position: position up to which records are applied.
        end: position of the last record read; its term is the term of the last claim.
        claim: the last claim that this object has applied; None if there was none.
        epoch: epoch of the view's history; empty while it is empty.
        former: the lost or ended histories that the view contains.
        word: an operator's word that the view begins a new history of the cluster; None for none.
        skipped: number of records of older terms behind a claim, which were not applied.
        grant: the last grant to fill a server of the log anew.
    """

    def __init__(
        self,
        database: Database,
        on_write: Callable[[Sequence[Operation]], None] | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.position = self.end = read_position(database)
        self.claim: Claim | None = None
        self.epoch = _epoch_of(database)
        self.former = read_former(database)
        self.word = read_word(database)
        self.skipped = 0
        self.grant = decode_grant(database.families["meta"].get(GRANT_KEY))
        self._database = database
        self._on_write = on_write
        self._tally = tally or Tally()
        self._complete = self.position  # the last record read that is no incomplete piece
        self._parts: list[bytes] = []
        self._watermark: WatermarkFile | None = None
        self._end_offset = 0
        self._commits = 0

    @property
    def next_sequence(self) -> int:
        """Return the sequence of the next entry to read."""
        return self.end.sequence + 1

    def apply(self, entries: Sequence[Entry]) -> None:
        """Apply entries, of which the first has the sequence ``next_sequence``.

        The entries before a wrong one are applied.

        Raises:
            LogDamaged: an entry differs from the appended one.
            ForeignView: a claim was made on a view of another history.
            Superseded: an operator began a new history.
            StoreFormatError: a later version of Penstock wrote an entry.
            CommitUnknown: the database could not be written; no further entries may be applied.
        """
        operations: list[Operation] = []
        size = 0
        damage: LogDamaged | None = None
        for entry in entries:
            try:
                record = self._decode_next(entry)
            except LogDamaged as error:
                damage = error
                break
            if record.kind in (CLAIM, GENESIS):
                self._write(operations)
                operations, size = [], 0
            operations += self._operations_of(record)
            size += len(record.body)
            if size >= WRITE_BYTES:
                self._write(operations)
                operations, size = [], 0
        self._write(operations)
        if damage is not None:
            self._tally.damaged += 1
            raise damage

    def note_appended(self, position: Position) -> None:
        """Record that the primary has appended and written the records up to ``position``."""
        self.position = self.end = self._complete = position
        self.epoch = self.epoch or _epoch_of(self._database)

    def read_epoch_again(self) -> None:
        """Read the epoch, which a primary may have changed by a fork; safe from any thread."""
        with self._database.usage_lock.shared():
            if not self._database.is_closed:
                self.epoch = _epoch_of(self._database)

    def write_grant(self, grant: Grant) -> None:
        """Write a grant as the primary, through the replicated log.

        Raises:
            StoreError: it may be unwritten; see ``Database.write``.
        """
        database = self._database
        with database.usage_lock.shared():
            if database.is_closed:
                return
            batch = database.new_batch()
            batch.put(GRANT_KEY, encode_grant(grant), database.handles["meta"])
            database.write(batch)
            self.grant = grant

    def pass_claim(self, position: Position) -> None:
        """Move ``position`` and ``end`` to this member's own claim, the record after ``end``.

        Raises:
            CommitUnknown: the database could not be written.
        """
        self._parts.clear()
        self.end = self._complete = position
        self._write([])

    def start_over(self) -> None:
        """Forget the position of a view that has nothing but claims.

        Raises:
            CommitUnknown: the database could not be written.
        """
        assert not self.epoch, "the view has a history"
        batch = self._database.rocks_batch()
        batch.delete(CLUSTER_POSITION_KEY, self._database.handles["meta"])
        self._database.write_here(batch, sync=False)
        self.position = self.end = self._complete = Position()
        self._parts.clear()

    def _decode_next(self, entry: Entry) -> Record:
        if entry.sequence != self.next_sequence:
            raise LogDamaged(self.next_sequence, f"it gave {entry.sequence} instead")
        try:
            record = decode_record(entry.data)
        except RecordDamaged as error:
            raise LogDamaged(entry.sequence, str(error)) from error
        if record.kind != GENESIS and record.previous_checksum != self.end.checksum:
            raise LogDamaged(entry.sequence, "it does not follow the one before")
        return record

    def _operations_of(self, record: Record) -> list[Operation]:
        """Move ``end`` to ``record``; return the operations of the commit that it completes, or an
        empty list."""
        former = self.end
        sequence = former.sequence + 1
        if record.kind == GENESIS:
            self._begin_history(decode_claim(record.body), sequence, record.term)
            former = Position()
        if record.term < former.term:
            self._skip(record, sequence)
            return []
        if record.term > former.term and record.kind not in (CLAIM, GENESIS):
            raise RecordDamaged(f"record {sequence} of the log is of a term that nobody claimed")
        parts = self._parts
        if record.kind not in (MIDDLE_PART, LAST_PART):
            parts.clear()
        elif not parts:
            raise RecordDamaged(f"record {sequence} of the log is a piece without a first one")
        if record.kind == CLAIM:
            claim = decode_claim(record.body)
            self._refuse_foreign(claim, record.term)
            self.claim = claim
        self.end = Position(sequence, record.term, record.number, record.checksum)
        if record.kind in (FIRST_PART, MIDDLE_PART):
            parts.append(record.body)
            return []
        self._complete = self.end
        if record.kind in (CLAIM, GENESIS):
            return []
        body = record.body
        if record.kind == LAST_PART:
            body = b"".join([*parts, body])
            parts.clear()
        return decode_operations(body)

    def _skip(self, record: Record, sequence: int) -> None:
        """Skip a record of an older term, whose writer got no acknowledgement for it."""
        self.skipped += 1
        self._tally.skipped += 1
        logger.error(
            "record %d of the replicated log is of term %d, behind the claim of term %d: it is not"
            " applied",
            sequence,
            record.term,
            self.end.term,
        )
        self.end = Position(sequence, self.end.term, record.number, record.checksum)

    def _refuse_foreign(self, claim: Claim, term: int) -> None:
        """Raise if a claim was made on a view of another history; records before it are written.

        Raises:
            ForeignView: the claim's epoch is not the epoch of this view.
        """
        if claim.epoch != self.epoch:
            raise ForeignView(self.epoch, claim, term)

    def _begin_history(self, claim: Claim, sequence: int, term: int) -> None:
        """Accept a genesis of an empty history into an empty view; records before it are written.

        Raises:
            ForeignView: this view is empty, and the new history begins with a store; or this store
                has followed no log, so that no operator has given it up.
            Superseded: this view has followed the log, and is of the history before.
        """
        if self.epoch and self.position.sequence > 0:
            raise Superseded(
                f"at entry {sequence:,} of the log an operator began a new history of the cluster"
                f" with the store of {claim.node}",
                term,
            )
        self._refuse_foreign(claim, term)
        self.claim = claim

    def _write(self, operations: Sequence[Operation]) -> None:
        """Write operations and the position in one batch, and move the watermark.

        Raises:
            StoreFormatError: the primary is a later version that has changed the store's format.
        """
        database = self._database
        if self._complete == self.position and not operations:
            return
        batch = database.rocks_batch()
        handles = database.handles
        grant = self.grant
        for kind, family, key, value in operations:
            if family == _PARTS and PARTS_FAMILY not in handles:
                database.make_parts_family()
            handle = handles[FAMILIES[family]]
            if kind == PUT:
                if family == _META and key == FORMAT_KEY:
                    refuse_format(value)
                elif family == _META and key == GRANT_KEY:
                    grant = decode_grant(value)
                elif family == _META and key == EPOCH:
                    self.epoch = value.decode()
                batch.put(key, value, handle)
            elif kind == DELETE:
                batch.delete(key, handle)
            else:
                batch.delete_range(key, value, handle)
        batch.put(CLUSTER_POSITION_KEY, encode_position(self._complete), handles["meta"])
        if self.word is not None:
            batch.delete(BEGINS_KEY, handles["meta"])
            self.word = None
        if self._watermark is not None:
            self._hide_removed(operations)
        database.write_here(batch, sync=False)
        self.position = self._complete
        self.grant = grant
        if self._watermark is not None:
            self._show_written(operations)
        if self._on_write is not None and operations:
            self._on_write(operations)

    # -- the watermark for readers in other processes ----------------------------------

    @property
    def has_watermark(self) -> bool:
        """Return whether each write moves a watermark file."""
        return self._watermark is not None

    def attach_watermark(self, watermark_file: WatermarkFile, watermark: Watermark) -> None:
        """Move ``watermark_file`` with each write from now on, to show rows to other processes.

        Args:
            watermark_file: the watermark file.
            watermark: its present content.
        """
        self._watermark = watermark_file
        self._end_offset = watermark.end
        self._commits = watermark.commits

    def close_watermark(self) -> None:
        """Close the watermark file, if one is attached."""
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            watermark.close()

    def _hide_removed(self, operations: Sequence[Operation]) -> None:
        """Move the watermark's ``begin`` past the rows that the next write removes, so that no
        reader finds some of them missing."""
        assert self._watermark is not None
        for kind, family, _, end in operations:
            if kind == DELETE_RANGE and family == _LOG:
                self._watermark.set_begin(decode_key(end))

    def _show_written(self, operations: Sequence[Operation]) -> None:
        assert self._watermark is not None
        for kind, family, key, value in operations:
            if kind == PUT and family == _LOG:
                self._end_offset = decode_key(key) + summarize_chunk(value).rows
            elif kind == PUT and family == _META and key == COMMITS:
                self._commits = decode_key(value)
            elif kind == PUT and family == _META and key == EPOCH:
                self._watermark.set_epoch(value.decode())
        self._watermark.record_commit(self._end_offset, self._commits)

    def current_watermark(self) -> Watermark:
        """Return the watermark for the present content of the view; an empty view has no epoch."""
        database = self._database
        return Watermark(
            find_end(database),
            find_begin(database),
            read_counter(database, COMMITS),
            self.epoch,
        )


def _epoch_of(database: Database) -> str:
    found: bytes | None = database.families["meta"].get(EPOCH)
    return "" if found is None else found.decode()
