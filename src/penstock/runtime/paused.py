"""Connections whose reading is paused; finds those whose client has hung up meanwhile.

The end of a stream is read like data, so a paused socket does not report it::

      PAUSED ── there is room again ──────────────────────▶ read
        ├────── the connection broke ─────────────────────▶ hung up
        ╰────── the peer sent FIN, and was paused for its keep alive ─▶ hung up

A peer that sent FIN may have sent much before that is still unread, and mostly there is room for it
soon: so its connection is kept for its keep alive. A connection that broke is closed at once. Each
check is a system call, so only peers that were paused for a second are checked, and a few hundred
at a time.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.states import CONNECTED
from penstock.runtime.peer import Peer
from penstock.transport.hang_up import BROKEN, ESTABLISHED

_CHECK_INTERVAL_S: Final = 1.0
CHECKED_AT_ONCE_MAX: Final = 500  # a few milliseconds
_FINISHED_S_MAX: Final = 60.0  # for a peer without a keep alive


@final
class PausedPeers:
    """The peers whose reading is paused, each with the time at which it was paused."""

    def __init__(self) -> None:
        self._since_s: dict[Peer, float] = {}
        self._round: list[Peer] = []  # peers still to be checked
        self._round_began_s = 0.0

    def add(self, peer: Peer, now_s: float) -> None:
        """Add a peer whose reading is paused; do nothing if it was added before."""
        self._since_s.setdefault(peer, now_s)

    def remove(self, peer: Peer) -> None:
        """Remove a peer that is read again, or closed."""
        self._since_s.pop(peer, None)

    def take_hung_up(self, now_s: float) -> list[Peer]:
        """Check the next few peers; remove those that hung up, and return them."""
        if not self._round:
            if now_s - self._round_began_s < _CHECK_INTERVAL_S:
                return []
            self._round_began_s = now_s
            self._round = list(self._since_s)
        checked = self._round[-CHECKED_AT_ONCE_MAX:]
        del self._round[-CHECKED_AT_ONCE_MAX:]
        hung_up: list[Peer] = []
        for peer in checked:
            since_s = self._since_s.get(peer)
            if since_s is not None and _has_hung_up(peer, now_s - since_s):
                del self._since_s[peer]
                hung_up.append(peer)
        return hung_up


def _has_hung_up(peer: Peer, paused_s: float) -> bool:
    connection = peer.connection
    if paused_s < _CHECK_INTERVAL_S or connection.state != CONNECTED:
        return False  # before CONNACK the connect timeout applies
    found = peer.wire.peer_state()
    if found == ESTABLISHED:
        return False
    return found == BROKEN or paused_s >= (connection.patience_s or _FINISHED_S_MAX)
