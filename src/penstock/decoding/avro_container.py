"""Container files of Avro as payloads: the schema in the header, then blocks of records.

::

      Obj 01 | map of metadata: avro.schema, avro.codec | 16 bytes of sync
             | count | length | that many bytes, compressed | sync        ... again and again

(Avro 1.12, Object Container Files.) Each record is a row. The schema comes with the payload, so its
size when expanded is bounded (`avro_schema.py`), as is the size of an expanded block.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.avro_schema import (
    VALUES_A_BYTE_MAX,
    VALUES_FREE_MAX,
    AvroSchema,
    parse_avro_schema,
)
from penstock.decoding.avro_values import count_avro_values
from penstock.decoding.broken import Broken
from penstock.decoding.decoded import Decoder
from penstock.decoding.documents import DocumentDecoder, NoQuickReader
from penstock.decoding.shown import shown
from penstock.errors import ConfigError

MAGIC: Final = b"Obj\x01"
SCHEMA_BYTES_MAX: Final = 2**18

_METADATA: Final = {"type": "map", "values": "bytes"}
_SYNC_BYTES: Final = 16
_LONG_BYTES_MAX: Final = 10
_SCHEMAS_KNOWN_MAX: Final = 100
_EXPANDERS: Final[dict[str, Callable[[], Any]]] = {
    "deflate": lambda: zlib.decompressobj(-15),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=2**28),
}


def container_decoder(definition: DecoderDefinition, reader: AvroSchema | None) -> Decoder:
    """Return a decoder of container files.

    It has the definition's columns, or one for each field of the reader's schema, or one of JSON
    text for each record.
    """
    columns = definition.columns or (reader.columns() if reader is not None else {})
    columns = columns or {"value": Column(type="json", path="$")}
    notation = ContainerNotation(
        None if reader is None else reader.parsed,
        definition.rows_max,
        definition.expanded_bytes_max,
        definition.values_max,
    )
    return DocumentDecoder(
        definition.model_copy(update={"columns": columns, "many": True}), notation
    )


class ContainerNotation(NoQuickReader):
    """Reads container files to lists of their records.

    Args:
        reader: the schema to which records are resolved, as fastavro has it; None for their own.
        records_max: a payload with more records is broken.
        expanded_bytes_max: a payload whose blocks expand to more bytes is broken.
        values_max: a payload whose records have more values is broken.
    """

    def __init__(
        self, reader: Any, records_max: int, expanded_bytes_max: int, values_max: int
    ) -> None:
        import fastavro

        self._reader = reader
        self._records_max = records_max
        self._expanded_bytes_max = expanded_bytes_max
        self._values_max = values_max
        self._read = fastavro.schemaless_reader
        self._known: OrderedDict[bytes, AvroSchema] = OrderedDict()

    def read(self, payload: bytes) -> object:
        """Return the records of a payload."""
        if not payload.startswith(MAGIC):
            raise Broken("The payload is no Avro container file, which begins with Obj and 01.")
        stream = io.BytesIO(payload)
        stream.seek(len(MAGIC))
        metadata: Any = self._datum(stream, _METADATA, None)
        written = self._schema(metadata.get("avro.schema", b""))
        codec = metadata.get("avro.codec", b"null").decode("latin-1")
        sync = _take(stream, _SYNC_BYTES)
        records: list[object] = []
        values = 0
        left = self._expanded_bytes_max
        while stream.tell() < len(payload):
            count = _long(stream)
            content = _expand(codec, _take(stream, _long(stream)), left)
            left -= len(content)
            if _take(stream, _SYNC_BYTES) != sync:
                raise Broken("The Avro container file has a block without its sync marker.")
            if not 0 <= count <= self._records_max - len(records):
                raise Broken("The payload has more records than rows_max allows.")
            expanded = self._expanded_bytes_max - left
            most = VALUES_A_BYTE_MAX * expanded + VALUES_FREE_MAX * (len(records) + count)
            if most > self._values_max:  # short data need not be counted
                values += count_avro_values(content, written, count, self._values_max)
            if values > self._values_max:
                raise Broken(
                    f"The payload has more values than values_max allows ({self._values_max})."
                )
            block = io.BytesIO(content)
            records += [self._datum(block, written.parsed, self._reader) for _ in range(count)]
            if block.tell() != len(content):
                raise Broken("The Avro container file has a block with bytes after its records.")
        return records

    def _datum(self, stream: io.BytesIO, written: Any, reader: Any) -> object:
        try:
            return self._read(stream, written, reader)
        except EOFError:
            raise Broken("The Avro container file ends too early.") from None
        except (Broken, RecursionError):
            raise
        except Exception as error:  # fastavro raises many kinds
            reason = str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__
            raise Broken(f"The Avro container file cannot be read: {reason}.") from None

    def _schema(self, text: bytes) -> AvroSchema:
        known = self._known.get(text)
        if known is None:
            if len(text) > SCHEMA_BYTES_MAX:
                raise Broken(f"The payload's Avro schema is longer than {SCHEMA_BYTES_MAX} bytes.")
            try:
                known = parse_avro_schema(text, "schema in the payload", is_trusted=False)
            except ConfigError as mistake:
                raise Broken(str(mistake)) from None
            self._known[text] = known
            if len(self._known) > _SCHEMAS_KNOWN_MAX:
                self._known.popitem(last=False)
        return known


def _long(stream: io.BytesIO) -> int:
    """Read a whole number as Avro writes it: seven bits a byte, zigzag."""
    value = 0
    for place in range(_LONG_BYTES_MAX):
        (byte,) = _take(stream, 1)
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise Broken("The Avro container file has a number of more than 64 bits.")


def _take(stream: io.BytesIO, count: int) -> bytes:
    if count < 0:
        raise Broken("The Avro container file has a block of negative length.")
    found = stream.read(count)
    if len(found) < count:
        raise Broken("The Avro container file ends too early.")
    return found


def _expand(codec: str, content: bytes, bytes_max: int) -> bytes:
    if codec == "null":
        return content
    expander = _EXPANDERS.get(codec)
    if expander is None:
        raise Broken(
            f"The Avro container file is compressed with {shown(codec)}; read are null,"
            f" {', '.join(_EXPANDERS)}."
        )
    expanding = expander()
    try:
        found: bytes = expanding.decompress(content, bytes_max + 1)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError):
        raise Broken(f"The Avro container file has a block that is no {codec}.") from None
    if len(found) > bytes_max:
        raise Broken("The payload expands to more than expanded_bytes_max allows.")
    if not expanding.eof:
        raise Broken(f"The Avro container file has a block that is no whole {codec}.")
    return found
