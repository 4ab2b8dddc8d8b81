"""Two sessions over a link that delays and cuts, while both sides crash: the promises hold.

The order of events comes from a seed here, and from hypothesis in ``test_link_machine.py``.
A failure names its seed; to replay it, and nothing else::

      PENSTOCK_SEED=1234 python -m pytest tests/model/test_link.py
"""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from penstock.engine.values.drop_reasons import REASONS
from tests.model.endpoint import Endpoint
from tests.model.link import TOPICS, TRACE_LENGTH, LinkWorld, Make, Profile
from tests.model.seeds import TIMEOUT_S, play_seeds, replay

STEPS: Final = 400
RECEIVE_MAXIMA: Final = (1, 2, 5, 20, 65535)
READ_SIZES: Final = (None, None, 1, 3, 30)


def profile_of(random: Random) -> Profile:
    """Return the kind of run that a seed gives."""
    return Profile(
        version=random.choice((3, 4, 5, 5)),
        max_inflight=(random.choice((0, 1, 2, 8)), random.choice((1, 3, 32))),
        max_mqueue_len=(random.choice((0, 0, 3)), random.choice((0, 0, 0, 8))),
        store_qos0=random.random() < 0.7,
        refuse_every=random.choice((0, 0, 0, 5)),
        qos0=random.random() < 0.4,
        trims=random.random() < 0.15,
        expires=random.random() < 0.2,
        small_packets=random.random() < 0.2,
    )


class Run:
    """The run of one seed."""

    def __init__(self, seed: int, make: tuple[Make, Make] = (Endpoint, Endpoint)) -> None:
        self._random = Random(seed)
        self.world = LinkWorld(profile_of(self._random), make)
        random = self._random
        calm = random.choice((0.1, 1.0, 1.0, 3.0))
        crashes = random.choice((0.0, 0.2, 1.0))
        self._turns = random.choice((1.0, 0.5, 0.2))
        self._steps = {
            self._publish: random.choice((4.0, 12.0)),
            self._read: 14.0,
            self._write: random.choice((3.0, 10.0)),
            self._release: random.choice((3.0, 10.0)),
            self._supply: random.choice((1.0, 6.0)),
            self._open: random.choice((0.5, 3.0)),
            self._attach: random.choice((1.0, 4.0)),
            self._notice: random.choice((0.5, 3.0)),
            self._cut: calm,
            self._congest: 0.5,
            self._pass_time: 1.0,
            self._trim: 0.5,
            self._crash: crashes * calm,
        }

    def play(self) -> None:
        """Play the whole run and judge it."""
        steps = list(self._steps)
        weights = list(self._steps.values())
        for step in self._random.choices(steps, weights, k=STEPS):
            step()
            if self._random.random() < self._turns:
                self.world.turn(self._side())
        self.world.judge()

    def _side(self) -> int:
        return self._random.randrange(2)

    def _publish(self) -> None:
        random = self._random
        side = self._side()
        for _ in range(random.choice((1, 1, 2, 8))):
            large = random.random() < 0.1
            expiry_s = 5 if random.random() < 0.2 else 0
            self.world.publish(
                side, random.choice(TOPICS), random.choice((0, 1, 1, 2, 2)), large, expiry_s
            )

    def _read(self) -> None:
        self.world.read(self._side(), self._random.choice(READ_SIZES))

    def _write(self) -> None:
        self.world.write(self._side())

    def _release(self) -> None:
        self.world.release(self._side())

    def _supply(self) -> None:
        self.world.supply(self._side())

    def _open(self) -> None:
        random = self._random
        maxima = (random.choice(RECEIVE_MAXIMA), random.choice(RECEIVE_MAXIMA))
        self.world.open(maxima, (random.random() < 0.3, random.random() < 0.3))

    def _attach(self) -> None:
        self.world.attach(self._side())

    def _notice(self) -> None:
        self.world.notice(self._side())

    def _cut(self) -> None:
        random = self._random
        lost = (random.choice((0, 1, 10, 10_000)), random.choice((0, 3, 10_000)))
        self.world.cut(lost)

    def _congest(self) -> None:
        self.world.congest(self._side(), self._random.random() < 0.4)

    def _pass_time(self) -> None:
        self.world.pass_time(self._random.choice((0.01, 0.5, 4.0)))

    def _trim(self) -> None:
        self.world.trim(self._side())

    def _crash(self) -> None:
        self.world.crash(self._side(), self._random.random() < 0.5)


def play(
    seed: int, make: tuple[Make, Make] = (Endpoint, Endpoint), kind: type[Run] = Run
) -> LinkWorld:
    """Play one run; a failure names its seed and shows what led to it."""
    run = kind(seed, make)
    try:
        run.play()
    except Exception as failure:
        trace = "\n".join(run.world.trace[-TRACE_LENGTH:])
        raise AssertionError(
            f"{trace}\n{run.world.profile}\n{replay(seed)}: {failure}"
        ) from failure
    return run.world


@pytest.mark.timeout(TIMEOUT_S)
def test_every_promise_is_kept_over_a_bad_link() -> None:
    play_seeds(play, 300)


def test_the_runs_do_what_they_are_for() -> None:
    """Enough arrives, crashes and is dropped in a few seeds, or the proof above proves nothing."""
    arrived = again = crashes = 0
    dropped = [0] * len(REASONS)
    for seed in range(60):
        world = play(seed)
        for traffic in world.traffic:
            arrived += sum(sent.rows > 0 for sent in traffic.messages.values())
            again += sum(sent.rows > 1 for sent in traffic.messages.values())
            crashes += traffic.crashes
            dropped = [a + b for a, b in zip(dropped, traffic.dropped, strict=True)]
    assert arrived > 3000
    assert again > 3
    assert crashes > 50
    seen = {REASONS[reason] for reason, count in enumerate(dropped) if count > 0}
    assert seen >= {
        "queue full",
        "QoS 0 while offline",
        "expired",
        "packet too large for the receiver",
        "retention",
        "rejected by the receiver",
        "QoS 0 for a slow consumer",
    }
