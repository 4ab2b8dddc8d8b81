"""The port of the replicated log: the interface of a cluster to the system that keeps its commits.

Three implementations stand behind it, ``JetStreamLog`` (NATS), ``EtcdLog`` and ``MemoryLog`` (for
the model tests, with injected faults); one contract suite (``tests/contract``) runs against all of
them.

Rules:

1. Entries have the sequences 1, 2, 3, …, without gaps. Only the front is ever removed (``trim``).
2. ``append`` puts an entry *at* a place: behind ``after``, which must be the last entry there is.
   When it returns, the entry is synced on a majority, and stays. When it raises ``AppendRefused``,
   the log ends elsewhere, and this call has appended nothing; but a leader that is deposed, and
   does not know it yet, may have said so while the next one appended (in JetStream), so the place
   is looked at before anything is concluded. When it raises ``AppendUnknown``, the
   entry may be there, may not be, or may still come: only ``entry_at`` that finds *some* entry at
   this place settles it.
3. One append is under way at a time for each writer. That is what makes the place a fence: with
   more under way, another writer's entries can get between them and be acknowledged.
4. ``read`` may be answered by any replica, and may lag; what it returns is consecutive and was
   appended. ``entry_at`` and ``bounds`` are answered by the leader, from what is on a majority.
5. Every call blocks for ``timeout_s`` at most. An object is used by one thread at a time; use one
   for each thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.errors import StoreError, StoreFailed


class LogUnavailable(StoreFailed):
    """The replicated log did not answer, or has no majority: try again."""


class AppendUnknown(LogUnavailable):
    """An append was sent and not answered: the entry may be there, or not, or may still come."""


class AppendRefused(StoreError):
    """An append was refused, because the log does not end where the writer expects it to."""


class EntriesTrimmed(StoreError):
    """Entries were asked for that are trimmed; ``first`` is the first that is there."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the replicated log begins at sequence {first}")
        self.first = first


class LogRefused(StoreError):
    """The system that keeps the log is not set up so that it can be trusted; the sentence says what
    to change."""


class Entry(NamedTuple):
    """An entry of the log."""

    sequence: int
    data: bytes


class Bounds(NamedTuple):
    """The first and the last sequence of the log. An empty one has ``first == last + 1``."""

    first: int
    last: int


class LogNode(NamedTuple):
    """A machine that keeps the log, as the leader sees it.

    Attributes:
        name: its name in the system that keeps the log.
        is_leader: whether it leads.
        is_current: whether it has all that is committed, as far as is known.
        lag: entries that it is behind, as far as is known.
        seen_s: seconds since it was last heard, or since there is this leader; 0 for the leader.
    """

    name: str
    is_leader: bool
    is_current: bool
    lag: int
    seen_s: float


class LogState(NamedTuple):
    """The state of the log, for an operator.

    Attributes:
        kind: "nats", "etcd" or "memory".
        version: version of the server that answered.
        leader: name of the leading node; empty while none leads.
        nodes: all nodes that keep the log.
        bounds: first and last sequence.
        size_bytes: size of the entries.
        has_quorum: whether a majority is there, so that appends are possible.
    """

    kind: str
    version: str
    leader: str
    nodes: tuple[LogNode, ...]
    bounds: Bounds
    size_bytes: int
    has_quorum: bool


class ReplicatedLog(Protocol):
    """A log of entries on a majority of machines."""

    entry_bytes_max: int
    """The largest entry, in bytes; larger values are split by the caller. Known after ``open``."""

    def open(self, timeout_s: float) -> None:
        """Connect; create the log where there is none; verify that it is set up as it must be.

        Raises:
            LogRefused: it is not: it does not sync each entry, or has too few replicas, or the
                server is too old.
            LogUnavailable: no server answers.
        """

    def append(self, data: bytes, after: int, timeout_s: float) -> None:
        """Append an entry at the sequence ``after + 1``; return when it is synced on a majority.

        Raises:
            AppendRefused: the log does not end at ``after``; nothing was appended by this call.
            AppendUnknown: there was no answer.
            LogUnavailable: it was not sent.
            LogRefused: the system put it elsewhere, although it was told the place.
        """

    def read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return up to ``count_max`` consecutive entries from ``first`` on, a few MB at most;
        none where there are none yet.

        Raises:
            EntriesTrimmed: the log begins behind ``first``.
            LogUnavailable: no replica answers.
        """

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        """Return the entry at ``sequence`` as the leader has it; None where there is none.

        Raises:
            LogUnavailable: no leader answers.
        """

    def bounds(self, timeout_s: float) -> Bounds:
        """Return the bounds of the log, as the leader has them.

        Raises:
            LogUnavailable: no leader answers.
        """

    def trim(self, before: int, timeout_s: float) -> None:
        """Remove all entries before the sequence ``before``.

        Raises:
            LogUnavailable: it may have been done, or not.
        """

    def state(self, timeout_s: float) -> LogState:
        """Return the state of the log, for an operator.

        Raises:
            LogUnavailable: no server answers.
        """

    def move_leader(self, preferred: Sequence[str], timeout_s: float) -> None:
        """Ask the leader to hand over to one of the ``preferred`` nodes, if it is none of them.

        Raises:
            LogUnavailable: no leader answers.
        """

    def close(self) -> None:
        """Close the connection; nothing may be called afterwards."""


class Heartbeats(Protocol):
    """Short messages between the brokers of a cluster; hints that may be lost, late or repeated."""

    def send(self, beat: bytes) -> None:
        """Send a message to all others; where no server is reached, it is lost."""

    def received(self, timeout_s: float) -> list[bytes]:
        """Return the messages that came, its own among them; wait for the first, ``timeout_s`` at
        most. Where no server is reached, it waits and returns none."""

    def close(self) -> None:
        """Close the connection; nothing may be called afterwards."""
