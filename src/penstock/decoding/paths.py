"""Paths into a decoded payload: `t.value`, `sensors.0.value`, `/a.b/value`, `$`, `$.device`.

A key is looked up as text, then as a whole number, because maps of CBOR and MessagePack may have
such keys (SenML's labels, RFC 8428 §6), then as bytes. A path with a key that is not found, or that
leads into a value without keys, gives null.
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
            ConfigError: the text is not a path.
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
    """Return the member of an object under a key, or of a list at a position; else None."""
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
    """Return the value at the end of a path; None if a key is not found."""
    for key in keys:
        value = member(value, key)
        if value is None:
            return None
    return value


def path_reader(keys: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function from a value to the value at the end of a path in it, or None."""
    if len(keys) != 1:
        return lambda value: follow(value, keys)
    key = keys[0]

    def read(value: Any) -> Any:
        try:
            return value[key]
        except (LookupError, TypeError):
            return member(value, key)

    return read
