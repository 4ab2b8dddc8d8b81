"""`text`: the payload is one value in text, such as `21.5` or `online`."""

from __future__ import annotations

import pyarrow as pa

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.casts import Cast
from penstock.decoding.decoder import DecodedBatch, Messages
from penstock.decoding.rows import Rows, decode_in_portions
from penstock.decoding.scalars import NullMarkers
from penstock.decoding.unwrapping import find_codec

_BOM = "\ufeff"


class TextDecoder:
    """Decodes each payload to a row of one column, of any type to which text can be converted.

    The column is `value` unless the definition names another.
    """

    def __init__(self, definition: DecoderDefinition) -> None:
        name, column = next(iter(definition.columns.items()), ("value", Column(type="string")))
        self._encoding = TextEncoding(definition.encoding)
        self._cast = Cast(name, column, NullMarkers(frozenset(definition.null_values)))
        self._is_text = column.type == "string"
        self.schema = pa.schema([self._cast.field])

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; each payload is a row."""
        return decode_in_portions(self.schema, messages.payloads, self._decode_portion)

    def _decode_portion(self, payloads: list[bytes], rows: Rows) -> None:
        texts = self._encoding.decode_all(payloads, rows)
        rows.sources = [source for source, text in enumerate(texts) if text is not None]
        values: list[str | None] = [text for text in texts if text is not None]
        if not self._is_text:  # such as "21.5\n"; an empty payload is null
            values = [text.strip() or None if text else None for text in values]
        rows.add(*self._cast(values))


class TextEncoding:
    """Decodes payloads as text in one encoding.

    Raises:
        ConfigError: there is no encoding of this name.
    """

    def __init__(self, encoding: str) -> None:
        self._codec = find_codec(encoding)
        self._label = "UTF-8" if self._codec == "utf-8" else encoding

    def decode_all(self, payloads: list[bytes], rows: Rows) -> list[str | None]:
        """Return the text of each payload without a byte order mark; None for a broken payload.

        Payloads that are not text of this encoding are marked as broken in ``rows``.
        """
        texts: list[str | None] = []
        for source, payload in enumerate(payloads):
            try:
                texts.append(payload.decode(self._codec).removeprefix(_BOM))
            except UnicodeError as error:
                texts.append(None)
                where = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
                rows.mark_broken(source, f"The payload is not {self._label}{where}.")
        return texts
