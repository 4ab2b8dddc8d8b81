"""When connections must be looked at: a keep alive, a connect timeout, a ping that is due.

Each connection has one entry that counts. When its deadline moves away meanwhile, the entry stays,
and another follows once that was due; what no longer counts is thrown out when it is too much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from heapq import heapify, heappop, heappush
from itertools import count
from typing import final

from penstock.engine.keepalive import NO_DEADLINE
from penstock.engine.limits import OUT_OF_DATE_MAX
from penstock.runtime.peer import Peer


@final
class Deadlines:
    """Those of a driver's connections.

    Args:
        peers: all of them.
    """

    def __init__(self, peers: Sized) -> None:
        self._peers = peers
        self._heap: list[tuple[float, int, Peer]] = []
        self._entries = count()

    def watch(self, peer: Peer) -> None:
        """Look at ``peer`` when its connection wants that."""
        deadline_s = peer.connection.deadline_s()
        if deadline_s == NO_DEADLINE:
            return
        peer.deadline_s = deadline_s
        heappush(self._heap, (deadline_s, next(self._entries), peer))
        if len(self._heap) > 2 * len(self._peers) + OUT_OF_DATE_MAX:
            self._heap = [
                entry
                for entry in self._heap
                if entry[0] == entry[2].deadline_s and not entry[2].is_over
            ]
            heapify(self._heap)

    def due(self, now_s: float) -> Iterator[Peer]:
        """Those to be looked at by now; who does that says ``watch`` again."""
        while self._heap and self._heap[0][0] <= now_s:
            deadline_s, _, peer = heappop(self._heap)
            if peer.deadline_s == deadline_s:
                yield peer
