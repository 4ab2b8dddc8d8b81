"""The seeds that the simulations play: a fixed number, the same on every machine.

The number does not depend on the speed of the machine: a run plays the first seeds of each
simulation, as many as its test names times the run's budget (``tests/support/budget.py``);
``python -m tests.model`` plays any others.

========================  =============================================================
PENSTOCK_SEED             play this seed only
PENSTOCK_SEEDS            how many seeds each simulation plays (default: its budget)
PENSTOCK_FIRST_SEED       where it begins (0)
========================  =============================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from tests.support.budget import budget

SEED: Final = os.environ.get("PENSTOCK_SEED", "")
SEEDS: Final = int(os.environ.get("PENSTOCK_SEEDS", "0"))
FIRST_SEED: Final = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
TIMEOUT_S: Final = max(300.0, SEEDS / 2, budget(100))  # of a test that plays seeds


def replay(seed: int) -> str:
    """Return the variable to put before the command to replay this seed."""
    return f"PENSTOCK_SEED={seed}"


def chosen_seeds(count: int) -> range:
    """Return the seeds to play: ``budget(count)`` of them, unless the environment says another."""
    if SEED:
        return range(int(SEED), int(SEED) + 1)
    return range(FIRST_SEED, FIRST_SEED + (SEEDS or budget(count)))


def play_seeds(play: Callable[[int], object], count: int) -> None:
    """Call ``play`` with each of the ``chosen_seeds``, one after the other."""
    for seed in chosen_seeds(count):
        play(seed)
