"""How the seeded simulations are run, from the environment.

========================  =============================================================
PENSTOCK_SEED             play this seed only
PENSTOCK_MODEL_SECONDS    how long each simulation plays one seed after the other (4)
PENSTOCK_FIRST_SEED       where it begins (0)
========================  =============================================================
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = float(os.environ.get("PENSTOCK_MODEL_SECONDS", "4"))
SEED: Final = os.environ.get("PENSTOCK_SEED", "")
FIRST_SEED: Final = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))


def replay(seed: int) -> str:
    """What to put before the command to see this run again."""
    return f"PENSTOCK_SEED={seed}"


def play_seeds(play: Callable[[int], object]) -> None:
    """``play`` one seed after the other for as long as there is time, or the one that is named."""
    if SEED:
        play(int(SEED))
        return
    deadline_s = time.monotonic() + SECONDS
    seed = FIRST_SEED
    while time.monotonic() < deadline_s:
        play(seed)
        seed += 1
    print(f"seeds {FIRST_SEED} to {seed - 1}")
    assert seed > FIRST_SEED
