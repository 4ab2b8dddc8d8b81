"""How the seeded simulations are run, from the environment.

========================  =============================================================
PENSTOCK_SEED             play this seed only
PENSTOCK_MODEL_SECONDS    how long each simulation plays one seed after the other (4)
PENSTOCK_FIRST_SEED       where it begins (0)
========================  =============================================================
"""

from __future__ import annotations

import os
from typing import Final

SECONDS: Final = float(os.environ.get("PENSTOCK_MODEL_SECONDS", "4"))
SEED: Final = os.environ.get("PENSTOCK_SEED", "")
FIRST_SEED: Final = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))


def replay(seed: int) -> str:
    """What to put before the command to see this run again."""
    return f"PENSTOCK_SEED={seed}"
