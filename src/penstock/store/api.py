"""The store port: the broker's interface to durable storage.

Two implementations stand behind it, ``RocksStore`` (file) and ``MemoryStore``; one contract suite
(``tests/contract``) runs against both.

Rules:

1. ``commit`` is atomic and, when it returns, as durable as the store ever makes it
   (``acknowledged_when`` says which: "fsync", "quorum" or "memory"). When it raises, none of it may
   be acknowledged. The same commit may be given again after ``reopen``, and until it is
   written no other one: writing it twice does what writing it once does.
2. ``commit`` is called from one thread, in the order of the offsets. ``read`` and
   ``trim_log`` may run beside it in others.
3. The log is a run of consecutive offsets [earliest, end); only whole chunks leave it,
   from the front.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from penstock.engine.batch.commit import Commit
from penstock.engine.batch.records import RecoveredState
from penstock.engine.message import Message

NOTHING_LEASED: Final = 2**63 - 1


class LogExtent(NamedTuple):
    """The extent of the log: offsets from ``earliest`` up to, not including, ``end``."""

    earliest: int
    end: int
    size_bytes: int


class Store(Protocol):
    """Durable log and state of one broker."""

    acknowledged_when: str
    """The promise of an acknowledgement: "fsync", "quorum" (of a cluster) or "memory"."""

    writes_columns: bool
    """True where the columns of a commit are all that it writes, see ``Commit.columns``."""

    def recover(self, subscriptions: bool = True) -> RecoveredState:
        """Return everything that was committed, except the message bodies in the log.

        Args:
            subscriptions: False leaves the subscriptions out, for an engine that has them.

        Raises:
            StoreFormatError: the store is of a format this version does not read.
        """

    def prepare(self, commit: Commit) -> None:
        """Do the work of the next ``commit`` that needs no disk, on the thread of the event loop.

        It may be left out, and whatever it raises ``commit`` raises, too.
        """

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` in one atomic step.

        Raises:
            StoreFailed: it could not be written.
            CommitUnknown: it was tried, and may be there or not.
        """

    def reopen(self) -> None:
        """Make the store writable again after a failed ``commit``; called from the same thread.

        Raises:
            StoreFailed: the store still cannot write; what is wrong, and what to do.
            StoreDamaged: messages that were acknowledged are missing, or another process has
                written to it: the broker cannot go on.
        """

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        """Return the messages at ``offsets``, without messages that the log no longer has."""

    def trim_log(
        self,
        older_than_us: int,
        bytes_max: int,
        keep_from: int,
        leased_from: int = NOTHING_LEASED,
        leased_bytes_max: int = 0,
    ) -> int:
        """Remove whole chunks from the front of the log; return its first offset afterwards.

        A chunk goes when all of it was received before ``older_than_us`` (microseconds
        of the steady clock, ``engine.batch.steady_clock``), or while the log is larger than
        ``bytes_max``; never one that reaches to ``keep_from`` or beyond, and one that reaches
        to ``leased_from`` or beyond only while the log is larger than ``leased_bytes_max``. One
        call does a bounded amount of work.
        """

    def trim_archives(self, now_us: int) -> None:
        """Remove archived messages that streams need not keep any more.

        Args:
            now_us: the time, microseconds of the steady clock.

        Raises:
            StoreError: they could not be removed.
        """

    def log_extent(self) -> LogExtent:
        """Return the extent of the log, committed messages only. Cheap, and safe from any
        thread."""

    def close(self) -> None:
        """Close the store; nothing may be called afterwards."""
