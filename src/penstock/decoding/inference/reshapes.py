"""Recognises rows in objects that are no lists of rows, and JSON documents in texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from penstock.config.decoder import DecoderDefinition, RowsOf
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.inference.fields import fields_of
from penstock.decoding.json_text import JsonNotation
from penstock.decoding.reshaping import rows_of_keys, rows_of_lists

_KEYS_MIN: Final = 8
"""Objects of one shape are rows if there are so many of them, whatever their keys are."""
_SHARED_SHARE: Final = 0.75
"""Objects have one shape if, on average, they have this share of all of their keys."""
_LISTS_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows in objects.

    Attributes:
        rows_of: the setting `rows_of` of a decoder.
        path: the key of the object with the rows; empty for the payload itself.
        rows: the rows of each object.
        remaining: the keys of each object beside the rows, with their values.
    """

    rows_of: RowsOf
    path: tuple[str, ...]
    rows: list[list[dict[str, Any]]]
    remaining: list[dict[Any, Any]]

    @property
    def remark(self) -> str:
        """A sentence about the rows."""
        count = sum(map(len, self.rows))
        what = "position of the lists" if self.rows_of == "lists" else "key of the object"
        where = f" at {self.path[0]}" if self.path else ""
        return f"A row for each {what}{where}: {count:,} rows."


def find_rows(objects: Sequence[dict[Any, Any]]) -> FoundRows | None:
    """Return the rows that all of these objects have in the same way; None if they have none."""
    inner = [key for key in objects[0] if isinstance(key, str) and "." not in key]
    for path in ((), *((key,) for key in inner)):
        parts = [item.get(path[0]) if path else item for item in objects]
        found = _rows_in([part for part in parts if isinstance(part, dict)], len(objects))
        if found is None:
            continue
        rows_of, names, rows = found
        without = set(path or names)
        remaining = [
            {key: value for key, value in item.items() if key not in without} for item in objects
        ]
        return FoundRows(rows_of, path, rows, remaining)
    return None


def open_texts(
    objects: Sequence[dict[Any, Any]],
) -> tuple[list[tuple[str, ...]], list[dict[Any, Any]]]:
    """Return the paths of texts that are JSON objects in all of these objects, and the objects with
    those in place of the texts."""
    opened = [dict(item) for item in objects]
    paths = []
    for field in list(fields_of(opened, [0] * len(opened))):
        if all(isinstance(value, str) and value.lstrip()[:1] == "{" for value in field.values):
            documents = [_read(value) for value in field.values]
            if documents and all(isinstance(one, dict) for one in documents):
                paths.append(field.keys)
                opened = [_with_document(item, field.keys) for item in opened]
    return paths, opened


def _rows_in(
    parts: list[dict[Any, Any]], count: int
) -> tuple[RowsOf, set[str], list[list[dict[str, Any]]]] | None:
    """Return the kind of the rows, the keys that they take, and the rows of each object."""
    if len(parts) < count:
        return None
    if _are_rows_by_key(parts):
        return "keys", {key for part in parts for key in part}, list(map(rows_of_keys, parts))
    names = {key for key, value in parts[0].items() if isinstance(value, list)}
    if len(names) < _LISTS_MIN or not all(isinstance(name, str) for name in names):
        return None
    try:
        rows = [rows_of_lists(part, names) for part in parts]
    except BrokenPayload:
        return None
    return ("lists", names, rows) if _are_lists_of_rows(parts, names) else None


def _are_rows_by_key(parts: list[dict[Any, Any]]) -> bool:
    """Return whether the keys of objects are names of things of one shape.

    Their names differ from one object to the next, or they are many.
    """
    members = [member for part in parts for member in part.values()]
    if not all(isinstance(member, dict) and member for member in members) or len(members) < 2:
        return False
    if not all(isinstance(key, str) for part in parts for key in part):
        return False
    keys = {key for member in members for key in member}
    if sum(map(len, members)) < _SHARED_SHARE * len(keys) * len(members):
        return False
    differ = any(part.keys() != parts[0].keys() for part in parts)
    return differ or len(parts[0]) >= _KEYS_MIN


def _are_lists_of_rows(parts: list[dict[Any, Any]], names: set[str]) -> bool:
    """Return whether lists of one length are columns: their length varies, or one ascends, as times
    do. Lists such as [x, y, z] are neither."""
    lists = [part.get(name) for part in parts for name in names]
    if not all(isinstance(one, list) for one in lists):
        return False
    items = [item for one in lists if isinstance(one, list) for item in one]
    if any(isinstance(item, (dict, list)) for item in items):
        return False
    lengths = {len(part[next(iter(names))]) for part in parts}
    if max(lengths) < _LISTS_MIN:
        return False
    return len(lengths) > 1 or any(all(_ascends(part[name]) for part in parts) for name in names)


def _ascends(values: list[Any]) -> bool:
    try:
        return len(values) >= _LISTS_MIN and all(one < other for one, other in pairwise(values))
    except TypeError:
        return False


_JSON: Final = JsonNotation(DecoderDefinition(kind="json"))


def _read(text: str) -> object:
    try:
        return _JSON.read(text.encode())
    except (BrokenPayload, RecursionError):
        return None


def _with_document(item: dict[Any, Any], keys: tuple[str, ...]) -> dict[Any, Any]:
    """Return a copy of an object with the document in the text at a path in its place."""
    key, *rest = keys
    value = item.get(key)
    if value is None:
        return item
    return {**item, key: _with_document(value, tuple(rest)) if rest else _read(value)}
