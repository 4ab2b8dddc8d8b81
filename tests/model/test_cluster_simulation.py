"""The delivery contract of a cluster, seed by seed: nothing that was acknowledged is lost with a
member, and nothing at QoS 2 comes twice.

A failure names its seed. To replay it, and nothing else::

      PENSTOCK_SEED=1234 python -m pytest tests/model/test_cluster_simulation.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pytest

from penstock.cluster.record import LAST_PART
from tests.model.cluster_member import Member
from tests.model.cluster_world import ClusterWorld
from tests.model.seeds import TIMEOUT_S, play_seeds, replay
from tests.model.world import TRACE_LENGTH

STEPS: Final = 400
_FAST: Final = Path("/dev/shm")


def play(seed: int, make_member: type[Member] = Member) -> ClusterWorld:
    """Play one run; a failure names its seed and shows what led to it."""
    parent = _FAST if _FAST.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="penstock-model-", dir=parent) as directory:
        world: ClusterWorld | None = None
        try:
            world = ClusterWorld(seed, Path(directory), make_member)
            world.run(STEPS)
        except Exception as failure:
            trace = "" if world is None else "\n".join(world.trace[-TRACE_LENGTH:])
            raise AssertionError(f"{trace}\n{replay(seed)}: {failure}") from failure
        finally:
            if world is not None:
                world.close()
        return world


@pytest.mark.timeout(TIMEOUT_S)
def test_every_promise_is_kept() -> None:
    play_seeds(play, 150)


def test_the_runs_are_hard_enough() -> None:
    """Members take over, commits come in pieces and the log is trimmed, or the proof above proves
    nothing."""
    worlds = [play(seed) for seed in range(20)]
    assert sum(world.elections for world in worlds) > 40
    assert sum(world.unaware_steps for world in worlds) > 100
    assert sum(len(world.referee.rows) for world in worlds) > 700
    kinds = [seen.kind for world in worlds for seen in world.referee.records]
    assert kinds.count(LAST_PART) > 50
    assert sum(world.cluster.bounds.first > 1 for world in worlds) > 3
    assert sum(world.histories_begun for world in worlds) > 1
    assert sum(world.seedings for world in worlds) > 10


def test_a_seed_gives_the_same_run() -> None:
    assert play(3).trace == play(3).trace
