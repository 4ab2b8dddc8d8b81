"""Converts topic filters to one text and back: for option `topics`, and a table's description.

plant/+/temperature,alarms/#      filters with commas between
["plant/a,b/+"]                   a JSON list, because topics may contain commas
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.errors import ConfigError
from penstock.stream.requests import find_invalid_filter


def parse_topics(text: str) -> tuple[str, ...]:
    """Return the filters in a text; () for an empty text.

    Raises:
        ConfigError: a filter is not an MQTT topic filter.
    """
    filters = _parse_json_list(text)
    if filters is None:
        filters = tuple(part for part in (part.strip() for part in text.split(",")) if part)
    wrong = find_invalid_filter(filters)
    if wrong is not None:
        raise ConfigError(f"option topics: {wrong!r} is not an MQTT topic filter")
    return filters


def topics_text(topics: Sequence[str]) -> str:
    """Return the text from which `parse_topics` returns these filters."""
    plain = ",".join(topics)
    if plain and parse_topics(plain) != tuple(topics):
        return json.dumps(list(topics), ensure_ascii=False)
    return plain


def selection_text(stream: str, topics: Sequence[str]) -> str:
    """Describe the selected messages in words: all messages of a stream, or of some of its topics.

    Args:
        stream: the name of the stream.
        topics: MQTT topic filters, in any order; empty for every message of the stream.
    """
    which = f"topics {topics_text(sorted(set(topics)))}" if topics else "all topics"
    return f"stream {stream}, {which}"


def _parse_json_list(text: str) -> tuple[str, ...] | None:
    """Return the items of a JSON list of texts; None for any other text."""
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else None
    except ValueError:
        return None
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        return None
    return tuple(found)
