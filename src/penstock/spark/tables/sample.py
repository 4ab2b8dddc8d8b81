"""A dry run of a declaration: the latest messages of the log, sorted, and nothing written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from penstock.spark.tables.declared import DeclaredTable
from penstock.stream.client import StreamClient
from penstock.stream.rows import STREAM_SCHEMA

STEP_MIN: Final = 1000
"""Offsets of the first look back from the end of the log; each further one is ten times longer."""


def sort_sample(table: DeclaredTable, client: StreamClient, count: int) -> Mapping[str, pa.Table]:
    """What the last `count` messages of the table's topics would become.

    Raises:
        PenstockError: the stream service cannot be asked.
    """
    return table.sorting(_latest(table, client, count))


def _latest(table: DeclaredTable, client: StreamClient, count: int) -> pa.Table:
    stream = table.definition.stream
    log = client.offsets(stream)
    step = max(STEP_MIN, count)
    while True:
        start = max(log.earliest, log.latest - step)
        batches = client.read(
            stream, log.epoch, start, log.latest, topic_filters=[table.topic_filter]
        )
        found = pa.Table.from_batches(batches, STREAM_SCHEMA)
        if found.num_rows >= count or start == log.earliest:
            return found.slice(max(0, found.num_rows - count))
        step *= 10
