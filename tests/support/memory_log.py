"""The replicated log in memory, for model tests, which inject all of its faults.

A ``MemoryCluster`` stands for the servers that store the log. Each member of the cluster under test
reaches it by a ``MemoryLog`` of its own, which can be cut off, lose answers, and read from a
replica that lags::

    MemoryLog "a" ──┐  faults of the next appends, is_cut, replica_end
                    ├──▶ MemoryCluster: the entries; has_majority; delayed ─ deliver ─▶ entries
    MemoryLog "b" ──┘
    MemoryHeartbeats "a", "b" ──▶ the same cluster: loss, delay and repetition; links that are cut

Nothing here waits or reads a clock: a call that would block raises ``LogUnavailable`` at once, and
the test provides time and random numbers. So a run is a function of its seed. All objects are used
by one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Final, NamedTuple, final

from penstock.cluster.log import (
    AppendRefused,
    AppendUnknown,
    Bounds,
    EntriesTrimmed,
    Entry,
    LogNode,
    LogState,
    LogUnavailable,
)

ENTRY_BYTES_MAX: Final = 1 << 20
_READ_BYTES_MAX: Final = 4 << 20


class AppendFault(Enum):
    """The outcome of one append."""

    NONE = "answered"
    NOT_SENT = "not sent: LogUnavailable"
    LOST = "sent and lost: AppendUnknown, and never carried out"
    ANSWER_LOST = "carried out, but its answer is lost: AppendUnknown"
    ANSWER_OF_DEPOSED = "carried out, but a deposed leader answers first: AppendRefused"
    DELAYED = "in transit until the test delivers it: AppendUnknown"


@final
class DelayedAppend:
    """An append that was sent and has not arrived.

    Attributes:
        member: name of the member that sent it.
        data: the entry.
        after: the sequence behind which it is to be appended.
    """

    def __init__(self, member: str, data: bytes, after: int) -> None:
        self.member = member
        self.data = data
        self.after = after


class _Beat(NamedTuple):
    """A heartbeat in transit: its time of arrival, its number and its bytes."""

    arrives_s: float
    number: int
    data: bytes


@final
class MemoryCluster:
    """The servers that store the log, and the network between the members.

    Args:
        now: returns the time in seconds, by which delayed heartbeats arrive.
        random: decides which heartbeats are lost, late and repeated.
        entry_bytes_max: size of the largest entry.

    Attributes:
        has_majority: False while no append, and no call that the leader answers, can succeed.
        delayed: the appends in transit, in the order in which they were sent.
        nodes: names of the servers.
        leader: name of the leading server.
        beat_loss: share of heartbeats that are lost, 0 to 1.
        beat_repeat: share of heartbeats that are delivered twice, 0 to 1.
        beat_delay_s_max: longest delay of a heartbeat; delays differ, so heartbeats may arrive out
            of order.
        cut_links: pairs of sender and receiver between which no heartbeat is delivered.
    """

    def __init__(
        self,
        now: Callable[[], float] = lambda: 0.0,
        random: Random | None = None,
        entry_bytes_max: int = ENTRY_BYTES_MAX,
    ) -> None:
        self.now: Final = now
        self.random: Final = Random(0) if random is None else random
        self.entry_bytes_max: Final = entry_bytes_max
        self.has_majority = True
        self.delayed: list[DelayedAppend] = []
        self.nodes = ("m1", "m2", "m3")
        self.leader = "m1"
        self.beat_loss = 0.0
        self.beat_repeat = 0.0
        self.beat_delay_s_max = 0.0
        self.cut_links: set[tuple[str, str]] = set()
        self._entries: deque[bytes] = deque()
        self._first = 1
        self._listeners: dict[str, MemoryHeartbeats] = {}
        self._beats_sent = 0

    @property
    def bounds(self) -> Bounds:
        """The bounds of the log."""
        return Bounds(self._first, self._first + len(self._entries) - 1)

    def entry(self, sequence: int) -> Entry | None:
        """Return the entry at ``sequence``; None if there is none, or it was trimmed."""
        if self._first <= sequence <= self.bounds.last:
            return Entry(sequence, self._entries[sequence - self._first])
        return None

    def put(self, data: bytes, after: int) -> None:
        """Append an entry behind ``after``.

        Raises:
            AppendRefused: the log does not end at ``after``.
        """
        last = self.bounds.last
        if after != last:
            raise AppendRefused(f"the log ends at {last}, not at {after}")
        self._entries.append(data)

    def deliver(self, append: DelayedAppend) -> bool:
        """Carry out a delayed append; return True if it was appended, False if refused."""
        self.delayed.remove(append)
        try:
            self.put(append.data, append.after)
        except AppendRefused:
            return False
        return True

    def remove_before(self, before: int) -> None:
        """Remove the entries before the sequence ``before``, at most the last sequence + 1."""
        while self._first < before and self._entries:
            self._entries.popleft()
            self._first += 1

    def lose(self) -> None:
        """Lose all entries and the appends in transit, as servers do that lose their disks; an
        empty log is made in their place."""
        self._entries.clear()
        self._first = 1
        self.delayed.clear()

    def add_listener(self, listener: MemoryHeartbeats) -> None:
        """Deliver heartbeats to the member of ``listener`` from now on."""
        self._listeners[listener.member] = listener

    def remove_listener(self, listener: MemoryHeartbeats) -> None:
        """Deliver no more heartbeats to ``listener``."""
        if self._listeners.get(listener.member) is listener:
            del self._listeners[listener.member]

    def broadcast(self, sender: str, beat: bytes) -> None:
        """Send a heartbeat to all members, the sender included."""
        for member, listener in self._listeners.items():
            if listener.is_cut or (sender, member) in self.cut_links:
                continue
            if member != sender and self.random.random() < self.beat_loss:
                continue
            copies = 2 if self.random.random() < self.beat_repeat else 1
            for _ in range(copies):
                self._beats_sent += 1
                delay_s = self.random.random() * self.beat_delay_s_max
                listener.in_transit.append(_Beat(self.now() + delay_s, self._beats_sent, beat))


@final
class MemoryLog:
    """A member's connection to the log in memory; see ``ReplicatedLog`` for the methods.

    Args:
        cluster: the servers that store the log.
        member: name of the member.

    Attributes:
        is_cut: True while this member reaches no server.
        faults: the outcomes of the next appends; when it is empty, appends are answered.
        replica_end: last sequence at the replica from which this member reads; None for a replica
            that does not lag.
        leader_end: last sequence at a deposed leader, which this member still asks; None if it asks
            the present leader.
    """

    def __init__(self, cluster: MemoryCluster, member: str = "a") -> None:
        self._cluster = cluster
        self._member = member
        self._is_closed = False
        self.entry_bytes_max = cluster.entry_bytes_max
        self.is_cut = False
        self.faults: deque[AppendFault] = deque()
        self.replica_end: int | None = None
        self.leader_end: int | None = None

    def open(self, timeout_s: float) -> None:
        """Return if the leader is reached; the log needs no creation."""
        self._reach_leader(timeout_s)

    def append(self, data: bytes, after: int, timeout_s: float) -> None:
        """Append an entry, or apply the next of ``faults``."""
        if len(data) > self.entry_bytes_max:
            raise ValueError(f"an entry of {len(data)} bytes; at most {self.entry_bytes_max}")
        fault = self.faults.popleft() if self.faults else AppendFault.NONE
        self._reach(timeout_s)
        if self.leader_end is not None and fault is AppendFault.NONE:
            if after != self.leader_end:
                raise AppendRefused(f"the log ends at {self.leader_end}, says a deposed leader")
            raise AppendUnknown("no answer of the log")  # it has no majority
        if fault is AppendFault.NOT_SENT:
            raise LogUnavailable("no connection to the log")
        if fault is AppendFault.LOST or not self._cluster.has_majority:
            raise AppendUnknown("no answer of the log")
        if fault is AppendFault.DELAYED:
            self._cluster.delayed.append(DelayedAppend(self._member, data, after))
            raise AppendUnknown("no answer of the log")
        try:
            self._cluster.put(data, after)
        except AppendRefused:
            if fault is AppendFault.ANSWER_LOST:
                raise AppendUnknown("no answer of the log") from None
            raise
        if fault is AppendFault.ANSWER_LOST:
            raise AppendUnknown("no answer of the log")
        if fault is AppendFault.ANSWER_OF_DEPOSED:
            raise AppendRefused(f"the log does not end at {after}, says a deposed leader")

    def read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return entries that this member's replica has."""
        self._reach(timeout_s)
        bounds = self._cluster.bounds
        last = bounds.last if self.replica_end is None else min(bounds.last, self.replica_end)
        if first < bounds.first:
            raise EntriesTrimmed(bounds.first)
        found: list[Entry] = []
        size_bytes = 0
        for sequence in range(first, min(last, first + count_max - 1) + 1):
            entry = self._cluster.entry(sequence)
            assert entry is not None
            size_bytes += len(entry.data)
            if found and size_bytes > _READ_BYTES_MAX:
                break
            found.append(entry)
        return found

    def read_copy(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return entries that this member's replica has."""
        return self.read(first, count_max, timeout_s)

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        """Return the entry as the leader has it."""
        self._reach_leader(timeout_s)
        if self.leader_end is not None and sequence > self.leader_end:
            return None
        return self._cluster.entry(sequence)

    def bounds(self, timeout_s: float) -> Bounds:
        """Return the bounds as the leader has them."""
        self._reach_leader(timeout_s)
        first, last = self._cluster.bounds
        if self.leader_end is not None:
            last = min(last, max(self.leader_end, first - 1))
        return Bounds(first, last)

    def trim(self, before: int, timeout_s: float) -> None:
        """Remove the entries before ``before``."""
        self._reach_leader(timeout_s)
        self._cluster.remove_before(before)

    def state(self, timeout_s: float) -> LogState:
        """Return the state as an operator would see it."""
        self._reach(timeout_s)
        cluster = self._cluster
        leader = cluster.leader if cluster.has_majority else ""
        nodes = tuple(LogNode(name, name == leader, True, 0, 0.0) for name in cluster.nodes)
        bounds = cluster.bounds
        entries = (cluster.entry(at) for at in range(bounds.first, bounds.last + 1))
        size_bytes = sum(len(entry.data) for entry in entries if entry is not None)
        return LogState("memory", "", leader, nodes, bounds, size_bytes, cluster.has_majority)

    def move_leader(self, preferred: Sequence[str], timeout_s: float) -> None:
        """Make the first known server of ``preferred`` the leader, unless one of them leads."""
        self._reach_leader(timeout_s)
        if self._cluster.leader not in preferred:
            known = [name for name in preferred if name in self._cluster.nodes]
            self._cluster.leader = known[0] if known else self._cluster.leader

    def leave_server(self) -> None:
        """Do nothing."""

    def prefer(self, server: str) -> None:
        """Do nothing: every call reaches the leader directly, whichever server leads."""

    def close(self) -> None:
        """Refuse all further calls."""
        self._is_closed = True

    def _reach(self, timeout_s: float) -> None:
        assert not self._is_closed, "the log was closed"
        assert timeout_s > 0, "no time was given"
        if self.is_cut:
            raise LogUnavailable("no connection to the log")

    def _reach_leader(self, timeout_s: float) -> None:
        self._reach(timeout_s)
        if not self._cluster.has_majority:
            raise LogUnavailable("the log has no majority")


@final
class MemoryHeartbeats:
    """The heartbeats of one member; see ``Heartbeats`` for the methods.

    Args:
        cluster: the network that delivers them.
        member: name of the member, unique in the cluster.

    Attributes:
        is_cut: True while this member can neither send nor receive.
        in_transit: heartbeats that were sent to this member and not received yet.
    """

    def __init__(self, cluster: MemoryCluster, member: str) -> None:
        self._cluster = cluster
        self.member: Final = member
        self.is_cut = False
        self.in_transit: list[_Beat] = []
        cluster.add_listener(self)

    def send(self, beat: bytes) -> None:
        """Send a heartbeat to all members, this one included."""
        if not self.is_cut:
            self._cluster.broadcast(self.member, beat)

    def received(self, timeout_s: float) -> list[bytes]:
        """Return the heartbeats that have arrived, in order of arrival, without waiting."""
        del timeout_s
        if self.is_cut:
            return []
        now = self._cluster.now()
        arrived = sorted(beat for beat in self.in_transit if beat.arrives_s <= now)
        self.in_transit = [beat for beat in self.in_transit if beat.arrives_s > now]
        return [beat.data for beat in arrived]

    def close(self) -> None:
        """Stop receiving heartbeats."""
        self._cluster.remove_listener(self)
