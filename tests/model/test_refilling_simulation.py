"""Servers of a log that are emptied and filled anew, one grant after the other, by seeds.

The log is Raft without its messages: each server has a prefix of it, and an entry is acknowledged
when a majority of all servers has it. Whatever is delayed, whoever is the primary and whichever
follower lags: each majority of servers must have all that was acknowledged, for it may elect the
next leader. And no server that was damaged stays so.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import Final, final

import pytest

from penstock.cluster.beats import Beat
from penstock.cluster.log import Bounds, LogNode, LogState
from penstock.cluster.refilling import Grant, Refill, Step, next_grant
from penstock.cluster.server_health import Judgement, Remedy

STEPS: Final = 1500
SEEDS: Final = range(60)


@final
class World:
    """Machines with a member and a server each.

    Args:
        draw: draws whatever happens.
        count: number of machines.
        careful: False: a member begins anew with the first grant already.
    """

    def __init__(self, draw: random.Random, count: int, careful: bool = True) -> None:
        self.draw = draw
        self.careful = careful
        self.names = "abcde"[:count]
        self.length = dict.fromkeys(self.names, 0)
        self.runs = dict.fromkeys(self.names, True)
        self.damaged: set[str] = set()
        self.grants: list[tuple[int, Grant]] = []  # with their sequences
        self.acknowledged = 0
        self.claimed = 0
        self.leader = self.primary = "a"
        self.read = dict.fromkeys(self.names, 0)  # by each member's view
        self.refills = {name: Refill(name) for name in self.names}
        self.heard: dict[str, Beat] = {}
        self.state = self.state_now()
        self.now_s = 0.0
        self.refilled = 0
        self.append()

    @property
    def majority(self) -> int:
        return len(self.names) // 2 + 1

    def append(self) -> bool:
        """Append an entry; followers get it, or lag. Return whether it is acknowledged."""
        if not self.runs[self.leader]:
            self.elect()
        if not self.runs[self.leader]:
            return False
        end = self.length[self.leader] = self.length[self.leader] + 1
        for name in self.names:
            if self.runs[name] and self.draw.random() < 0.7:
                self.length[name] = end
        if sum(self.length[name] >= end for name in self.names) < self.majority:
            return False
        self.acknowledged = end
        return True

    def elect(self) -> None:
        """Elect the longest of a majority that runs."""
        running = [name for name in self.names if self.runs[name]]
        if len(running) >= self.majority:
            voters = self.draw.sample(running, self.majority)
            self.leader = max(voters, key=lambda name: self.length[name])

    def judgement(self, name: str) -> Judgement:
        if name in self.damaged:
            return Judgement("damaged", "", Remedy.REFILL)
        is_level = self.runs[name] and self.length[name] >= self.read[name]
        return Judgement("whole" if is_level else "behind")

    def beat(self, name: str) -> Beat:
        refill = self.refills[name]
        return Beat(
            node=name,
            role="standby",
            term=1,
            applied=self.read[name],
            synced=0,
            log_server=name,
            server_health=self.judgement(name).health,
            refill=refill.stage,
            refill_number=refill.number,
        )

    def state_now(self) -> LogState:
        end = self.length[self.leader]
        nodes = tuple(
            LogNode(name, name == self.leader, self.length[name] >= end - 1, 0, 0.0)
            for name in self.names
            if self.runs[name]
        )
        nodes += tuple(
            LogNode(name, False, False, 0, 9.0) for name in self.names if not self.runs[name]
        )
        has_quorum = sum(self.runs.values()) >= self.majority
        return LogState("", "", self.leader, nodes, Bounds(1, end), 0, has_quorum)

    def last_grant(self, name: str) -> Grant:
        """The last grant in the view of a member."""
        seen = [grant for sequence, grant in self.grants if sequence <= self.read[name]]
        return seen[-1] if seen else Grant()

    def step(self) -> None:
        """Let one thing happen."""
        self.now_s += 1
        name = self.draw.choice(self.names)
        chance = self.draw.random()
        if chance < 0.25:
            self.append()
        elif chance < 0.45:
            self.read[name] = self.draw.randint(self.read[name], self.acknowledged)
        elif chance < 0.6:
            self.heard[name] = self.beat(name)
        elif chance < 0.65:
            self.state = self.state_now()
        elif chance < 0.8:
            self.grant()
        elif chance < 0.95:
            self.move(name)
        elif chance < 0.96:
            self.elect()
        elif chance < 0.97 and self.append():
            self.primary = name
            self.claimed = self.read[name] = self.acknowledged
        elif len(self.damaged) < len(self.names) - self.majority:
            self.damaged.add(name)
        self.judge()

    def grant(self) -> None:
        """Let the primary grant what it thinks is due."""
        self.read[self.primary] = self.acknowledged
        own = {self.primary: self.beat(self.primary)}
        last = self.last_grant(self.primary)
        found = next_grant(last, self.heard | own, self.state, self.claimed)
        if found is not None and self.append():
            self.grants.append((self.acknowledged, found))

    def move(self, name: str) -> None:
        """Let a member do what its refill says."""
        refill, grant = self.refills[name], self.last_grant(name)
        step = refill.step(self.judgement(name), grant, self.now_s)
        if step is Step.STOP:
            self.runs[name] = False
            refill.note_stopped(self.now_s)
            if not self.careful:
                refill.stage, step = "refilling", Step.BEGIN
        if step is Step.BEGIN:
            self.length[name] = 0
            self.damaged.discard(name)
            self.refilled += 1
        if step in (Step.BEGIN, Step.START):
            self.runs[name] = True

    def judge(self) -> None:
        """Assert that each majority has all that was acknowledged."""
        for voters in combinations(self.names, self.majority):
            assert max(self.length[name] for name in voters) >= self.acknowledged, voters


@pytest.mark.parametrize("count", [3, 5])
def test_any_majority_that_is_left_has_all_that_was_acknowledged(count: int) -> None:
    assert played(count) > len(SEEDS) / 2, "the runs are hard enough"


def test_one_grant_would_not_be_enough() -> None:
    with pytest.raises(AssertionError):
        played(3, careful=False)


def played(count: int, careful: bool = True) -> int:
    """Play all seeds; return how many servers were emptied."""
    refilled = 0
    for seed in SEEDS:
        world = World(random.Random(seed), count, careful)
        for _ in range(STEPS):
            world.step()
        refilled += world.refilled
    return refilled
