"""Repair: go on without what a store has lost, in a new epoch.

A store that holds less than was acknowledged is refused by the broker (``store.identity``). What
is there is a consistent prefix of what was: RocksDB recovers whole commits, in their order, up to
the damage. Going on from there in the same epoch would give the lost offsets to other messages, and
a reader of the log that had seen the lost ones would never notice. In a new epoch it does.

Damage inside a table file is another matter: it tears a hole into what is left, and a start would
meet it sooner or later. Such a store is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import StoreDamaged
from penstock.store.database import has_database, open_database
from penstock.store.examination import examine
from penstock.store.identity import (
    COMMITS,
    Loss,
    begin_epoch,
    counter,
    find_begin,
    find_end,
    find_loss,
    read_epoch,
)
from penstock.store.manifest import refuse_backup
from penstock.store.places import is_there, no_store
from penstock.store.watermark import WATERMARK_FILE, Committed, read_watermark, write_watermark


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair has done: `loss` is None where nothing was missing and nothing was changed."""

    epoch: str
    end: int
    loss: Loss | None


def repair(data_dir: Path) -> Repaired:
    """Accept the loss of what the store below ``data_dir`` does not hold any more.

    Raises:
        StoreLocked: a broker has it open.
        StoreFormatError: it is of another format.
        StoreDamaged: what is left is not whole; nothing was changed.
        StoreError: there is no store, or it cannot be opened.
    """
    if not has_database(data_dir) and not is_there(data_dir / WATERMARK_FILE):
        raise no_store(data_dir)
    refuse_backup(data_dir)
    claimed = read_watermark(data_dir)
    if has_database(data_dir):
        unreadable = examine(data_dir).unreadable
        if unreadable:
            raise StoreDamaged(
                f"the store in {data_dir} is damaged where repair cannot help ({unreadable}):"
                " restore a backup; 'penstock store check' names everything that is damaged"
            )
    database = open_database(data_dir)
    try:
        loss = find_loss(database, claimed)
        epoch = read_epoch(database)
        end = find_end(database)
        if loss is None and epoch is not None:
            return Repaired(epoch, end, None)
        epoch = begin_epoch(database)  # first: a watermark of another epoch is not compared
        begin, commits = find_begin(database), counter(database, COMMITS)
        write_watermark(data_dir, Committed(end, begin, commits, epoch))
        return Repaired(epoch, end, loss)
    finally:
        database.close()
