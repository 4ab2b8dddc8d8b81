"""`raw`: the payload as it is."""

from __future__ import annotations

import pyarrow as pa

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.decoded import DecodedBatch


class RawDecoder:
    """Decodes to one binary column, `value` unless the definition names it. Nothing is broken."""

    def __init__(self, definition: DecoderDefinition) -> None:
        name = next(iter(definition.columns), "value")
        self.schema = pa.schema([(name, pa.binary())])

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> DecodedBatch:  # noqa: ARG002
        """Decode a batch; each payload is a row."""
        every = pa.arange(0, len(payloads))
        rows = pa.Table.from_arrays([payloads], schema=self.schema)
        return DecodedBatch(rows, every, pa.array([], pa.int64()), pa.array([], pa.string()))
