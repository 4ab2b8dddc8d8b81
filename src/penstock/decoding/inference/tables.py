"""Infers declarations of tables from messages: a table for each group of similar topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock.config.table import TableDefinition
from penstock.config.topic_pattern import Level, parse_levels
from penstock.decoding.inference.column_names import UniqueNames, table_name
from penstock.decoding.inference.decoders import (
    InferredDecoder,
    infer_decoder,
    infer_sparkplug_decoder,
)
from penstock.decoding.inference.parsed_payloads import Form, parse_payload
from penstock.decoding.inference.topic_groups import (
    InferredPattern,
    Topic,
    TopicGroup,
    groups_of,
    is_sparkplug,
    pattern_of,
    sparkplug_groups,
    sparkplug_pattern,
)


@dataclass(frozen=True, slots=True)
class InferredTable:
    """A declaration of a table, and the number of its messages and topics in the sample."""

    name: str
    pattern: InferredPattern
    decoder: InferredDecoder
    messages: int
    topics: int

    def definition(self) -> TableDefinition:
        """Return the declaration as a validated `TableDefinition`."""
        settings: dict[str, Any] = {
            "name": self.name,
            "topics": self.pattern.text,
            "decoder": self.decoder.as_settings(),
        }
        return TableDefinition.model_validate(settings)


def infer_tables(
    messages: Iterable[tuple[str, bytes, int]], topics: str, existing_names: Collection[str] = ()
) -> list[InferredTable]:
    """Return declarations of tables for messages.

    Args:
        messages: the topic and payload of each message, and the time at which it was received, in
            µs since 1970.
        topics: the pattern by which the messages were selected; levels that it names keep their
            names.
        existing_names: names of existing tables, which the new tables do not get.

    Raises:
        ValueError: `topics` is not a pattern; the message is one sentence.
    """
    requested = parse_levels(topics)
    payloads: dict[str, list[tuple[bytes, int]]] = {}
    for topic, payload, received_at_us in messages:
        payloads.setdefault(topic, []).append((payload, received_at_us))
    other_topics = {topic for topic in payloads if not is_sparkplug(topic)}
    tables: list[InferredTable] = []
    names = _TableNames(existing_names)
    sparkplug_topics = [Topic(topic) for topic in payloads if topic not in other_topics]
    for group in sparkplug_groups(sparkplug_topics):
        decoder = infer_sparkplug_decoder(
            [payload for topic in group.topics for payload, _ in payloads[topic.text]]
        )
        if decoder is None:
            other_topics.update(topic.text for topic in group.topics)
            continue
        pattern = sparkplug_pattern(group, requested, UniqueNames())
        tables.append(_table(names, pattern, decoder, group, payloads))
    read_topics = [
        Topic(text, [parse_payload(*one) for one in payloads[text]])
        for text in sorted(other_topics)
    ]
    groups = groups_of([topic for topic in read_topics if topic.has_payload])
    return [*tables, *(_infer_table(names, group, requested, payloads) for group in groups)]


def _infer_table(
    names: _TableNames,
    group: TopicGroup,
    requested: tuple[Level, ...],
    payloads: dict[str, list[tuple[bytes, int]]],
) -> InferredTable:
    columns = UniqueNames()
    pattern = pattern_of(group, requested, columns)
    last = group.topics[0].levels[-1]
    is_word = len({topic.levels[-1] for topic in group.topics}) == 1 and last[:1].isalpha()
    decoder = infer_decoder(group.readings, columns, last if is_word else "value")
    empty = sum(one.form is Form.EMPTY for one in group.readings)
    if empty and "columns" in decoder.as_settings():
        remark = f"{empty:,} of them are empty, as messages that remove a retained one: no row."
        decoder = replace(decoder, remarks=(*decoder.remarks, remark))
    return _table(names, pattern, decoder, group, payloads)


def _table(
    names: _TableNames,
    pattern: InferredPattern,
    decoder: InferredDecoder,
    group: TopicGroup,
    payloads: dict[str, list[tuple[bytes, int]]],
) -> InferredTable:
    count = sum(len(payloads[topic.text]) for topic in group.topics)
    name = names.claim(table_name(pattern.words))
    return InferredTable(name, pattern, decoder, count, len(group.topics))


class _TableNames:
    """Gives each name of a table only once, and none that a table of dead letters has."""

    def __init__(self, existing_names: Collection[str]) -> None:
        self._taken = set(existing_names) | {f"{name}_dead_letters" for name in existing_names}

    def claim(self, preferred: str) -> str:
        name, number = preferred, 1
        while name in self._taken:
            number += 1
            name = f"{preferred}_{number}"
        self._taken |= {name, f"{name}_dead_letters"}
        return name
