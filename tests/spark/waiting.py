"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.spark.jobs.stateful import PLANNER_ATTEMPTS_MAX, PLANNER_LATE

DEADLINE_S = 300  # for machines that do much else


def wait_until(holds: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    give_up = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < give_up, f"waited {deadline_s} s in vain: {what}"
        time.sleep(0.02)


def run_available(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query until it has what was there at its start.

    It is started again when its planner was late, as Penstock's own jobs are.
    """
    for attempt in range(1, PLANNER_ATTEMPTS_MAX + 1):
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(DEADLINE_S), "the query does not end"
        except StreamingQueryException as error:
            if PLANNER_LATE not in str(error) or attempt == PLANNER_ATTEMPTS_MAX:
                raise
        else:
            break
    return query
