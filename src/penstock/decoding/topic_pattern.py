"""Turns the named levels of topics into columns (`config/topic_pattern.py` describes patterns).

A batch has few distinct topics, so each distinct topic is split once, and its values are copied to
the rows of all its messages.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.topic_pattern import Level, parse_levels
from penstock.decoding.abbreviation import abbreviate
from penstock.engine.values.topics import topic_matches
from penstock.errors import ConfigError

_TYPES: Final = {"string": pa.string(), "int": pa.int64(), "float": pa.float64()}
_INT: Final = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A topic filter with named levels.

    Attributes:
        text: the pattern as the declaration has it.
        topic_filter: the MQTT topic filter that matches the same topics.
        schema: a column for each named level.
        levels: the levels of the pattern.
    """

    text: str
    topic_filter: str
    schema: pa.Schema
    levels: tuple[Level, ...]

    @classmethod
    def parse(cls, text: str) -> TopicPattern:
        """Parse a pattern such as plant/{line}/{machine:int}/temp.

        Raises:
            ConfigError: the text is not a pattern; the message is one sentence.
        """
        try:
            levels = parse_levels(text)
        except ValueError as mistake:
            raise ConfigError(f"{str(mistake)[:1].upper()}{str(mistake)[1:]}.") from None
        named = [(level.name, _TYPES[level.type]) for level in levels if level.name]
        topic_filter = "/".join(level.wildcard for level in levels)
        return cls(text, topic_filter, pa.schema(named), levels)

    @property
    def exact_levels(self) -> tuple[str, ...]:
        """The names of the levels whose column has the level's own text."""
        return tuple(
            level.name
            for level in self.levels
            if level.name and level.wildcard == "+" and level.type == "string"
        )

    def columns(self, topics: pa.StringArray) -> tuple[pa.Table, pa.Int64Array, pa.StringArray]:
        """Return the values of the named levels for each topic of a batch, and the misfits.

        The table has a row for each topic. The second array has the ascending positions of topics
        that the pattern does not match, or whose levels do not have the declared types; the values
        in question are null. The third array has a sentence for each of those positions.
        """
        encoded = topics.dictionary_encode()
        distinct = [self._split(topic) for topic in encoded.dictionary.to_pylist()]
        values = [
            pa.array([row[position] for row, _ in distinct], field.type).take(encoded.indices)
            for position, field in enumerate(self.schema)
        ]
        reasons = pa.array([reason for _, reason in distinct], pa.string()).take(encoded.indices)
        misfits = pc.indices_nonzero(reasons.is_valid())
        table = (
            pa.Table.from_arrays(values, schema=self.schema)
            if values
            else pa.table({"": pa.nulls(len(topics))}).select([])
        )
        return table, misfits.cast(pa.int64()), reasons.take(misfits)

    def _split(self, topic: str) -> tuple[list[object], str | None]:
        row: list[object] = []
        if not topic_matches(self.topic_filter, topic):
            nothing: list[object] = [None] * len(self.schema)
            return nothing, f"The topic {abbreviate(topic)} does not match {self.text}."
        parts = topic.split("/")
        reason = None
        for position, level in enumerate(self.levels):
            if not level.name:
                continue
            if level.wildcard == "#":  # `a/#` matches `a`, too [MQTT 5 §4.7.1.2]
                row.append("/".join(parts[position:]) if position < len(parts) else None)
                continue
            value = _convert_level(parts[position], level.type)
            row.append(value)
            if value is None and reason is None:
                kind = "whole number of 64 bits" if level.type == "int" else "finite number"
                text = abbreviate(parts[position])
                reason = f"The topic level {level.name} is {text}, which is no {kind}."
        return row, reason


def _convert_level(text: str, kind: str) -> str | int | float | None:
    if kind == "string":
        return text
    if kind == "int":
        number = int(text) if _INT.fullmatch(text) else 2**63
        return number if -(2**63) <= number < 2**63 else None
    value = float(text) if _FLOAT.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None
