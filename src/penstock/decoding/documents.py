"""Decodes documents of any notation to rows: json, cbor, msgpack, protobuf and avro share this.

A notation reads a payload. This module finds the rows of a document, gathers and converts the
values of each column, and marks messages with a value that does not fit as broken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.casts import Cast
from penstock.decoding.convert import to_json
from penstock.decoding.decoder import DecodedBatch, Decoder, Messages
from penstock.decoding.paths import Path, follow, path_reader
from penstock.decoding.reshaping import rows_of_keys, rows_of_lists
from penstock.decoding.rows import Rows, decode_in_portions
from penstock.decoding.scalars import NullMarkers
from penstock.decoding.shapes import Read, Shape

_ENCODING_ERRORS: Final = (ValueError, TypeError, ArithmeticError, RecursionError)


class Notation(Protocol):
    """A notation of payloads: how they are written, and how they are read."""

    def read(self, payload: bytes) -> object:
        """Return the contents of a payload as dicts, lists and single values.

        Raises:
            BrokenPayload: the payload cannot be read.
        """
        ...

    def values_in(self, payload: bytes) -> int:
        """Return an upper bound of the values in a payload, counted without building them."""
        ...

    def rows_in(self, payload: bytes) -> int:
        """Return an upper bound of the objects in a payload that is a list."""
        ...

    def leaf_type(self, column: Column) -> Any:
        """Return the msgspec type with which the quick reader reads the value of a column."""
        ...

    def quick_reader(self, shape: Any, takes_anything: bool) -> Callable[[bytes], Any] | None:
        """Return a quicker `read` that builds only values of the msgspec type ``shape``.

        None if the notation has none. The function may raise any exception; the payload is then
        read by `read`. ``takes_anything`` is true if the shape has leaves of type Any.
        """
        ...

    def unseen_errors(self, payloads: list[bytes]) -> dict[int, str]:
        """Return reasons, by position, for broken payloads that the quick reader would accept."""
        ...


class NoQuickReader:
    """Defaults for a notation without a quick reader."""

    def values_in(self, payload: bytes) -> int:  # noqa: ARG002
        """Return 0: values are counted when a payload is read, and the schema bounds them."""
        return 0

    def rows_in(self, payload: bytes) -> int:
        """Return the number of bytes, an upper bound."""
        return len(payload)

    def leaf_type(self, column: Column) -> Any:  # noqa: ARG002
        """Return Any."""
        return Any

    def quick_reader(self, shape: Any, takes_anything: bool) -> None:  # noqa: ARG002
        """Return None: there is no quick reader."""
        return

    def unseen_errors(self, payloads: list[bytes]) -> dict[int, str]:  # noqa: ARG002
        """Return {}: `read` finds all errors."""
        return {}


def document_decoder(definition: DecoderDefinition, notation: Notation) -> Decoder:
    """Return a decoder with the definition's columns; without any, with one column of JSON text."""
    if not definition.columns:
        return DocumentTextDecoder(notation, definition.values_max)
    return DocumentDecoder(definition, notation)


class DocumentDecoder:
    """Decodes documents to the columns of a definition, one row or several for each document."""

    def __init__(self, definition: DecoderDefinition, notation: Notation) -> None:
        self._notation = notation
        self._definition = definition
        null_markers = NullMarkers(frozenset(definition.null_values), definition.lenient)
        self._casts = [
            Cast(name, column, null_markers) for name, column in definition.columns.items()
        ]
        self._width = sum(cast.width for cast in self._casts)
        self._rows_path = Path.parse(definition.rows_path).keys if definition.rows_path else ()
        paths = [
            Path.parse(column.path) if column.path else Path((name,))
            for name, column in definition.columns.items()
        ]
        self._rows_of = definition.rows_of
        self._has_rows = definition.has_many_rows
        self._reads_root = [self._has_rows and path.from_root for path in paths]
        shape = Shape(
            [
                (path.keys, notation.leaf_type(column))
                for path, column in zip(paths, definition.columns.values(), strict=True)
                if not (self._has_rows and path.from_root)
            ]
        )
        self._shape = shape
        self._takes_any_root = any(not path.keys for path in paths)
        self._column_keys = frozenset(
            path.keys[0]
            for path, reads_root in zip(paths, self._reads_root, strict=True)
            if path.keys and not reads_root
        )
        self._quick_read = self._quick_reader()
        self._readers: list[Read] = [
            path_reader(path.keys)
            if reads_root or self._quick_read is None
            else shape.reader(path.keys)
            for path, reads_root in zip(paths, self._reads_root, strict=True)
        ]
        fields = [cast.field for cast in self._casts]
        if definition.extra:
            fields.append(pa.field(definition.extra, pa.string()))
        self.schema = pa.schema(fields)

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch of documents to rows."""
        values_max = self._definition.values_max
        return decode_in_portions(self.schema, messages.payloads, self._decode_portion, values_max)

    def _quick_reader(self) -> Callable[[bytes], Any] | None:
        needs_whole_document = (
            self._definition.rows_path or any(self._reads_root) or self._rows_of != "items"
        )
        has_extras_of_rows = self._has_rows and self._definition.extra
        if needs_whole_document or has_extras_of_rows or self._shape.struct is None:
            return None
        struct = self._shape.struct
        return self._notation.quick_reader(
            list[struct] if self._has_rows else struct,  # type: ignore[valid-type]
            self._shape.takes_anything,
        )

    def _decode_portion(self, payloads: list[bytes], rows: Rows) -> None:
        found = self._read_portion(payloads, rows)
        rows.check_rows(len(found.sources) * self._width)
        rows.sources = found.sources
        for cast, read, reads_root in zip(
            self._casts, self._readers, self._reads_root, strict=True
        ):
            if reads_root:
                array, reasons = cast(list(map(read, found.roots)), rows.check_lists)
                rows.add_repeated(cast.name, array, reasons, payloads)
            else:
                rows.add(*cast(list(map(read, found.documents)), rows.check_lists))
        if self._definition.extra:
            rows.add(pa.array(found.extras, pa.string()), {})

    def _read_portion(self, payloads: list[bytes], rows: Rows) -> _ReadRows:
        quick_read = self._quick_read
        unseen_errors = oversized_payloads(self._notation, payloads, rows)
        if quick_read is not None:
            unseen_errors |= self._notation.unseen_errors(payloads)
        is_plain = not (self._has_rows or self._definition.extra or unseen_errors)
        if quick_read is not None and is_plain:
            with contextlib.suppress(Exception):  # then each is read by itself, below
                return _ReadRows(list(map(quick_read, payloads)), list(range(len(payloads))))
        found = _ReadRows()
        for source, payload in enumerate(payloads):
            if source in unseen_errors:
                rows.mark_broken(source, unseen_errors[source])
                continue
            try:
                if quick_read is None or (self._has_rows and not self._is_small(payload, rows)):
                    self._read(source, payload, found, rows)
                elif self._has_rows:
                    rows.check_rows(len(found.sources) * self._width)
                    found.add_rows(source, self._check_row_count(quick_read(payload)))
                else:
                    document = quick_read(payload)
                    if self._definition.extra:
                        found.extras.append(self._extra_json(self._notation.read(payload)))
                    found.add_rows(source, [document])
            except Exception:  # `Notation.read` names the error
                try:
                    self._read(source, payload, found, rows)
                except BrokenPayload as broken:
                    if payload:  # an empty one has no rows
                        rows.mark_broken(source, str(broken))
                except RecursionError:
                    rows.mark_broken(source, "The payload is nested too deeply.")
        return found

    def _is_small(self, payload: bytes, rows: Rows) -> bool:
        """Return whether the Structs of all rows of a payload fit the limit of values.

        A Struct has all its fields even if it is made of an empty object.
        """
        return self._notation.rows_in(payload) * self._width <= rows.values_max

    def _read(self, source: int, payload: bytes, found: _ReadRows, rows: Rows) -> None:
        """Read a payload, and add its rows, its root and the extra keys of each row to
        ``found``."""
        root = self._notation.read(payload)
        items = self._row_items(root)
        if len(items) > 1:
            rows.check_message(len(items) * self._width)
            rows.check_rows((len(found.sources) + len(items)) * self._width)
        documents = [self._fill(item) for item in items]
        extras = [self._extra_json(item) for item in items] if self._definition.extra else []
        found.add_rows(source, documents)
        found.extras += extras
        if items and any(self._reads_root):
            found.roots.append(root)

    def _row_items(self, root: object) -> list[Any]:
        if not self._has_rows:
            return [root]
        value = follow(root, self._rows_path)
        if self._rows_of == "lists":
            return self._check_row_count(rows_of_lists(value, self._column_keys))
        if self._rows_of == "keys":
            return self._check_row_count(rows_of_keys(value))
        if isinstance(value, dict):  # a single row
            return [value]
        if not isinstance(value, (list, tuple)):
            where = f"at {self._definition.rows_path}" if self._rows_path else "in the payload"
            raise BrokenPayload(f"There is {abbreviate(value)} {where} instead of a list of rows.")
        return self._check_row_count(list(value))

    def _check_row_count(self, rows: list[Any]) -> list[Any]:
        if len(rows) > self._definition.rows_max:
            raise BrokenPayload(f"The payload has {len(rows)} rows, more than rows_max allows.")
        return rows

    def _fill(self, item: object) -> Any:
        is_object = isinstance(item, dict)
        if not is_object and self._shape.struct is not None:
            kind = "A row" if self._has_rows else "The payload"
            hint = " (many = true makes rows of a list)" if _is_list(item) else ""
            raise BrokenPayload(f"{kind} is {abbreviate(item)}, and not an object{hint}.")
        if not (is_object or _is_list(item) or self._takes_any_root):
            raise BrokenPayload(f"The payload is {abbreviate(item)}, and not a list or object.")
        return item if self._quick_read is None else self._shape.fill(item)

    def _extra_json(self, item: object) -> str | None:
        if not isinstance(item, dict):
            return None
        extra = {key: value for key, value in item.items() if str(key) not in self._column_keys}
        try:
            return to_json(extra) if extra else None
        except _ENCODING_ERRORS:
            raise BrokenPayload(
                "The keys that no column takes cannot be written as JSON."
            ) from None


class DocumentTextDecoder:
    """Decodes each document to a row of one column, `value`, with the document as JSON text."""

    def __init__(self, notation: Notation, values_max: int) -> None:
        self._notation = notation
        self._values_max = values_max
        self.schema = pa.schema([("value", pa.string())])

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; each payload is a row."""
        return decode_in_portions(
            self.schema, messages.payloads, self._decode_portion, self._values_max
        )

    def _decode_portion(self, payloads: list[bytes], rows: Rows) -> None:
        texts = []
        unseen_errors = oversized_payloads(self._notation, payloads, rows)
        for source, payload in enumerate(payloads):
            if source in unseen_errors:
                rows.mark_broken(source, unseen_errors[source])
                continue
            try:
                texts.append(to_json(self._notation.read(payload)))
                rows.sources.append(source)
            except BrokenPayload as broken:
                if payload:
                    rows.mark_broken(source, str(broken))
            except RecursionError:
                rows.mark_broken(source, "The payload is nested too deeply.")
            except _ENCODING_ERRORS:
                rows.mark_broken(source, "The payload cannot be written as JSON.")
        rows.add(pa.array(texts, pa.string()), {})


def oversized_payloads(notation: Notation, payloads: list[bytes], rows: Rows) -> dict[int, str]:
    """Return a reason, by position, for each payload with more values than ``rows`` allows.

    A value takes at least a byte, so only the values of long payloads are counted.
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
class _ReadRows:
    """The rows of the payloads read so far.

    Attributes:
        documents: the contents of each row.
        sources: for each row, the position of its message in the portion.
        roots: the whole contents of each payload that has rows, if a column needs them.
        extras: for each row, the keys that no column takes, as JSON text; None if there are none.
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
