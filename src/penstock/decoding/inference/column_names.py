"""Makes names valid in tables, Spark and topic patterns from keys and topic levels.

Spark ignores case, and `epoch`, `offset`, `received_at`, `topic` and `date` are columns of every
table: a key of such a name becomes a column of another name, with the key as its path.
"""

from __future__ import annotations

import re
from typing import Final

RESERVED: Final = frozenset(
    {"epoch", "offset", "received_at", "topic", "client_id", "qos", "retain", "date", "message_id"}
)
"""Columns that every table has, or that a declaration can add."""

_INVALID: Final = re.compile(r"[^\w-]+")
_INVALID_IN_LEVEL: Final = re.compile(r"\W+")
_INVALID_IN_TABLE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_CHARACTERS_MAX: Final = 100
_ID: Final = re.compile(
    r"[0-9]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}|0x[0-9a-fA-F]{4,}"
)


class UniqueNames:
    """Gives each name only once, ignoring case, and none of the names in ``reserved``."""

    def __init__(self, reserved: frozenset[str] = RESERVED) -> None:
        self._used = {name.lower() for name in reserved}

    def column_name(self, keys: tuple[str, ...]) -> str:
        """Return a new name for the column of a path."""
        return self._claim(
            _INVALID.sub("_", "_".join(keys))[:_CHARACTERS_MAX].strip("_"), "payload"
        )

    def level_name(self, preferred: str) -> str:
        """Return a new name for a level of topics, like ``preferred`` if that is valid and
        unused."""
        name = _INVALID_IN_LEVEL.sub("_", preferred)[:_CHARACTERS_MAX].strip("_")
        return self._claim(name if not name[:1].isdigit() else f"level_{name}", "level")

    def _claim(self, name: str, kind: str) -> str:
        name = name or kind
        if name.lower() in self._used:
            name = f"{kind}_{name}"
        preferred, number = name, 1
        while name.lower() in self._used:
            number += 1
            name = f"{preferred}_{number}"
        self._used.add(name.lower())
        return name


def path_of(keys: tuple[str, ...]) -> str:
    """Return the path to a value under these keys, as `Column.path` has it."""
    text = ".".join(keys)
    if all(keys) and text.count(".") == len(keys) - 1 and not text.startswith(("$", "/")):
        return text
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def table_name(words: list[str]) -> str:
    """Return a name for a table, made of the constant levels of its topics."""
    name = _INVALID_IN_TABLE.sub("_", "_".join(words)).strip("_-").lower()[:50]
    return name or "messages"


def is_identifier(level: str) -> bool:
    """Return whether a level of a topic identifies one of many: a number, UUID or MAC address."""
    return _ID.fullmatch(level) is not None


def singular(word: str) -> str:
    """Return the singular of an English plural, such as machine for machines; else the word
    itself."""
    if len(word) > 3 and word.endswith("s") and word[-2:] not in ("ss", "us", "is", "as", "os"):
        return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
    return word
