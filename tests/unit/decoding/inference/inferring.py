"""Inference in tests: tables made of messages, and what becomes of the messages in them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config.table import Tables
from penstock.decoding.inference.toml import table_lines
from penstock.engine.values.topics import topic_matches
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.decoding_split import EMPTY_PAYLOAD
from penstock.spark.tables.inferred import CheckedTable, infer_and_check_tables
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from penstock.stream.rows import STREAM_SCHEMA
from tests.support.places import places_in

Messages = list[tuple[str, bytes]]


@dataclass(frozen=True)
class Landed:
    """An inferred table, the rows it makes of the sample, and the offsets of dead letters."""

    tried: CheckedTable
    text: str
    rows: list[dict[str, Any]]
    dead: dict[int, str]

    @property
    def columns(self) -> dict[str, Any]:
        """The columns' settings."""
        return {one.name: one.settings for one in self.tried.table.decoder.columns}

    @property
    def topics(self) -> str:
        return self.tried.table.pattern.text

    @property
    def kind(self) -> str:
        return str(self.tried.table.decoder.settings["kind"])


def sample(messages: Iterable[tuple[str, bytes]]) -> pa.Table:
    """Messages as the stream service would hand them out."""
    return pa.Table.from_pylist(
        [
            {
                "epoch": "e",
                "offset": offset,
                "received_at": 1_700_000_000_000_000 + offset,
                "topic": topic,
                "payload": payload,
                "qos": 1,
                "retain": False,
                "client_id": "device",
            }
            for offset, (topic, payload) in enumerate(messages)
        ],
        STREAM_SCHEMA,
    )


def inferred(messages: Messages, topics: str = "#") -> list[Landed]:
    """The tables of messages: written as TOML, read again, and the sample sorted by them."""
    read = sample(messages)
    tried = infer_and_check_tables(read, topics, ())
    text = "\n".join(
        line for one in tried for line in (*table_lines(one.table, one.dead_letters), "")
    )
    declared = Tables.model_validate(tomllib.loads(text).get("tables", {})).declared
    assert declared == tuple(one.table.definition() for one in tried)
    found = []
    for one, definition in zip(tried, declared, strict=True):
        table = DeclaredTable(definition, places_in(Path("tables")))
        matching = [topic_matches(table.topic_filter, topic) for topic, _ in messages]
        parts = table.split(read.filter(pa.array(matching)))
        dead = parts[DEAD_LETTERS]
        reasons = [f"{row['kind']}: {row['reason']}" for row in dead.to_pylist()]
        offsets = dead.column("offset").to_pylist()
        wrong = {
            n: why for n, why in zip(offsets, reasons, strict=True) if EMPTY_PAYLOAD not in why
        }
        lines = "\n".join(table_lines(one.table, one.dead_letters))
        landed = Landed(one, lines, parts[ROWS].to_pylist(), wrong)
        assert len(landed.dead) == sum(one.dead_letters.values())
        found.append(landed)
    return found


def the_one(messages: Messages, topics: str = "#") -> Landed:
    """The one table of messages, which has no dead letters."""
    (landed,) = inferred(messages, topics)
    assert not landed.dead
    return landed


def of_payloads(*payloads: bytes, topic: str = "plant/data") -> Landed:
    """The one table of payloads to one topic."""
    return the_one([(topic, payload) for payload in payloads])
