"""Groups topics whose payloads are of one kind, and makes the pattern that names their levels.

::

      plant/a/7/temp   21.5          plant/{plant}/{level_3:int}/temp     text, a number
      plant/b/8/temp   22.0    ──▶
      plant/a/7/state  {"on": 1}     plant/{plant}/{level_3:int}/state    json

Topics with the same number of levels and one kind of payload are a group. If the kinds differ, the
topics are split by the level whose values tell the kinds apart best, and each of its values is
written into a pattern of its own. If no level tells them apart, or only one of too many values, the
topics stay one group, because two patterns must never match one topic.

A level that varies becomes a column, and so does a number, UUID or MAC address that does not vary.
The column is named after the level before it if that is a word: machines/7 becomes
machines/{machine:int}.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.config.topic_pattern import Level
from penstock.decoding.inference.column_names import UniqueNames, is_identifier, singular
from penstock.decoding.inference.column_types import NULL_WORDS
from penstock.decoding.inference.csv_fields import csv_shape
from penstock.decoding.inference.parsed_payloads import Form, ParsedPayload, distinct_keys

SPARKPLUG: Final = "spBv1.0"
_SPARKPLUG_LEVELS: Final = ("group", "message", "node", "device")
_WORDS_MAX: Final = 30
"""Most values of a level by which topics are split into groups."""

_ENTROPY_SHARE_MAX: Final = 0.8
"""Largest share of the entropy of kinds that remains when topics are split by a level. A level that
has nothing to do with the kinds leaves more."""

_COMMON_KEYS_SHARE_MIN: Final = 0.5
_SHAPES_MAX: Final = 100
_INT: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_LISTED_VALUES_MAX: Final = 4

Label = tuple[Hashable, ...]


@dataclass(slots=True)
class Topic:
    """A topic of the sample, its payloads, and a label for their kind; () if that is unknown."""

    text: str
    readings: list[ParsedPayload] = field(default_factory=list)
    label: Label = ()

    @property
    def levels(self) -> list[str]:
        """The levels of the topic."""
        return self.text.split("/")

    @property
    def has_payload(self) -> bool:
        """True if a payload is not empty; an empty payload only removes a retained message."""
        return any(reading.form is not Form.EMPTY for reading in self.readings)


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """The topics of one table; ``split_levels`` are the positions of the levels by which it was
    split off."""

    topics: list[Topic]
    split_levels: frozenset[int] = frozenset()

    @property
    def readings(self) -> list[ParsedPayload]:
        """The parsed payloads of all topics."""
        return [reading for topic in self.topics for reading in topic.readings]


@dataclass(frozen=True, slots=True)
class InferredPattern:
    """A topic pattern inferred for a group.

    Attributes:
        text: the pattern, as `TopicPattern.parse` takes it.
        words: its constant levels.
        levels: the name of each named level, and a text that tells the values in the sample.
    """

    text: str
    words: list[str]
    levels: list[tuple[str, str]]


def is_sparkplug(topic: str) -> bool:
    """Return whether a topic is one of Sparkplug B; those of STATE messages are not."""
    levels = topic.split("/")
    return SPARKPLUG in levels and len(levels) - levels.index(SPARKPLUG) in (4, 5)


def groups_of(topics: Sequence[Topic]) -> list[TopicGroup]:
    """Return the groups of topics, none of which is a topic of Sparkplug."""
    by_depth: dict[int, list[Topic]] = {}
    for topic in topics:
        by_depth.setdefault(len(topic.levels), []).append(topic)
    found: list[TopicGroup] = []
    for _, topics_there in sorted(by_depth.items()):
        _set_labels(topics_there)
        found += _partition(topics_there, frozenset())
    return found


def sparkplug_groups(topics: Iterable[Topic]) -> list[TopicGroup]:
    """Return a group for each position of `spBv1.0` in topics: bridges may put levels before it."""
    found: dict[int, list[Topic]] = {}
    for topic in topics:
        found.setdefault(topic.levels.index(SPARKPLUG), []).append(topic)
    return [TopicGroup(topics_there) for _, topics_there in sorted(found.items())]


def pattern_of(
    group: TopicGroup, requested: Sequence[Level], names: UniqueNames
) -> InferredPattern:
    """Return the pattern of a group.

    Args:
        group: the group.
        requested: the levels of the pattern by which the sample was selected; levels that it names
            keep their names.
        names: gives the names of the other levels.
    """
    texts: list[str] = []
    words: list[str] = []
    level_examples: list[tuple[str, str]] = []
    for position, values in enumerate(zip(*(topic.levels for topic in group.topics), strict=True)):
        distinct = list(dict.fromkeys(values))
        requested_level = requested[position] if position < len(requested) else Level("#")
        is_fixed = requested_level.wildcard not in ("+", "#") or position in group.split_levels
        is_constant = len(distinct) == 1 and requested_level.wildcard == "#"
        if is_fixed or (is_constant and not is_identifier(distinct[0])):
            texts.append(_escape_braces(distinct[0]))
            words.append(distinct[0])
            continue
        before = texts[-1] if texts and not texts[-1].startswith("{") else ""
        preferred = requested_level.name or _suggested_name(before, position)
        name = names.level_name(preferred)
        kind = (
            requested_level.type
            if requested_level.name and requested_level.type != "string"
            else _level_type(distinct)
        )
        texts.append(f"{{{name}}}" if kind == "string" else f"{{{name}:{kind}}}")
        level_examples.append((name, _describe_values(distinct)))
    return InferredPattern("/".join(texts), words, level_examples)


def sparkplug_pattern(
    group: TopicGroup, requested: Sequence[Level], names: UniqueNames
) -> InferredPattern:
    """Return the pattern of a Sparkplug namespace: group, message type, node, and device if any."""
    position = group.topics[0].levels.index(SPARKPLUG)
    above = pattern_of(
        TopicGroup([Topic("/".join(topic.levels[: position + 1])) for topic in group.topics],
              frozenset({position})),
        requested,
        names,
    )  # fmt: skip
    texts, level_examples = [above.text], list(above.levels)
    has_tail = any(level.wildcard == "#" for level in requested)
    for number, name in enumerate(_SPARKPLUG_LEVELS, position + 1):
        requested_level = requested[number] if number < len(requested) else Level("#")
        if number >= len(requested) and not has_tail:
            break
        if requested_level.wildcard not in ("+", "#"):
            texts.append(_escape_braces(requested_level.wildcard))
            continue
        column = names.level_name(requested_level.name or name)
        is_last = name == _SPARKPLUG_LEVELS[-1] and requested_level.wildcard == "#"
        texts.append(f"{{{column}:#}}" if is_last else f"{{{column}}}")
        values = [topic.levels[number] for topic in group.topics if number < len(topic.levels)]
        level_examples.append((column, _describe_values(list(dict.fromkeys(values)))))
    return InferredPattern("/".join(texts), ["sparkplug"], level_examples)


def _set_labels(topics: Sequence[Topic]) -> None:
    """Set the label of each topic; topics with similar payloads get equal labels."""
    shapes: list[tuple[str, set[str]]] = []
    for topic in sorted(topics, key=lambda one: -len(one.readings)):
        topic.label = _label_of(topic, shapes)


def _label_of(topic: Topic, shapes: list[tuple[str, set[str]]]) -> Label:
    """Return the kind of a topic's payloads; for documents with the index of a set of keys.

    ``shapes`` has the notations and keys seen so far; a new or similar set of keys is added to it.
    """
    filled = [reading for reading in topic.readings if reading.form is not Form.EMPTY]
    if not filled:
        return ()
    counts = Counter((reading.form in (Form.OBJECT, Form.ROWS), reading.form, reading.notation)
                     for reading in filled)  # fmt: skip
    (has_keys, form, notation), _ = counts.most_common(1)[0]
    if has_keys:
        return ("document", notation, _shape_index(notation, distinct_keys(filled), shapes))
    if form in (Form.TEXT, Form.SCALAR):
        texts = [one.value for one in filled if one.form in (Form.TEXT, Form.SCALAR)]
        if NULL_WORDS.issuperset(texts):
            return ()  # such as "unavailable": the device is offline
        shape = csv_shape(texts)
        if shape is not None:
            return ("csv", shape.delimiter, shape.header or shape.width)
    return (form,)


def _shape_index(notation: str, keys: frozenset[str], shapes: list[tuple[str, set[str]]]) -> int:
    for number, (other, known) in enumerate(shapes):
        common = len(keys & known)
        is_like = common >= _COMMON_KEYS_SHARE_MIN * len(keys | known) or (not keys and not known)
        if other == notation and is_like:
            known |= keys
            return number
    if len(shapes) < _SHAPES_MAX:
        shapes.append((notation, set(keys)))
    return len(shapes) - 1


def _partition(topics: list[Topic], split_levels: frozenset[int]) -> list[TopicGroup]:
    """Split topics by the level that tells their labels apart, and the parts again."""
    labels = {topic.label for topic in topics if topic.label}
    position = _distinguishing_level(topics, labels, split_levels) if len(labels) > 1 else None
    if position is None:
        return [TopicGroup(topics, split_levels)]
    parts: dict[str, list[Topic]] = {}
    for topic in topics:
        parts.setdefault(topic.levels[position], []).append(topic)
    return [
        group for part in parts.values() for group in _partition(part, split_levels | {position})
    ]


def _distinguishing_level(
    topics: list[Topic], labels: set[Label], split_levels: frozenset[int]
) -> int | None:
    """Return the position of the level that tells the labels of topics apart best; else None."""
    are_alike = len({label[:2] for label in labels}) == 1 and all(
        label[0] == "document" for label in labels
    )
    entropy = _entropy(topic.label for topic in topics)
    found: list[tuple[float, int, int]] = []
    for position in range(len(topics[0].levels)):
        values: dict[str, list[Label]] = {}
        for topic in topics:
            values.setdefault(topic.levels[position], []).append(topic.label)
        values_max = 2 * len(labels) if are_alike or any(map(is_identifier, values)) else _WORDS_MAX
        if position in split_levels or not 1 < len(values) <= values_max:
            continue
        remaining = sum(
            len(topics_there) * _entropy(topics_there) for topics_there in values.values()
        ) / len(topics)
        if remaining <= _ENTROPY_SHARE_MAX * entropy:
            found.append((remaining, len(values), -position))
    return -min(found)[2] if found else None


def _entropy(labels: Iterable[Label]) -> float:
    """Return the entropy of labels in bits, leaving out empty labels."""
    counts = Counter(label for label in labels if label)
    total = sum(counts.values())
    return -sum(count / total * math.log2(count / total) for count in counts.values())


def _suggested_name(before: str, position: int) -> str:
    if before and re.fullmatch(r"[^\W\d][\w -]*", before):
        return singular(before)
    return f"level_{position + 1}"


def _level_type(values: Sequence[str]) -> str:
    return "int" if all(map(_INT.fullmatch, values)) else "string"


def _escape_braces(level: str) -> str:
    return level.replace("{", "{{").replace("}", "}}")


def _describe_values(values: Sequence[str]) -> str:
    numbers = all(map(_INT.fullmatch, values))
    ordered = sorted(values, key=(lambda value: (int(value),)) if numbers else None)
    if len(ordered) <= _LISTED_VALUES_MAX:
        return ", ".join(ordered)
    return f"{len(ordered):,} values, {ordered[0]} to {ordered[-1]}"
