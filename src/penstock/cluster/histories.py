"""A store's histories: those of lost logs that it contains, and one that it is to begin.

An operator decides that a store begins a new history (``penstock cluster recover``)::

      a view at entry 48,120 of epoch A ─▶ "cluster/former": A up to 48,120; "cluster/begins"; a new
                                           epoch, and no position
              │ its member starts
              ▼
      a genesis at the end of the log, whatever is in it: the other members take copies of the store

So views of epoch A up to that entry have nothing that the store lacks, and may be replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.cluster.record import Former, decode_position
from penstock.store.database import CLUSTER_POSITION_KEY, Database
from penstock.store.identity import begin_epoch, read_epoch

FORMER_KEY: Final = b"cluster/former"
BEGINS_KEY: Final = b"cluster/begins"

_decode: Final = msgspec.msgpack.Decoder(tuple[Former, ...]).decode


def read_former(database: Database) -> tuple[Former, ...]:
    """Return the lost or ended histories that the store contains."""
    found: bytes | None = database.families["meta"].get(FORMER_KEY)
    return () if found is None else _decode(found)


def is_to_begin(database: Database) -> bool:
    """Return whether an operator decided that the store begins a new history."""
    return database.families["meta"].get(BEGINS_KEY) is not None


def is_contained(epoch: str, sequence: int, former: Iterable[Former]) -> bool:
    """Return whether a view of ``epoch`` up to ``sequence`` is contained in a store that contains
    the histories ``former``."""
    return any(one.epoch == epoch and sequence <= one.sequence for one in former)


def begin_history(database: Database) -> str:
    """Let the store begin a new history of the cluster when its member starts; return its new
    epoch, empty for an empty store.

    A crash at any moment leaves a store that this function can be called with again.

    Raises:
        CommitUnknown: the store could not be written.
    """
    meta = database.handles["meta"]
    epoch = read_epoch(database)
    new = ""
    if epoch is not None:
        position: bytes | None = database.families["meta"].get(CLUSTER_POSITION_KEY)
        if position is not None:
            last = decode_position(position)
            ended = Former(epoch, last.sequence, last.term)
            batch = database.new_batch()
            former = msgspec.msgpack.encode([*read_former(database), ended])
            batch.put(FORMER_KEY, former, meta)
            database.write(batch)
        new = begin_epoch(database)
    batch = database.new_batch()
    batch.put(BEGINS_KEY, b"", meta)
    if epoch is None:  # pieces of a history that has not begun
        batch.delete(CLUSTER_POSITION_KEY, meta)
    database.write(batch)
    return new
