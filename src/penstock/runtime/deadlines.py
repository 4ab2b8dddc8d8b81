"""When connections must be looked at: a keep alive, a connect timeout, a ping that is due.

Each connection has one entry that counts. When its deadline moves away meanwhile, the entry stays,
and another follows once that was due; what no longer counts is thrown out when it is too much. An
entry keeps nobody: of a client that is gone nothing stays, however far its deadline.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sized
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeAlias, final

from penstock.engine.keepalive import NO_DEADLINE
from penstock.engine.limits import OUT_OF_DATE_MAX
from penstock.runtime.peer import Peer

_Entry: TypeAlias = "tuple[float, int, weakref.ref[Peer]]"


@final
class Deadlines:
    """Those of a driver's connections.

    Args:
        peers: all of them.
    """

    def __init__(self, peers: Sized) -> None:
        self._peers = peers
        self._heap: list[_Entry] = []
        self._entries = count()

    def watch(self, peer: Peer) -> None:
        """Look at ``peer`` when its connection wants that."""
        deadline_s = peer.connection.deadline_s()
        if deadline_s == NO_DEADLINE:
            return
        peer.deadline_s = deadline_s
        heappush(self._heap, (deadline_s, next(self._entries), weakref.ref(peer)))
        if len(self._heap) > 2 * len(self._peers) + OUT_OF_DATE_MAX:
            self._heap = [entry for entry in self._heap if _counts(entry)]
            heapify(self._heap)

    def due(self, now_s: float) -> Iterator[Peer]:
        """Those to be looked at by now; who does that says ``watch`` again."""
        while self._heap and self._heap[0][0] <= now_s:
            deadline_s, _, watched = heappop(self._heap)
            peer = watched()
            if peer is not None and peer.deadline_s == deadline_s:
                yield peer


def _counts(entry: _Entry) -> bool:
    deadline_s, _, watched = entry
    peer = watched()
    return peer is not None and peer.deadline_s == deadline_s and not peer.is_over
