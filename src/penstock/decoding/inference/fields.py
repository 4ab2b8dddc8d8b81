"""Collects the values of documents by path: follows nested objects, and takes lists as values.

An object whose keys are data (a reading for each of a thousand devices) is one value: it
would make too many columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

DEPTH_MAX: Final = 5
MAP_KEYS_MIN: Final = 25
"""An object is a map when it has this many keys in all, and each row only a quarter of them."""
_MAP_SHARE: Final = 0.25
KEY_CHARACTERS_MAX: Final = 256
"""No name of a reading is so long: a longer key becomes no column."""


@dataclass(frozen=True, slots=True)
class Field:
    """One path and its values in the rows, without null; ``note`` says what is special about it."""

    keys: tuple[str, ...]
    values: list[Any]
    note: str = ""


def fields_of(objects: Sequence[dict[Any, Any]], above: tuple[str, ...] = ()) -> Iterator[Field]:
    """Yield the fields of rows, in the order in which they appear."""
    found: dict[str, list[Any]] = {}
    for item in objects:
        for key, value in item.items():
            name = _text_of(key)
            if name is not None:
                found.setdefault(name, []).append(value)
    for name, values in found.items():
        keys = (*above, name)
        present = [value for value in values if value is not None]
        inner = [value for value in present if isinstance(value, dict)]
        if not inner or len(inner) < len(present) or not any(inner):
            yield Field(keys, present)
        elif is_map(inner):
            count = len({key for one in inner for key in one})
            yield Field(keys, present, f"{count:,} different keys")
        elif len(keys) >= DEPTH_MAX:
            yield Field(keys, present, "nested deeply")
        else:
            yield from fields_of(inner, keys)


def is_map(objects: Sequence[dict[Any, Any]]) -> bool:
    """Return whether the keys of objects are data rather than names."""
    keys = {key for item in objects for key in item}
    if len(keys) < MAP_KEYS_MIN:
        return False
    return sum(map(len, objects)) < _MAP_SHARE * len(keys) * len(objects)


def _text_of(key: Any) -> str | None:
    """Return a key as text for a path; None for a key to which no path leads."""
    if isinstance(key, str):
        return key if len(key) <= KEY_CHARACTERS_MAX else None
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, bytes):
        try:
            return _text_of(key.decode())
        except UnicodeDecodeError:
            return None
    return None
