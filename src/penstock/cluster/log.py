"""The port of the replicated log: the interface to the system that stores the commits of a cluster.

It has two implementations, ``JetStreamLog`` (NATS) and ``EtcdLog``, and tests have one in memory,
with injected faults; one contract suite (``tests/contract``) runs against all of them.

Rules:

1. Entries have the sequences 1, 2, 3, …, without gaps. Entries are only removed at the front
   (``trim``).
2. ``append`` puts an entry at a given sequence: behind ``after``, which must be the last entry.
   When
   it returns, the entry is synced on a majority, and stays. When it raises ``AppendRefused``, the
   log ends elsewhere, and the call has appended nothing. But in JetStream a leader that was deposed
   and has not noticed may refuse although the new leader appends, so the caller reads the sequence
   before it draws a conclusion. When it raises ``AppendUnknown``, the entry may be in the log, may
   never be, or may still be added: only an ``entry_at`` that finds *some* entry at that sequence
   decides.
3. A writer has one append in flight at a time. Then the sequence acts as a fence: with more in
   flight, another writer's entries could get between them and be acknowledged.
4. Any replica may answer ``read``, and it may lag; the returned entries are consecutive and were
   appended. The leader answers ``entry_at`` and ``bounds``, from what is on a majority.
5. Every call blocks for ``timeout_s`` at most. An object is used by one thread at a time; each
   thread uses an object of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.errors import StoreError, StoreUnavailable


class LogUnavailable(StoreUnavailable):
    """The replicated log did not answer, or has no majority; the caller may retry."""


class LogMissing(LogUnavailable):
    """The servers answer and have no log of this name: it is not created yet, or it is lost."""


class EntryMissing(LogUnavailable):
    """A replica lacks an entry in the middle of the log, and so does the leader."""


class AppendUnknown(LogUnavailable):
    """An append was sent and not answered: the entry may be in the log, now or later, or never."""


class AppendRefused(StoreError):
    """An append was refused, because the log does not end where the writer expects it to."""


class EntriesTrimmed(StoreError):
    """The requested entries were trimmed; ``first`` is the first sequence of the log."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the replicated log begins at sequence {first}")
        self.first = first


class LogRefused(StoreError):
    """The system that stores the log is configured so that it may lose commits; the message says
    what to change."""


class Entry(NamedTuple):
    """An entry of the log."""

    sequence: int
    data: bytes


class Bounds(NamedTuple):
    """The first and the last sequence of the log. An empty one has ``first == last + 1``."""

    first: int
    last: int


class LogNode(NamedTuple):
    """A server that stores the log, as the leader reports it.

    Attributes:
        name: name of the server in the system that stores the log.
        is_leader: whether it leads.
        is_current: whether it has all committed entries, as far as the leader knows.
        lag: number of entries that it is behind, as far as the leader knows.
        seen_s: seconds since the leader last heard it, or since the leader was elected; 0 for the
            leader itself; None if it does not answer, and nobody knows since when.
    """

    name: str
    is_leader: bool
    is_current: bool
    lag: int
    seen_s: float | None


class LogState(NamedTuple):
    """The state of the log, for an operator.

    Attributes:
        kind: "nats", "etcd" or "memory".
        version: version of the server that answered.
        leader: name of the leading server; empty while none leads.
        nodes: all servers that store the log.
        bounds: first and last sequence.
        size_bytes: size of the entries.
        has_quorum: whether a majority is reachable, so that appends are possible.
    """

    kind: str
    version: str
    leader: str
    nodes: tuple[LogNode, ...]
    bounds: Bounds
    size_bytes: int
    has_quorum: bool


def majority_answers(seen_s: Sequence[float | None]) -> bool:
    """Return whether more than half of the servers answer; see ``LogNode.seen_s``. A majority that
    answers and has no leader elects one."""
    return sum(seen is not None for seen in seen_s) * 2 > len(seen_s)


class ReplicatedLog(Protocol):
    """A log of entries on a majority of machines."""

    entry_bytes_max: int
    """Size of the largest entry; the caller splits larger values. Known after ``open``."""

    def open(self, timeout_s: float) -> None:
        """Connect, create the log if it does not exist and this object may, and verify its
        configuration.

        Raises:
            LogMissing: the log does not exist, and this object may not create it.
            LogRefused: the log may lose commits: entries are not synced, there are too few
                replicas, or a server is too old.
            LogUnavailable: no server answers.
        """

    def append(self, data: bytes, after: int, timeout_s: float) -> None:
        """Append an entry at the sequence ``after + 1``; return when it is synced on a majority.

        Raises:
            AppendRefused: the log does not end at ``after``, or an earlier append at this place is
                under way; this call appended nothing.
            AppendUnknown: the append was sent, and there was no answer.
            LogUnavailable: the append was not sent.
            LogRefused: the system put the entry at another sequence than ``after + 1``.
        """

    def read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return up to ``count_max`` consecutive entries from ``first`` on, a few MB at most; an
        empty list if the replica has none yet.

        Raises:
            EntriesTrimmed: the log begins behind ``first``.
            LogUnavailable: no replica answers.
        """

    def read_copy(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return entries from ``first`` on as the connected server's own copy has them, in order;
        entries may be missing, and an empty list means that it has none yet.

        Raises:
            EntriesTrimmed: the log begins behind ``first``.
            LogUnavailable: the server does not answer.
        """

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        """Return the entry at ``sequence``, which is in the log for good; None if there is none.

        Raises:
            LogUnavailable: no leader answers, or a majority is not known to have the entry.
        """

    def bounds(self, timeout_s: float) -> Bounds:
        """Return the bounds of the log, as the leader has them.

        Raises:
            LogUnavailable: no leader answers.
        """

    def trim(self, before: int, timeout_s: float) -> None:
        """Remove all entries before the sequence ``before``.

        Raises:
            LogUnavailable: the entries may be removed or not.
        """

    def state(self, timeout_s: float) -> LogState:
        """Return the state of the log, for an operator; ``open`` need not be called before, and
        nothing is created.

        Raises:
            LogMissing: the servers have no log of this name.
            LogUnavailable: no server answers.
        """

    def move_leader(self, preferred: Sequence[str], timeout_s: float) -> None:
        """Ask the leader to hand over to one of the ``preferred`` servers, unless it is one of
        them.

        Raises:
            LogUnavailable: no leader answers.
        """

    def leave_server(self) -> None:
        """Let later calls go to another server, because this one gave a wrong entry; a hint."""

    def prefer(self, server: str) -> None:
        """Let later calls go to the server of this name, which leads, where it is reached.

        It is a hint, which another thread may give at any moment: other servers pass appends on to
        the leader.
        """

    def close(self) -> None:
        """Close the connection; no method may be called afterwards."""


class Heartbeats(Protocol):
    """Sends and receives heartbeats between the brokers of a cluster; they may be lost, late or
    repeated."""

    def send(self, beat: bytes) -> None:
        """Send a heartbeat to all members; it is lost if no server is reached."""

    def received(self, timeout_s: float) -> list[bytes]:
        """Return the heartbeats received since the last call, this member's own included.

        Wait up to ``timeout_s`` seconds for the first; return an empty list if none arrives or no
        server is reached.
        """

    def close(self) -> None:
        """Close the connection; no method may be called afterwards."""
