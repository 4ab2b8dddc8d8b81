"""The link as a state machine of hypothesis, which searches for an order of events and shrinks
what it finds.

The steps are those of ``LinkWorld``; after the last one, all comes to rest and is judged. Steps are
coarse, so that a few of them already have an effect: ``flow`` is a whole exchange.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.model.endpoint import Endpoint
from tests.model.link import TOPICS, LinkWorld, Profile
from tests.model.test_link_faults import TakesEverythingForNew
from tests.support.budget import budget

SIDES = st.sampled_from((0, 1))
RECEIVE_MAXIMA = st.sampled_from((1, 2, 5, 65535))
SIZES = st.sampled_from((None, 1, 4, 9, 30))
LOST = st.sampled_from((0, 1, 4, 10_000))
PROFILES = st.builds(
    Profile,
    version=st.sampled_from((3, 4, 5)),
    max_inflight=st.tuples(st.sampled_from((0, 1, 2)), st.sampled_from((1, 3, 32))),
    max_mqueue_len=st.tuples(st.sampled_from((0, 0, 2)), st.sampled_from((0, 3))),
    store_qos0=st.booleans(),
    refuse_every=st.sampled_from((0, 0, 3)),
    qos0=st.booleans(),
    trims=st.booleans(),
    expires=st.booleans(),
    small_packets=st.booleans(),
)


class LinkMachine(RuleBasedStateMachine):
    """Two sessions, and the events that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = LinkWorld(Profile())

    @initialize(profile=PROFILES)
    def begin(self, profile: Profile) -> None:
        self.world = LinkWorld(profile)

    @rule(
        side=SIDES,
        topic=st.sampled_from(TOPICS),
        qos=st.sampled_from((0, 1, 2)),
        count=st.integers(1, 4),
        large=st.booleans(),
        expires=st.booleans(),
    )
    def publish(
        self, side: int, topic: str, qos: int, count: int, large: bool, expires: bool
    ) -> None:
        for _ in range(count):
            self.world.publish(side, topic, qos, large, 5 if expires else 0)

    @precondition(lambda self: self.world.connection is None or self.world.connection.cut)
    @rule(maxima=st.tuples(RECEIVE_MAXIMA, RECEIVE_MAXIMA), small=st.tuples(*[st.booleans()] * 2))
    def open(self, maxima: tuple[int, int], small: tuple[bool, bool]) -> None:
        self.world.open(maxima, small)
        self.world.attach(0)
        self.world.attach(1)

    @rule(side=SIDES)
    def turn(self, side: int) -> None:
        self.world.turn(side)

    @rule(side=SIDES)
    def commit(self, side: int) -> None:
        self.world.turn(side)
        self.world.write(side)
        self.world.release(side)

    @rule(side=SIDES)
    def write(self, side: int) -> None:
        self.world.turn(side)
        self.world.write(side)

    @rule(side=SIDES, size=SIZES)
    def read(self, side: int, size: int | None) -> None:
        self.world.read(side, size)

    @rule()
    def flow(self) -> None:
        for side in (0, 1):
            self.commit(side)
            self.world.read(1 - side, None)
            self.world.supply(side)

    @precondition(lambda self: self.world.connection is not None)
    @rule(lost=st.tuples(LOST, LOST))
    def cut(self, lost: tuple[int, int]) -> None:
        self.world.cut(lost)

    @rule(side=SIDES)
    def notice(self, side: int) -> None:
        self.world.notice(side)

    @rule(side=SIDES, reaches_disk=st.booleans())
    def crash(self, side: int, reaches_disk: bool) -> None:
        self.world.crash(side, reaches_disk)

    @rule(side=SIDES, congested=st.booleans())
    def congest(self, side: int, congested: bool) -> None:
        self.world.congest(side, congested)

    @rule(seconds=st.sampled_from((0.5, 6.0)))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.world.profile.trims)
    @rule(side=SIDES)
    def trim(self, side: int) -> None:
        self.world.trim(side)

    def teardown(self) -> None:
        if sys.exception() is None:  # a run that failed already is not judged once more
            self.world.judge()


TestLinkMachine = LinkMachine.TestCase
TestLinkMachine.settings = settings(
    max_examples=budget(150),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.torture("searches for up to a minute")
def test_the_machine_finds_a_fault_too() -> None:
    """[MQTT-4.3.3-10]: a side that takes every message for new is found out."""

    class FaultyMachine(LinkMachine):
        @initialize()
        def begin(self) -> None:
            self.world = LinkWorld(Profile(), (Endpoint, TakesEverythingForNew))

        @rule(topic=st.sampled_from(TOPICS))
        def publish(self, topic: str) -> None:
            """Publish what shows the fault, so that the search does not depend on luck."""
            self.world.publish(0, topic, 2, False, 0)

        congest = crash = pass_time = trim = None  # type: ignore[assignment]  # no such rules

    one_look = settings(
        max_examples=5000,
        stateful_step_count=120,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    with pytest.raises(AssertionError, match="arrived 2 times at QoS 2"):
        run_state_machine_as_test(FaultyMachine, settings=one_look)
