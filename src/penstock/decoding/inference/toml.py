"""Writes the declaration of an inferred table in TOML, with its evidence in comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.config.toml_values import toml_value
from penstock.decoding.inference.column_types import Settings
from penstock.decoding.inference.tables import InferredTable
from penstock.telemetry.logs import printable

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH_MAX: Final = 72
_COMMENT_CHARACTERS_MAX: Final = 200


def table_lines(
    table: InferredTable, dead_letters: Mapping[str, int], stream: str = "messages"
) -> Iterator[str]:
    """Yield the lines of a declaration.

    Args:
        table: the inferred table.
        dead_letters: how many messages of the sample would be dead letters, by reason.
        stream: the stream of the broker from which the table is read.
    """
    topics = f"{table.topics:,} topics" if table.topics > 1 else "one topic"
    yield f"# {table.messages:,} messages of {topics}."
    yield from (f"# {_remark(remark)}" for remark in table.decoder.remarks)
    count = sum(dead_letters.values())
    if count:
        yield f"# {count:,} of them would be dead letters:"
        yield from (f"#   {number:,} {_remark(why)}" for why, number in dead_letters.items())
    yield "[[tables.declared]]"
    yield f"name = {toml_value(table.name)}"
    yield f"topics = {toml_value(table.pattern.text)}"
    yield from (f"# {{{name}}} is {_remark(seen)}" for name, seen in table.pattern.levels)
    if stream != "messages":
        yield f"stream = {toml_value(stream)}"
    yield ""
    yield "[tables.declared.decoder]"
    yield from (f"{name} = {toml_value(value)}" for name, value in table.decoder.settings.items())
    if table.decoder.columns:
        yield ""
        yield "[tables.declared.decoder.columns]"
        columns = [
            (f"{_key(column.name)} = {_column(column.settings)}", column.evidence)
            for column in table.decoder.columns
        ]
        widths = [len(text) for text, _ in columns]
        width = max((one for one in widths if one <= _WIDTH_MAX), default=0)
        yield from (f"{text:{width}}  # {_remark(evidence)}" for text, evidence in columns)


def _column(settings: Settings) -> str:
    if set(settings) == {"type"}:
        return toml_value(settings["type"])
    return (
        "{ " + ", ".join(f"{name} = {toml_value(value)}" for name, value in settings.items()) + " }"
    )


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else toml_value(name)


def _remark(text: str) -> str:
    """Return text from messages in one printable line of a comment, cut at 200 characters."""
    abbreviate = printable(text)
    if len(abbreviate) <= _COMMENT_CHARACTERS_MAX:
        return abbreviate
    return abbreviate[: _COMMENT_CHARACTERS_MAX - 1] + "…"
