"""`csv`: RFC 4180, each line of a payload is a row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.casts import Cast
from penstock.decoding.decoder import DecodedBatch, Messages
from penstock.decoding.rows import Rows, decode_in_portions
from penstock.decoding.scalars import NullMarkers
from penstock.decoding.text import TextEncoding
from penstock.errors import ConfigError

_LINE_END: Final = re.compile("\r\n|\r|\n")
_FIELD_CHARACTERS_MAX: Final = 2**27  # longer than any payload that is one field


class CsvDecoder:
    """Decodes csv to columns, by the header's names or in the order of the definition.

    A line has as many fields as there are columns, or names in the header; otherwise the payload is
    broken. Empty lines are skipped, and an empty field is null.
    """

    def __init__(self, definition: DecoderDefinition) -> None:
        self._definition = definition
        self._encoding = TextEncoding(definition.encoding)
        null_markers = NullMarkers(frozenset(definition.null_values) | {""})
        self._casts = [
            Cast(name, column, null_markers) for name, column in definition.columns.items()
        ]
        self._names = [column.path or name for name, column in definition.columns.items()]
        for name, column in definition.columns.items():
            if column.path and not definition.header:
                raise ConfigError(
                    f"The column {name} of a csv without header has a path; its columns are in"
                    " the order of the fields."
                )
        if definition.delimiter in '"\r\n':
            raise ConfigError(f"{definition.delimiter!r} cannot be the delimiter of a csv.")
        self.schema = pa.schema([cast.field for cast in self._casts])
        csv.field_size_limit(max(csv.field_size_limit(), _FIELD_CHARACTERS_MAX))

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; each line is a row."""
        return decode_in_portions(
            self.schema, messages.payloads, self._decode_portion, self._definition.values_max
        )

    def _decode_portion(self, payloads: list[bytes], rows: Rows) -> None:
        lines: list[list[Any]] = []
        for source, text in enumerate(self._encoding.decode_all(payloads, rows)):
            if text is None:
                continue
            try:
                parsed_lines = self._parse_lines(text)
                if len(parsed_lines) > 1:
                    rows.check_message(len(parsed_lines) * len(self._casts))
                    rows.check_rows((len(lines) + len(parsed_lines)) * len(self._casts))
            except BrokenPayload as broken:
                rows.mark_broken(source, str(broken))
                continue
            lines += parsed_lines
            rows.sources += [source] * len(parsed_lines)
        columns = list(zip(*lines, strict=True)) or [()] * len(self._casts)
        for cast, values in zip(self._casts, columns, strict=True):
            rows.add(*cast(list(values)))

    def _parse_lines(self, text: str) -> list[list[Any]]:
        """Return the values of each row of a payload, in the order of the columns."""
        lines: list[list[Any]] = []
        positions: list[int | None] | None = None
        width = len(self._casts)
        number = 0
        try:
            for number, fields in fields_of_lines(text, self._definition.delimiter):
                if self._definition.header and positions is None:
                    positions_by_name = {
                        name.strip(): position for position, name in enumerate(fields)
                    }
                    positions = [positions_by_name.get(name) for name in self._names]
                    width = len(fields)
                    continue
                if len(fields) != width:
                    raise BrokenPayload(
                        f"Line {number} is of {len(fields)} fields instead of {width}."
                    )
                if len(lines) == self._definition.rows_max:
                    raise BrokenPayload(
                        f"The payload has more rows than rows_max allows ({len(lines)})."
                    )
                lines.append(
                    fields
                    if positions is None
                    else [None if position is None else fields[position] for position in positions]
                )
        except csv.Error as error:
            raise BrokenPayload(f"The payload is not csv after line {number}: {error}.") from None
        return lines


def fields_of_lines(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number, from 1, and the fields of each line that is not empty.

    Raises:
        csv.Error: a quote is in a wrong place.
    """
    if '"' in text:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        for fields in reader:
            if fields:
                yield reader.line_num, fields
        return
    lines = _LINE_END.split(text) if "\r" in text else text.split("\n")
    for number, line in enumerate(lines, 1):
        if line:
            yield number, line.split(delimiter)
