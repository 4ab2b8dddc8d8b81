"""Groups topics whose payloads are of one kind, and makes the pattern that names their levels.

::

      plant/a/7/temp   21.5          plant/{plant}/{level_3:int}/temp     text, a number
      plant/b/8/temp   22.0    ──▶
      plant/a/7/state  {"on": 1}     plant/{plant}/{level_3:int}/state    json

Topics with the same number of levels and one kind of payload are a group. If the kinds differ, the
level is found whose values tell them apart best, and each of its values is written into a pattern
of its own; if no level does, or one of too many values, the group stays one, because two patterns
must never match one topic.

A level that varies becomes a column. Its name is the level before it if that is a word: machines/7
becomes machines/{machine:int}. So does a number, UUID or MAC address that does not vary.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.config.topic_pattern import Level
from penstock.decoding.inference.column_names import Names, is_identifier, singular
from penstock.decoding.inference.column_types import NULL_WORDS
from penstock.decoding.inference.csv_fields import csv_shape
from penstock.decoding.inference.readings import Form, ParsedPayload, distinct_keys

SPARKPLUG: Final = "spBv1.0"
_SPARKPLUG_LEVELS: Final = ("group", "message", "node", "device")
_WORDS_MAX: Final = 30
"""Most values of a level that are written into patterns, each into its own."""

_LEFT_MAX: Final = 0.8
"""Largest share of the mixture left by a level that tells kinds apart: chance leaves more."""

_LIKENESS_MIN: Final = 0.5
_SHAPES_MAX: Final = 100
_INT: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_SHOWN_MAX: Final = 4

Label = tuple[Hashable, ...]


@dataclass(slots=True)
class Topic:
    """A topic of the sample; ``label`` is the kind of its payloads, () if unknown."""

    text: str
    readings: list[ParsedPayload] = field(default_factory=list)
    label: Label = ()

    @property
    def levels(self) -> list[str]:
        """The levels of the topic."""
        return self.text.split("/")

    @property
    def has_payload(self) -> bool:
        """True if some payload is not empty; an empty one removes a retained message."""
        return any(reading.form is not Form.EMPTY for reading in self.readings)


@dataclass(frozen=True, slots=True)
class Group:
    """Topics of one table; ``pinned`` are the positions of levels that tell it from other
    groups."""

    topics: list[Topic]
    pinned: frozenset[int] = frozenset()

    @property
    def readings(self) -> list[ParsedPayload]:
        """The readings of the payloads of all topics."""
        return [reading for topic in self.topics for reading in topic.readings]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A topic pattern, its constant words, and examples of the values of its columns."""

    text: str
    words: list[str]
    levels: list[tuple[str, str]]


def is_sparkplug(topic: str) -> bool:
    """Return whether a topic is of Sparkplug B, and not of a STATE message."""
    levels = topic.split("/")
    return SPARKPLUG in levels and len(levels) - levels.index(SPARKPLUG) in (4, 5)


def groups_of(topics: Sequence[Topic]) -> list[Group]:
    """Return the groups of topics, none of which is of Sparkplug."""
    by_depth: dict[int, list[Topic]] = {}
    for topic in topics:
        by_depth.setdefault(len(topic.levels), []).append(topic)
    found: list[Group] = []
    for _, those in sorted(by_depth.items()):
        _label(those)
        found += _partition(those, frozenset())
    return found


def sparkplug_groups(topics: Iterable[Topic]) -> list[Group]:
    """Return a group for each position of the namespace in topics; bridges put levels above it."""
    found: dict[int, list[Topic]] = {}
    for topic in topics:
        found.setdefault(topic.levels.index(SPARKPLUG), []).append(topic)
    return [Group(those) for _, those in sorted(found.items())]


def pattern_of(group: Group, requested: Sequence[Level], names: Names) -> Pattern:
    """Return the pattern of a group.

    Args:
        group: the group.
        requested: the levels of the filter of the sample, whose names are kept.
        names: gives the names of levels.
    """
    texts: list[str] = []
    words: list[str] = []
    seen: list[tuple[str, str]] = []
    for position, values in enumerate(zip(*(topic.levels for topic in group.topics), strict=True)):
        distinct = list(dict.fromkeys(values))
        given = requested[position] if position < len(requested) else Level("#")
        is_fixed = given.wildcard not in ("+", "#") or position in group.pinned
        is_constant = len(distinct) == 1 and given.wildcard == "#"
        if is_fixed or (is_constant and not is_identifier(distinct[0])):
            texts.append(_doubled(distinct[0]))
            words.append(distinct[0])
            continue
        before = texts[-1] if texts and not texts[-1].startswith("{") else ""
        wanted = given.name or _wanted(before, position)
        name = names.level(wanted)
        kind = given.type if given.name and given.type != "string" else _type(distinct)
        texts.append(f"{{{name}}}" if kind == "string" else f"{{{name}:{kind}}}")
        seen.append((name, _values_shown(distinct)))
    return Pattern("/".join(texts), words, seen)


def sparkplug_pattern(group: Group, requested: Sequence[Level], names: Names) -> Pattern:
    """Return the pattern of a Sparkplug namespace: group, message, node, and optional device."""
    place = group.topics[0].levels.index(SPARKPLUG)
    above = pattern_of(
        Group([Topic("/".join(topic.levels[: place + 1])) for topic in group.topics],
              frozenset({place})),
        requested,
        names,
    )  # fmt: skip
    texts, seen = [above.text], list(above.levels)
    ends = any(level.wildcard == "#" for level in requested)
    for number, name in enumerate(_SPARKPLUG_LEVELS, place + 1):
        given = requested[number] if number < len(requested) else Level("#")
        if number >= len(requested) and not ends:
            break
        if given.wildcard not in ("+", "#"):
            texts.append(_doubled(given.wildcard))
            continue
        column = names.level(given.name or name)
        is_last = name == _SPARKPLUG_LEVELS[-1] and given.wildcard == "#"
        texts.append(f"{{{column}:#}}" if is_last else f"{{{column}}}")
        values = [topic.levels[number] for topic in group.topics if number < len(topic.levels)]
        seen.append((column, _values_shown(list(dict.fromkeys(values)))))
    return Pattern("/".join(texts), ["sparkplug"], seen)


def _label(topics: Sequence[Topic]) -> None:
    shapes: list[tuple[str, set[str]]] = []
    for topic in sorted(topics, key=lambda one: -len(one.readings)):
        topic.label = _label_of(topic, shapes)


def _label_of(topic: Topic, shapes: list[tuple[str, set[str]]]) -> Label:
    """Return the kind of a topic's payloads; for documents, the number of a similar shape."""
    filled = [reading for reading in topic.readings if reading.form is not Form.EMPTY]
    if not filled:
        return ()
    counts = Counter((reading.form in (Form.OBJECT, Form.ROWS), reading.form, reading.notation)
                     for reading in filled)  # fmt: skip
    (has_keys, form, notation), _ = counts.most_common(1)[0]
    if has_keys:
        return ("document", notation, _shape(notation, distinct_keys(filled), shapes))
    if form in (Form.TEXT, Form.SCALAR):
        texts = [one.value for one in filled if one.form in (Form.TEXT, Form.SCALAR)]
        if NULL_WORDS.issuperset(texts):
            return ()  # a device that is offline
        shape = csv_shape(texts)
        if shape is not None:
            return ("csv", shape.delimiter, shape.header or shape.width)
    return (form,)


def _shape(notation: str, keys: frozenset[str], shapes: list[tuple[str, set[str]]]) -> int:
    for number, (other, known) in enumerate(shapes):
        common = len(keys & known)
        is_like = common >= _LIKENESS_MIN * len(keys | known) or (not keys and not known)
        if other == notation and is_like:
            known |= keys
            return number
    if len(shapes) < _SHAPES_MAX:
        shapes.append((notation, set(keys)))
    return len(shapes) - 1


def _partition(topics: list[Topic], pinned: frozenset[int]) -> list[Group]:
    labels = {topic.label for topic in topics if topic.label}
    position = _distinguishing_level(topics, labels, pinned) if len(labels) > 1 else None
    if position is None:
        return [Group(topics, pinned)]
    parts: dict[str, list[Topic]] = {}
    for topic in topics:
        parts.setdefault(topic.levels[position], []).append(topic)
    return [group for part in parts.values() for group in _partition(part, pinned | {position})]


def _distinguishing_level(
    topics: list[Topic], labels: set[Label], pinned: frozenset[int]
) -> int | None:
    """Return the position of the level that tells these labels apart best; None if none does."""
    are_alike = len({label[:2] for label in labels}) == 1 and all(
        label[0] == "document" for label in labels
    )
    mixed = _entropy(topic.label for topic in topics)
    found: list[tuple[float, int, int]] = []
    for position in range(len(topics[0].levels)):
        values: dict[str, list[Label]] = {}
        for topic in topics:
            values.setdefault(topic.levels[position], []).append(topic.label)
        most = 2 * len(labels) if are_alike or any(map(is_identifier, values)) else _WORDS_MAX
        if position in pinned or not 1 < len(values) <= most:
            continue
        left = sum(len(those) * _entropy(those) for those in values.values()) / len(topics)
        if left <= _LEFT_MAX * mixed:
            found.append((left, len(values), -position))
    return -min(found)[2] if found else None


def _entropy(labels: Iterable[Label]) -> float:
    """Return how mixed labels are, in bits; empty ones do not count."""
    counts = Counter(label for label in labels if label)
    total = sum(counts.values())
    return -sum(count / total * math.log2(count / total) for count in counts.values())


def _wanted(before: str, position: int) -> str:
    if before and re.fullmatch(r"[^\W\d][\w -]*", before):
        return singular(before)
    return f"level_{position + 1}"


def _type(values: Sequence[str]) -> str:
    return "int" if all(map(_INT.fullmatch, values)) else "string"


def _doubled(level: str) -> str:
    return level.replace("{", "{{").replace("}", "}}")


def _values_shown(values: Sequence[str]) -> str:
    numbers = all(map(_INT.fullmatch, values))
    ordered = sorted(values, key=(lambda value: (int(value),)) if numbers else None)
    if len(ordered) <= _SHOWN_MAX:
        return ", ".join(ordered)
    return f"{len(ordered):,} values, {ordered[0]} to {ordered[-1]}"
