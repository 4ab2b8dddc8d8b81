"""Makes names valid in tables, Spark and topic patterns from keys and topic levels.

Spark ignores case, and `epoch`, `offset`, `received_at`, `topic` and `date` are columns of every
table: a key of such a name becomes a column of another name, and keeps its path.
"""

from __future__ import annotations

import re
from typing import Final

RESERVED: Final = frozenset(
    {"epoch", "offset", "received_at", "topic", "client_id", "qos", "retain", "date", "message_id"}
)
"""Columns that tables have, or have if so declared."""

_UNFIT: Final = re.compile(r"[^\w-]+")
_UNFIT_IN_LEVEL: Final = re.compile(r"\W+")
_UNFIT_IN_TABLE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_CHARACTERS_MAX: Final = 100
_ID: Final = re.compile(
    r"[0-9]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}|0x[0-9a-fA-F]{4,}"
)


class Names:
    """Gives names, each only once, ignoring case."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self._taken = {name.lower() for name in taken}

    def column(self, keys: tuple[str, ...]) -> str:
        """Return a name for the column of a path."""
        return self._free(_UNFIT.sub("_", "_".join(keys))[:_CHARACTERS_MAX].strip("_"), "payload")

    def level(self, wanted: str) -> str:
        """Return a name for a level of topics."""
        name = _UNFIT_IN_LEVEL.sub("_", wanted)[:_CHARACTERS_MAX].strip("_")
        return self._free(name if not name[:1].isdigit() else f"level_{name}", "level")

    def _free(self, name: str, kind: str) -> str:
        name = name or kind
        if name.lower() in self._taken:
            name = f"{kind}_{name}"
        wanted, number = name, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name


def path_of(keys: tuple[str, ...]) -> str:
    """Return the path to keys, as settings write it."""
    text = ".".join(keys)
    if all(keys) and text.count(".") == len(keys) - 1 and not text.startswith(("$", "/")):
        return text
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def table_name(words: list[str]) -> str:
    """Return a name for a table, made of the levels that its topics share."""
    name = _UNFIT_IN_TABLE.sub("_", "_".join(words)).strip("_-").lower()[:50]
    return name or "messages"


def is_identifier(level: str) -> bool:
    """Return whether a level of a topic identifies one of many: a number, UUID or MAC address."""
    return _ID.fullmatch(level) is not None


def singular(word: str) -> str:
    """Return the singular of a level, as the name of one of the things below it: machines,
    machine."""
    if len(word) > 3 and word.endswith("s") and word[-2:] not in ("ss", "us", "is", "as", "os"):
        return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
    return word
