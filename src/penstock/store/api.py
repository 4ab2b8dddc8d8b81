"""The store port: what the broker asks of the thing that remembers.

Two bodies stand behind it, ``RocksStore`` (file) and ``MemoryStore``; one contract suite
(``tests/contract``) runs against both.

Rules:

1. ``commit`` is atomic and, when it returns, as durable as the store ever makes it
   (``acknowledged_when`` says which: "fsync" or "memory"). When it raises, none of it may
   be acknowledged.
2. ``commit`` is called from one thread, in the order of the offsets. ``read`` and
   ``retain`` may run beside it in others.
3. The log is a run of consecutive offsets [earliest, end); only whole chunks leave it,
   from the front.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from penstock.engine.effects import Commit
from penstock.engine.message import Message
from penstock.engine.records import Recovered


class LogExtent(NamedTuple):
    """What the log holds: offsets from ``earliest`` up to, not including, ``end``."""

    earliest: int
    end: int
    size_bytes: int


class Store(Protocol):
    """Durable log and state of one broker."""

    acknowledged_when: str
    """What an acknowledgement promises: "fsync" or "memory"."""

    def recover(self) -> Recovered:
        """Everything that was committed, but the bodies in the log.

        Raises:
            StoreFormatError: the store is of a format this version does not read.
        """

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` in one atomic step.

        Raises:
            StoreFailed: it could not be written, or its fate is unknown.
        """

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        """The messages at ``offsets``; those the log no longer has are missing."""

    def retain(self, older_than_us: int, bytes_max: int, keep_from: int) -> int:
        """Remove whole chunks from the front of the log, and say where it starts then.

        A chunk goes when all of it was received before ``older_than_us`` (microseconds
        since the epoch), or while the log is larger than ``bytes_max``; never one that
        reaches to ``keep_from`` or beyond. One call does a bounded amount of work.
        """

    def log_extent(self) -> LogExtent:
        """What the log holds now: committed messages only. Cheap, and safe from any thread."""

    def close(self) -> None:
        """Let go of the store; nothing may be called afterwards."""
