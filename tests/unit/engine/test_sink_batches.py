"""The verdict on a batch that a sink is to publish, for each thing that can have been put back."""

from __future__ import annotations

import pytest

from penstock.engine.values.sink_batches import (
    GAP,
    NEXT,
    OTHER_PAST,
    REPEATED,
    REPLANNED,
    SET_BACK,
    UNKNOWN,
    judge_batch,
)


@pytest.mark.parametrize(
    ("latest", "latest_plan", "batch", "plan", "previous", "verdict"),
    [
        (-1, "", 0, "a", "", NEXT),
        (-1, "", 3, "d", "c", UNKNOWN),
        (2, "c", 3, "d", "c", NEXT),
        (2, "c", 2, "c", "b", REPEATED),
        (2, "c", 2, "x", "b", REPLANNED),
        (2, "c", 1, "b", "a", SET_BACK),
        (2, "c", 4, "e", "d", GAP),
        (2, "c", 3, "d", "x", OTHER_PAST),
        # What is not known is not compared: older versions, a checkpoint that cannot be read.
        (-1, "", 3, "", "", NEXT),
        (2, "", 2, "c", "b", REPEATED),
        (2, "", 9, "j", "i", NEXT),
        (2, "c", 9, "", "", NEXT),
        (2, "c", 3, "d", "", NEXT),
        (2, "c", 1, "", "", SET_BACK),
    ],
)
def test_numbers_and_plans_of_both_ends_are_compared(
    latest: int, latest_plan: str, batch: int, plan: str, previous: str, verdict: int
) -> None:
    assert judge_batch(latest, latest_plan, batch, plan, previous) == verdict
