"""The view: the database of one member, made of the records of the replicated log, in order.

What is done for each record is the same on a standby and on a primary that catches up. The position
in the log is written in the same batch as what the record changes, so the view is a function of a
prefix of the log at any moment, whatever a crash leaves of it, and needs no sync of its own::

      entries ─▶ checksums, chain, term ─▶ operations of many records ─▶ one write: with position
                     │ wrong                                                    │
                     ▼                                                          ▼
               LogDamaged: another replica is asked              watermark: readers see it

The pieces of a large commit are kept in memory until its last one; the position moves when that is
applied. So a view has two places: ``position``, up to which it is written, and ``end``, up to which
it has read, which may be behind pieces without a last one, whose writer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

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
from penstock.cluster.tally import Tally
from penstock.errors import StoreDamaged, StoreError
from penstock.store.chunk import decode_key, summarize_chunk
from penstock.store.database import FORMAT_KEY, Database
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

POSITION_KEY: Final = b"cluster/position"
"""The key of the view's position, in the column family ``meta``. It is never in a record."""

WRITE_BYTES: Final = 1_048_576
"""Records are applied together up to so many bytes."""

_LOG: Final = FAMILIES.index("log")
_META: Final = FAMILIES.index("meta")
_PARTS: Final = FAMILIES.index(PARTS_FAMILY)


class LogDamaged(StoreError):
    """The entries that a replica gave differ from the appended ones, or some are missing;
    ``sequence`` is the first wrong one."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(
            f"a replica of the log gave a wrong entry at sequence {sequence}: {why}; its machine's"
            " disk may be damaged"
        )
        self.sequence = sequence


class ViewForeign(StoreDamaged):
    """The view is of another history than the log: it must be seeded with a backup of a peer, which
    an empty one (``is_empty``) is at once."""

    def __init__(self, epoch: str, claim: Claim) -> None:
        of = f"the store of epoch {claim.epoch}" if claim.epoch else "an empty store"
        has = f"the epoch {epoch}" if epoch else "no epoch: it is empty"
        super().__init__(
            f"the cluster's log begins with {of}; the view of this member has {has}. 'penstock"
            " cluster reseed' replaces it by another member's, and keeps it beside"
        )
        self.is_empty = not epoch


def read_position(database: Database) -> Position:
    """Return how far the view in ``database`` has come."""
    found: bytes | None = database.families["meta"].get(POSITION_KEY)
    return Position() if found is None else decode_position(found)


@final
class View:
    """Applies records to a database.

    Args:
        database: open for writing; nothing else writes to it meanwhile.
        changed: called with the operations of each write, after it; None: nobody is told.
        tally: counts what is skipped and damaged; None: nothing does.

    Attributes:
        position: up to where it is written.
        end: the last record that was read; its term is that of the last claim.
        claim: the last claim that was applied by this object; None if there was none.
        skipped: records of older terms behind a claim, which were not applied.
    """

    def __init__(
        self,
        database: Database,
        changed: Callable[[Sequence[Operation]], None] | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.position = self.end = read_position(database)
        self.claim: Claim | None = None
        self.skipped = 0
        self._database = database
        self._changed = changed
        self._tally = tally or Tally()
        self._complete = self.position  # of the records read, the last that completes something
        self._parts: list[bytes] = []
        self._watermark: WatermarkFile | None = None
        self._end_offset = 0
        self._commits = 0

    @property
    def next_sequence(self) -> int:
        """Return the sequence of the next entry that it needs."""
        return self.end.sequence + 1

    def apply(self, entries: Sequence[Entry]) -> None:
        """Apply entries, the first of which has ``next_sequence``; entries before a wrong one are
        applied.

        Raises:
            LogDamaged: an entry is not what was appended.
            ViewForeign: a claim was made on a view of another history.
            StoreFormatError: a later Penstock wrote it.
            CommitUnknown: the database could not be written; nothing may be applied any more.
        """
        operations: list[Operation] = []
        size = 0
        damage: LogDamaged | None = None
        for entry in entries:
            try:
                record = self._checked(entry)
            except LogDamaged as error:
                damage = error
                break
            if record.kind == CLAIM:
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

    def take(self, position: Position) -> None:
        """Note that the primary has written up to ``position`` itself."""
        self.position = self.end = self._complete = position

    def pass_claim(self, position: Position) -> None:
        """Move behind this member's own claim at ``position``, which follows ``end``.

        Raises:
            CommitUnknown: the database could not be written.
        """
        self._parts.clear()
        self.end = self._complete = position
        self._write([])

    def _checked(self, entry: Entry) -> Record:
        if entry.sequence != self.next_sequence:
            raise LogDamaged(self.next_sequence, f"it gave {entry.sequence} instead")
        try:
            record = decode_record(entry.data)
        except RecordDamaged as error:
            raise LogDamaged(entry.sequence, str(error)) from error
        if record.before != self.end.checksum:
            raise LogDamaged(entry.sequence, "it does not follow the one before")
        return record

    def _operations_of(self, record: Record) -> list[Operation]:
        """Return the operations that ``record`` completes; move on behind it."""
        former = self.end
        sequence = former.sequence + 1
        if record.term < former.term:
            self._skip(record, sequence)
            return []
        if record.term > former.term and record.kind != CLAIM:
            raise RecordDamaged(f"record {sequence} of the log is of a term that nobody claimed")
        parts = self._parts
        if record.kind not in (MIDDLE_PART, LAST_PART):
            parts.clear()
        elif not parts:
            raise RecordDamaged(f"record {sequence} of the log is a piece without a first one")
        if record.kind == CLAIM:
            claim = decode_claim(record.body)
            self._refuse_foreign(claim)
            self.claim = claim
        self.end = Position(sequence, record.term, record.number, record.checksum)
        if record.kind in (FIRST_PART, MIDDLE_PART):
            parts.append(record.body)
            return []
        self._complete = self.end
        if record.kind == CLAIM:
            return []
        body = record.body
        if record.kind == LAST_PART:
            body = b"".join([*parts, body])
            parts.clear()
        return decode_operations(body)

    def _skip(self, record: Record, sequence: int) -> None:
        """Pass a record of an older term: its writer never knew that it is there."""
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

    def _refuse_foreign(self, claim: Claim) -> None:
        """Refuse a claim that was made on a view of another history.

        Raises:
            ViewForeign: it was; all before it is written.
        """
        epoch: bytes | None = self._database.families["meta"].get(EPOCH)
        own = "" if epoch is None else epoch.decode()
        if claim.epoch != own:
            raise ViewForeign(own, claim)

    def _write(self, operations: Sequence[Operation]) -> None:
        """Write operations with the position, and let readers see it.

        Raises:
            StoreFormatError: a later Penstock, the primary now, has changed the store's format.
        """
        database = self._database
        if self._complete == self.position and not operations:
            return
        batch = database.rocks_batch()
        handles = database.handles
        for kind, family, key, value in operations:
            if family == _PARTS and PARTS_FAMILY not in handles:
                database.make_parts_family()
            handle = handles[FAMILIES[family]]
            if kind == PUT:
                if family == _META and key == FORMAT_KEY:
                    refuse_format(value)
                batch.put(key, value, handle)
            elif kind == DELETE:
                batch.delete(key, handle)
            else:
                batch.delete_range(key, value, handle)
        batch.put(POSITION_KEY, encode_position(self._complete), handles["meta"])
        if self._watermark is not None:
            self._hide_removed(operations)
        database.write_here(batch, sync=False)
        self.position = self._complete
        if self._watermark is not None:
            self._show_written(operations)
        if self._changed is not None and operations:
            self._changed(operations)

    # -- for readers beside it ---------------------------------------------------------

    @property
    def has_watermark(self) -> bool:
        """Return whether it moves a watermark."""
        return self._watermark is not None

    def attach_watermark(self, watermark: WatermarkFile, committed: Watermark) -> None:
        """Move ``watermark`` with each write from now on, so that other processes see its rows.

        Args:
            watermark: the watermark.
            committed: the state that it shows now.
        """
        self._watermark = watermark
        self._end_offset = committed.end
        self._commits = committed.commits

    def close_watermark(self) -> None:
        """Close the watermark, if the view moves one."""
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            watermark.close()

    def _hide_removed(self, operations: Sequence[Operation]) -> None:
        """Move the watermark past the rows that retention is about to remove, so that no reader
        sees some of them missing."""
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
        self._watermark.record_commit(self._end_offset, self._commits)

    def committed(self) -> Watermark:
        """Return the committed state that a watermark of this view shows; its epoch is empty in an
        empty view."""
        database = self._database
        epoch: bytes | None = database.families["meta"].get(EPOCH)
        return Watermark(
            find_end(database),
            find_begin(database),
            read_counter(database, COMMITS),
            "" if epoch is None else epoch.decode(),
        )
