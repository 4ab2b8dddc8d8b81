"""Infers declarations of tables from messages, each with a topic pattern of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.config.table import TableDefinition
from penstock.config.topic_pattern import Level, parse_levels
from penstock.decoding.inference.column_names import Names, table_name
from penstock.decoding.inference.decoders import InferredDecoder, decoder_of, sparkplug_decoder
from penstock.decoding.inference.readings import read
from penstock.decoding.inference.topic_groups import (
    Group,
    Pattern,
    Topic,
    groups_of,
    is_sparkplug,
    pattern_of,
    sparkplug_groups,
    sparkplug_pattern,
)


@dataclass(frozen=True, slots=True)
class InferredTable:
    """A declaration, and its evidence: numbers of messages and topics in the sample."""

    name: str
    pattern: Pattern
    decoder: InferredDecoder
    messages: int
    topics: int

    def definition(self) -> TableDefinition:
        """Return the declaration, as the configuration has it."""
        settings: dict[str, Any] = {
            "name": self.name,
            "topics": self.pattern.text,
            "decoder": self.decoder.as_settings(),
        }
        return TableDefinition.model_validate(settings)


def infer_tables(
    messages: Iterable[tuple[str, bytes]], topics: str, taken: Collection[str] = ()
) -> list[InferredTable]:
    """Return the tables that messages would make.

    Args:
        messages: topic and payload of each.
        topics: the pattern with which they were selected; levels that it names keep their names.
        taken: names of existing tables.

    Raises:
        ValueError: `topics` is not a pattern; the message is one sentence.
    """
    requested = parse_levels(topics)
    payloads: dict[str, list[bytes]] = {}
    for topic, payload in messages:
        payloads.setdefault(topic, []).append(payload)
    plain = {topic for topic in payloads if not is_sparkplug(topic)}
    found: list[InferredTable] = []
    names = _TableNames(taken)
    spoken = [Topic(topic) for topic in payloads if topic not in plain]
    for group in sparkplug_groups(spoken):
        decoder = sparkplug_decoder([one for it in group.topics for one in payloads[it.text]])
        if decoder is None:
            plain.update(topic.text for topic in group.topics)
            continue
        pattern = sparkplug_pattern(group, requested, Names())
        found.append(_table(names, pattern, decoder, group, payloads))
    read_topics = [Topic(text, list(map(read, payloads[text]))) for text in sorted(plain)]
    groups = groups_of([topic for topic in read_topics if topic.has_payload])
    return [*found, *(_of_group(names, group, requested, payloads) for group in groups)]


def _of_group(
    names: _TableNames, group: Group, requested: tuple[Level, ...], payloads: dict[str, list[bytes]]
) -> InferredTable:
    columns = Names()
    pattern = pattern_of(group, requested, columns)
    last = group.topics[0].levels[-1]
    is_word = len({topic.levels[-1] for topic in group.topics}) == 1 and last[:1].isalpha()
    decoder = decoder_of(group.readings, columns, last if is_word else "value")
    return _table(names, pattern, decoder, group, payloads)


def _table(
    names: _TableNames,
    pattern: Pattern,
    decoder: InferredDecoder,
    group: Group,
    payloads: dict[str, list[bytes]],
) -> InferredTable:
    count = sum(len(payloads[topic.text]) for topic in group.topics)
    name = names.free(table_name(pattern.words))
    return InferredTable(name, pattern, decoder, count, len(group.topics))


class _TableNames:
    """Gives names of tables, each only once; a table of dead letters has a name, too."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken) | {f"{name}_dead_letters" for name in taken}

    def free(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken |= {name, f"{name}_dead_letters"}
        return name
