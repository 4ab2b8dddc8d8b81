"""Which log this is, how far it reaches, and whether that is as far as was promised.

A log has an *epoch*: its incarnation. (epoch, offset) names one message for ever, so whatever may
make offsets mean other messages than before starts a new epoch: a new store, one that lost
messages, one that was restored. The *lineage* keeps the former epochs, each with the offset up to
which the log is still the same as it was in that epoch.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from rocksdict import WriteBatch

from penstock.errors import StoreDamaged, StoreError, StoreFormatError
from penstock.store.chunk import decode_chunk, decode_key
from penstock.store.database import Database, check, has_database, open_for_reading
from penstock.store.watermark import Committed, read_watermark

FORMAT: Final = b"1"
COMMITS: Final = b"commits"
_EPOCH: Final = b"epoch"
_LINEAGE: Final = b"lineage"
_CREATED_AT: Final = b"created_at_us"

_lineage = msgspec.msgpack.Decoder(list[tuple[str, int]])


def new_epoch() -> str:
    """A name for a new incarnation of the log: sortable by time, never given twice."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Loss:
    """What was acknowledged, and is not in the store any more.

    Attributes:
        end: offset after the last message that is there.
        committed_end: offset after the last one that was committed.
        commits: number of commits that are missing; 0 where the watermark does not know.
    """

    end: int
    committed_end: int
    commits: int

    @property
    def messages(self) -> int:
        """How many messages are missing."""
        return max(0, self.committed_end - self.end)

    def __str__(self) -> str:
        if not self.messages:
            changes = "change" if self.commits == 1 else f"{self.commits} changes"
            return f"the last acknowledged {changes} of sessions or retained messages"
        if self.messages == 1:
            return f"the acknowledged message with offset {self.end}"
        return (
            f"{self.messages} acknowledged messages, those with the offsets"
            f" {self.end} to {self.committed_end - 1}"
        )


def read_epoch(database: Database) -> str | None:
    """The epoch of the log in ``database``; None where nothing was written to it yet.

    Raises:
        StoreFormatError: it is of a format that this version does not read.
    """
    meta = database.families["meta"]
    kept: bytes | None = meta.get(b"format")
    if kept is None:
        return None
    if kept != FORMAT:
        raise StoreFormatError(
            f"the store has format {kept.decode(errors='replace')}, this version of "
            f"Penstock reads format {FORMAT.decode()}: use the version that wrote it"
        )
    named: bytes | None = meta.get(_EPOCH)
    if named is None:
        raise StoreFormatError("the store has a format but no epoch: it is not a whole store")
    return named.decode()


def read_lineage(database: Database) -> list[tuple[str, int]]:
    """Former epochs, oldest first, each with the offset up to which it is the same log."""
    value: bytes | None = database.families["meta"].get(_LINEAGE)
    return [] if value is None else _lineage.decode(value)


def begin_epoch(database: Database) -> str:
    """Start a new epoch at the log's present end, synced; its name."""
    epoch = new_epoch()
    meta = database.handles["meta"]
    batch = WriteBatch(raw_mode=True)
    former = read_epoch(database)
    if former is None:
        now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
        batch.put(_CREATED_AT, str(now_us).encode(), meta)
        batch.put(b"format", FORMAT, meta)
    else:
        lineage = [*read_lineage(database), (former, find_end(database))]
        batch.put(_LINEAGE, msgspec.msgpack.encode(lineage), meta)
    batch.put(_EPOCH, epoch.encode(), meta)
    database.write(batch)
    return epoch


def created_at_us(database: Database) -> int:
    """When the store was created, µs since the Unix epoch; 0 where nobody wrote it down."""
    value: bytes | None = database.families["meta"].get(_CREATED_AT)
    return 0 if value is None else int(value)


def counter(database: Database, key: bytes) -> int:
    """A number kept in the column family ``meta``; 0 until it is written."""
    value: bytes | None = database.families["meta"].get(key)
    return 0 if value is None else decode_key(value)


def find_begin(database: Database) -> int:
    """Offset of the first message in the log; 0 for an empty one."""
    chunks = database.families["log"].iter()
    chunks.seek_to_first()
    if not chunks.valid():
        check(chunks)
        return 0
    return decode_key(chunks.key())


def find_end(database: Database) -> int:
    """Offset after the last message in the log; 0 for an empty one."""
    chunks = database.families["log"].iter()
    chunks.seek_to_last()
    if not chunks.valid():
        check(chunks)
        return 0
    return decode_key(chunks.key()) + int(decode_chunk(chunks.value()).num_rows)


def find_loss(database: Database, claimed: Committed | None) -> Loss | None:
    """What the watermark ``claimed`` to be committed and ``database`` does not hold."""
    if claimed is None:
        return None
    epoch = read_epoch(database)
    if epoch is not None and claimed.epoch not in ("", epoch):
        return None  # another log, with offsets of its own
    loss = Loss(
        find_end(database), claimed.end, max(0, claimed.commits - counter(database, COMMITS))
    )
    return loss if loss.messages or loss.commits else None


def refuse_losses(data_dir: Path) -> None:
    """Refuse a store that holds less than was acknowledged, and leave it as it is.

    To be called before the database is opened for writing: that turns the readable part of a
    damaged write-ahead log into tables and removes the rest, which somebody may want to save.

    Raises:
        StoreDamaged: something is missing.
    """
    claimed = read_watermark(data_dir)  # before the database: it may be running ahead
    if not has_database(data_dir):
        if claimed is not None and (claimed.end or claimed.commits):
            raise damaged(data_dir, Loss(0, claimed.end, claimed.commits))
        return
    try:
        database = open_for_reading(data_dir)
    except StoreError:
        return  # opening it for writing will tell why
    try:
        loss = find_loss(database, claimed)
    finally:
        database.close()
    if loss is not None:
        raise damaged(data_dir, loss)


def damaged(data_dir: Path, loss: Loss) -> StoreDamaged:
    """What to raise for a ``loss``."""
    return StoreDamaged(
        f"the store in {data_dir} has lost {loss}, by damage to its files or because older ones"
        " were put in their place: move it away and restore a backup, or run"
        f" 'penstock store repair --data-dir {data_dir}' to go on without them in a new epoch"
    )
