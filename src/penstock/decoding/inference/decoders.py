"""Infers the decoder of a group of payloads, with the evidence for it.

A payload that the decoder cannot read becomes a dead letter. So the notation of most payloads is
taken only if few others are among them (`tolerated`): the declaration says how many would be dead
letters. Otherwise a notation is taken that reads them all: JSON text, text, or plain bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.inference.column_names import Names, path_of
from penstock.decoding.inference.column_types import Guess, Settings, guess
from penstock.decoding.inference.csv_fields import CsvShape, csv_shape, lines_of
from penstock.decoding.inference.fields import Field, fields_of, is_map
from penstock.decoding.inference.readings import DocumentKind, Form, ParsedPayload
from penstock.decoding.sparkplug import SparkplugDecoder

COLUMNS_MAX: Final = 300
"""Most columns that are declared; the other fields go into the column `others` as JSON."""

_TOLERATED_SHARE: Final = 0.05
_ONE_IN: Final = 4
_MAGIC: Final = (
    (b"\xc3\x01", "Avro as single objects: kind = avro with its schema_file"),
    (b"\x1f\x8b", "gzip, which no decoder expands"),
    (b"\x00", "perhaps of a schema registry (a zero byte, then the schema's id)"),
)


@dataclass(frozen=True, slots=True)
class InferredColumn:
    """A column's settings as a declaration has them, and the evidence for them."""

    name: str
    settings: Settings
    evidence: str


@dataclass(frozen=True, slots=True)
class InferredDecoder:
    """A decoder's settings without its columns, the columns, and remarks in plain sentences."""

    settings: Settings
    columns: tuple[InferredColumn, ...] = ()
    remarks: tuple[str, ...] = ()

    def as_settings(self) -> Settings:
        """Return all of it, as `DecoderDefinition` takes it."""
        columns = {column.name: column.settings for column in self.columns}
        return {**self.settings, **({"columns": columns} if columns else {})}


def tolerated(misfits: int, count: int, *, of_small_logs: bool = False) -> bool:
    """Return whether few enough of `count` do not fit: one in twenty; of a small log, one."""
    return misfits <= count * _TOLERATED_SHARE or (
        of_small_logs and misfits == 1 and count >= _ONE_IN
    )


def decoder_of(readings: Sequence[ParsedPayload], names: Names, value_name: str) -> InferredDecoder:
    """Return the decoder for payloads.

    Args:
        readings: the readings of all payloads.
        names: gives the names of columns.
        value_name: the name of the only column, if a payload is one value.
    """
    filled = [reading for reading in readings if reading.form is not Form.EMPTY]
    if not filled:
        return InferredDecoder({"kind": "raw"}, (), ("All payloads are empty.",))
    if all(one.form is Form.BINARY for one in filled):
        return _raw([one.value for one in filled])
    kinds: tuple[DocumentKind, ...] = ("json", "cbor", "msgpack", "avro")
    for kind in kinds:
        fitting = [one for one in filled if one.notation == kind]
        are_documents = any(one.form is not Form.SCALAR for one in fitting)
        if are_documents and tolerated(len(filled) - len(fitting), len(filled), of_small_logs=True):
            return _of_documents(kind, fitting, names, value_name)
    texts = [one.value for one in filled if one.form in (Form.TEXT, Form.SCALAR)]
    if tolerated(len(filled) - len(texts), len(filled), of_small_logs=True):
        shape = csv_shape(texts)
        return _of_text(texts, names, value_name) if shape is None else _of_csv(texts, shape, names)
    mixture = Counter(
        f"{one.form.value} in {one.notation}" if one.notation else one.form.value for one in filled
    )
    mixed = ", ".join(f"{count:,} {what}" for what, count in mixture.most_common())
    if not any(one.form is Form.BINARY or one.notation not in ("", "json") for one in filled):
        return InferredDecoder(
            {"kind": "text"},
            (InferredColumn(names.column((value_name,)), {"type": "string"}, "any text"),),
            (f"Kept as text, for payloads differ: {mixed}.",),
        )
    return InferredDecoder({"kind": "raw"}, (), (f"Kept as bytes, for payloads differ: {mixed}.",))


def sparkplug_decoder(payloads: Sequence[bytes]) -> InferredDecoder | None:
    """Return a decoder of Sparkplug B if these payloads are that; else None."""
    decoder = SparkplugDecoder(DecoderDefinition(kind="sparkplug_b"))
    array = pa.array(payloads, pa.binary())
    decoded = decoder.decode(array, pa.array([""] * len(payloads)))
    if not tolerated(len(decoded.broken), len(payloads), of_small_logs=True):
        return None
    return InferredDecoder(
        {"kind": "sparkplug_b"}, (), (f"A row for each metric: {decoded.rows.num_rows:,} rows.",)
    )


def _raw(payloads: Sequence[bytes]) -> InferredDecoder:
    for magic, what in _MAGIC:
        if all(payload.startswith(magic) for payload in payloads):
            return InferredDecoder({"kind": "raw"}, (), (f"Bytes, {what}.",))
    remark = "Bytes of no kind that tells itself; for Protobuf and Avro name their schema."
    return InferredDecoder({"kind": "raw"}, (), (remark,))


def _of_documents(
    kind: DocumentKind, readings: Sequence[ParsedPayload], names: Names, value_name: str
) -> InferredDecoder:
    with_rows = [one for one in readings if one.form in (Form.OBJECT, Form.ROWS)]
    objects = [item for one in with_rows for item in one.objects]
    if tolerated(len(readings) - len(with_rows), len(readings)) and any(objects):
        has_many = any(one.form is Form.ROWS for one in with_rows)
        if is_map(objects):
            column = _whole(names, value_name, objects)
            return InferredDecoder(_document(kind, has_many=has_many), (column,))
        lenient = sum(one.is_lenient for one in with_rows)
        return _of_objects(kind, objects, names, has_many=has_many, lenient=bool(lenient))
    values = [_value(one) for one in readings]
    if not any(isinstance(value, (dict, list, tuple)) for value in values):
        return InferredDecoder({"kind": kind}, (_whole(names, value_name, values),))
    mixture = Counter(
        "lists" if isinstance(v, (list, tuple)) else "objects" if isinstance(v, dict) else "values"
        for v in values
    )
    mixed = ", ".join(f"{count:,} {what}" for what, count in mixture.most_common())
    return InferredDecoder({"kind": kind}, (), (f"Kept as JSON text: payloads are {mixed}.",))


def _of_objects(
    kind: DocumentKind,
    objects: Sequence[dict[Any, Any]],
    names: Names,
    *,
    has_many: bool,
    lenient: bool,
) -> InferredDecoder:
    found = list(fields_of(objects))
    kept, extra = found, {}
    remarks: tuple[str, ...] = ()
    if len(found) > COLUMNS_MAX:
        frequent = sorted(found, key=lambda field: -len(field.values))[:COLUMNS_MAX]
        kept = [field for field in found if field in frequent]
        extra = {"extra": names.column(("others",))}
        remarks = (f"The {len(found) - COLUMNS_MAX:,} rarest fields are in {extra['extra']}.",)
    columns = tuple(
        _column(
            names,
            field,
            guess(field.keys[-1], field.values, len(objects), all_is_text=False, lenient=lenient),
        )
        for field in kept
    )
    settings = {**_document(kind, has_many=has_many, lenient=lenient), **extra}
    return InferredDecoder(settings, columns, remarks)


def _of_csv(texts: Sequence[str], shape: CsvShape, names: Names) -> InferredDecoder:
    rows = [
        line
        for text in texts
        for line in lines_of(text, shape.delimiter)[bool(shape.header) :]
        if len(line) == shape.width
    ]
    titles = shape.header or tuple(f"field_{place}" for place in range(1, shape.width + 1))
    fields = [
        Field((title,), [line[place] for line in rows if line[place]])
        for place, title in enumerate(titles)
    ]
    columns = tuple(
        _column(
            names,
            field,
            guess(field.keys[0], field.values, len(rows), all_is_text=True),
            has_path=bool(shape.header),
            is_csv=True,
        )
        for field in fields
    )
    delimiter = {"delimiter": shape.delimiter} if shape.delimiter != "," else {}
    header = {"header": True} if shape.header else {}
    settings = {"kind": "csv", **delimiter, **header}
    remarks: tuple[str, ...] = (f"{len(rows):,} lines.",)
    if not shape.header:
        remarks += ("The lines name no fields: call the columns what they are, in this order.",)
    return InferredDecoder(settings, columns, remarks)


def _of_text(texts: Sequence[str], names: Names, value_name: str) -> InferredDecoder:
    stripped = [text.strip() for text in texts]
    one = guess(value_name, [text for text in stripped if text], len(texts), all_is_text=True)
    column = InferredColumn(names.column((value_name,)), one.settings, one.evidence)
    return InferredDecoder({"kind": "text"}, (column,))


def _whole(names: Names, value_name: str, values: Sequence[Any]) -> InferredColumn:
    """Return the column of a document that is one value."""
    one = guess(value_name, _present(values), len(values), all_is_text=False)
    return InferredColumn(names.column((value_name,)), {**one.settings, "path": "$"}, one.evidence)


def _column(
    names: Names, field: Field, one: Guess, *, has_path: bool = True, is_csv: bool = False
) -> InferredColumn:
    name = names.column(field.keys)
    path = field.keys[0] if is_csv else path_of(field.keys)
    is_plain = len(field.keys) == 1 and name == field.keys[0]
    settings = dict(one.settings)
    if has_path and not is_plain:
        settings["path"] = path
    return InferredColumn(name, settings, ", ".join(filter(None, (one.evidence, field.note))))


def _document(kind: DocumentKind, *, has_many: bool, lenient: bool = False) -> Settings:
    if kind == "avro":
        return {"kind": kind, "framing": "container"}
    return {
        "kind": kind,
        **({"many": True} if has_many else {}),
        **({"lenient": True} if lenient else {}),
    }


def _present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _value(reading: ParsedPayload) -> Any:
    return msgspec.json.decode(reading.value) if reading.form is Form.SCALAR else reading.value
