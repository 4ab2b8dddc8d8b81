"""Who hung up while it was not read: asked now and then, a few at a time."""

from typing import cast

import pytest

from penstock.engine.values.states import AWAIT_VERDICT, CONNECTED
from penstock.runtime.paused import CHECKED_AT_ONCE_MAX, PausedPeers
from penstock.runtime.peer import Peer
from penstock.transport.hang_up import BROKEN, ESTABLISHED, FINISHED


class Paused:
    """A peer, its wire and its connection, as far as they are asked."""

    def __init__(self, found: int = ESTABLISHED, patience_s: float = 90.0) -> None:
        self.found = found
        self.asked = 0
        self.state = CONNECTED
        self.patience_s = patience_s
        self.wire = self
        self.connection = self

    def peer_state(self) -> int:
        self.asked += 1
        return self.found

    @property
    def peer(self) -> Peer:
        return cast(Peer, self)


def asked_at(peers: PausedPeers, now_s: float) -> list[Paused]:
    return [cast(Paused, peer) for peer in peers.take_hung_up(now_s)]


def test_many_are_asked_in_portions_and_each_once_a_second() -> None:
    peers, paused = PausedPeers(), [Paused() for _ in range(2 * CHECKED_AT_ONCE_MAX + 200)]
    for one in paused:
        peers.add(one.peer, 10.0)
    most = 0
    for tick in range(8):
        before = sum(one.asked for one in paused)
        assert asked_at(peers, 11.5 + tick / 8) == []
        most = max(most, sum(one.asked for one in paused) - before)
    assert most == CHECKED_AT_ONCE_MAX
    assert [one.asked for one in paused] == [1] * len(paused)
    assert asked_at(peers, 12.5) == []
    assert sum(one.asked for one in paused) == len(paused) + CHECKED_AT_ONCE_MAX


@pytest.mark.parametrize(
    ("found", "patience_s", "gone_at_s"),
    [(BROKEN, 90.0, 1), (FINISHED, 5.0, 5), (FINISHED, 0.0, 60), (ESTABLISHED, 5.0, None)],
)
def test_a_paused_peer_is_given_up_at_its_time(
    found: int, patience_s: float, gone_at_s: int | None
) -> None:
    peers, one = PausedPeers(), Paused(found, patience_s)
    peers.add(one.peer, 100.0)
    gone = [second for second in range(1, 100) if asked_at(peers, 100.0 + second)]
    assert gone == ([gone_at_s] if gone_at_s is not None else [])


def test_a_peer_read_again_or_not_let_in_yet_is_not_asked() -> None:
    peers, read, waits = PausedPeers(), Paused(BROKEN), Paused(BROKEN)
    waits.state = AWAIT_VERDICT
    for one in (read, waits):
        peers.add(one.peer, 100.0)
    assert asked_at(peers, 100.5) == [], "a round begins"
    peers.remove(read.peer)
    for second in range(1, 10):
        assert asked_at(peers, 101.0 + second) == []
    assert read.asked == waits.asked == 0
