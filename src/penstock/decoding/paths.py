"""Paths into a decoded payload: `t.value`, `sensors.0.value`, `/a.b/value`, `$`, `$.device`.

A key is looked for as text, then as a whole number, for the maps of CBOR and MessagePack may have
such keys (SenML's labels, RFC 8428 §6), then as bytes. A path that meets no such key, or a value
that has none, leads to nothing, which is the same as null.
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
    """Keys from the outside in. from_root says that they begin at the payload, not at the row."""

    keys: tuple[str, ...]
    from_root: bool = False

    @classmethod
    def parse(cls, text: str) -> Path:
        """Read a path; `docs/decoders.md` says what it may be.

        Raises:
            ConfigError: it is none.
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
    """Whether a key may be a position in a list."""
    return _POSITION.fullmatch(key) is not None


def member(value: object, key: str) -> object:
    """What an object has under a key or a list at a position; None if nothing."""
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
    """What a path leads to; None if to nothing."""
    for key in keys:
        value = member(value, key)
        if value is None:
            return None
    return value


def reader(keys: tuple[str, ...]) -> Callable[[Any], Any]:
    """A function from a value to what a path in it leads to."""
    if len(keys) != 1:
        return lambda value: follow(value, keys)
    key = keys[0]

    def read(value: Any) -> Any:
        try:
            return value[key]
        except (LookupError, TypeError):
            return member(value, key)

    return read
