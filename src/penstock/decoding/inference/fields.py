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
"""Objects are maps if they have this many keys together, and on average under a quarter of them
each."""
_MAP_SHARE: Final = 0.25
KEY_CHARACTERS_MAX: Final = 256
"""Most characters of a key that becomes a column; a longer one is data, not a name."""


@dataclass(frozen=True, slots=True)
class Field:
    """A path and its values in the rows, without null.

    Attributes:
        keys: the keys of the path.
        values: the values.
        times_us: the time of receipt of each value, µs since 1970.
        note: why objects were not followed; else empty.
    """

    keys: tuple[str, ...]
    values: list[Any]
    times_us: list[int]
    note: str = ""


def fields_of(
    objects: Sequence[dict[Any, Any]],
    times_us: Sequence[int],
    parent_keys: tuple[str, ...] = (),
) -> Iterator[Field]:
    """Yield the fields of rows in the order in which they appear, at all depths up to DEPTH_MAX.

    Keys of the rows that no path can name are left out: see `count_unnamed_keys`.

    Args:
        objects: the rows, or the objects at one path in them.
        times_us: the time of receipt of each object, µs since 1970.
        parent_keys: the keys of that path.
    """
    found: dict[str, list[tuple[Any, int]]] = {}
    for item, time_us in zip(objects, times_us, strict=True):
        for key, value in item.items():
            name = _key_text(key)
            if name is not None:
                found.setdefault(name, []).append((value, time_us))
    for name, pairs in found.items():
        keys = (*parent_keys, name)
        present = [value for value, _ in pairs if value is not None]
        times = [time_us for value, time_us in pairs if value is not None]
        objects_below = [value for value in present if isinstance(value, dict)]
        if not objects_below or len(objects_below) < len(present) or not any(objects_below):
            yield Field(keys, present, times)
        elif is_map(objects_below):
            count = len({key for one in objects_below for key in one})
            yield Field(keys, present, times, f"{count:,} different keys")
        elif len(keys) >= DEPTH_MAX:
            yield Field(keys, present, times, "nested deeply")
        elif count_unnamed_keys(objects_below):
            yield Field(keys, present, times, "with keys too long for names")
        else:
            yield from fields_of(objects_below, times, keys)


def count_unnamed_keys(objects: Sequence[dict[Any, Any]]) -> int:
    """Return how many different keys of objects no path can name, mostly because of their
    length."""
    return len({key for item in objects for key in item if _key_text(key) is None})


def is_map(objects: Sequence[dict[Any, Any]]) -> bool:
    """Return whether the keys of objects are data, such as device names, rather than field
    names."""
    keys = {key for item in objects for key in item}
    if len(keys) < MAP_KEYS_MIN:
        return False
    return sum(map(len, objects)) < _MAP_SHARE * len(keys) * len(objects)


def _key_text(key: Any) -> str | None:
    """Return a key as text for a path; None for a key that no path can name."""
    if isinstance(key, str):
        return key if len(key) <= KEY_CHARACTERS_MAX else None
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, bytes):
        try:
            return _key_text(key.decode())
        except UnicodeDecodeError:
            return None
    return None
