"""Finds rows in documents that are no list of objects, and documents in texts.

rows_of = "lists"   {"t": [1, 2], "h": [3, 4]}        ─▶ {"t": 1, "h": 3}, {"t": 2, "h": 4}
rows_of = "keys"    {"s1": {"t": 1}, "s2": {"t": 2}}  ─▶ {"key": "s1", "value": {"t": 1}}, …
json_texts          {"data": "{\"t\": 1}"}            ─▶ {"data": {"t": 1}}
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.nested import key_text
from penstock.decoding.paths import Path, follow, member

_WHOLE: Final = re.compile(r"-?[0-9]{1,9}")

KEY: Final = "key"
VALUE: Final = "value"
"""The keys of a row that stands for a key of an object."""


def rows_of_lists(value: object, names: Collection[str]) -> list[dict[str, Any]]:
    """Return a row for each position of the lists with these names, which are equally long.

    Raises:
        BrokenPayload: the value is no object with such lists.
    """
    if not isinstance(value, dict):
        raise BrokenPayload(f"There is {abbreviate(value)} instead of an object with lists.")
    lists: dict[str, Any] = {}
    for name in sorted(names):
        found = member(value, name)
        if found is None:
            continue
        if not isinstance(found, (list, tuple)):
            raise BrokenPayload(f"{name} is {abbreviate(found)}, which is no list.")
        lists[name] = found
        first = next(iter(lists))
        if len(lists[first]) != len(found):
            lengths = f"{len(lists[first])} and {len(found)}"
            raise BrokenPayload(f"The lists {first} and {name} have {lengths} items.")
    if not lists:
        raise BrokenPayload("The payload has none of the lists that are columns.")
    return [dict(zip(lists, items, strict=True)) for items in zip(*lists.values(), strict=True)]


def rows_of_keys(value: object) -> list[dict[str, Any]]:
    """Return a row with `key` and `value` for each key of an object.

    Raises:
        BrokenPayload: the value is no object, or has a key that is no text.
    """
    if not isinstance(value, dict):
        raise BrokenPayload(f"There is {abbreviate(value)} instead of an object.")
    try:
        return [{KEY: key_text(key), VALUE: item} for key, item in value.items()]
    except (ValueError, TypeError):
        raise BrokenPayload("The object with the rows has a key that is no text.") from None


class DocumentsInTexts:
    """Replaces texts in a document by the documents that they are.

    Args:
        definition: names the paths of these texts, and the rows in which some of them are.
    """

    def __init__(self, definition: DecoderDefinition) -> None:
        paths = [Path.parse(text) for text in definition.json_texts]
        self._rows_path = Path.parse(definition.rows_path).keys if definition.rows_path else ()
        in_root = [path.from_root or not definition.has_many_rows for path in paths]
        self._in_root = [path.keys for path, is_it in zip(paths, in_root, strict=True) if is_it]
        self._in_rows = [path.keys for path, is_it in zip(paths, in_root, strict=True) if not is_it]

    def replace(self, root: object, read: Any) -> object:
        """Return the document with its texts replaced by what ``read`` makes of them.

        Raises:
            BrokenPayload: a text is no document.
        """
        for keys in self._in_root:
            root = _with_document(root, keys, read)
        rows = follow(root, self._rows_path) if self._in_rows else None
        if isinstance(rows, list):
            for keys in self._in_rows:
                rows[:] = [_with_document(row, keys, read) for row in rows]
        elif isinstance(rows, dict):
            for keys in self._in_rows:
                _with_document(rows, keys, read)
        return root


def _with_document(value: object, keys: tuple[str, ...], read: Any) -> object:
    """Return a value with the document in the text under these keys; unchanged without a text."""
    holder = follow(value, keys[:-1]) if keys else None
    text = member(holder, keys[-1]) if keys else value
    if not isinstance(text, str):
        return value
    try:
        found = read(text.encode())
    except BrokenPayload as broken:
        raise BrokenPayload(f"In the text at {'.'.join(keys) or '$'}: {broken}") from None
    if isinstance(holder, dict):
        key = keys[-1]
        names = (key, int(key) if _WHOLE.fullmatch(key) else key, key.encode())
        holder[next(name for name in names if holder.get(name) is not None)] = found
    elif isinstance(holder, list):
        holder[int(keys[-1])] = found
    return value if keys else found
