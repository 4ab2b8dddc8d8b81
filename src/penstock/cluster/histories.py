"""A store's histories: those of lost logs that it contains, and one that it is to begin.

An operator decides that a store begins a new history (``penstock cluster recover``)::

      a view at entry 48,120 of epoch A ─▶ "cluster/former": A up to 48,120; a new epoch, and no
                                           position; "cluster/begins": where the log ended then
              │ its member starts
              ▼
      a genesis at the end of the log, whatever is in it: the other members take copies of the store

So views of epoch A up to that entry have nothing that the store lacks, and may be replaced. The
operator was told what is given up as far as the log went then: if another member has appended
since, the word does not hold for what was acknowledged meanwhile, and no genesis is appended
(``follower.Overtaken``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

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


class Word(NamedTuple):
    """An operator's word that a store begins a new history.

    Attributes:
        log_end: the last sequence of the log when it was given; None if no server answered, or an
            older version of Penstock was given it.
    """

    log_end: int | None


def read_word(database: Database) -> Word | None:
    """Return the word that the store begins a new history; None if no operator has given it."""
    found: bytes | None = database.families["meta"].get(BEGINS_KEY)
    if found is None:
        return None
    return Word(msgspec.msgpack.decode(found, type=int) if found else None)


def is_contained(epoch: str, sequence: int, former: Iterable[Former]) -> bool:
    """Return whether a view of ``epoch`` up to ``sequence`` is contained in a store that contains
    the histories ``former``."""
    return any(one.epoch == epoch and sequence <= one.sequence for one in former)


def begin_history(database: Database, word: Word) -> str:
    """Let the store begin a new history of the cluster when its member starts; return its new
    epoch, empty for an empty store.

    A crash at any moment leaves a store that this function can be called with again.

    Args:
        database: the store.
        word: the operator's word.

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
    end = word.log_end
    batch.put(BEGINS_KEY, b"" if end is None else msgspec.msgpack.encode(end), meta)
    if epoch is None:  # pieces of a history that has not begun
        batch.delete(CLUSTER_POSITION_KEY, meta)
    database.write(batch)
    return new
