"""Infers declarations of tables from messages, and counts the dead letters that each would have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decoding.decoder import in_parts
from penstock.decoding.inference.tables import InferredTable, infer_tables
from penstock.engine.values.topics import topic_matches
from penstock.spark.tables.births import preview_births
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.decoding_split import EMPTY_PAYLOAD
from penstock.spark.tables.landed_table import DEAD_LETTERS
from penstock.spark.tables.places import TablePlaces
from penstock.stream.client import StreamClient


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """An inferred table, and the number of dead letters that the sample would have, by reason."""

    table: InferredTable
    dead_letters: dict[str, int]


def infer_and_check_tables(
    messages: pa.Table,
    topics: str,
    existing_names: Collection[str],
    client: StreamClient | None = None,
    stream: str = "messages",
) -> list[CheckedTable]:
    """Return the inferred tables for messages.

    Args:
        messages: the messages, with the columns of `STREAM_SCHEMA`.
        topics: the topic pattern by which the messages were selected.
        existing_names: names of existing tables, which the inferred ones do not get.
        client: reads births of Sparkplug nodes before the messages from the log; None to know only
            those among the messages.
        stream: the name of the stream that has the messages.

    Raises:
        PenstockError: the log cannot be read.
        ValueError: `topics` is not a pattern; the message is one sentence.
    """
    received_at_us = messages.column("received_at").cast(pa.int64())
    found = zip(
        messages.column("topic").to_pylist(),
        messages.column("payload").to_pylist(),
        received_at_us.to_pylist(),
        strict=True,
    )
    return [
        CheckedTable(table, _dead_letters(table, messages, client, stream))
        for table in infer_tables(found, topics, existing_names)
    ]


def _dead_letters(
    table: InferredTable, messages: pa.Table, client: StreamClient | None, stream: str
) -> dict[str, int]:
    definition = table.definition().model_copy(update={"stream": stream})
    declared = DeclaredTable(definition, TablePlaces())
    if client is not None:
        preview_births(declared, None, client)
    topics = messages.column("topic")
    matching = [
        topic for topic in topics.unique().to_pylist()
        if topic_matches(declared.topic_filter, topic)
    ]  # fmt: skip
    chosen = messages.filter(pc.is_in(topics, pa.array(matching, pa.string())))
    dead = pa.concat_tables(part[DEAD_LETTERS] for part in in_parts(declared.split, chosen))
    reasons = Counter(
        f"{kind}: {reason}"
        for kind, reason in zip(
            dead.column("kind").to_pylist(), dead.column("reason").to_pylist(), strict=True
        )
        if reason != EMPTY_PAYLOAD
    )
    return dict(reasons.most_common())
