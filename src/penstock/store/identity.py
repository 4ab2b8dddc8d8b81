"""The identity of the log: its epoch and its extent; refuses a store that lost acknowledged data.

The *epoch* names an incarnation of the log. (epoch, offset) identifies one message for ever, so a
new epoch starts whenever an offset may be assigned to another message: in a new store, after a loss
of messages, after a restore. The *lineage* lists the former epochs, each with the offset up to
which the log is still the same as in that epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import HistoryMismatch, StoreCorrupt, StoreError, StoreFormatError
from penstock.store.chunk import decode_key, summarize_chunk
from penstock.store.database import (
    CLUSTER_POSITION_KEY,
    FORMAT,
    FORMAT_KEY,
    STORE_DIRECTORY,
    Database,
    has_database,
    open_for_reading,
    raise_if_unreadable,
)
from penstock.store.diagnosis import (
    corrupt_store,
    damage_as_corruption,
    lacks_current,
    unfinished_repair,
)
from penstock.store.watermark import Watermark, read_watermark

_EPOCH_TIME: Final = "%Y%m%dT%H%M%S"
_SECOND: Final = timedelta(seconds=1)

COMMITS: Final = b"commits"
EPOCH: Final = b"epoch"
LINEAGE: Final = b"lineage"
CREATED_AT: Final = b"created_at_us"
CLOCK: Final = b"clock"
"""The key of the steady clock's state (``engine.values.steady_clock``)."""
GIVEN_UP: Final = b"given_up"
SEAMS: Final = b"seams"
"""The key of the offsets at which a repair found that the chain (``store.chain``) breaks."""
LOG_BYTES_APPENDED: Final = b"log_bytes_appended"
LOG_BYTES_REMOVED: Final = b"log_bytes_removed"

decode_lineage: Final = msgspec.msgpack.Decoder(list[tuple[str, int]]).decode
decode_given_up: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
"""Decode the ranges of offsets that repairs have given up: pairs of first and end, excluded."""
decode_seams: Final = msgspec.msgpack.Decoder(list[int]).decode


def new_epoch(former: Iterable[str] = ()) -> str:
    """Return a new, unique epoch: 24 ASCII characters, its time first.

    It sorts behind the former epochs of the same log, even if the clock is behind or two begin in
    one second: its time is then a second later than theirs. Epochs of different logs, and those of
    copies of one log that went on apart, have no order.

    Args:
        former: the former epochs of the log, and its present one.
    """
    at = datetime.now(UTC).replace(microsecond=0)
    for epoch in former:
        with suppress(ValueError, OverflowError):  # the name was not made here
            named = datetime.strptime(epoch[:15], _EPOCH_TIME).replace(tzinfo=UTC)
            at = max(at, named + _SECOND)
    return f"{at:{_EPOCH_TIME}}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: messages and commits that were acknowledged and are missing from the store.

    Attributes:
        end: offset after the last message in the log.
        committed_end: offset after the last message that was committed.
        commits: number of commits that are missing; 0 where the watermark does not count them.
    """

    end: int
    committed_end: int
    commits: int

    @property
    def messages(self) -> int:
        """Return how many messages are missing."""
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
    """Return the epoch of the log in ``database``; None where nothing was written to it yet.

    Raises:
        StoreFormatError: the store is of a format that this version does not read.
    """
    meta = database.families["meta"]
    version: bytes | None = meta.get(FORMAT_KEY)
    if version is None:
        return None
    refuse_format(version)
    epoch: bytes | None = meta.get(EPOCH)
    if epoch is None:
        raise StoreFormatError(
            "the store has a format but no epoch, so parts of it are missing: restore a backup"
        )
    return epoch.decode()


def refuse_format(version: bytes) -> None:
    """Raise if this version cannot read stores of the format ``version``.

    Raises:
        StoreFormatError: the format is not ``FORMAT``.
    """
    if version == FORMAT:
        return
    raise StoreFormatError(
        f"the store has format {version.decode(errors='replace')}, and this version of Penstock"
        f" reads format {FORMAT.decode()}: use the version that wrote it"
    )


def read_lineage(database: Database) -> list[tuple[str, int]]:
    """Return the former epochs, oldest first, each with the offset up to which the log is still the
    same as in that epoch."""
    value: bytes | None = database.families["meta"].get(LINEAGE)
    return [] if value is None else decode_lineage(value)


def begin_epoch(database: Database, at: int | None = None, epoch: str = "") -> str:
    """Start a new epoch, with a sync; return it.

    Args:
        database: the database of the log.
        at: the offset from which on the log is of the new epoch; None for the log's end.
        epoch: the new epoch, from ``new_epoch``; empty to make one.

    A store that was a view of a cluster's log is none any more, unless the log has this change:
    what follows is another history.

    Raises:
        CommitUnknown: the epoch could not be written.
    """
    former = read_epoch(database)
    lineage = read_lineage(database)
    epoch = epoch or new_epoch([former or "", *(one for one, _ in lineage)])
    meta = database.handles["meta"]
    batch = database.new_batch()
    if former is None:
        now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
        batch.put(CREATED_AT, str(now_us).encode(), meta)
        batch.put(FORMAT_KEY, FORMAT, meta)
    else:
        lineage.append((former, find_end(database) if at is None else at))
        batch.put(LINEAGE, msgspec.msgpack.encode(lineage), meta)
        if not database.is_replicated:
            batch.delete(CLUSTER_POSITION_KEY, meta)
    batch.put(EPOCH, epoch.encode(), meta)
    database.write(batch)
    return epoch


def created_at_us(database: Database) -> int:
    """Return the time at which the store was created, µs since the Unix epoch; 0 if unknown."""
    value: bytes | None = database.families["meta"].get(CREATED_AT)
    return 0 if value is None else int(value)


def read_counter(database: Database, key: bytes) -> int:
    """Return the number stored under ``key`` in the column family ``meta``; 0 if there is none."""
    value: bytes | None = database.families["meta"].get(key)
    return 0 if value is None else decode_key(value)


def find_begin(database: Database) -> int:
    """Return the offset of the first message in the log; 0 for an empty one."""
    chunks = database.families["log"].iter()
    chunks.seek_to_first()
    if not chunks.valid():
        raise_if_unreadable(chunks)
        return 0
    return decode_key(chunks.key())


def find_end(database: Database) -> int:
    """Return the offset after the last message in the log; 0 for an empty one."""
    chunks = database.families["log"].iter()
    chunks.seek_to_last()
    if not chunks.valid():
        raise_if_unreadable(chunks)
        return 0
    try:
        return decode_key(chunks.key()) + summarize_chunk(chunks.value()).rows
    except StoreFormatError as error:
        raise corrupt_store(database.data_dir, f"the end of the log: {error}") from error


def is_same_log(watermark: Watermark, epoch: str) -> bool:
    """Return whether ``watermark`` is of the log with this ``epoch``; True where either has no
    epoch."""
    return not epoch or watermark.epoch in ("", epoch)


def find_loss(database: Database, watermark: Watermark | None) -> Loss | None:
    """Return the messages and commits that ``watermark`` counts and ``database`` lacks.

    None means that nothing is missing, that there is no watermark, or that the watermark is of
    another log.
    """
    if watermark is None:
        return None
    if not is_same_log(watermark, read_epoch(database) or ""):
        return None  # another log, with offsets of its own
    loss = Loss(
        find_end(database),
        watermark.end,
        max(0, watermark.commits - read_counter(database, COMMITS)),
    )
    return loss if loss.messages or loss.commits else None


def refuse_losses(data_dir: Path) -> None:
    """Raise if a store holds less than was acknowledged; leave its files as they are.

    Call this before the database is opened for writing. Opening for writing turns the readable part
    of a damaged write-ahead log into tables and removes the rest, which the operator may want to
    save. Only records that RocksDB would read endlessly are overwritten (``open_for_reading``).

    Raises:
        HistoryMismatch: messages or commits are missing.
        StoreCorrupt: files of the database are damaged.
        StoreError: a repair was interrupted while it put its files in place.
    """
    refuse_corrupt_files(data_dir)
    watermark = read_watermark(data_dir)  # first: a running broker moves both on meanwhile
    if not has_database(data_dir):
        if watermark is not None and (watermark.end or watermark.commits):
            raise loss_error(data_dir, Loss(0, watermark.end, watermark.commits))
        return
    try:
        database = open_for_reading(data_dir)
    except StoreCorrupt:
        raise
    except StoreError:
        return  # opening it for writing raises the same error
    try:
        with damage_as_corruption(data_dir):
            loss = find_loss(database, watermark)
            find_begin(database)
    finally:
        database.close()
    if loss is not None:
        raise loss_error(data_dir, loss)


def refuse_corrupt_files(data_dir: Path) -> None:
    """Raise if opening the database for writing would destroy files.

    Raises:
        StoreCorrupt: the file CURRENT is missing.
        StoreError: a repair was interrupted while it put its files in place.
    """
    if unfinished_repair(data_dir) is not None:
        raise StoreError(
            f"the repair of the store in {data_dir} was interrupted: run 'penstock store repair"
            f" --data-dir {data_dir}' again"
        )
    if lacks_current(data_dir / STORE_DIRECTORY):
        raise corrupt_store(data_dir, "its file CURRENT is missing")


def is_unverified(database: Database, watermark: Watermark | None) -> bool:
    """Return whether ``database`` has commits and no watermark of its log, so that a loss of the
    newest ones cannot be detected."""
    if watermark is not None and watermark.end + watermark.commits > 0:
        known = {"", read_epoch(database), *(epoch for epoch, _ in read_lineage(database))}
        return watermark.epoch not in known
    return read_counter(database, COMMITS) > 0


def loss_error(data_dir: Path, loss: Loss) -> HistoryMismatch:
    """Return the error for a ``loss`` of the store in ``data_dir``."""
    return HistoryMismatch(
        f"the store in {data_dir} has lost {loss}, by damage to its files or because older ones"
        " were put in their place: move it away and restore a backup, or run"
        f" 'penstock store repair --data-dir {data_dir}' to go on without them in a new epoch"
    )
