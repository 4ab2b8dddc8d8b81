"""Infers tables from the newest messages of the log, and tests each on these messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decoding.inference.tables import InferredTable, infer_tables
from penstock.engine.topics import topic_matches
from penstock.spark.tables.api import DEAD_LETTERS
from penstock.spark.tables.declared import DeclaredTable


@dataclass(frozen=True, slots=True)
class TriedTable:
    """An inferred table, and how many messages of the sample would be dead letters, by reason."""

    table: InferredTable
    dead_letters: dict[str, int]


def tried_tables(messages: pa.Table, topics: str, taken: Collection[str]) -> list[TriedTable]:
    """Return the tables that messages would make.

    Args:
        messages: rows of `STREAM_SCHEMA`.
        topics: the pattern with which they were selected.
        taken: names of existing tables.
    """
    pairs = zip(
        messages.column("topic").to_pylist(), messages.column("payload").to_pylist(), strict=True
    )
    return [
        TriedTable(table, _dead_letters(table, messages))
        for table in infer_tables(pairs, topics, taken)
    ]


def _dead_letters(table: InferredTable, messages: pa.Table) -> dict[str, int]:
    declared = DeclaredTable(table.definition(), Path("tables"))
    topics = messages.column("topic")
    matching = [
        topic for topic in topics.unique().to_pylist()
        if topic_matches(declared.topic_filter, topic)
    ]  # fmt: skip
    parts = declared.split(messages.filter(pc.is_in(topics, pa.array(matching, pa.string()))))
    dead = parts[DEAD_LETTERS]
    reasons = Counter(
        f"{kind}: {reason}"
        for kind, reason in zip(
            dead.column("kind").to_pylist(), dead.column("reason").to_pylist(), strict=True
        )
    )
    return dict(reasons.most_common())
