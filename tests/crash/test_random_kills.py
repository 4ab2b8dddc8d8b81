"""Broker and stream service killed or stopped at random moments, and the ledgers of the clients.

The seed is printed; ``CRASH_SEED=... pytest tests/crash/test_random_kills.py`` draws the same
moments again (what happens in them is up to the machine). The long run is ``make torture``.
"""

import os
import random
from pathlib import Path
from typing import Final

import pytest

from tests.support.kills import play

FAULTS: Final = 4


@pytest.mark.parametrize(
    "broker_only",
    [pytest.param(True, marks=pytest.mark.torture("any process may be the broker")), False],
    ids=["the broker", "any process"],
)
def test_nothing_acknowledged_is_lost_and_qos2_is_exactly_once(
    tmp_path: Path, broker_only: bool
) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    played = play(tmp_path, seed, FAULTS, broker_only)
    assert sum(played.faults.values()) == FAULTS
    assert played.acknowledged > FAULTS
