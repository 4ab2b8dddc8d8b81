"""A batch of rows that Spark publishes: its limits, and the verdict on the next one.

The number of a batch alone does not say what is in it: a checkpoint of Spark that was put back from
an older copy plans other rows under the same number, and a broker whose data directory was put
back lacks batches that Spark counts as published. So a batch has a *plan*, which names what Spark
planned under its number (``spark.batch_plans``), and the position of a sink is stored with the plan
of its batch. ``judge_batch`` compares both ends::

      batch < latest ───────────────────────────────▶ SET_BACK    the checkpoint is older
      batch = latest    plan is the latest's ───────▶ REPEATED    as after a crash
                        it is another ──────────────▶ REPLANNED   the checkpoint is older
      batch > latest    the sink is new, batch is 0 ▶ NEXT
                        it is new, batch is not 0 ──▶ UNKNOWN     the broker is another, or older
                        there are batches between ──▶ GAP         the broker is older
                        another plan goes before ───▶ OTHER_PAST  one of them is older
                        else ───────────────────────▶ NEXT

Where a plan is not known (written by an older version, a sink of ``df.write``), only the numbers
count.
"""

from __future__ import annotations

from typing import Final, TypeAlias

# topic, payload, qos, retain, encoded properties
Row: TypeAlias = tuple[str, bytes, int, bool, bytes]
BATCH_MAX: Final = 2**31 - 2
ROWS_MAX: Final = 2**32 - 1  # rows of one batch
# The verdict on a batch that is to be published.
NEXT: Final = 0
REPEATED: Final = 1
SET_BACK: Final = 2
REPLANNED: Final = 3
UNKNOWN: Final = 4
GAP: Final = 5
OTHER_PAST: Final = 6


def judge_batch(latest: int, latest_plan: str, batch: int, plan: str, previous: str) -> int:
    """Return the verdict on a batch that is to be published: ``NEXT`` … ``OTHER_PAST``.

    Args:
        latest: the latest batch of the sink; -1 if there is none.
        latest_plan: the plan of that batch; empty if it is not known.
        batch: the number of the batch.
        plan: the plan of the batch; empty if it is not known.
        previous: the plan of the batch before; empty if it is not known.
    """
    if batch < latest:
        return SET_BACK
    if batch == latest:
        return REPLANNED if plan and latest_plan and plan != latest_plan else REPEATED
    if not plan:
        return NEXT
    if latest < 0:
        return NEXT if batch == 0 else UNKNOWN
    if not latest_plan:
        return NEXT
    if batch > latest + 1:
        return GAP
    return OTHER_PAST if previous and previous != latest_plan else NEXT
