"""Infers the decoder of a group of payloads, with the evidence for it.

A payload that the decoder cannot read becomes a dead letter. So the notation of most payloads is
chosen only if few payloads do not have it (`are_tolerable`); the declaration says how many would be
dead letters. Otherwise a kind is chosen that reads all payloads: JSON text, text, or plain bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.inference.column_names import UniqueNames, path_of
from penstock.decoding.inference.column_types import Guess, Settings, guess
from penstock.decoding.inference.csv_fields import CsvShape, csv_shape, lines_of
from penstock.decoding.inference.fields import (
    KEY_CHARACTERS_MAX,
    Field,
    count_unnamed_keys,
    fields_of,
    is_map,
)
from penstock.decoding.inference.parsed_payloads import DocumentKind, Form, ParsedPayload
from penstock.decoding.inference.reshapes import FoundRows, find_rows, open_texts
from penstock.decoding.inference.wrappings import Wrapping, common_wrapping
from penstock.decoding.sparkplug import SparkplugDecoder

COLUMNS_MAX: Final = 300
"""Most columns of a declaration; further fields go into the column `others` as JSON."""

_DOCUMENT_KINDS: Final[tuple[DocumentKind, ...]] = (
    *("ndjson", "json", "cbor", "msgpack", "avro"),
    *("senml", "line_protocol", "key_value", "nmea"),
)
_RESHAPED_KINDS: Final = ("json", "cbor", "msgpack")
_TOLERATED_SHARE: Final = 0.05
_ALLOWS_ONE_COUNT_MIN: Final = 4
_MAGIC_NUMBERS: Final = (
    (b"\xc3\x01", "Avro as single objects: kind = avro with its schema_file"),
    (b"\x1f\x8b", "gzip that cannot be expanded"),
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
    """A decoder's settings without its columns, the columns, and remarks for the declaration."""

    settings: Settings
    columns: tuple[InferredColumn, ...] = ()
    remarks: tuple[str, ...] = ()

    def as_settings(self) -> Settings:
        """Return the settings with the columns, as `DecoderDefinition` has them."""
        columns = {column.name: column.settings for column in self.columns}
        return {**self.settings, **({"columns": columns} if columns else {})}


def are_tolerable(misfits: int, count: int, *, allows_one: bool = False) -> bool:
    """Return whether few enough payloads do not fit a decoder.

    Args:
        misfits: the number of payloads that do not fit.
        count: the number of payloads, of which one in twenty may be a misfit.
        allows_one: a single misfit among four payloads or more is tolerable, too.
    """
    return misfits <= count * _TOLERATED_SHARE or (
        allows_one and misfits == 1 and count >= _ALLOWS_ONE_COUNT_MIN
    )


def infer_decoder(
    readings: Sequence[ParsedPayload], names: UniqueNames, value_name: str
) -> InferredDecoder:
    """Return the decoder that fits most payloads of a group, with what takes off their wrapping.

    Payloads with another wrapping than most are bytes for it.

    Args:
        readings: the payloads, parsed.
        names: gives the names of columns.
        value_name: the name of the only column, if a payload is one value.
    """
    wrappings = Counter(one.wrapping for one in readings if one.form is not Form.EMPTY)
    wrapping, count = wrappings.most_common(1)[0] if wrappings else ((), 0)
    fitting_wrappings: set[Wrapping] = {(), wrapping}
    if not are_tolerable(wrappings.total() - count, wrappings.total(), allows_one=True):
        found = common_wrapping(wrappings)
        wrapping = () if found is None else found
        fitting_wrappings = {()} if found is None else {(), *wrappings}
    fitting = [
        one if one.wrapping in fitting_wrappings else ParsedPayload(Form.BINARY, value=one.payload)
        for one in readings
    ]
    decoder = _infer_decoder(fitting, names, value_name)
    settings = {**decoder.settings, **dict(wrapping)}
    return replace(decoder, settings=settings) if wrapping else decoder


def _infer_decoder(
    readings: Sequence[ParsedPayload], names: UniqueNames, value_name: str
) -> InferredDecoder:
    """Return the decoder that fits most contents of payloads.

    Args:
        readings: the payloads, parsed.
        names: gives the names of columns.
        value_name: the name of the only column, if a payload is one value.
    """
    filled = [reading for reading in readings if reading.form is not Form.EMPTY]
    if not filled:
        return InferredDecoder({"kind": "raw"}, (), ("All payloads are empty.",))
    if all(one.form is Form.BINARY for one in filled):
        return _infer_raw([one.value for one in filled])
    for kind in _DOCUMENT_KINDS:
        fitting = [one for one in filled if one.notation == kind]
        if kind == "ndjson" and fitting:  # some of them of one line
            fitting = [
                one
                for one in filled
                if one.notation == kind or (one.notation == "json" and one.form is Form.OBJECT)
            ]
        are_documents = any(one.form is not Form.SCALAR for one in fitting)
        if are_documents and are_tolerable(
            len(filled) - len(fitting), len(filled), allows_one=True
        ):
            return _infer_documents(kind, fitting, names, value_name)
    readings_of_text = [one for one in filled if one.form in (Form.TEXT, Form.SCALAR)]
    texts = [one.value for one in readings_of_text]
    if are_tolerable(len(filled) - len(texts), len(filled), allows_one=True):
        shape = csv_shape(texts)
        return (
            _infer_text(readings_of_text, names, value_name)
            if shape is None
            else _infer_csv(readings_of_text, shape, names)
        )
    mixture = Counter(
        f"{one.form.value} in {one.notation}" if one.notation else one.form.value for one in filled
    )
    mixed = ", ".join(f"{count:,} {what}" for what, count in mixture.most_common())
    if not any(one.form is Form.BINARY or one.notation not in ("", "json") for one in filled):
        return InferredDecoder(
            {"kind": "text"},
            (InferredColumn(names.column_name((value_name,)), {"type": "string"}, "any text"),),
            (f"Kept as text, because payloads differ: {mixed}.",),
        )
    return InferredDecoder(
        {"kind": "raw"}, (), (f"Kept as bytes, because payloads differ: {mixed}.",)
    )


def infer_sparkplug_decoder(payloads: Sequence[bytes]) -> InferredDecoder | None:
    """Return a decoder of Sparkplug B if the payloads are Sparkplug B; else None.

    Payloads are judged alone: births that tell the types of data may be older than the sample.
    """
    decoder = SparkplugDecoder(DecoderDefinition(kind="sparkplug_b"))
    counts = [decoder.count_metrics(payload) for payload in payloads]
    if not are_tolerable(counts.count(None), len(payloads), allows_one=True):
        return None
    rows = sum(max(1, count) for count in counts if count is not None)
    return InferredDecoder({"kind": "sparkplug_b"}, (), (f"A row for each metric: {rows:,} rows.",))


def _infer_raw(payloads: Sequence[bytes]) -> InferredDecoder:
    for magic, what in _MAGIC_NUMBERS:
        if all(payload.startswith(magic) for payload in payloads):
            return InferredDecoder({"kind": "raw"}, (), (f"Bytes, {what}.",))
    remark = "Bytes of an unknown kind; Protobuf and Avro need their schema in the declaration."
    return InferredDecoder({"kind": "raw"}, (), (remark,))


def _infer_documents(
    kind: DocumentKind, readings: Sequence[ParsedPayload], names: UniqueNames, value_name: str
) -> InferredDecoder:
    if kind == "senml":
        rows = sum(len(one.objects) for one in readings)
        return InferredDecoder({"kind": kind}, (), (f"A row for each record: {rows:,} rows.",))
    with_rows = [one for one in readings if one.form in (Form.OBJECT, Form.ROWS)]
    objects = [item for one in with_rows for item in one.objects]
    times_us = [one.received_at_us for one in with_rows for _ in one.objects]
    if are_tolerable(len(readings) - len(with_rows), len(readings)) and any(objects):
        has_many = any(one.form is Form.ROWS for one in with_rows)
        reshapes = kind in _RESHAPED_KINDS and not any(one.is_lenient for one in with_rows)
        found_rows = find_rows(objects) if reshapes and not has_many else None
        if found_rows is not None:
            return _infer_reshaped(kind, found_rows, times_us, names)
        if is_map(objects):
            column = _whole_document_column(names, value_name, objects, times_us)
            return InferredDecoder(_document_settings(kind, has_many=has_many), (column,))
        lenient = sum(one.is_lenient for one in with_rows)
        texts, opened = open_texts(objects) if reshapes else ([], objects)
        found = list(fields_of(opened, times_us))
        decoder = _infer_objects(
            kind, opened, found, names, has_many=has_many, lenient=bool(lenient)
        )
        if not texts:
            return decoder
        paths = {"json_texts": [path_of(keys) for keys in texts]}
        return replace(decoder, settings={**decoder.settings, **paths})
    values = [_document_value(one) for one in readings]
    if not any(isinstance(value, (dict, list, tuple)) for value in values):
        times_us = [one.received_at_us for one in readings]
        column = _whole_document_column(names, value_name, values, times_us)
        return InferredDecoder({"kind": kind}, (column,))
    mixture = Counter(
        "lists" if isinstance(v, (list, tuple)) else "objects" if isinstance(v, dict) else "values"
        for v in values
    )
    mixed = ", ".join(f"{count:,} {what}" for what, count in mixture.most_common())
    return InferredDecoder({"kind": kind}, (), (f"Kept as JSON text: payloads are {mixed}.",))


def _infer_reshaped(
    kind: DocumentKind, found: FoundRows, times_us: Sequence[int], names: UniqueNames
) -> InferredDecoder:
    """Return the decoder of objects whose rows are in lists, or under keys."""
    rows = [row for part in found.rows for row in part]
    row_times_us = [
        time_us for part, time_us in zip(found.rows, times_us, strict=True) for _ in part
    ]
    columns = []
    for field in fields_of(rows, row_times_us):
        keys = field.keys[1:] if found.rows_of == "keys" and len(field.keys) > 1 else field.keys
        columns.append(_column_at(names, field, keys, len(rows), path_of(field.keys)))
    for field in fields_of(found.remaining, times_us):
        path = f"$.{path_of(field.keys)}"
        columns.append(_column_at(names, field, field.keys, len(found.remaining), path))
    settings: Settings = {"kind": kind, "rows_of": found.rows_of}
    if found.path:
        settings["rows_path"] = path_of(found.path)
    return InferredDecoder(settings, tuple(columns), (found.remark,))


def _column_at(
    names: UniqueNames, field: Field, keys: tuple[str, ...], rows: int, path: str
) -> InferredColumn:
    """Return the column of a field under the name of ``keys``."""
    one = guess(keys[-1], field.values, rows, all_is_text=False, times_us=field.times_us)
    name = names.column_name(keys)
    settings = dict(one.settings) if name == path else {**one.settings, "path": path}
    return InferredColumn(name, settings, ", ".join(filter(None, (one.evidence, field.note))))


def _infer_objects(
    kind: DocumentKind,
    objects: Sequence[dict[Any, Any]],
    found: Sequence[Field],
    names: UniqueNames,
    *,
    has_many: bool,
    lenient: bool,
) -> InferredDecoder:
    declared, extra = found, {}
    remarks: tuple[str, ...] = ()
    unnamed = count_unnamed_keys(objects)
    if len(found) > COLUMNS_MAX or unnamed:
        extra = {"extra": names.column_name(("others",))}
    if len(found) > COLUMNS_MAX:
        frequent = sorted(found, key=lambda field: -len(field.values))[:COLUMNS_MAX]
        declared = [field for field in found if field in frequent]
        remarks = (f"The {len(found) - COLUMNS_MAX:,} rarest fields are in {extra['extra']}.",)
    if unnamed:
        what = f"{unnamed:,} keys of more than {KEY_CHARACTERS_MAX} characters, or of no text,"
        remarks += (f"{what} are in {extra['extra']}.",)
    columns = tuple(
        _column(
            names,
            field,
            guess(
                field.keys[-1],
                field.values,
                len(objects),
                all_is_text=kind in ("key_value", "nmea"),
                lenient=lenient,
                times_us=field.times_us,
            ),
        )
        for field in declared
    )
    settings = {**_document_settings(kind, has_many=has_many, lenient=lenient), **extra}
    return InferredDecoder(settings, columns, remarks)


def _infer_csv(
    readings: Sequence[ParsedPayload], shape: CsvShape, names: UniqueNames
) -> InferredDecoder:
    rows = [
        (line, one.received_at_us)
        for one in readings
        for line in lines_of(one.value, shape.delimiter)[bool(shape.header) :]
        if len(line) == shape.width
    ]
    titles = shape.header or tuple(f"field_{place}" for place in range(1, shape.width + 1))
    fields = [
        Field(
            (title,),
            [line[place] for line, _ in rows if line[place]],
            [time_us for line, time_us in rows if line[place]],
        )
        for place, title in enumerate(titles)
    ]
    columns = tuple(
        _column(
            names,
            field,
            guess(
                field.keys[0], field.values, len(rows), all_is_text=True, times_us=field.times_us
            ),
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
        remarks += ("The lines have no header: rename the columns, and keep their order.",)
    return InferredDecoder(settings, columns, remarks)


def _infer_text(
    readings: Sequence[ParsedPayload], names: UniqueNames, value_name: str
) -> InferredDecoder:
    found = [(text, one.received_at_us) for one in readings if (text := one.value.strip())]
    texts, times_us = [text for text, _ in found], [time_us for _, time_us in found]
    one = guess(value_name, texts, len(readings), all_is_text=True, times_us=times_us)
    column = InferredColumn(names.column_name((value_name,)), one.settings, one.evidence)
    return InferredDecoder({"kind": "text"}, (column,))


def _whole_document_column(
    names: UniqueNames, value_name: str, values: Sequence[Any], times_us: Sequence[int]
) -> InferredColumn:
    """Return the column for documents that are one value each, or objects whose keys are data."""
    found = [pair for pair in zip(values, times_us, strict=True) if pair[0] is not None]
    present, times = [value for value, _ in found], [time_us for _, time_us in found]
    one = guess(value_name, present, len(values), all_is_text=False, times_us=times)
    return InferredColumn(
        names.column_name((value_name,)), {**one.settings, "path": "$"}, one.evidence
    )


def _column(
    names: UniqueNames, field: Field, one: Guess, *, has_path: bool = True, is_csv: bool = False
) -> InferredColumn:
    name = names.column_name(field.keys)
    path = field.keys[0] if is_csv else path_of(field.keys)
    is_plain = len(field.keys) == 1 and name == field.keys[0]
    settings = dict(one.settings)
    if has_path and not is_plain:
        settings["path"] = path
    return InferredColumn(name, settings, ", ".join(filter(None, (one.evidence, field.note))))


def _document_settings(kind: DocumentKind, *, has_many: bool, lenient: bool = False) -> Settings:
    if kind == "avro":
        return {"kind": kind, "framing": "container"}
    return {
        "kind": kind,
        **({"many": True} if has_many and kind in ("json", "cbor", "msgpack") else {}),
        **({"lenient": True} if lenient else {}),
    }


def _document_value(reading: ParsedPayload) -> Any:
    return msgspec.json.decode(reading.value) if reading.form is Form.SCALAR else reading.value
