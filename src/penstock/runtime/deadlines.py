"""The deadlines of connections: keep alives, connect timeouts, pings that are due.

Each connection has one valid entry in a heap. When its deadline moves to a later time, the entry
stays, and a new entry is made when the old one is due; invalid entries are removed when there are
too many. An entry is a number and no reference, so the memory of a closed connection is freed
however late its deadline was.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import final

from penstock.engine.values.clock import NO_DEADLINE
from penstock.engine.values.limits import OUT_OF_DATE_MAX
from penstock.runtime.peer import Peer


@final
class Deadlines:
    """The next deadline of each connection."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._valid: dict[int, Peer] = {}  # by number of the entry
        self._entry = 0  # number of the latest entry

    def watch(self, peer: Peer) -> None:
        """Add the next deadline of the peer's connection, if it has one."""
        deadline_s = peer.connection.deadline_s()
        if deadline_s == NO_DEADLINE:
            return
        self.forget(peer)
        self._entry += 1
        peer.entry = self._entry
        self._valid[self._entry] = peer
        heappush(self._heap, (deadline_s, self._entry))
        assert len(self._valid) <= len(self._heap), "each valid entry is in the heap"
        if len(self._heap) > 2 * len(self._valid) + OUT_OF_DATE_MAX:
            self._heap = [entry for entry in self._heap if entry[1] in self._valid]
            heapify(self._heap)

    def forget(self, peer: Peer) -> None:
        """Drop the deadline of ``peer``."""
        if peer.entry in self._valid:
            del self._valid[peer.entry]

    def take_due(self, now_s: float) -> Iterator[Peer]:
        """Yield peers whose deadline passed; the caller re-arms them with ``watch``."""
        while self._heap and self._heap[0][0] <= now_s:
            _, entry = heappop(self._heap)
            peer = self._valid.pop(entry, None)
            if peer is not None:
                yield peer
