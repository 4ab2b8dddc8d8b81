"""Container files of Avro as payloads: the schema in the header, then blocks of records.

::

      Obj 01 | map of metadata: avro.schema, avro.codec | sync marker, 16 bytes
             | count of records | length | compressed records | sync marker     ... block by block

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
from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.avro_schema import (
    VALUES_A_BYTE_MAX,
    VALUES_FREE_MAX,
    AvroSchema,
    parse_avro_schema,
)
from penstock.decoding.avro_values import count_avro_values
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import Decoder
from penstock.decoding.documents import DocumentDecoder, NoQuickReader
from penstock.errors import ConfigError

MAGIC: Final = b"Obj\x01"
SCHEMA_BYTES_MAX: Final = 2**18

_METADATA: Final = {"type": "map", "values": "bytes"}
_SYNC_BYTES: Final = 16
_LONG_BYTES_MAX: Final = 10
_CACHED_SCHEMAS_MAX: Final = 100
_DECOMPRESSORS: Final[dict[str, Callable[[], Any]]] = {
    "deflate": lambda: zlib.decompressobj(-15),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=2**28),
}


def container_decoder(definition: DecoderDefinition, reader_schema: AvroSchema | None) -> Decoder:
    """Return a decoder of container files.

    The decoder has the definition's columns; without any, a column for each field of the reader's
    schema; without such a schema, one column with each record as JSON text.
    """
    columns = definition.columns or (reader_schema.columns() if reader_schema is not None else {})
    columns = columns or {"value": Column(type="json", path="$")}
    notation = ContainerNotation(
        None if reader_schema is None else reader_schema.fastavro_schema,
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
        reader_schema: the schema to which records are resolved, parsed by fastavro; None to read
            them with the writer's schema alone.
        records_max: a payload with more records is broken.
        expanded_bytes_max: a payload whose blocks expand to more bytes is broken.
        values_max: a payload whose records have more values is broken.
    """

    def __init__(
        self, reader_schema: Any, records_max: int, expanded_bytes_max: int, values_max: int
    ) -> None:
        import fastavro

        self._reader_schema = reader_schema
        self._records_max = records_max
        self._expanded_bytes_max = expanded_bytes_max
        self._values_max = values_max
        self._read_schemaless = fastavro.schemaless_reader
        self._schema_cache: OrderedDict[bytes, AvroSchema] = OrderedDict()

    def read(self, payload: bytes) -> object:
        """Return the records of a payload.

        Raises:
            BrokenPayload: the payload is no whole container file, or has more values or records
                than allowed.
        """
        if not payload.startswith(MAGIC):
            raise BrokenPayload(
                "The payload is no Avro container file, which begins with Obj and 01."
            )
        stream = io.BytesIO(payload)
        stream.seek(len(MAGIC))
        metadata: Any = self._read_datum(stream, _METADATA, None)
        writer_schema = self._writer_schema(metadata.get("avro.schema", b""))
        codec = metadata.get("avro.codec", b"null").decode("latin-1")
        sync = _read_bytes(stream, _SYNC_BYTES)
        records: list[object] = []
        values = 0
        expandable_bytes = self._expanded_bytes_max
        while stream.tell() < len(payload):
            count = _read_long(stream)
            content = _decompress(codec, _read_bytes(stream, _read_long(stream)), expandable_bytes)
            expandable_bytes -= len(content)
            if _read_bytes(stream, _SYNC_BYTES) != sync:
                raise BrokenPayload("The Avro container file has a block without its sync marker.")
            if not 0 <= count <= self._records_max - len(records):
                raise BrokenPayload("The payload has more records than rows_max allows.")
            expanded = self._expanded_bytes_max - expandable_bytes
            values_bound = VALUES_A_BYTE_MAX * expanded + VALUES_FREE_MAX * (len(records) + count)
            if values_bound > self._values_max:  # fewer bytes cannot hold too many values
                values += count_avro_values(content, writer_schema, count, self._values_max)
            if values > self._values_max:
                raise BrokenPayload(
                    f"The payload has more values than values_max allows ({self._values_max})."
                )
            block = io.BytesIO(content)
            records += [
                self._read_datum(block, writer_schema.fastavro_schema, self._reader_schema)
                for _ in range(count)
            ]
            if block.tell() != len(content):
                raise BrokenPayload(
                    "The Avro container file has a block with bytes after its records."
                )
        return records

    def _read_datum(self, stream: io.BytesIO, writer_schema: Any, reader_schema: Any) -> object:
        """Read one datum; raise BrokenPayload for any error of fastavro."""
        try:
            return self._read_schemaless(stream, writer_schema, reader_schema)
        except EOFError:
            raise BrokenPayload("The Avro container file ends too early.") from None
        except (BrokenPayload, RecursionError):
            raise
        except Exception as error:  # fastavro raises many kinds
            reason = str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__
            raise BrokenPayload(f"The Avro container file cannot be read: {reason}.") from None

    def _writer_schema(self, text: bytes) -> AvroSchema:
        """Return the schema in a payload's header, parsed once for payloads with the same text."""
        schema = self._schema_cache.get(text)
        if schema is None:
            if len(text) > SCHEMA_BYTES_MAX:
                raise BrokenPayload(
                    f"The payload's Avro schema is longer than {SCHEMA_BYTES_MAX} bytes."
                )
            try:
                schema = parse_avro_schema(text, "schema in the payload", is_trusted=False)
            except ConfigError as mistake:
                raise BrokenPayload(str(mistake)) from None
            self._schema_cache[text] = schema
            if len(self._schema_cache) > _CACHED_SCHEMAS_MAX:
                self._schema_cache.popitem(last=False)
        return schema


def _read_long(stream: io.BytesIO) -> int:
    """Read an Avro long: a zigzag varint, seven bits in each byte."""
    value = 0
    for index in range(_LONG_BYTES_MAX):
        (byte,) = _read_bytes(stream, 1)
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise BrokenPayload("The Avro container file has a number of more than 64 bits.")


def _read_bytes(stream: io.BytesIO, count: int) -> bytes:
    """Read exactly ``count`` bytes; raise BrokenPayload if the stream has fewer."""
    if count < 0:
        raise BrokenPayload("The Avro container file has a block of negative length.")
    found = stream.read(count)
    if len(found) < count:
        raise BrokenPayload("The Avro container file ends too early.")
    return found


def _decompress(codec: str, content: bytes, bytes_max: int) -> bytes:
    """Decompress a block; raise BrokenPayload if it becomes more than ``bytes_max`` bytes."""
    if codec == "null":
        return content
    make_decompressor = _DECOMPRESSORS.get(codec)
    if make_decompressor is None:
        raise BrokenPayload(
            f"The Avro container file is compressed with {abbreviate(codec)}; read are null,"
            f" {', '.join(_DECOMPRESSORS)}."
        )
    decompressor = make_decompressor()
    try:
        found: bytes = decompressor.decompress(content, bytes_max + 1)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError):
        raise BrokenPayload(f"The Avro container file has a block that is no {codec}.") from None
    if len(found) > bytes_max:
        raise BrokenPayload("The payload expands to more than expanded_bytes_max allows.")
    if not decompressor.eof:
        raise BrokenPayload(f"The Avro container file has a block that is no whole {codec}.")
    return found
