"""Topic patterns: MQTT topic filters whose wildcards have names, and so become columns.

    plant/{line}/{machine:int}/temp     reads plant/+/+/temp; columns line and machine
    home/{rest:#}                       reads home/#; rest is all that follows, slashes included
    plant/+/{machine}/#                 + and # stand for levels without a column

A name stands for a whole level, as ``+`` does [MQTT 5 §4.7.1]: no broker could select the topics of
``sensor-{id}``. A level that itself holds braces doubles them, as in Python's format strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal, cast

from pydantic import AfterValidator

from penstock.engine.values.declared_limits import TOPIC_LEVELS_MAX
from penstock.engine.values.topics import is_shared, is_topic_filter

LevelType = Literal["string", "int", "float"]

_NAMED_LEVEL: Final = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_COLUMN_NAME: Final = re.compile(r"[^\W\d]\w{0,127}")
_BRACE: Final = re.compile(r"\{\{|\}\}|[{}]")


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a pattern.

    wildcard is the level in the MQTT filter: "+", "#" or the text itself. name is the column it
    becomes, empty for a level that becomes none.
    """

    wildcard: str
    name: str = ""
    type: LevelType = "string"


def parse_levels(text: str) -> tuple[Level, ...]:
    """Return the levels of a pattern.

    Raises:
        ValueError: the text is no pattern; the message is one sentence.
    """
    levels = tuple(_level(level, text) for level in text.split("/"))
    if is_shared(text):
        raise ValueError(
            f"the topic pattern {text!r} is a shared subscription, of which a reader of the log"
            " would get only a part"
        )
    if not is_topic_filter("/".join(level.wildcard for level in levels), TOPIC_LEVELS_MAX):
        raise ValueError(
            f"the topic pattern {text!r} makes no MQTT topic filter: + and # stand for whole"
            " levels, and # and {name:#} only for the last one"
        )
    names = [level.name.lower() for level in levels if level.name]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the topic pattern {text!r} names {name!r} twice")
    return levels


def _level(level: str, text: str) -> Level:
    match = _NAMED_LEVEL.fullmatch(level)
    if match is None:
        return Level(_without_doubled_braces(level, text))
    name, kind = match[1], match[2]
    if _COLUMN_NAME.fullmatch(name) is None:
        raise ValueError(
            f"the topic pattern {text!r} has a level {level}, whose name must be letters, digits"
            " and _ that do not start with a digit, at most 128"
        )
    if kind == "#":
        return Level("#", name)
    if kind not in (None, "string", "int", "float"):
        raise ValueError(
            f"the topic pattern {text!r} has a level {level}, whose type must be string, int or"
            " float, or # for all levels that follow"
        )
    return Level("+", name, cast(LevelType, kind or "string"))


def _without_doubled_braces(level: str, text: str) -> str:
    def brace(match: re.Match[str]) -> str:
        if len(match[0]) == 2:
            return match[0][0]
        raise ValueError(
            f"the topic pattern {text!r} has a single brace in {level!r}: a name such as {{line}}"
            " stands for a whole level, and a brace of the topic itself is doubled"
        )

    return _BRACE.sub(brace, level)


def _checked_pattern(value: str) -> str:
    try:
        parse_levels(value)
    except ValueError as mistake:
        raise ValueError(
            f"a pattern such as plant/{{line}}/{{machine:int}}/temp: {mistake}"
        ) from None
    return value


TopicPatternText = Annotated[str, AfterValidator(_checked_pattern)]
"""A setting that is a topic pattern."""
