"""The history of a log: its runs and epochs, and whether a position belongs to it.

A *run* begins whenever a broker opens the log for writing; in a cluster, with each claim, by a
record. ``meta`` has their list: the offset at which each began, and a random name. A copy of the
store that is put back goes on under a run of its own, from exactly the offset where it ends::

      epoch E   ├──── run 4be1… ────┼──── run 90d1… ────┤  20 … 39: the lost future
                                    └──── run c36b… ──────────────┤  the log goes on
                                   20

So two histories part where a run begins. Only a machine's memory that is put back, with the broker
running in it, goes on in the same run; then the chain differs (``store.chain``) and shows that the
histories parted, but not where.

``judge`` compares a position and its mark (``store.mark``) with the log:

1. The chunk before the position is there, with the same digest: the same history.
2. That chunk was removed: the path decides. Its last run is one of the log, and the offset lies in
   that run: the same history.
3. Otherwise the newest run of the path that the log knows is the last that they share, and they
   part where the first of them left it for its next run.
4. Without a mark, or where the path says nothing, the lineage decides: a former epoch is the same
   up to its end, and they part there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
from rocksdict import Rdict

from penstock.store.chain import NO_DIGEST, digest_of
from penstock.store.chunk import decode_key, summarize_chunk
from penstock.store.database import Database
from penstock.store.log_damage import seek_chunk
from penstock.store.mark import NAME_CHARACTERS, NO_MARK, PATH_RUNS_MAX, Mark, Run, Verdict

RUNS: Final = b"runs"
"""The key of the list of runs in ``meta``; stores of older versions have none."""

RUNS_MAX: Final = 1000
"""Greatest number of runs in the list; the oldest are dropped."""

_decode_runs: Final = msgspec.msgpack.Decoder(list[tuple[int, str]]).decode


class History(NamedTuple):
    """The history of a log, as the log itself knows it.

    Attributes:
        epoch: its epoch.
        lineage: former epochs, oldest first, each with the offset up to which the log is the same.
        runs: its runs, oldest first.
        end: offset after its last message.
    """

    epoch: str
    lineage: Sequence[tuple[str, int]]
    runs: Sequence[Run]
    end: int

    def path_at(self, offset: int) -> tuple[Run, ...]:
        """Return the path of the mark of ``offset``: the last runs that began before it."""
        runs = [run for run in self.runs if run.begin < offset]
        return tuple(runs[-PATH_RUNS_MAX:])

    def ends(self) -> dict[str, int]:
        """Return by former epoch the offset up to which the log is the same.

        A later epoch may have ended before a former one: then the log left both there.
        """
        ends: dict[str, int] = {}
        limit = self.end
        for epoch, end in reversed(self.lineage):
            limit = min(limit, end)
            ends[epoch] = limit
        return ends


DigestAt = Callable[[int], bytes | None]
"""Returns the digest of the chunk with the message before an offset; None if it is not there."""


def judge(history: History, digest_at: DigestAt, epoch: str, offset: int, mark: Mark) -> Verdict:
    """Return whether a position belongs to a log's history, and where they part.

    Args:
        history: the history of the log.
        digest_at: reads the log's chain.
        epoch: epoch of the position.
        offset: its offset.
        mark: its mark; empty for a position of an older version.
    """
    if offset == 0:
        return Verdict(epoch == history.epoch or epoch in history.ends())
    if not mark.is_empty and offset <= history.end:
        found = digest_at(offset) if mark.digest else None
        if found is not None and found.hex() == mark.digest:
            return Verdict(True)
        if found is None and mark.path and history.path_at(offset)[-1:] == mark.path[-1:]:
            return Verdict(True)
    parts_at = _parts_at(history, mark)
    if parts_at is None or parts_at >= offset:
        parts_at = None
        if epoch == history.epoch:
            return Verdict(mark.is_empty and offset <= history.end)
        end = history.ends().get(epoch)
        if end is not None and offset <= end:
            return Verdict(mark.is_empty)
        parts_at = end
    return Verdict(False, parts_at)


def _parts_at(history: History, mark: Mark) -> int | None:
    """Return the offset at which the first of the two left the newest run of the mark's path that
    the log knows; None where neither has, or the log knows none."""
    places = {run: place for place, run in enumerate(history.runs)}
    for place in reversed(range(len(mark.path))):
        if mark.path[place] in places:
            ours = history.runs[places[mark.path[place]] + 1 :][:1]
            theirs = mark.path[place + 1 :][:1]
            return min((run.begin for run in (*ours, *theirs)), default=None)
    return None


def parted_in_words(epoch: str, offset: int, verdict: Verdict) -> str:
    """Return the sentence about a position of a history that the log does not have."""
    return (
        f"offset {offset} of epoch {epoch} is of a history that this log does not have: they part"
        f" at offset {verdict.parts_at} (was an older copy of the data directory put back?)"
    )


def decode_runs(value: bytes | None) -> list[Run]:
    """Return the runs in a value of ``meta``; None is the value of a store that has none."""
    return [] if value is None else [Run(begin, name) for begin, name in _decode_runs(value)]


def encode_runs(runs: Sequence[Run]) -> bytes:
    """Return runs as they are stored in ``meta``."""
    return msgspec.msgpack.encode([tuple(run) for run in runs])


def begin_run(database: Database, epoch: str, end: int) -> list[Run]:
    """Begin a run at the end of the log, with a sync; return all runs.

    A log without runs first gets one that is named after its epoch: all copies of a store that an
    older version wrote have it in common.

    Raises:
        CommitUnknown: the run could not be written.
    """
    runs = decode_runs(database.families["meta"].get(RUNS))
    runs = add_run(runs, epoch, end, secrets.token_hex(NAME_CHARACTERS // 2))
    batch = database.new_batch()
    batch.put(RUNS, encode_runs(runs), database.handles["meta"])
    database.write(batch)
    return runs


def add_run(runs: Sequence[Run], epoch: str, end: int, name: str) -> list[Run]:
    """Return the runs of a log that is opened, without those of which it has nothing.

    Args:
        runs: its runs so far; none for a log that an older version wrote.
        epoch: its epoch.
        end: the offset after its last message.
        name: name of the run that begins.
    """
    first = Run(0, sha256(epoch.encode()).hexdigest()[:NAME_CHARACTERS])
    kept = [runs[0] if runs else first, *(run for run in runs[1:] if run.begin < end)]
    return [*kept, Run(end, name)][-RUNS_MAX:]


class ChunkDigest(NamedTuple):
    """The digest of one chunk, with its first offset and the offset after its last one."""

    begin: int
    end: int
    digest: bytes


NO_CHUNK: Final = ChunkDigest(0, 0, NO_DIGEST)


def find_digest(
    log: Rdict, whole: Callable[[bytes, bytes], bytes | None], offset: int
) -> ChunkDigest | None:
    """Return the digest of the chunk with the message before ``offset``; None if the log does not
    have that message.

    Args:
        log: column family of the log.
        whole: returns the whole chunk, for its key and the value stored there; None if it was
            removed meanwhile.
        offset: an offset, at most the end of the log.

    Raises:
        StoreUnavailable: the chunk cannot be read.
        StoreFormatError: it cannot be understood.
    """
    if offset == 0:
        return NO_CHUNK
    chunks = seek_chunk(log, offset - 1)
    if not chunks.valid():
        return None
    key, value = chunks.key(), chunks.value()
    base = decode_key(key)
    end = base + summarize_chunk(value).rows
    if not base < offset <= end:
        return None
    chunk = whole(key, value)
    return None if chunk is None else ChunkDigest(base, end, digest_of(base, chunk))


def mark_at(history: History, digest_at: DigestAt, offset: int) -> Mark:
    """Return the mark of ``offset``, which is at most the end of the log."""
    if offset == 0:
        return NO_MARK
    found = digest_at(offset)
    return Mark(history.path_at(offset), "" if found is None else found.hex())
