"""Decodes documents of any notation to rows: json, cbor, msgpack, protobuf and avro share this.

A notation reads a payload. This module finds the rows of a document, gathers and converts the
values of each column, and takes out the messages that have a value which does not fit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken import Broken
from penstock.decoding.casts import Cast
from penstock.decoding.convert import to_json
from penstock.decoding.decoded import DecodedBatch, Decoder
from penstock.decoding.paths import Path, follow, reader
from penstock.decoding.rows import Rows, decode_in_portions
from penstock.decoding.scalars import NullMarkers
from penstock.decoding.shapes import Read, Shape
from penstock.decoding.shown import shown

_NOT_TEXT: Final = (ValueError, TypeError, ArithmeticError, RecursionError)


class Notation(Protocol):
    """A notation of payloads: how they are written, and how they are read."""

    def read(self, payload: bytes) -> object:
        """Return the contents of a payload as dicts, lists and values.

        Raises:
            Broken: it cannot be read.
        """
        ...

    def values_in(self, payload: bytes) -> int:
        """Return the most values that a payload may hold, counted without building them."""
        ...

    def rows_in(self, payload: bytes) -> int:
        """Return the most objects that a payload which is a list may hold."""
        ...

    def leaf(self, column: Column) -> Any:
        """Return the msgspec type with which the quick reader reads the value of a column."""
        ...

    def quick_reader(self, shape: Any, takes_anything: bool) -> Callable[[bytes], Any] | None:
        """Return a quicker `read` that builds only what msgspec is asked for; None if there is
        none.

        It may raise anything; the payload is then read by `read`. ``takes_anything`` says that the
        shape has leaves of type Any.
        """
        ...

    def unseen_errors(self, payloads: list[bytes]) -> dict[int, str]:
        """Return reasons, by position, for payloads with errors that the quick reader overlooks."""
        ...


class NoQuickReader:
    """Defaults for a notation without a quick reader."""

    def values_in(self, payload: bytes) -> int:  # noqa: ARG002
        """Return 0: only reading tells, and the schema bounds the values."""
        return 0

    def rows_in(self, payload: bytes) -> int:
        """Return the number of bytes, an upper bound."""
        return len(payload)

    def leaf(self, column: Column) -> Any:  # noqa: ARG002
        """Return Any."""
        return Any

    def quick_reader(self, shape: Any, takes_anything: bool) -> None:  # noqa: ARG002
        """Return None: there is no quick reader."""
        return

    def unseen_errors(self, payloads: list[bytes]) -> dict[int, str]:  # noqa: ARG002
        """Return nothing: `read` sees all errors."""
        return {}


def document_decoder(definition: DecoderDefinition, notation: Notation) -> Decoder:
    """Return a decoder with the definition's columns, or with one of JSON text."""
    if not definition.columns:
        return TextOfDocuments(notation, definition.values_max)
    return DocumentDecoder(definition, notation)


class DocumentDecoder:
    """Decodes documents to columns."""

    def __init__(self, definition: DecoderDefinition, notation: Notation) -> None:
        self._notation = notation
        self._definition = definition
        absent = NullMarkers(frozenset(definition.null_values), definition.lenient)
        self._casts = [Cast(name, column, absent) for name, column in definition.columns.items()]
        self._width = sum(cast.width for cast in self._casts)
        self._rows_path = Path.parse(definition.rows_path).keys if definition.rows_path else ()
        paths = [
            Path.parse(column.path) if column.path else Path((name,))
            for name, column in definition.columns.items()
        ]
        self._has_rows = definition.many or bool(definition.rows_path)
        self._is_of_root = [self._has_rows and path.from_root for path in paths]
        shape = Shape(
            [
                (path.keys, notation.leaf(column))
                for path, column in zip(paths, definition.columns.values(), strict=True)
                if not (self._has_rows and path.from_root)
            ]
        )
        self._shape = shape
        self._takes_any_root = any(not path.keys for path in paths)
        self._taken = frozenset(
            path.keys[0]
            for path, of_root in zip(paths, self._is_of_root, strict=True)
            if path.keys and not of_root
        )
        self._quick = self._quick_reader()
        self._reads: list[Read] = [
            reader(path.keys) if of_root or self._quick is None else shape.reader(path.keys)
            for path, of_root in zip(paths, self._is_of_root, strict=True)
        ]
        fields = [cast.field for cast in self._casts]
        if definition.extra:
            fields.append(pa.field(definition.extra, pa.string()))
        self.schema = pa.schema(fields)

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> DecodedBatch:  # noqa: ARG002
        """Decode a batch of documents to rows."""
        values_max = self._definition.values_max
        return decode_in_portions(self.schema, payloads, self._portion, values_max)

    def _quick_reader(self) -> Callable[[bytes], Any] | None:
        needs_whole_document = self._definition.rows_path or any(self._is_of_root)
        has_extras_of_rows = self._has_rows and self._definition.extra
        if needs_whole_document or has_extras_of_rows or self._shape.struct is None:
            return None
        wanted = self._shape.struct
        return self._notation.quick_reader(
            list[wanted] if self._has_rows else wanted,  # type: ignore[valid-type]
            self._shape.takes_anything,
        )

    def _portion(self, payloads: list[bytes], rows: Rows) -> None:
        found = self._found(payloads, rows)
        rows.check_rows(len(found.sources) * self._width)
        rows.sources = found.sources
        for cast, read, of_root in zip(self._casts, self._reads, self._is_of_root, strict=True):
            if of_root:
                array, reasons = cast(list(map(read, found.roots)), rows.check_lists)
                rows.add_repeated(cast.name, array, reasons, payloads)
            else:
                rows.add(*cast(list(map(read, found.documents)), rows.check_lists))
        if self._definition.extra:
            rows.add(pa.array(found.extras, pa.string()), {})

    def _found(self, payloads: list[bytes], rows: Rows) -> _Found:
        quick = self._quick
        unseen_errors = too_large(self._notation, payloads, rows)
        if quick is not None:
            unseen_errors |= self._notation.unseen_errors(payloads)
        is_plain = not (self._has_rows or self._definition.extra or unseen_errors)
        if quick is not None and is_plain:
            with contextlib.suppress(Exception):  # one of them has to be read the slow way
                return _Found(list(map(quick, payloads)), list(range(len(payloads))))
        found = _Found()
        for source, payload in enumerate(payloads):
            if source in unseen_errors:
                rows.mark_broken(source, unseen_errors[source])
                continue
            try:
                if quick is None or (self._has_rows and not self._is_small(payload, rows)):
                    self._read(source, payload, found, rows)
                elif self._has_rows:
                    rows.check_rows(len(found.sources) * self._width)
                    found.add_rows(source, self._checked(quick(payload)))
                else:
                    document = quick(payload)
                    if self._definition.extra:
                        found.extras.append(self._left_over(self._notation.read(payload)))
                    found.add_rows(source, [document])
            except Exception:  # the slow way of reading reports the error
                try:
                    self._read(source, payload, found, rows)
                except Broken as broken:
                    rows.mark_broken(source, str(broken))
                except RecursionError:
                    rows.mark_broken(source, "The payload is nested too deeply.")
        return found

    def _is_small(self, payload: bytes, rows: Rows) -> bool:
        """Return whether Structs may be made of all rows of a payload.

        An empty object has all their fields, too.
        """
        return self._notation.rows_in(payload) * self._width <= rows.values_max

    def _read(self, source: int, payload: bytes, found: _Found, rows: Rows) -> None:
        """Read a payload: its rows, its root, and the keys of each row that no column takes."""
        root = self._notation.read(payload)
        items = self._items(root)
        if len(items) > 1:
            rows.check_message(len(items) * self._width)
            rows.check_rows((len(found.sources) + len(items)) * self._width)
        documents = [self._filled(item) for item in items]
        extras = [self._left_over(item) for item in items] if self._definition.extra else []
        found.add_rows(source, documents)
        found.extras += extras
        if items and any(self._is_of_root):
            found.roots.append(root)

    def _items(self, root: object) -> list[Any]:
        if not self._has_rows:
            return [root]
        value = follow(root, self._rows_path)
        if isinstance(value, dict):  # a single row
            return [value]
        if not isinstance(value, (list, tuple)):
            where = f"at {self._definition.rows_path}" if self._rows_path else "in the payload"
            raise Broken(f"There is {shown(value)} {where} instead of a list of rows.")
        return self._checked(list(value))

    def _checked(self, rows: list[Any]) -> list[Any]:
        if len(rows) > self._definition.rows_max:
            raise Broken(f"The payload has {len(rows)} rows, more than rows_max allows.")
        return rows

    def _filled(self, item: object) -> Any:
        is_object = isinstance(item, dict)
        if not is_object and self._shape.struct is not None:
            kind = "A row" if self._has_rows else "The payload"
            hint = " (many = true makes rows of a list)" if _is_list(item) else ""
            raise Broken(f"{kind} is {shown(item)}, and not an object{hint}.")
        if not (is_object or _is_list(item) or self._takes_any_root):
            raise Broken(f"The payload is {shown(item)}, and not a list or object.")
        return item if self._quick is None else self._shape.fill(item)

    def _left_over(self, item: object) -> str | None:
        if not isinstance(item, dict):
            return None
        left = {key: value for key, value in item.items() if str(key) not in self._taken}
        try:
            return to_json(left) if left else None
        except _NOT_TEXT:
            raise Broken("The keys that no column takes cannot be written as JSON.") from None


class TextOfDocuments:
    """Decodes documents to one column of JSON text, if the definition names no columns."""

    def __init__(self, notation: Notation, values_max: int) -> None:
        self._notation = notation
        self._values_max = values_max
        self.schema = pa.schema([("value", pa.string())])

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> DecodedBatch:  # noqa: ARG002
        """Decode a batch; each payload is a row."""
        return decode_in_portions(self.schema, payloads, self._portion, self._values_max)

    def _portion(self, payloads: list[bytes], rows: Rows) -> None:
        texts = []
        unseen_errors = too_large(self._notation, payloads, rows)
        for source, payload in enumerate(payloads):
            if source in unseen_errors:
                rows.mark_broken(source, unseen_errors[source])
                continue
            try:
                texts.append(to_json(self._notation.read(payload)))
                rows.sources.append(source)
            except Broken as broken:
                rows.mark_broken(source, str(broken))
            except RecursionError:
                rows.mark_broken(source, "The payload is nested too deeply.")
            except _NOT_TEXT:
                rows.mark_broken(source, "The payload cannot be written as JSON.")
        rows.add(pa.array(texts, pa.string()), {})


def too_large(notation: Notation, payloads: list[bytes], rows: Rows) -> dict[int, str]:
    """Return a reason, by position, for each payload with more values than allowed.

    A value takes at least a byte, so only long payloads need be counted.
    """
    values_max = rows.values_max
    if rows.longest <= values_max:
        return {}
    return {
        position: f"The payload has more values than values_max allows ({values_max})."
        for position, payload in enumerate(payloads)
        if len(payload) > values_max and notation.values_in(payload) > values_max
    }


@dataclass(slots=True)
class _Found:
    """The rows of the payloads read so far, and the message of each.

    ``roots`` has the contents of each payload that has rows, if a column needs them; ``extras`` the
    keys of each row that no column takes.
    """

    documents: list[Any] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    roots: list[object] = field(default_factory=list)
    extras: list[str | None] = field(default_factory=list)

    def add_rows(self, source: int, documents: list[Any]) -> None:
        self.documents += documents
        self.sources += [source] * len(documents)


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))
