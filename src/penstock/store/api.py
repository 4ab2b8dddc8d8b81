"""The store port: what the broker asks of the thing that remembers.

Two bodies stand behind it, ``RocksStore`` (file) and ``MemoryStore``; one contract suite
(``tests/contract``) runs against both.

Rules:

1. ``commit`` is atomic and, when it returns, as durable as the store ever makes it
   (``acknowledged_when`` says which: "fsync" or "memory"). When it raises, none of it may
   be acknowledged. The same commit may be given again after ``reopen``, and until it is
   written no other one: writing it twice does what writing it once does.
2. ``commit`` is called from one thread, in the order of the offsets. ``read`` and
   ``retain`` may run beside it in others.
3. The log is a run of consecutive offsets [earliest, end); only whole chunks leave it,
   from the front.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from penstock.engine.effects import Commit
from penstock.engine.message import Message
from penstock.engine.records import Recovered

NOTHING_HELD: Final = 2**63 - 1


class LogExtent(NamedTuple):
    """The extent of the log: offsets from ``earliest`` up to, not including, ``end``."""

    earliest: int
    end: int
    size_bytes: int


class Store(Protocol):
    """Durable log and state of one broker."""

    acknowledged_when: str
    """What an acknowledgement promises: "fsync" or "memory"."""

    writes_columns: bool
    """Whether it is content with the columns of a commit, see ``Commit.columns``."""

    def recover(self) -> Recovered:
        """Everything that was committed, but the bodies in the log.

        Raises:
            StoreFormatError: the store is of a format this version does not read.
        """

    def prepare(self, commit: Commit) -> None:
        """Do what needs no disk of the next ``commit``, on the thread of the event loop.

        It may be left out, and whatever it raises ``commit`` raises, too.
        """

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` in one atomic step.

        Raises:
            StoreFailed: it could not be written.
            CommitUnknown: it was tried, and may be there or not.
        """

    def reopen(self) -> None:
        """After a failed ``commit``, from the same thread: make it possible to try again.

        Raises:
            StoreFailed: the store still cannot write; what is wrong, and what to do.
            StoreDamaged: it does not hold any more what was acknowledged, or holds what
                somebody else wrote: there is no going on.
        """

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        """The messages at ``offsets``; those the log no longer has are missing."""

    def retain(
        self,
        older_than_us: int,
        bytes_max: int,
        keep_from: int,
        held_from: int = NOTHING_HELD,
        held_bytes_max: int = 0,
    ) -> int:
        """Remove whole chunks from the front of the log, and say where it starts then.

        A chunk goes when all of it was received before ``older_than_us`` (microseconds
        of the steady clock, ``engine.steady``), or while the log is larger than
        ``bytes_max``; never one that reaches to ``keep_from`` or beyond, and one that reaches
        to ``held_from`` or beyond only while the log is larger than ``held_bytes_max``. One
        call does a bounded amount of work.
        """

    def trim_archives(self, now_us: int) -> None:
        """Remove what streams need not keep any more, of what has left the log.

        Args:
            now_us: the time, microseconds of the steady clock.

        Raises:
            StoreError: it could not be done.
        """

    def log_extent(self) -> LogExtent:
        """Return what the log holds now: committed messages only. Cheap, and safe from any
        thread."""

    def close(self) -> None:
        """Let go of the store; nothing may be called afterwards."""
