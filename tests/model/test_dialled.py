"""A bad link between the client role and a side that accepts: the promises of ``test_link``
hold."""

from __future__ import annotations

import pytest

from penstock.engine.dialling.unacknowledged import UnacknowledgedMessages
from penstock.engine.values.clock import Now
from tests.model.dialled import Accepting, Dialled
from tests.model.link import LinkWorld, Make
from tests.model.seeds import TIMEOUT_S, play_seeds
from tests.model.test_link import Run, play


class Dialling(Run):
    """A run that lets most handshakes through: they take many steps, and little else would
    happen."""

    def _open(self) -> None:
        super()._open()
        if self._random.random() < 0.2:
            return
        for side in (0, 1, 0):
            self.world.attach(side)
            for step in (self.world.turn, self.world.write, self.world.release):
                step(side)
            self.world.read(1 - side, None)


def play_dialled(seed: int, dialled: Make = Dialled) -> LinkWorld:
    """Play one run, of a side that dials and one that accepts; a failure names its seed."""
    return play(seed, (dialled, Accepting), Dialling)


@pytest.mark.timeout(TIMEOUT_S)
def test_every_promise_is_kept_by_the_connecting_role() -> None:
    play_seeds(play_dialled, 300)


def test_the_runs_do_what_they_are_for() -> None:
    arrived = [0, 0]
    again = crashes = 0
    for seed in range(60):
        world = play_dialled(seed)
        for side, traffic in enumerate(world.traffic):
            arrived[side] += sum(sent.rows > 0 for sent in traffic.messages.values())
            again += sum(sent.rows > 1 for sent in traffic.messages.values())
            crashes += traffic.crashes
    assert min(arrived) > 1000
    assert again > 3
    assert crashes > 50


class Forgetful(Dialled):
    """A side that forgets its arrivals with each connection."""

    def attach(self, receive_maximum: int, packet_size_max: int, now: Now) -> None:
        self.arrivals.begin_connection(False)
        self.arrivals = UnacknowledgedMessages()
        super().attach(receive_maximum, packet_size_max, now)


def test_a_role_that_hands_a_message_over_twice_is_found_out() -> None:
    with pytest.raises(AssertionError, match="arrived 2 times at QoS 2"):
        _play_many()


def _play_many() -> None:
    for seed in range(200):
        play_dialled(seed, Forgetful)
