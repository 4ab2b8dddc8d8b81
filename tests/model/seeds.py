"""The seeds that the simulations play: a fixed number, the same on every machine.

The number does not depend on the speed of the machine: ``make test`` plays the first seeds of each
simulation, as many as its test names; ``python -m tests.model`` plays any others.

========================  =============================================================
PENSTOCK_SEED             play this seed only
PENSTOCK_SEEDS            how many seeds each simulation plays (default: the test's own)
PENSTOCK_FIRST_SEED       where it begins (0)
========================  =============================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

SEED: Final = os.environ.get("PENSTOCK_SEED", "")
SEEDS: Final = int(os.environ.get("PENSTOCK_SEEDS", "0"))
FIRST_SEED: Final = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
TIMEOUT_S: Final = max(300.0, SEEDS / 2)  # of a test that plays seeds


def replay(seed: int) -> str:
    """Return the variable to put before the command to replay this seed."""
    return f"PENSTOCK_SEED={seed}"


def chosen_seeds(count: int) -> range:
    """Return the seeds to play: ``count`` of them, unless the environment says otherwise."""
    if SEED:
        return range(int(SEED), int(SEED) + 1)
    return range(FIRST_SEED, FIRST_SEED + (SEEDS or count))


def play_seeds(play: Callable[[int], object], count: int) -> None:
    """Call ``play`` with one seed after the other, ``count`` of them or as the environment says."""
    for seed in chosen_seeds(count):
        play(seed)
