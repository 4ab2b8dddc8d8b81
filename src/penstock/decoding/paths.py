"""Paths into a decoded payload: `t.value`, `sensors.0.value`, `/a.b/value`, `$`, `$.device`.

A key is looked up as text, then as a whole number, because maps of CBOR and MessagePack may have
such keys (SenML's labels, RFC 8428 §6), then as bytes. A path that meets no such key, or a value
without keys, leads to nothing, which is the same as null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import ConfigError

_POSITION: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_WHOLE: Final = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Path:
    """Keys from the outside in; with ``from_root`` they begin at the payload, not at the row."""

    keys: tuple[str, ...]
    from_root: bool = False

    @classmethod
    def parse(cls, text: str) -> Path:
        """Parse a path; `docs/decoders.md` describes the forms.

        Raises:
            ConfigError: it is not a path.
        """
        if text == "$":
            return cls(())
        from_root = text.startswith("$.")
        text = text.removeprefix("$.")
        if text.startswith("/"):  # a JSON pointer, RFC 6901 §4
            parts = [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]
        else:
            parts = text.split(".")
        if not from_root and not text.startswith("/") and "" in parts:
            raise ConfigError(f"The path {text!r} has an empty key: write it as /a//b.")
        return cls(tuple(parts), from_root)


def is_position(key: str) -> bool:
    """Return whether a key may be a position in a list."""
    return _POSITION.fullmatch(key) is not None


def member(value: object, key: str) -> object:
    """Return the member of an object under a key, or of a list at a position; None if there is
    none."""
    if isinstance(value, dict):
        found = value.get(key)
        if found is None and _WHOLE.fullmatch(key):
            found = value.get(int(key))
        return value.get(key.encode()) if found is None else found
    if isinstance(value, (list, tuple)) and is_position(key):
        position = int(key)
        return value[position] if position < len(value) else None
    return None


def follow(value: object, keys: tuple[str, ...]) -> object:
    """Return the value to which a path leads; None if there is none."""
    for key in keys:
        value = member(value, key)
        if value is None:
            return None
    return value


def reader(keys: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that follows a path in a value."""
    if len(keys) != 1:
        return lambda value: follow(value, keys)
    key = keys[0]

    def read(value: Any) -> Any:
        try:
            return value[key]
        except (LookupError, TypeError):
            return member(value, key)

    return read
