"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

DEADLINE_S = 300  # for machines that do much else


def wait_until(holds: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    give_up = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < give_up, f"waited {deadline_s} s in vain: {what}"
        time.sleep(0.02)


def run_available(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query until it has what was there at its start."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S), "the query does not end"
    return query
