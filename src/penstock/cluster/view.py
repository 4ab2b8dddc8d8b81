"""The view: the database of one member, made of the records of the replicated log, in order.

What is done for each record is the same on a standby and on a primary that catches up. The position
in the log is written in the same batch as what the record changes, so the view is a function of a
prefix of the log at any moment, whatever a crash leaves of it, and needs no sync of its own::

      entries ─▶ checksums, chain, term ─▶ operations of many records ─▶ one write: with position
                     │ wrong                                                    │
                     ▼                                                          ▼
               LogDamaged: another replica is asked              watermark: readers see it

A part is kept in memory until the commit that ends it; the position moves when that is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from rocksdict import WriteBatch

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
    PART,
    Claim,
    Position,
    Record,
    RecordDamaged,
    decode_claim,
    decode_position,
    decode_record,
    encode_position,
)
from penstock.errors import StoreError
from penstock.store.chunk import decode_key, summary_of
from penstock.store.database import Database
from penstock.store.identity import COMMITS, EPOCH, counter, find_begin, find_end
from penstock.store.parts import PARTS_FAMILY
from penstock.store.watermark import Committed, Watermark
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
    """The entries that a replica gave are not what was appended, or not all of it; ``sequence`` is
    the first wrong one."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(
            f"a replica of the log gave a wrong entry at sequence {sequence}: {why}; its machine's"
            " disk may be damaged"
        )
        self.sequence = sequence


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

    Attributes:
        position: how far it has come.
        claim: the last claim that was applied by this object; None if there was none.
        skipped: records of older terms behind a claim, which were not applied.
    """

    def __init__(
        self,
        database: Database,
        changed: Callable[[Sequence[Operation]], None] | None = None,
    ) -> None:
        self.position = read_position(database)
        self.claim: Claim | None = None
        self.skipped = 0
        self._database = database
        self._changed = changed
        self._read = self.position  # the last record that was read, parts included
        self._parts: list[bytes] = []
        self._watermark: Watermark | None = None
        self._end = 0
        self._commits = 0

    @property
    def next_sequence(self) -> int:
        """Return the sequence of the next entry that it needs."""
        return self._read.sequence + 1

    def apply(self, entries: Sequence[Entry]) -> None:
        """Apply entries, the first of which has ``next_sequence``; those before a wrong one are
        applied.

        Raises:
            LogDamaged: an entry is not what was appended.
            StoreFormatError: a later Penstock wrote it.
            CommitUnknown: the database could not be written.
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
            operations += self._operations_of(record)
            size += len(record.body)
            if size >= WRITE_BYTES:
                self._write(operations)
                operations, size = [], 0
        self._write(operations)
        if damage is not None:
            raise damage

    def take(self, position: Position) -> None:
        """Note that the primary has written up to ``position`` itself."""
        self.position = self._read = position

    def _checked(self, entry: Entry) -> Record:
        if entry.sequence != self.next_sequence:
            raise LogDamaged(self.next_sequence, f"it gave {entry.sequence} instead")
        try:
            record = decode_record(entry.data)
        except RecordDamaged as error:
            raise LogDamaged(entry.sequence, str(error)) from error
        if record.before != self._read.checksum:
            raise LogDamaged(entry.sequence, "it does not follow the one before")
        return record

    def _operations_of(self, record: Record) -> list[Operation]:
        """Return the operations that ``record`` completes; move on behind it."""
        sequence = self._read.sequence + 1
        term = max(record.term, self._read.term)
        self._read = Position(sequence, term, record.number, record.checksum)
        if record.term < term or (record.term > self.position.term and record.kind != CLAIM):
            self.skipped += 1
            logger.error(
                "record %d of the replicated log is of term %d, behind the claim of term %d: it is"
                " not applied",
                sequence,
                record.term,
                self.position.term,
            )
            self._parts.clear()
            return []
        if record.kind == PART:
            self._parts.append(record.body)
            return []
        parts, self._parts = self._parts, []
        self.position = self._read
        if record.kind == CLAIM:
            self.claim = decode_claim(record.body)
            return []
        return decode_operations(b"".join([*parts, record.body]) if parts else record.body)

    def _write(self, operations: Sequence[Operation]) -> None:
        """Write operations with the position, and let readers see it."""
        database = self._database
        if self.position == read_position(database) and not operations:
            return
        batch = WriteBatch(raw_mode=True)
        handles = database.handles
        for kind, family, key, value in operations:
            if family == _PARTS and PARTS_FAMILY not in handles:
                database.make_parts_family()
            handle = handles[FAMILIES[family]]
            if kind == PUT:
                batch.put(key, value, handle)
            elif kind == DELETE:
                batch.delete(key, handle)
            else:
                batch.delete_range(key, value, handle)
        batch.put(POSITION_KEY, encode_position(self.position), handles["meta"])
        if self._watermark is not None:
            self._hide_removed(operations)
        database.write_here(batch, sync=False)
        if self._watermark is not None:
            self._show_written(operations)
        if self._changed is not None and operations:
            self._changed(operations)

    # -- for readers beside it ---------------------------------------------------------

    @property
    def is_shown(self) -> bool:
        """Return whether it moves a watermark."""
        return self._watermark is not None

    def show(self, watermark: Watermark, committed: Committed) -> None:
        """Move ``watermark`` from now on, which shows ``committed`` at present."""
        self._watermark = watermark
        self._end = committed.end
        self._commits = committed.commits

    def close_watermark(self) -> None:
        """Close the watermark that it moves, if it does: another one shows what comes."""
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            watermark.close()

    def _hide_removed(self, operations: Sequence[Operation]) -> None:
        """Hide what retention removes before it is gone, so that no reader sees half of it gone."""
        assert self._watermark is not None
        for kind, family, _, end in operations:
            if kind == DELETE_RANGE and family == _LOG:
                self._watermark.set_begin(decode_key(end))

    def _show_written(self, operations: Sequence[Operation]) -> None:
        assert self._watermark is not None
        for kind, family, key, value in operations:
            if kind == PUT and family == _LOG:
                self._end = decode_key(key) + summary_of(value).rows
            elif kind == PUT and family == _META and key == COMMITS:
                self._commits = decode_key(value)
        self._watermark.move(self._end, self._commits)

    def committed(self) -> Committed:
        """Return what a watermark of this view shows; the epoch is empty in an empty view."""
        database = self._database
        epoch: bytes | None = database.families["meta"].get(EPOCH)
        return Committed(
            find_end(database),
            find_begin(database),
            counter(database, COMMITS),
            "" if epoch is None else epoch.decode(),
        )
