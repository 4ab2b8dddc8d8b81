"""Forks the log of a store that no broker uses: a new epoch from an offset on."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from penstock.errors import OffsetOutOfRange
from penstock.store.identity import (
    COMMITS,
    begin_epoch,
    find_begin,
    find_end,
    read_counter,
    read_epoch,
)
from penstock.store.offline import open_offline
from penstock.store.watermark import Watermark, write_watermark


class Fork(NamedTuple):
    """A fork of a log.

    Attributes:
        epoch: the epoch of the log from ``at`` on; of a dry run the present one.
        former_epoch: the epoch that ended.
        at: the offset at which it ended.
        end: the offset after the last message of the log.
    """

    epoch: str
    former_epoch: str
    at: int
    end: int


def fork_offline(data_dir: Path, at: int | None, is_dry_run: bool) -> Fork:
    """Begin a new epoch at an offset of the log below ``data_dir``.

    Args:
        data_dir: the data directory.
        at: the offset from which on the log is of the new epoch; None = its end.
        is_dry_run: change nothing.

    Raises:
        StoreLocked: a broker has the store open.
        HistoryMismatch: the store holds less than was acknowledged.
        OffsetOutOfRange: the log does not reach ``at``.
        StoreError: there is no store, or it could not be written.
    """
    with open_offline(data_dir) as database:
        former, end = read_epoch(database) or "", find_end(database)
        at = end if at is None else at
        if not 0 <= at <= end:
            raise OffsetOutOfRange(f"the log has no offset {at}: it ends at {end}")
        if is_dry_run:
            return Fork(former, former, at, end)
        epoch = begin_epoch(database, at)
        begin, commits = find_begin(database), read_counter(database, COMMITS)
        write_watermark(data_dir, Watermark(end, begin, commits, epoch))
        return Fork(epoch, former, at, end)
