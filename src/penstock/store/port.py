"""The store port: the broker's interface to durable storage.

Two implementations stand behind it, ``RocksStore`` (file) and ``MemoryStore``; one contract suite
(``tests/contract``) runs against both.

Rules:

1. ``commit`` is atomic and, when it returns, as durable as the store ever makes it
   (``acknowledged_when`` says which: "fsync", "quorum" or "memory"). When it raises, nothing in
   the commit may be acknowledged. After ``reopen`` the same commit is written again before any
   other; writing a commit twice has the same effect as writing it once.
2. ``commit`` is called from one thread, in the order of the offsets. Other threads may call
   ``read`` and ``trim_log`` meanwhile.
3. The log is a run of consecutive offsets [earliest, end); only whole chunks are removed from it,
   from the front.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from penstock.engine.api import Commit
from penstock.engine.values.message import Message
from penstock.engine.values.records import RecoveredState
from penstock.store.mark import Mark, Verdict

NOTHING_LEASED: Final = 2**63 - 1
"""Value of ``leased_from`` where no reader holds a lease: no offset is this high."""


class LogExtent(NamedTuple):
    """The extent of the log: offsets from ``earliest`` up to, not including, ``end``; its size."""

    earliest: int
    end: int
    size_bytes: int


class Store(Protocol):
    """Durable log and state of one broker."""

    acknowledged_when: str
    """How durable an acknowledged message is: "fsync", "quorum" (of a cluster) or "memory"."""

    epoch: str
    """The present epoch of the log."""

    writes_columns: bool
    """True where the store writes ``Commit.columns`` and needs no ``Commit.messages``."""

    def recover(self, subscriptions: bool = True) -> RecoveredState:
        """Return everything that was committed, except the message bodies in the log.

        Args:
            subscriptions: False leaves the subscriptions out, for an engine that already has them.

        Raises:
            StoreFormatError: the store is of a format this version does not read.
            StoreCorrupt: a stored value cannot be read or decoded.
        """

    def prepare(self, commit: Commit) -> None:
        """Encode ``commit``, which is written next, without using the disk.

        The event loop's thread calls this to shorten ``commit``. The call is optional, and raises
        the errors that encoding inside ``commit`` would raise.
        """

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` in one atomic step.

        Raises:
            CommitUnknown: the write failed; after a restart the commit may be there or not.
            StoreUnavailable: any other failure; nothing of the commit was written.
        """

    def reopen(self) -> None:
        """Make the store writable again after a failed ``commit``; called from the same thread.

        Raises:
            StoreUnavailable: the store still cannot write; the message names the fault and the
                remedy.
            HistoryMismatch: messages that were acknowledged are missing, or another process has
                written to the store: the broker cannot go on.
        """

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        """Return the messages at ``offsets``, by offset; offsets that the log lacks are left out.

        Raises:
            StoreUnavailable: the log cannot be read.
        """

    def trim_log(
        self,
        older_than_us: int,
        bytes_max: int,
        keep_from: int,
        leased_from: int = NOTHING_LEASED,
        leased_bytes_max: int = 0,
    ) -> int:
        """Remove whole chunks from the front of the log; return its first offset afterwards.

        A chunk is removed when all of its messages were received before ``older_than_us``
        (microseconds of the steady clock, ``engine.values.steady_clock``), or while the log is
        larger than ``bytes_max``. A chunk with an offset of ``keep_from`` or above always stays; a
        chunk with an offset of ``leased_from`` or above is removed only while the log is larger
        than ``leased_bytes_max``. One call does a bounded amount of work.

        Raises:
            StoreError: the log could not be read, or the removal not be written.
        """

    def trim_archives(self, now_us: int) -> None:
        """Remove archived messages that exceed the age or size limit of their stream.

        Args:
            now_us: the time, microseconds of the steady clock.

        Raises:
            StoreError: the removal could not be written.
        """

    def mark_at(self, offset: int) -> Mark:
        """Return the mark of ``offset``, which is at most the end of the log. Safe from any thread.

        Raises:
            StoreUnavailable: the log cannot be read.
        """

    def judge(self, epoch: str, offset: int, mark: Mark) -> Verdict:
        """Return whether the messages before a position are those of this log, and where the two
        histories part (``store.history``). Safe from any thread.

        Args:
            epoch: epoch of the position.
            offset: its offset.
            mark: its mark; empty for a position of an older version.

        Raises:
            StoreUnavailable: the log cannot be read.
        """

    def fork(self, at: int) -> str:
        """Go on under a new epoch from the offset ``at`` on, with a sync; return it. Safe from any
        thread but one at a time.

        Raises:
            StoreUnavailable: the epoch could not be written.
            StoreError: this store has one history only.
        """

    def log_extent(self) -> LogExtent:
        """Return the extent of the committed log. Reads memory only; safe from any thread."""

    def close(self) -> None:
        """Close the store; no method may be called afterwards."""
